//! Strict replay: a recorded run decided again from its inputs alone, with every byte compared.
//!
//! Pure, with frames as its only input: there is no client here. Whatever is missing is an error,
//! never a reason for a call.
//!
//! ```text
//! frames ──input──▶ Redecider ──decisions──▶ compare with the frames that follow ──▶ next input
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ktsu_ledger::event::{Role, RunEvent};
use ktsu_ledger::{Event, Frame, Hash};
use ktsu_projections::run::{FoldError, RunState};
use ktsu_projections::value_diff;
use serde::Serialize;
use serde_json::{Value, json};

use super::definition::Definition;
use super::next::Memo;
use super::redecide::{Redecider, split_input, to_draft};
use super::rules::{DecisionRules, RULES, recorded_rules};
use super::turn::{InvariantViolation, Turn};

/// The reason why a recorded run was not decided again to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// The frames do not begin with an invocation.
    #[error("no root: the stream {0}, where run.created is expected")]
    NoRoot(String),
    /// It was decided by rules that this version does not have.
    #[error(
        "frame {seq}: recorded under decision rules {recorded}, while this version of ktsu has \
         rules 1 to {ours}"
    )]
    Rules {
        /// The frame that names the rules.
        seq: u64,
        /// The rules that it names.
        recorded: u32,
        /// The newest that this version has: [`RULES`].
        ours: u32,
    },
    /// The recorded definition cannot be used.
    #[error("frame {seq}: the recorded definition cannot be used: {problem}")]
    Definition {
        /// The frame that records it.
        seq: u64,
        /// The reason.
        problem: String,
    },
    /// A frame of a type this version does not know.
    #[error("frame {seq}: this version of ktsu does not know {kind}")]
    Unknown {
        /// The frame.
        seq: u64,
        /// Its type.
        kind: String,
    },
    /// The recorded frames are not those that the inputs lead to.
    #[error(transparent)]
    Diverged(Box<ReplayDivergence>),
}

impl ReplayError {
    /// The reason in a word that never changes, for programs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NoRoot(_) => "no_root",
            Self::Rules { .. } => "rules",
            Self::Definition { .. } => "definition",
            Self::Unknown { .. } => "unknown_type",
            Self::Diverged(_) => "diverged",
        }
    }
}

/// In which respect a recorded frame is not the decided one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MismatchKind {
    /// Another type of frame.
    Type,
    /// Another payload.
    Data,
    /// Another inline child.
    Scope,
    /// Another cause.
    Cause,
    /// Another moment.
    Time,
    /// Another who acted.
    Actor,
    /// One side has a frame where the other has none.
    Length,
    /// An input that the state decided so far refuses.
    Input,
    /// Equal in meaning, but other bytes.
    Bytes,
}

/// The first frame of a recorded run that does not follow from its inputs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReplayDivergence {
    /// Its number.
    pub seq: u64,
    /// In which respect.
    pub kind: MismatchKind,
    /// JSON pointer into the frame to the first difference; empty where it is the whole frame.
    pub field: String,
    /// The value that is recorded there; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history: Option<Value>,
    /// The value that the recorded inputs lead to; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided: Option<Value>,
}

impl fmt::Display for ReplayDivergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |value: &Option<Value>| match value {
            None => "nothing".to_owned(),
            Some(value) => clipped(&value.to_string()),
        };
        let kind = serde_json::to_value(self.kind).unwrap_or_default();
        write!(
            f,
            "frame {}: {}{} differs: history has {}, the recorded inputs lead to {}",
            self.seq,
            kind.as_str().unwrap_or_default(),
            match self.field.as_str() {
                "" => String::new(),
                field => format!(" at {field}"),
            },
            side(&self.history),
            side(&self.decided),
        )
    }
}

impl std::error::Error for ReplayDivergence {}

/// The most characters of a value in a message; the whole of it stands in the frame.
const MAX_SHOWN_CHARACTERS: usize = 160;

fn clipped(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN_CHARACTERS) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}

/// Definitions as runs record them, each compiled once however many runs share it.
#[derive(Debug, Default)]
pub struct Definitions {
    compiled: BTreeMap<Hash, Arc<Definition>>,
}

