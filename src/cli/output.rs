//! Printing and failing.
//!
//! Results go to standard output, everything else to standard error. Colours are always written and
//! stripped on output if they are not wanted: no terminal, `NO_COLOR`, `TERM=dumb`, `--color
//! never`.
//!
//! Only this module looks at the terminals, their size and the locale.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::builder::styling::{AnsiColor, Style};
use serde::Serialize;

use super::layout::columns;
pub(super) use super::terminal::columns_variable;
pub(super) use super::terminal::{note_sheet, sheet, symbols};
use super::{json, text};
use ktsu_codes::{EXIT_VERDICT, ErrorCode};
use ktsu_opening::Failure;

/// Success.
pub(super) const GOOD: Style = AnsiColor::Green.on_default();
/// Failure.
pub(super) const BAD: Style = AnsiColor::Red.on_default().bold();
/// For what needs attention.
pub(super) const WARN: Style = AnsiColor::Yellow.on_default();
/// For what matters less.
pub(super) const DIM: Style = Style::new().dimmed();
/// For what matters more.
pub(super) const BOLD: Style = Style::new().bold();

/// True if standard error is reserved for errors: `--json` and `--quiet`.
static QUIET: AtomicBool = AtomicBool::new(false);

/// Reserves standard error for errors.
pub(super) fn be_quiet() {
    QUIET.store(true, Ordering::Relaxed);
}

/// Returns `true` if standard error is reserved for errors.
pub(super) fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Prints a failure to standard error. Messages may quote data.
pub(super) fn fail(failure: &Failure) -> ExitCode {
    print_failure(&format!(
        "{}: {}",
        painted(BAD, "error"),
        text::clean(failure.message())
    ));
    if let Some(hint) = failure.hint_text() {
        let hint = text::clean(hint);
        let hint = note_sheet().symbols.words(&hint).into_owned();
        print_failure(&format!("{}: {hint}", painted(GOOD, "hint")));
    }
    if let Some(code) = failure.problem().map(ErrorCode::as_str) {
        print_failure(&painted(DIM, &format!("  ktsu explain {code}")));
    }
    ExitCode::from(failure.exit_code())
}

/// Prints a line on standard output. A closed reader is not an error; the return value shows it.
pub(super) fn line(text: &str) -> bool {
    if is_coloured() {
        return writeln!(anstream::stdout().lock(), "{text}").is_ok();
    }
    // Padded and coloured cells would leave trailing spaces.
    let plain = anstream::adapter::strip_str(text).to_string();
    writeln!(std::io::stdout().lock(), "{}", plain.trim_end()).is_ok()
}

/// As [`line()`], for what matters less.
pub(super) fn line_dim(text: &str) -> bool {
    line(&painted(DIM, text))
}

/// Prints a result as JSON.
pub(super) fn print_json(body: &impl Serialize) -> Result<ExitCode, Failure> {
    line(&json::pretty(
        &serde_json::to_string(body).map_err(Failure::of)?,
    ));
    Ok(ExitCode::SUCCESS)
}

/// The exit code of a command that gives a verdict.
pub(super) fn exit_code(is_good: bool) -> ExitCode {
    match is_good {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(EXIT_VERDICT),
    }
}

/// As [`line()`], for a row of columns: it is cut where the terminal ends.
pub(super) fn row(text: &str) -> bool {
    line(&sheet().fit(text))
}

/// As [`line()`], for sentences and values: where the terminal ends they go on below, indented.
pub(super) fn words(text: &str, indent: usize) -> bool {
    sheet().folded(text, indent).iter().all(|one| line(one))
}

/// Prints a line on standard error that is not part of the result.
pub(super) fn note(text: &str) {
    if !is_quiet() {
        print_failure(text);
    }
}

/// As [`note`], for what matters less.
pub(super) fn note_dim(text: &str) {
    note(&painted(DIM, text));
}

/// Prints commands to type and what each is for, on standard error. Commands are never cut.
pub(super) fn note_commands(commands: &[(String, &str)]) {
    let clean = commands
        .iter()
        .map(|(command, what)| (text::line(command), *what));
    let clean: Vec<_> = clean.collect();
    let widest = clean.iter().map(|(command, _)| columns(command)).max();
    let widest = widest.unwrap_or(0);
    let longest = clean.iter().map(|(_, what)| columns(what)).max();
    let fits = note_sheet()
        .width
        .is_none_or(|width| widest + longest.unwrap_or(0) + 4 <= width);
    for (command, what) in &clean {
        let what = painted(DIM, what);
        match fits {
            true => note(&format!("  {command:<widest$}  {what}")),
            false => note(&format!("  {what}\n    {command}")),
        }
    }
}

/// Prints a line on standard error, also where only errors are wanted: why a command ends with
/// another code than 0.
pub(super) fn print_failure(text: &str) {
    let _ = writeln!(anstream::stderr().lock(), "{text}");
}

/// Puts words in place of the last line of a terminal, without ending the line.
pub(super) fn transient(text: &str) {
    if is_quiet() {
        return;
    }
    // Where no colours are wanted the terminal obeys cursor movements all the same.
    let mut err = std::io::stderr().lock();
    let text = match anstream::AutoStream::choice(&err) {
        anstream::ColorChoice::Never => anstream::adapter::strip_str(text).to_string(),
        _ => text.to_owned(),
    };
    let _ = write!(err, "\r\u{1b}[K{text}");
    let _ = err.flush();
}

/// Text in a style. The text is clean already.
pub(super) fn painted(style: Style, text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    format!("{style}{text}{style:#}")
}

/// Returns `true` if standard output is a terminal.
pub(super) fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// The width of standard output: `COLUMNS`, otherwise the terminal's; a pipe counts as narrow.
pub(super) fn width() -> usize {
    const NARROW: usize = 80;
    columns_variable().or(sheet().width).unwrap_or(NARROW)
}

/// Returns `true` if standard error is a terminal that supports cursor movement.
pub(super) fn is_live() -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    std::io::stderr().is_terminal() && !dumb && !is_quiet()
}

/// Sets whether to write colours, for both streams.
pub(super) fn choose_color(choice: clap::ColorChoice) {
    match choice {
        clap::ColorChoice::Auto => anstream::ColorChoice::Auto,
        clap::ColorChoice::Always => anstream::ColorChoice::Always,
        clap::ColorChoice::Never => anstream::ColorChoice::Never,
    }
    .write_global();
}

/// Returns `true` if standard output takes colours.
pub(super) fn is_coloured() -> bool {
    static COLOURED: OnceLock<bool> = OnceLock::new();
    *COLOURED.get_or_init(|| {
        let choice = anstream::AutoStream::choice(&std::io::stdout());
        choice != anstream::ColorChoice::Never
    })
}
