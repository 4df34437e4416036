//! Filters of frames: one grammar for specs and for `ktsu frames --where`.

use ktsu_codes::nearest;
use ktsu_ledger::Event;
use ktsu_projections::step_name::path_in;
use ktsu_workflow::expression::{EvaluationError, Evaluator, Expression, Rcvar, Tracker, truthy};

use crate::frames::FrameView;
use crate::glob::{Glob, MAX_GLOB_BYTES};

/// The most conditions of a filter.
const MAX_CONDITIONS: usize = 32;
/// The most globs of a condition.
const MAX_GLOBS: usize = 32;
/// The prefix of the types of events that kits name.
const OF_KITS: &str = "x.";

/// The keys of a filter that hold globs.
pub(crate) const GLOB_KEYS: [&str; 9] = [
    "type", "scope", "step", "item", "tool", "server", "model", "status", "actor",
];

/// A selection of frames: those for which every condition holds.
#[derive(Debug, Clone, Default)]
pub struct FrameFilter {
    /// Those with globs come first.
    conditions: Vec<Condition>,
}

#[derive(Debug, Clone)]
enum Condition {
    /// A field is covered by one of some globs.
    Field(Field, Vec<Glob>),
    /// An expression over the frame is true.
    Expression(Expression),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Type,
    Scope,
    Step,
    Item,
    Tool,
    Server,
    Model,
    Status,
    Actor,
}

/// The reason why a text is not a filter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FilterError {
    /// A lower-case fragment.
    pub message: String,
    /// A suggestion of what to type instead.
    pub hint: Option<String>,
}

impl FilterError {
    fn new(message: impl Into<String>, hint: Option<String>) -> Self {
        Self {
            message: message.into(),
            hint,
        }
    }
}

impl FrameFilter {
    /// Reads words of the form `KEY=GLOB`. A word may have several globs, with commas, one of which
    /// has to fit; `expr=EXPRESSION` is JMESPath over the frame.
    ///
    /// # Errors
    /// [`FilterError`].
    pub fn from_words(words: &[String]) -> Result<Self, FilterError> {
        let mut filter = Self::default();
        for word in words {
            let Some((key, text)) = word.split_once('=') else {
                let hint = Some("--where KEY=GLOB: --where type=tool.called".to_owned());
                return Err(FilterError::new(format!("{word:?} has no ="), hint));
            };
            filter.add(key, text)?;
        }
        Ok(filter)
    }

    /// Adds a condition.
    pub(crate) fn add(&mut self, key: &str, text: &str) -> Result<(), FilterError> {
        if self.conditions.len() == MAX_CONDITIONS {
            let message = format!("a filter has at most {MAX_CONDITIONS} conditions");
            return Err(FilterError::new(message, None));
        }
        if key == "expr" {
            let expression = expression(text)?;
            self.conditions.push(Condition::Expression(expression));
            return Ok(());
        }
        let field = Field::of(key)?;
        let globs = globs(field, key, text)?;
        let is_glob = |condition: &Condition| matches!(condition, Condition::Field(..));
        let at = self
            .conditions
            .iter()
            .take_while(|one| is_glob(one))
            .count();
        self.conditions.insert(at, Condition::Field(field, globs));
        Ok(())
    }

    /// Returns `true` if a frame matches.
    ///
    /// # Errors
    /// [`EvaluationError`] where an expression has no value.
    pub fn matches(&self, frame: &FrameView) -> Result<bool, EvaluationError> {
        self.matches_within(frame, &mut Evaluator::new(&mut Tracker::default()))
    }