impl Definitions {
    /// The definition that holds from a frame on, if the frame brings one.
    ///
    /// # Errors
    /// [`ReplayError::Rules`], [`ReplayError::Definition`].
    pub fn introduced_by(&mut self, frame: &Frame) -> Result<Option<Arc<Definition>>, ReplayError> {
        let Some(rules) = recorded_rules(&frame.event) else {
            return Ok(None);
        };
        DecisionRules::from_recorded(rules).map_err(|unknown| ReplayError::Rules {
            seq: frame.seq,
            recorded: unknown.recorded,
            ours: RULES,
        })?;
        let Some((definition, digest)) = frame.event.definition() else {
            return Ok(None);
        };
        let unusable = |problem: String| ReplayError::Definition {
            seq: frame.seq,
            problem,
        };
        let text = definition.as_str();
        let hash = Hash::of(text.as_bytes());
        if hash.to_string() != digest {
            let words = format!("it is named {digest}, its text has {hash}");
            return Err(unusable(words));
        }
        if let Some(compiled) = self.compiled.get(&hash) {
            return Ok(Some(Arc::clone(compiled)));
        }
        let plan = serde_json::from_str(text).map_err(|error| unusable(error.to_string()))?;
        let compiled = Definition::compile(plan).map_err(|faults| {
            let faults = faults.iter().map(|(at, words)| format!("{at}: {words}"));
            unusable(faults.collect::<Vec<_>>().join("; "))
        })?;
        let compiled = Arc::new(compiled);
        self.compiled.insert(hash, Arc::clone(&compiled));
        Ok(Some(compiled))
    }
}

/// Decides a recorded run again from its inputs alone and compares every byte.
///
/// A recorded turn may be cut short where the next frame is `run.continued` or `branch.created`, and
/// right behind its input, before the next one or where the frames end: nothing starts while an
/// engine drains, so what followed from the input was decided later;
/// anywhere else every frame that is decided must be recorded, and the other way round.
///
/// # Errors
/// [`ReplayError`]; the first frame that differs is a [`ReplayDivergence`].
pub fn replay(recorded: &[Frame], definitions: &mut Definitions) -> Result<RunState, ReplayError> {
    let Some(first) = recorded.first() else {
        return Err(ReplayError::NoRoot("is empty".to_owned()));
    };
    let begins = || ReplayError::NoRoot(format!("begins with {}", first.event.kind()));
    let definition = definitions.introduced_by(first)?.ok_or_else(begins)?;
    check_turn_start(first)?;
    let begun = Redecider::begin(definition, first, to_draft(first));
    let (mut run, mut turn) = begun.map_err(|broken| rejected_input(first, &broken))?;
    let mut taken = 0;
    let mut rest = recorded;
    loop {
        let (of_turn, after) = rest.split_at(compare(&turn, rest, taken)?);
        if of_turn.len() < turn.sealed.len() {
            // The rest of the turn was lost to a crash; go on from what is recorded.
            let decided = recorded.len() - after.len();
            run.state = refold(recorded.get(..decided).unwrap_or_default())?;
            // What was evaluated of the lost rest belongs to another future of this state.
            run.memo = Memo::default();
        }
        let Some(input) = after.first() else {
            return Ok(run.state);
        };
        check_turn_start(input)?;
        let (inputs, _) = split_input(after);
        taken = inputs.len();
        let decided = run.decide(inputs.iter().map(to_draft).collect(), input.at);
        turn = decided.map_err(|broken| rejected_input(input, &broken))?;
        if let Some(from_here) = definitions.introduced_by(input)? {
            run.definition = from_here;
        }
        rest = after;
    }
}

/// Checks that a frame at the beginning of a turn may begin one.
fn check_turn_start(input: &Frame) -> Result<(), ReplayError> {
    if !input.event.is_known() {
        return Err(ReplayError::Unknown {
            seq: input.seq,
            kind: input.event.kind().to_owned(),
        });
    }
    if input.event.role() == Role::Input {
        return Ok(());
    }
    let history = Some(input.event.kind().into());
    Err(diverged(input.seq, MismatchKind::Length, history, None))
}

