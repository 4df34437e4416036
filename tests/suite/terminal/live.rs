//! A run while it goes, on terminals of several widths. Models answer when the test lets them.

use std::process::Command;

use serde_json::json;

use super::{WIDTHS, command, compare, masked};
use crate::support::KitDir;
use crate::support::model::{self, KEY, Model, Said};
use crate::support::terminal::{Screen, Terminal};

const FLOW: &str = r#"
params: {schema: {type: object, required: [list], properties: {list: {type: array}}}}
pipeline:
  - {id: plan, transform: {inputs: [{from: params.list}], ops: []}}
  - {id: classify, depends_on: [plan], agent: ./agents/echo.agent.yaml, for_each: {from: params.list, concurrency: 1, max_failures: -1}, params: {msg: "{{ item }}"}}
  - {id: digest, depends_on: [classify], workflow: ./part.workflow.yaml}
  - {id: never, depends_on: [digest], condition: "`false`", transform: {inputs: [{from: params.list}], ops: []}}
"#;
const PART: &str = r#"
visibility: sub-workflow
pipeline:
  - {id: first, transform: {inputs: [], ops: []}}
  - {id: summarise-everything-that-came-in, depends_on: [first], agent: ./agents/echo.agent.yaml, params: {msg: held at the end}}
"#;

/// A run whose fourth item and whose last step wait for a gate each.
struct Show {
    model: Model,
    kit: KitDir,
}

impl Show {
    async fn new() -> Self {
        let model = Model::scripted(|call| match call.user().as_str() {
            user if user.starts_with('{') => Said::Text(user.to_owned()),
            "held" => Said::answer("late").when("items"),
            "held at the end" => Said::answer("all of it").when("end"),
            user => Said::answer(user),
        })
        .await;
        let kit = model::kit(&model, &[("root", FLOW), ("part", PART)]);
        Self { model, kit }
    }

    fn command(&self, more: &[&str], locale: &str) -> Command {
        let list = json!({"list": [
            "The invoice of March",
            r#"{"answer": "Outage in the north", "ktsu_flags": ["urgent", "vip"]}"#,
            r#"{"wrong": "no answer at all"}"#,
            "held",
        ]});
        let kit = self.kit.dir.path();
        let input = list.to_string();
        let arguments = [&["run", ".", "root", "--input", &input], more].concat();
        let mut command = command(kit, &arguments);
        command.env(KEY.0, KEY.1).env("LC_ALL", locale);
        command
    }
}

fn last(screen: &Screen) -> &str {
    screen.lines.last().map_or("", String::as_str)
}

/// The screen up to the answer, without what differs from one run to the next: ids and times.
fn steady(screen: &Screen) -> Screen {
    let mut screen = masked(screen);
    let answer = screen.lines.iter().position(String::is_empty);
    screen.lines.truncate(answer.unwrap_or(screen.lines.len()));
    // In columns a time ends at the same place, whatever it is.
    let column = regex::Regex::new(r" +(\d+ ms|\d+\.\d s)").unwrap();
    // In the last line nothing behind the first of them is at a place of its own.
    let going = regex::Regex::new(r"^(  … .*?), \d+(\.\d)? (ms|s)\b.*?((  \$.*)?)$").unwrap();
    for line in &mut screen.lines {
        if let Some(parts) = going.captures(line) {
            *line = format!("{}, TIME{}", &parts[1], &parts[4]);
            continue;
        }
        let same = |found: &regex::Captures<'_>| format!("{:>1$}", "0 ms", found[0].len());
        *line = column.replace(line, same).into_owned();
    }
    screen
}

#[track_caller]
fn look(name: &str, columns: u16, screen: &Screen) {
    assert!(
        screen.wrapped.is_empty(),
        "{name} at {columns}: {screen:#?}"
    );
    compare(name, columns, &steady(screen));
}

fn counts_items(screen: &Screen) -> bool {
    last(screen).contains("classify 3/4, 1 running")
}

