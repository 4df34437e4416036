//! Paths into envelopes as a person types them.
//!
//! `params.x`, `env.NAME`, `output.x`, `error.code`; `step.ID.field` or `ID.field` for a step's
//! output, `step.ID.output.field` and `step.ID.status` for members of the step; `call/inner.field`
//! and `call/params.x` inside an inline child; `read.2.field` in the result of an item;
//! `judge.ktsu_invoked[1].said` and `judge.invoked[1].output.said` in the output of what its commands
//! ran. Elements are `[3]` or `.3`, odd names `["a.b"]`.

use super::TracedRun;
use crate::payload::Payload;
use ktsu_projections::run::StepKey;
use ktsu_projections::step_name::path_in;
use ktsu_workflow::expression::provenance::Tracked;
use ktsu_workflow::expression::{EvaluatedValue, INVOKED};

/// A field of an envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldPath {
    /// The scope it is in.
    pub scope: String,
    /// JSON pointer into the envelope of that scope.
    pub pointer: String,
}

/// A path that leads nowhere.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FieldNotFoundError {
    /// The error, with the requested path.
    pub message: String,
    /// The same without the path.
    pub unnamed: String,
    /// The names that are there instead.
    pub there: Vec<String>,
}

/// The longest path that is read.
const MAX_PATH: usize = 4096;
/// The most names in an error.
const MAX_SUGGESTIONS: usize = 12;

impl FieldPath {
    /// Finds a path among the envelopes of a run; `within` is the child that was asked about.
    ///
    /// # Errors
    /// [`FieldNotFoundError`].
    pub fn find(
        story: &TracedRun<'_>,
        within: &str,
        path: &str,
    ) -> Result<Self, FieldNotFoundError> {
        let segments = segments(path)?;
        let (first, mut rest) = segments.split_first().ok_or_else(|| FieldNotFoundError {
            message: "the path is empty".to_owned(),
            unnamed: "the path is empty".to_owned(),
            there: names_of(story, within),
        })?;
        let mut name = first.as_str();
        if name == "step" {
            let Some((id, below)) = rest.split_first() else {
                return Err(not_found(path, names_of(story, within)));
            };
            (name, rest) = (id, below);
        }
        let (scope, name) = match name.rsplit_once('/') {
            Some((scope, name)) => (path_in(within, scope), name),
            None => (within.to_owned(), name),
        };
        let envelope = story.envelope(&scope);
        let envelope = envelope.ok_or_else(|| not_found(path, names_of(story, within)))?;
        let position = story.state().step_at(&scope, name);
        let position = position.and_then(StepKey::position);
        if let Some(found) = position.and_then(|step| in_invoked(story, &scope, step, rest)) {
            return Ok(found);
        }
        let found = match position {
            Some(position) => in_step(&envelope, position, rest),
            None if first != "step" => below(&envelope, String::new(), name, rest),
            None => None,
        };
        match found {
            Some(pointer) => Ok(Self { scope, pointer }),
            None => {
                let around = match position {
                    Some(position) => envelope.find(&format!("/steps/{position}/output")),
                    None => envelope.find(&pointer_of(name)),
                };
                let there =
                    around.map_or_else(|| names_of(story, &scope), |around| deepest(&around, rest));
                Err(not_found(path, there))
            }
        }
    }
}

/// In what the commands of a step ran: `ktsu_invoked[1].said` as expressions name it, or
/// `invoked[1].output.said` and `invoked[1].status` as the envelope does.
fn in_invoked(
    story: &TracedRun<'_>,
    scope: &str,
    position: u32,
    rest: &[String],
) -> Option<FieldPath> {
    let [member, at, below @ ..] = rest else {
        return None;
    };
    let before = match member.as_str() {
        INVOKED => "/output",
        "invoked" if !below.is_empty() => "",
        _ => return None,
    };
    let child = invoked_path(story, scope, position, at)?;
    let below: String = below.iter().map(|one| pointer_of(one)).collect();
    let pointer = format!("{before}{below}");
    story.envelope(&child)?.find(&pointer)?;
    Some(FieldPath {
        scope: child,
        pointer,
    })
}

