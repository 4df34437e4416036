//! `ktsu trace RUN --of PATH` and `--why-not STEP`, for people.

use ktsu_ledger::Frame;

use super::output::{BOLD, DIM, line, painted, row, symbols, words as print_words};
use super::{Failure, text};
use ktsu_history::RunReadError;
use ktsu_history::answer_rows::{self, AnswerRow, similar_step};
use ktsu_history::provenance::{
    self, FieldNotFoundError, Hop, ProvenanceAnswer, TraceError, TracedRun, ValueOrigin,
};
use ktsu_history::why_not::{self, WhyNot};

/// The number of places shown of each kind; `--json` has all.
const MAX_PLACES: usize = 20;
/// The number of characters shown of a value.
const MAX_VALUE_CHARS: usize = 100;

/// The failure of a field that the run does not have.
fn not_found(error: FieldNotFoundError) -> Failure {
    let failure = Failure::could_not_run(error.message);
    match error.there.is_empty() {
        true => failure,
        false => failure.hint(format!("the run has {}", names(&error.there))),
    }
}

/// The failure of a value that was not traced.
fn not_traced(error: TraceError) -> Failure {
    match error {
        TraceError::NotFound(error) => not_found(error),
        TraceError::TooLarge => Failure::could_not_run(error.to_string()),
    }
}

/// Names in a line: people may have posted some of them.
fn names(all: &[String]) -> String {
    let all = all.iter().map(|name| text::short(name, 80));
    all.collect::<Vec<String>>().join(", ")
}

/// Finds where a field came from.
pub(super) fn field_origin(
    frames: &[Frame],
    scope: &str,
    path: &str,
) -> Result<ProvenanceAnswer, Failure> {
    let story = TracedRun::of(frames).map_err(|error: RunReadError| Failure::from(error))?;
    provenance::answer(&story, scope, path).map_err(not_traced)
}

/// Finds why a step is in its state, or why a responder did not react, to an object perhaps.
pub(super) fn why_not(
    frames: &[Frame],
    scope: &str,
    step: &str,
    object: Option<&str>,
) -> Result<WhyNot, Failure> {
    let story = TracedRun::of(frames).map_err(|error: RunReadError| Failure::from(error))?;
    why_not::why_not_of(&story, scope, step, object).map_err(|error| {
        let near = match &error {
            TraceError::NotFound(error) => similar_step(error, step),
            TraceError::TooLarge => None,
        };
        let failure = not_traced(error);
        match near {
            Some(near) => failure.hint(near),
            None => failure,
        }
    })
}

/// A hint for a step that the run does not have; `None` if it has it.
pub(super) fn suggest_step(frames: &[Frame], step: &str) -> Option<String> {
    let story = TracedRun::of(frames).ok()?;
    let Err(TraceError::NotFound(error)) = why_not::why_not(&story, "", step) else {
        return None;
    };
    let known = (!error.there.is_empty()).then(|| format!("the run has {}", names(&error.there)));
    similar_step(&error, step).or(known)
}

/// Prints the answer.
pub(super) fn print(answer: &ProvenanceAnswer) {
    let value = answer.value.to_string();
    let named = painted(BOLD, &text::line(&answer.path));
    let value = text::short(&value, 400);
    print_words(&format!("{named} {} {value}", painted(DIM, "=")), 2);
    for shown in answer_rows::origin_rows(answer, MAX_PLACES) {
        let words = shown.words();
        match shown {
            AnswerRow::Heading(_) => heading(&words),
            AnswerRow::Hop(one) => hop(one),
            AnswerRow::Place(place) => origin(place),
            AnswerRow::Alike(_) => heading(&format!("         {} {words}", symbols().ellipsis())),
            AnswerRow::More(_) => {
                heading(&format!(
                    "   {} {words}; all with --json",
                    symbols().ellipsis()
                ));
            }
            AnswerRow::KeptGoing(_) => heading(&format!("{words}; all with --json")),
        }
    }
}

fn hop(hop: &Hop) {
    let frame = hop
        .frame
        .map_or_else(String::new, |frame| frame.to_string());
    let about = hop.object.as_ref();
    let about = about.map_or_else(String::new, |object| format!("{object}: "));
    row(&format!(
        "{frame:>7}  {:<20} {} {}{}",
        text::line(hop.responder.as_deref().unwrap_or(&hop.step)),
        painted(DIM, &format!("{:<9}", hop.how)),
        text::line(&about),
        text::short(&hop.text, 200)
    ));
}

/// Prints why a step is where it is.
pub(super) fn print_why(why: &WhyNot) {
    let verb = answer_rows::verb_of(why);
    line(&format!(
        "{} {verb}{}",
        painted(BOLD, &text::line(&why.step)),
        text::line(&why.status)
    ));
    for reason in &why.because {
        let frame = reason
            .frame
            .map_or_else(String::new, |frame| frame.to_string());
        let words = format!(
            "{frame:>7}  {:<20} {}",
            text::line(&reason.step),
            text::line(&reason.text)
        );
        print_words(&words, 9);
        let values = answer_rows::values_of(reason, MAX_PLACES);
        values.into_iter().for_each(origin);
    }
}

fn heading(words: &str) {
    print_words(&painted(DIM, &format!("  {words}")), 4);
}

fn origin(origin: &ValueOrigin) {
    let reply = origin
        .reply
        .map_or_else(String::new, |seq| format!(" (reply: frame {seq})"));
    row(&format!(
        "{:>7}  {} {} {}{}",
        origin.frame,
        text::line(&origin.name),
        painted(DIM, "="),
        text::short(&origin.value.to_string(), MAX_VALUE_CHARS),
        painted(DIM, &reply),
    ));
}