fn asks_in_child(screen: &Screen) -> bool {
    last(screen).contains("digest/summarise") && last(screen).contains(" ask")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_live_view_looks_as_it_is_kept_at_every_width() {
    for columns in WIDTHS {
        let show = Show::new().await;
        let mut terminal = Terminal::of(show.command(&[], "C.UTF-8"), columns);
        look("live-items", columns, &terminal.shows(counts_items));
        show.model.open("items");
        look("live-child", columns, &terminal.shows(asks_in_child));
        show.model.open("end");
        let (code, screen) = terminal.ends();
        assert_eq!(code, 0, "{}", screen.text());
        compare("live-ended", columns, &steady(&screen));
        let id = screen.lines.iter().filter(|line| line.contains("run_"));
        assert!(id.count() >= 2, "{}", screen.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_line_follows_the_width_of_the_terminal() {
    let show = Show::new().await;
    let mut terminal = Terminal::of(show.command(&[], "C.UTF-8"), 140);
    show.model.open("items");
    let wide = terminal.shows(asks_in_child);
    assert!(last(&wide).contains("digest/summarise-everything-that-came-in asks std"));
    for columns in [50, 30, 90] {
        let room = usize::from(columns);
        // It ends with what the run costs, wherever that is.
        let fits = |screen: &Screen| {
            let line = last(screen);
            line.contains("  $0.0") && line.chars().count() < room
        };
        let screen = terminal.resized(columns, fits);
        assert!(screen.wrapped.is_empty(), "{screen:#?}");
        let lines = screen.lines.iter().filter(|line| line.starts_with("  … "));
        assert_eq!(lines.count(), 1, "{}", screen.text());
    }
    show.model.open("end");
    assert_eq!(terminal.ends().0, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_live_view_is_ascii_where_the_locale_is_not_utf8() {
    let show = Show::new().await;
    let mut terminal = Terminal::of(show.command(&[], "C"), 80);
    let screen = terminal.shows(counts_items);
    assert!(
        last(&screen).starts_with("  ... classify"),
        "{}",
        screen.text()
    );
    show.model.open("items");
    terminal.shows(asks_in_child);
    show.model.open("end");
    let (code, _) = terminal.ends();
    assert_eq!(code, 0);
    assert!(terminal.text.is_ascii(), "{}", terminal.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_colours_the_last_line_is_drawn_in_one_place_all_the_same() {
    let show = Show::new().await;
    let command = show.command(&["--color", "never"], "C.UTF-8");
    let mut terminal = Terminal::of(command, 80);
    terminal.shows(counts_items);
    show.model.open("items");
    let screen = terminal.shows(asks_in_child);
    let lines = screen.lines.iter().filter(|line| line.contains('…'));
    let going = lines.filter(|line| line.starts_with("  … "));
    assert_eq!(going.count(), 1, "{}", screen.text());
    show.model.open("end");
    let (code, screen) = terminal.ends();
    assert_eq!(code, 0);
    compare("live-ended", 80, &steady(&screen));
    assert!(!terminal.text.contains("\u{1b}[1m"), "{}", terminal.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quiet_run_shows_its_answer_alone() {
    let show = Show::new().await;
    for gate in ["items", "end"] {
        show.model.open(gate);
    }
    for more in [["--quiet"], ["-q"], ["--json"]] {
        let dir = tempfile::tempdir().unwrap();
        let out = std::fs::File::create(dir.path().join("out")).unwrap();
        let command = show.command(&more, "C.UTF-8");
        let mut terminal = Terminal::beside(command, 80, out.into());
        let (code, _) = terminal.ends();
        assert_eq!((code, terminal.text.as_str()), (0, ""), "{more:?}");
        let answer = std::fs::read_to_string(dir.path().join("out")).unwrap();
        assert!(answer.contains("classify"), "{more:?}: {answer}");
    }
    let mut broken = show.command(&["--quiet"], "C.UTF-8");
    let output = broken.env_remove(KEY.0).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(err.contains("error:") && err.contains(KEY.0), "{err}");
}