/// The path of the child that `ktsu_invoked[at]` of a step names.
fn invoked_path(story: &TracedRun<'_>, scope: &str, position: u32, at: &str) -> Option<String> {
    let scope = story.state().scope_at(scope)?;
    let child = story.invoked_child(scope, position, at.parse().ok()?)?;
    Some(story.state().scope(child)?.path.clone())
}

/// In the output where it is there, else among the members of the step.
fn in_step(envelope: &Tracked, position: u32, rest: &[String]) -> Option<String> {
    let step = format!("/steps/{position}");
    let output = format!("{step}/output");
    let pointer = |base: &str, rest: &[String]| {
        let below: String = rest.iter().map(|one| pointer_of(one)).collect();
        Some(format!("{base}{below}")).filter(|pointer| envelope.find(pointer).is_some())
    };
    match rest.split_first() {
        Some((first, below)) if first == "output" => {
            pointer(&output, below).or_else(|| pointer(&output, rest))
        }
        Some((first, below)) => pointer(&output, rest)
            .or_else(|| pointer(&step, rest))
            .or_else(|| {
                // An item of a fan-out, by its name: `read.2.field`.
                let item = first.bytes().all(|byte| byte.is_ascii_digit());
                let results = format!("{output}/results/{first}");
                // Where too many others failed, the step has no results, and the item has its own.
                let own = format!("{step}/items/{first}/output");
                let view = format!("{step}/items/{first}");
                let found = || {
                    let output = pointer(&results, below).or_else(|| pointer(&own, below));
                    output.or_else(|| pointer(&view, below))
                };
                item.then(found).flatten()
            }),
        None => pointer(&output, rest).or_else(|| pointer(&step, &["status".to_owned()])),
    }
}

fn below(envelope: &Tracked, base: String, name: &str, rest: &[String]) -> Option<String> {
    let below: String = rest.iter().map(|one| pointer_of(one)).collect();
    let pointer = format!("{base}{}{below}", pointer_of(name));
    envelope.find(&pointer).map(|_| pointer)
}

/// A segment of a path as a part of a JSON pointer.
pub(crate) fn pointer_of(segment: &str) -> String {
    format!("/{}", segment.replace('~', "~0").replace('/', "~1"))
}

/// The name that a segment of a JSON pointer stands for.
pub(in crate::provenance) fn name_in_pointer(segment: &str) -> String {
    segment.replace("~1", "/").replace("~0", "~")
}

impl FieldPath {
    /// The JSON of the field, as the envelope has it.
    fn json(&self, story: &TracedRun<'_>) -> Option<String> {
        let envelope = story.fold.envelope(&self.scope)?;
        let text = serde_json::to_string(&envelope).ok()?;
        let found = Payload::of(&text).at(&self.pointer)?;
        Some(found.json().to_owned())
    }
}

/// The JSON of a field of an envelope, as it is recorded.
pub(in crate::provenance) fn recorded_field(
    story: &TracedRun<'_>,
    within: &str,
    path: &str,
) -> Result<String, FieldNotFoundError> {
    let found = FieldPath::find(story, within, path)?;
    found.json(story).ok_or_else(|| not_found(path, Vec::new()))
}

/// The path of a member of a field.
pub fn field_path(field: &str, member: &str) -> String {
    match dotted(&pointer_of(member)) {
        member if member.starts_with('[') => format!("{field}{member}"),
        member => format!("{field}.{member}"),
    }
}

/// The names where a path stops leading on.
fn deepest(around: &Tracked, rest: &[String]) -> Vec<String> {
    let mut at = around.clone();
    for segment in rest {
        match at.find(&pointer_of(segment)) {
            Some(below) => at = below,
            None => break,
        }
    }
    let members = at
        .members()
        .map(|members| members.keys().cloned().collect());
    let items = || {
        at.items()
            .map(|items| vec![format!("[0] to [{}]", items.len().saturating_sub(1))])
    };
    members.or_else(items).unwrap_or_default()
}

