//! `ktsu trace RUN --of PATH` and `--why-not STEP`, for people.

use std::collections::{BTreeMap, BTreeSet};

use ktsu_ledger::Frame;
use ktsu_projections::step_name::StepName;

use super::output::{BOLD, DIM, line, painted, row, symbols, words as print_words};
use super::{Failure, text};
use ktsu_codes::nearest;
use ktsu_history::RunReadError;
use ktsu_history::provenance::{
    self, Decider, DeciderRole, FieldNotFoundError, ProvenanceAnswer, TraceError, TracedRun,
    ValueOrigin,
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

/// The step that was probably meant.
fn similar_step(error: &FieldNotFoundError, step: &str) -> Option<String> {
    let path = StepName::parse(step).path;
    let (scope, id) = path.rsplit_once('/').unwrap_or(("", &path));
    let near = nearest(id, error.there.iter().map(String::as_str))?;
    Some(match scope {
        "" => format!("did you mean {near}?"),
        scope => format!("did you mean {scope}/{near}?"),
    })
}

/// Prints the answer.
pub(super) fn print(answer: &ProvenanceAnswer) {
    let value = answer.value.to_string();
    let named = painted(BOLD, &text::line(&answer.path));
    let value = text::short(&value, 400);
    print_words(&format!("{named} {} {value}", painted(DIM, "=")), 2);
    if !answer.chain.is_empty() {
        heading("computed by");
    }
    for hop in answer.chain.iter().take(MAX_PLACES) {
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
    more(answer.chain.len());
    match answer.origins.as_slice() {
        [] => heading("computed from nothing recorded: it is in the definition, or a status"),
        _ => heading("computed from"),
    }
    answer.origins.iter().take(MAX_PLACES).for_each(origin);
    more(answer.origins.len());
    let chose = |one: &&Decider| one.why == DeciderRole::Chose;
    let count = answer.deciders.iter().filter(chose).count();
    let chosen = plainest(answer.deciders.iter().filter(chose).map(|one| &one.place));
    if !chosen.is_empty() {
        heading("depends on, without containing");
    }
    let chosen = group_alike(chosen);
    chosen.iter().take(MAX_PLACES).for_each(|(one, count)| {
        origin(one);
        if *count > 1 {
            heading(&format!(
                "         {} and {} more like it",
                symbols().ellipsis(),
                count - 1
            ));
        }
    });
    more(chosen.len());
    let kept = answer.deciders.len() - count;
    if kept > 0 {
        heading(&format!(
            "{kept} other places could have ended the run earlier; all with --json"
        ));
    }
}

/// Prints why a step is where it is.
pub(super) fn print_why(why: &WhyNot) {
    let verb = match why.status.as_str() {
        "reacted" | "did not react" => "",
        "never triggered" => "was ",
        _ => "is ",
    };
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
        plainest(reason.values.iter())
            .into_iter()
            .take(MAX_PLACES)
            .for_each(origin);
    }
}

/// The places without those that only hold others of them.
fn plainest<'a>(all: impl Iterator<Item = &'a ValueOrigin>) -> Vec<&'a ValueOrigin> {
    let all: Vec<&ValueOrigin> = all.collect();
    let known: BTreeSet<(u64, &str)> = all.iter().map(|one| (one.frame, one.at.as_str())).collect();
    let holds_another = |one: &ValueOrigin| {
        let below = format!("{}/", one.at);
        let mut after = known.range((one.frame, below.as_str())..);
        after
            .next()
            .is_some_and(|(frame, at)| *frame == one.frame && at.starts_with(&below))
    };
    all.into_iter().filter(|one| !holds_another(one)).collect()
}

/// Groups places that differ only in an index, with their number; the latest first, since people
/// look for what decided last.
fn group_alike(all: Vec<&ValueOrigin>) -> Vec<(&ValueOrigin, usize)> {
    let pattern = |one: &ValueOrigin| {
        let parts = one.name.split(['.', ' ', ':']);
        let parts = parts.map(|part| match part.parse::<u64>() {
            Ok(_) => "*",
            Err(_) => part,
        });
        parts.collect::<Vec<_>>().join(" ")
    };
    let mut groups: BTreeMap<String, Vec<&ValueOrigin>> = BTreeMap::new();
    for one in all {
        groups.entry(pattern(one)).or_default().push(one);
    }
    let mut found = Vec::with_capacity(groups.len());
    for group in groups.into_values() {
        let latest = group.iter().max_by_key(|one| one.frame);
        found.extend(latest.map(|latest| (*latest, group.len())));
    }
    found
        .sort_by(|(left, _), (right, _)| (right.frame, &left.name).cmp(&(left.frame, &right.name)));
    found
}

fn heading(words: &str) {
    print_words(&painted(DIM, &format!("  {words}")), 4);
}

fn more(count: usize) {
    if count > MAX_PLACES {
        heading(&format!(
            "   {} and {} more; all with --json",
            symbols().ellipsis(),
            count - MAX_PLACES
        ));
    }
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
