//! Every table, at every width.

use std::path::Path;

use super::{WIDTHS, compare, recorded, shown};
use crate::support::terminal::Screen;

/// A command that prints columns, and what of it has to be whole.
struct Table {
    name: &'static str,
    arguments: Vec<String>,
    code: i32,
    /// Ids and deadlines that must be there at every width.
    whole: Vec<String>,
}

fn table(name: &'static str, arguments: &str, code: i32, whole: &[&str]) -> Table {
    let known = |word: &str| match word.strip_prefix('@') {
        Some(run) => recorded::id(run),
        None => word.to_owned(),
    };
    Table {
        name,
        arguments: arguments.split(' ').map(known).collect(),
        code,
        whole: whole.iter().map(|word| known(word)).collect(),
    }
}

fn tables() -> Vec<Table> {
    let all = [
        "@intake", "@other", "@failed", "@asked", "@decided", "@review",
    ];
    let deadline = "2100-01-03";
    vec![
        table("runs", "runs", 0, &all),
        table("runs-get", "runs get @intake", 0, &["@intake"]),
        table("runs-get-failed", "runs get @failed", 0, &["@failed"]),
        table("approvals", "approvals", 0, &["@asked", deadline]),
        table(
            "approvals-all",
            "approvals --all",
            0,
            &["@asked", "@decided", deadline],
        ),
        table("reviews", "approvals --reviews", 0, &["@review"]),
        table("trace", "trace @intake", 0, &["@intake"]),
        table("trace-frames", "trace @intake --frames", 0, &[]),
        table("trace-frame", "trace @intake 20", 0, &[]),
        table("trace-of", "trace @intake --of output.answers", 0, &[]),
        table("trace-why-not", "trace @intake --why-not never", 0, &[]),
        table("frames", "frames @failed", 0, &[]),
        table("diff", "diff @intake @other", 1, &["@intake", "@other"]),
        table(
            "replay",
            "replay @intake @other @review",
            0,
            &["@intake", "@other", "@review"],
        ),
        table(
            "workflow-tree",
            "workflow tree kit/workflows/triage.workflow.yaml",
            0,
            &[],
        ),
        table("init", "init demo", 0, &[]),
        table("test", "test kept/baselines --kit kept", 1, &[]),
    ]
}

/// A folder with the ledger, and with a kit.
fn desk() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join(".ktsu")).unwrap();
    recorded::ledger(&dir.path().join(".ktsu/ledger.db"));
    let kit = Path::new(env!("CARGO_MANIFEST_DIR")).join("kits/triage");
    std::os::unix::fs::symlink(kit, dir.path().join("kit")).unwrap();
    kept(dir.path());
    dir
}

/// A kit whose agent answers otherwise than its baseline says.
fn kept(dir: &Path) {
    let made = super::command(dir, &["init", "kept"]).output().unwrap();
    assert!(made.status.success());
    let path = dir.join("kept/scripted/replies.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    let other = text.replace(
        "sorry for the trouble",
        "we are very sorry for all of this trouble",
    );
    assert_ne!(other, text);
    std::fs::write(&path, &other).unwrap();
}

#[track_caller]
fn show(desk: &Path, table: &Table, columns: u16, locale: &str) -> Screen {
    // It makes a folder, which must not be there.
    let _ = std::fs::remove_dir_all(desk.join("demo"));
    let arguments: Vec<&str> = table.arguments.iter().map(String::as_str).collect();
    let (code, screen) = shown(desk, &arguments, columns, locale);
    assert_eq!(code, table.code, "{}:\n{}", table.name, screen.text());
    screen
}

#[test]
fn every_table_looks_as_it_is_kept_at_every_width() {
    let desk = desk();
    for table in tables() {
        for columns in WIDTHS {
            let screen = show(desk.path(), &table, columns, "C.UTF-8");
            compare(table.name, columns, &screen);
        }
    }
}

/// What is never cut may be wider than a terminal: values people decide on, words that say why.
fn may_wrap(line: &str) -> bool {
    ["  {\"", "  ktsu ", "error", "    ktsu ", "not covered:"]
        .iter()
        .any(|start| line.starts_with(start))
        || line.contains(": {")
}

#[test]
fn no_table_is_wider_than_the_terminal_and_ids_and_deadlines_are_whole() {
    let desk = desk();
    for table in tables() {
        for columns in [60, 67, 80, 99, 100, 113, 140, 200] {
            let screen = show(desk.path(), &table, columns, "C.UTF-8");
            let mut wider = screen.wrapped.iter().filter(|line| !may_wrap(line));
            assert_eq!(wider.next(), None, "{} at {columns}", table.name);
            for word in &table.whole {
                let found = screen.lines.iter().any(|line| line.contains(word));
                assert!(
                    found,
                    "{} at {columns} cuts {word}\n{}",
                    table.name,
                    screen.text()
                );
            }
        }
    }
}

#[test]
fn where_the_locale_is_not_utf8_every_symbol_is_ascii() {
    let desk = desk();
    // Data is shown as it is.
    let data = ["日本語の請求書"];
    for table in tables() {
        for columns in WIDTHS {
            for locale in ["C", "", "de_DE.ISO-8859-1"] {
                let text = show(desk.path(), &table, columns, locale).text();
                let ours = data.iter().fold(text, |text, data| text.replace(data, ""));
                // A piece of it at the end of a line.
                let ours: String = ours
                    .chars()
                    .filter(|one| !"日本語の請求書".contains(*one))
                    .collect();
                assert!(ours.is_ascii(), "{} at {columns}:\n{ours}", table.name);
            }
        }
    }
}

#[test]
fn a_pipe_gets_everything_whole_and_in_utf8() {
    let desk = desk();
    let long = "schema_violation";
    for columns in ["20", "200"] {
        let mut runs = super::command(desk.path(), &["runs"]);
        let output = runs
            .env("LC_ALL", "C")
            .env("COLUMNS", columns)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            text.contains("reconciliation-of-supplier-invoices"),
            "{text}"
        );
        assert!(text.contains(long) && !text.contains("..."), "{text}");
        let mut trace = super::command(desk.path(), &["trace", &recorded::id("intake")]);
        let output = trace
            .env("LC_ALL", "C")
            .env("COLUMNS", columns)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("summarise-everything-that-came-in"), "{text}");
        assert!(text.contains("├─ ") && !text.contains('…'), "{text}");
    }
}