/// An input the state refuses: history holds what cannot have happened.
fn rejected_input(input: &Frame, broken: &InvariantViolation) -> ReplayError {
    let history = Some(input.event.kind().into());
    let decided = Some(broken.to_string().into());
    diverged(input.seq, MismatchKind::Input, history, decided)
}

fn diverged(
    seq: u64,
    kind: MismatchKind,
    history: Option<Value>,
    decided: Option<Value>,
) -> ReplayError {
    ReplayError::Diverged(Box::new(ReplayDivergence {
        seq,
        kind,
        field: String::new(),
        history,
        decided,
    }))
}

/// The number of frames of a turn that are recorded as they were decided. So many are its input;
/// those of an invocation are always decided at once, and count as none.
fn compare(turn: &Turn, recorded: &[Frame], inputs: usize) -> Result<usize, ReplayError> {
    for (number, sealed) in turn.sealed.iter().enumerate() {
        let next = recorded.get(number).map(|frame| frame.event.role());
        if number > 0 && number == inputs && next.is_none_or(|role| role == Role::Input) {
            return Ok(number);
        }
        let Some(history) = recorded.get(number) else {
            let decided = Some(sealed.frame.event.kind().into());
            return Err(diverged(
                sealed.frame.seq,
                MismatchKind::Length,
                None,
                decided,
            ));
        };
        if history.hash == sealed.record.hash {
            continue;
        }
        let continues = matches!(history.event, Event::Run(RunEvent::Continued(_)));
        let cut = continues || history.event.branched().is_some();
        if cut && number > 0 {
            return Ok(number);
        }
        let diverged = first_difference(history, &sealed.frame);
        return Err(ReplayError::Diverged(Box::new(diverged)));
    }
    Ok(turn.sealed.len())
}

/// The first respect in which two frames differ, and the first place.
fn first_difference(history: &Frame, decided: &Frame) -> ReplayDivergence {
    let seq = decided.seq;
    let sides = |kind, field: &str, theirs: Value, ours: Value| ReplayDivergence {
        seq,
        kind,
        field: field.to_owned(),
        history: Some(theirs),
        decided: Some(ours),
    };
    let (ours, theirs) = (&decided.event, &history.event);
    if theirs.kind() != ours.kind() {
        let (theirs, ours) = (theirs.kind().into(), ours.kind().into());
        return sides(MismatchKind::Type, "/type", theirs, ours);
    }
    if history.scope != decided.scope {
        let (theirs, ours) = (&history.scope, &decided.scope);
        return sides(MismatchKind::Scope, "/scope", json!(theirs), json!(ours));
    }
    let changes = value_diff::diff(&theirs.data(), &ours.data());
    if let Some(first) = changes.into_iter().next() {
        return ReplayDivergence {
            seq,
            kind: MismatchKind::Data,
            field: format!("/data{}", first.path),
            history: first.before,
            decided: first.after,
        };
    }
    if history.cause != decided.cause {
        let (theirs, ours) = (json!(history.cause), json!(decided.cause));
        return sides(MismatchKind::Cause, "/cause", theirs, ours);
    }
    if history.at != decided.at {
        let (theirs, ours) = (json!(history.at), json!(decided.at));
        return sides(MismatchKind::Time, "/at", theirs, ours);
    }
    if history.actor != decided.actor {
        let theirs = Value::from(history.actor.to_string());
        let ours = Value::from(decided.actor.to_string());
        return sides(MismatchKind::Actor, "/actor", theirs, ours);
    }
    let (theirs, ours) = (json!(history.hash), json!(decided.hash));
    sides(MismatchKind::Bytes, "/hash", theirs, ours)
}

fn refold(frames: &[Frame]) -> Result<RunState, ReplayError> {
    RunState::fold(frames).map_err(|error| {
        let seq = match &error {
            FoldError::Refused(seq, _) => *seq,
            FoldError::Empty | FoldError::Plan(_) => 0,
        };
        diverged(
            seq,
            MismatchKind::Input,
            None,
            Some(error.to_string().into()),
        )
    })
}
