//! What a person sees: the real binary at a real terminal of several widths, and its screen.
//!
//! Screens are kept in `tests/snapshots/terminal`, a file for every command and width. They are
//! written anew by a run with `KTSU_WRITE_SNAPSHOTS=1`, and then looked at.

mod live;
mod quiet;
mod recorded;
mod tables;
mod worlds;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::terminal::{Screen, Terminal};

/// The widths that are looked at.
const WIDTHS: [u16; 3] = [60, 80, 140];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots/terminal")
}

/// A command, of which no variable of the machine is known.
fn command(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ktsu"));
    command.args(arguments).current_dir(dir).env_clear();
    command.stdin(Stdio::null());
    command
}

/// What a command shows on a terminal of this width and locale.
#[track_caller]
fn shown(dir: &Path, arguments: &[&str], columns: u16, locale: &str) -> (i32, Screen) {
    let mut command = command(dir, arguments);
    command.env("LC_ALL", locale);
    Terminal::of(command, columns).ends()
}

/// Compares a screen with the one that is kept.
#[track_caller]
fn compare(name: &str, columns: u16, screen: &Screen) {
    let path = folder().join(format!("{name}.{columns}.txt"));
    let text = screen.text();
    if std::env::var_os("KTSU_WRITE_SNAPSHOTS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        text,
        kept,
        "{} is otherwise, on the left as it is now:\n{text}\n\
         KTSU_WRITE_SNAPSHOTS=1 writes it anew",
        path.display()
    );
}

/// Text in which every id of a run, an approval and a digest is replaced by one of the same length.
fn masked(screen: &Screen) -> Screen {
    let ids = regex::Regex::new(r"\b(run|branch|recompute|apr)_[0-9a-f]{16,32}\b").unwrap();
    let mask = |line: &String| {
        let mask = |found: &regex::Captures<'_>| {
            let (kind, whole) = (&found[1], found[0].len());
            format!("{kind}_{}", "0".repeat(whole - kind.len() - 1))
        };
        ids.replace_all(line, mask).into_owned()
    };
    Screen {
        lines: screen.lines.iter().map(mask).collect(),
        wrapped: screen.wrapped.iter().map(mask).collect(),
    }
}
