//! `ktsu trace RUN --of PATH`: where a value came from, for people.

use ktsu_ledger::Frame;

use super::output::{BOLD, DIM, line, painted};
use super::{Failure, text};
use crate::history::Unreadable;
use crate::history::provenance::{self, Answer, Decider, NoSuchField, Origin, Story, Why};

/// How many places of a kind are told; `--json` has all.
const TOLD: usize = 20;
/// How much of a value is told on a line.
const VALUE: usize = 100;

impl From<NoSuchField> for Failure {
    fn from(error: NoSuchField) -> Self {
        let failure = Self::could_not_run(error.message);
        match error.there.is_empty() {
            true => failure,
            false => failure.hint(format!("there is {}", error.there.join(", "))),
        }
    }
}

/// Asks where a field came from.
pub(super) fn of(frames: &[Frame], scope: &str, path: &str) -> Result<Answer, Failure> {
    let story = Story::of(frames).map_err(|error: Unreadable| Failure::from(error))?;
    Ok(provenance::answer(&story, scope, path)?)
}

/// Prints the answer.
pub(super) fn print(answer: &Answer) {
    let value = answer.value.to_string();
    line(&format!(
        "{} {} {}",
        painted(BOLD, &text::line(&answer.path)),
        painted(DIM, "="),
        text::short(&value, 400)
    ));
    if !answer.chain.is_empty() {
        heading("made by");
    }
    for hop in answer.chain.iter().take(TOLD) {
        let frame = hop
            .frame
            .map_or_else(String::new, |frame| frame.to_string());
        line(&format!(
            "{frame:>7}  {:<20} {} {}",
            text::line(&hop.step),
            painted(DIM, &format!("{:<9}", hop.how)),
            text::short(&hop.text, 200)
        ));
    }
    more(answer.chain.len());
    match answer.origins.as_slice() {
        [] => heading("made of nothing recorded: it stands in the definition, or says how it went"),
        _ => heading("made of"),
    }
    answer.origins.iter().take(TOLD).for_each(origin);
    more(answer.origins.len());
    let chose = |one: &&Decider| one.why == Why::Chose;
    let chosen: Vec<&Decider> = answer.deciders.iter().filter(chose).collect();
    if !chosen.is_empty() {
        heading("decided by, without being part of it");
    }
    chosen.iter().take(TOLD).for_each(|one| origin(&one.place));
    more(chosen.len());
    let kept = answer.deciders.len() - chosen.len();
    if kept > 0 {
        heading(&format!(
            "{kept} other places could have ended the run before; --json names them"
        ));
    }
}

fn heading(words: &str) {
    line(&painted(DIM, &format!("  {words}")));
}

fn more(count: usize) {
    if count > TOLD {
        heading(&format!("   … and {} more; --json has all", count - TOLD));
    }
}

fn origin(origin: &Origin) {
    let reply = origin
        .reply
        .map_or_else(String::new, |seq| format!(" (reply: frame {seq})"));
    line(&format!(
        "{:>7}  {} {} {}{}",
        origin.frame,
        text::line(&origin.name),
        painted(DIM, "="),
        text::short(&origin.value.to_string(), VALUE),
        painted(DIM, &reply),
    ));
}