fn names_of(story: &TracedRun<'_>, scope: &str) -> Vec<String> {
    let held = story
        .state()
        .scope_at(scope)
        .and_then(|at| story.state().scope(at));
    let steps = held.into_iter().flat_map(|scope| &scope.shape.plan.steps);
    let steps = steps.map(|step| format!("step.{}", step.id));
    let fixed = ["params", "env", "output", "status", "error"];
    fixed.into_iter().map(str::to_owned).chain(steps).collect()
}

/// A field that the envelope does not have.
pub(in crate::provenance) fn not_found(path: &str, mut there: Vec<String>) -> FieldNotFoundError {
    let more = there.len().saturating_sub(MAX_SUGGESTIONS);
    there.truncate(MAX_SUGGESTIONS);
    if more > 0 {
        there.push(format!("and {more} more"));
    }
    FieldNotFoundError {
        message: format!("the envelope has no {path}"),
        unnamed: "the envelope has no such field".to_owned(),
        there,
    }
}

/// The segments of a path.
pub(crate) fn segments(path: &str) -> Result<Vec<String>, FieldNotFoundError> {
    let bad = |why: &str| FieldNotFoundError {
        message: format!("{path} is not a path: {why}"),
        unnamed: format!("not a path: {why}"),
        there: Vec::new(),
    };
    if path.len() > MAX_PATH {
        let message = format!("a path is no longer than {MAX_PATH} bytes");
        return Err(FieldNotFoundError {
            unnamed: message.clone(),
            message,
            there: Vec::new(),
        });
    }
    let mut found = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(inside) = rest.strip_prefix("[\"") {
            let end = inside
                .find("\"]")
                .ok_or_else(|| bad("a [\" is never closed"))?;
            found.push(inside.get(..end).unwrap_or_default().to_owned());
            rest = inside.get(end + 2..).unwrap_or_default();
        } else if let Some(inside) = rest.strip_prefix('[') {
            let end = inside.find(']').ok_or_else(|| bad("a [ is never closed"))?;
            found.push(inside.get(..end).unwrap_or_default().to_owned());
            rest = inside.get(end + 1..).unwrap_or_default();
        } else {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            if end == 0 {
                return Err(bad("there is nothing between two dots"));
            }
            found.push(rest.get(..end).unwrap_or_default().to_owned());
            rest = rest.get(end..).unwrap_or_default();
        }
        match rest.strip_prefix('.') {
            Some("") => return Err(bad("it ends in a dot")),
            Some(after) => rest = after,
            None => {}
        }
    }
    Ok(found)
}

/// A JSON pointer as a path that [`segments`] reads: names without escapes, those that a dot or a
/// bracket would divide in brackets.
pub(crate) fn dotted(pointer: &str) -> String {
    let mut path = String::new();
    for segment in pointer.trim_start_matches('/').split('/') {
        let name = name_in_pointer(segment);
        if name.contains(['.', '[', ']', '/', '"']) {
            path.push_str(&format!("[\"{name}\"]"));
        } else {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(&name);
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_is_shown_as_the_path_that_names_it() {
        for (pointer, path) in [
            ("", ""),
            ("/params/a", "params.a"),
            ("/params/a~1b/c~0d/0", "params[\"a/b\"].c~d.0"),
            ("/v1.2/x", "[\"v1.2\"].x"),
        ] {
            assert_eq!(dotted(pointer), path);
            let named: Vec<String> = pointer.split('/').skip(1).map(name_in_pointer).collect();
            assert_eq!(segments(path).unwrap(), named, "{path}");
        }
    }

    #[test]
    fn a_path_is_names_and_elements() {
        let read = |path: &str| segments(path).map_err(|error| error.message);
        assert_eq!(read("step.fan.results[3].label").unwrap().len(), 5);
        assert_eq!(read("a[\"b.c\"].d").unwrap(), ["a", "b.c", "d"]);
        assert_eq!(read("call/inner.x").unwrap(), ["call/inner", "x"]);
        for bad in ["a..b", "a.", "a[", ".a"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