    /// As [`FrameFilter::matches`], on an evaluator shared with other evaluations.
    pub(crate) fn matches_within(
        &self,
        frame: &FrameView,
        evaluator: &mut Evaluator<'_, Rcvar>,
    ) -> Result<bool, EvaluationError> {
        for condition in &self.conditions {
            let holds = match condition {
                Condition::Field(field, globs) => globs.iter().any(|glob| field.fits(glob, frame)),
                Condition::Expression(expression) => {
                    truthy(&expression.evaluate_on(&frame.value, evaluator)?)
                }
            };
            if !holds {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The most comparisons that a frame takes; 1 without conditions.
    pub(crate) fn cost(&self) -> u64 {
        let globs = self.conditions.iter().map(|condition| match condition {
            Condition::Field(_, globs) => globs.iter().map(Glob::cost).sum(),
            Condition::Expression(_) => 1,
        });
        1 + globs.sum::<u64>()
    }
}

/// An expression over one value.
pub(crate) fn expression(text: &str) -> Result<Expression, FilterError> {
    Expression::parse_element(text)
        .map_err(|error| FilterError::new(format!("{text:?}: {}", error.message), error.hint))
}

/// The globs of a condition.
fn globs(field: Field, key: &str, text: &str) -> Result<Vec<Glob>, FilterError> {
    let globs: Vec<Glob> = text.split(',').map(|one| Glob::new(one.trim())).collect();
    if globs.len() > MAX_GLOBS
        || globs
            .iter()
            .any(|glob| glob.as_str().len() > MAX_GLOB_BYTES)
    {
        let message = format!(
            "{key} has more than {MAX_GLOBS} globs, or one of more than {MAX_GLOB_BYTES} bytes"
        );
        return Err(FilterError::new(message, None));
    }
    for glob in &globs {
        if glob.as_str().is_empty() && field != Field::Scope {
            return Err(FilterError::new(format!("{key} has an empty glob"), None));
        }
        match field {
            Field::Type => known_type(glob)?,
            Field::Item => item(glob)?,
            _ => {}
        }
    }
    Ok(globs)
}

/// Refuses a text that no item has.
fn item(glob: &Glob) -> Result<(), FilterError> {
    let text = glob.as_str();
    let is_number = text
        .parse::<u32>()
        .is_ok_and(|number| number.to_string() == text);
    let is_glob = text.contains('*')
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'*');
    match is_number || is_glob {
        true => Ok(()),
        false => {
            let hint = Some("items count from 0: item: 3, or item: [0, 3]".to_owned());
            Err(FilterError::new(format!("no item is {text:?}"), hint))
        }
    }
}

/// Refuses a type that no frame can have.
fn known_type(glob: &Glob) -> Result<(), FilterError> {
    let text = glob.as_str();
    let beginning = text.split('*').next().unwrap_or_default();
    let of_kits =
        text.starts_with(OF_KITS) || (beginning != text && OF_KITS.starts_with(beginning));
    if of_kits || Event::KINDS.iter().any(|kind| glob.covers(kind)) {
        return Ok(());
    }
    let near = nearest(text, Event::KINDS.iter().copied());
    let hint = near.map(|near| format!("did you mean {near}?"));
    let message = format!("there is no type of frames {text:?}");
    Err(FilterError::new(message, hint))
}

impl Field {
    fn of(key: &str) -> Result<Self, FilterError> {
        Ok(match key {
            "type" => Self::Type,
            "scope" => Self::Scope,
            "step" => Self::Step,
            "item" => Self::Item,
            "tool" => Self::Tool,
            "server" => Self::Server,
            "model" => Self::Model,
            "status" => Self::Status,
            "actor" => Self::Actor,
            other => return Err(unknown_key(other)),
        })
    }

    fn fits(self, glob: &Glob, frame: &FrameView) -> bool {
        let covers = |text: &Option<String>| text.as_ref().is_some_and(|text| glob.covers(text));
        match self {
            Self::Type => glob.covers(&frame.kind),
            Self::Scope => glob.covers(&frame.scope),
            Self::Step => is_step(glob, frame),
            Self::Item => frame
                .item
                .is_some_and(|item| glob.covers(&item.to_string())),
            Self::Tool => is_tool(glob, frame),
            Self::Server => covers(&frame.server),
            Self::Model => covers(&frame.model),
            Self::Status => covers(&frame.status),
            Self::Actor => glob.covers(&frame.actor),
        }
    }
}

fn unknown_key(key: &str) -> FilterError {
    let known = GLOB_KEYS.into_iter().chain(["expr"]);
    let hint = match nearest(key, known.clone()) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("known keys: {}", known.collect::<Vec<_>>().join(", ")),
    };
    FilterError::new(format!("unknown key {key:?} in the filter"), Some(hint))
}

/// Returns `true` if a frame is about a step. A glob with a slash is about the whole path within
/// the run.
fn is_step(glob: &Glob, frame: &FrameView) -> bool {
    let step = frame.step.as_ref();
    step.is_some_and(|step| match glob.as_str().contains('/') {
        true => glob.covers(&path_in(&frame.scope, step)),
        false => glob.covers(step),
    })
}

/// Returns `true` if a frame belongs to a call of a tool, by its bare name or in full:
/// `SERVER__TOOL`.
pub(crate) fn is_tool(glob: &Glob, frame: &FrameView) -> bool {
    let Some(tool) = &frame.tool else {
        return false;
    };
    let full = || {
        let server = frame.server.as_ref()?;
        Some(glob.covers(&format!("{server}__{tool}")))
    };
    glob.covers(tool) || full() == Some(true)
}
