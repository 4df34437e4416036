//! Answers from a file, in place of people: `ktsu run --answers FILE`, and `people` of a suite.
//!
//! ```text
//! what waits for a person ─▶ the entries that fit it, in the order of the file ─▶ one answer each
//! ```
//!
//! An answer is recorded as that of the principal `scripted`, or `scripted-NAME`, who showed no token:
//! no auditor takes it for a person's. That of a suite is recorded as `eval`, or `eval-NAME`.

use std::path::{Path, PathBuf};

use ktsu_config::fault::{Fault, FaultCode, Faults};
use ktsu_config::read::{self, ConfigReader, Fields};
use ktsu_config::shape::FieldType::{Any, Each, Integer, Keywords, List, Map, Pattern, Text};
use ktsu_config::shape::{FieldType, MapShape, optional, required};
use ktsu_config::yaml::{YamlNode, YamlValue};
use ktsu_ledger::id::{covers, is_name};
use ktsu_projections::approvals::ApprovalKind;
use ktsu_projections::person_requests::PersonRequest;
use serde_json::{Map as Object, Value, json};

use crate::numbers::equal;

/// The most entries of a file.
const MAX_ENTRIES: usize = 1_000;

/// The author of an answer where an entry of a file of answers names no one.
const SCRIPTED: &str = "scripted";

/// The author of an answer where an entry of a suite names no one.
const EVAL: &str = "eval";

/// The words by which an entry can decide on a call or an output.
const DECISIONS: [&str; 3] = ["approved", "rejected", "happened"];

/// The kinds of requests that can wait for people, as records name them.
const KINDS: [&str; 4] = ["approval", "in_doubt", "review", "suspend"];

/// A file of answers.
pub const ANSWERS: MapShape = MapShape::new(
    "the file",
    &[required("people", ENTRIES).doc("Their answers; the first that fits counts")],
);

/// Answers in place of people.
pub(crate) const ENTRIES: FieldType = List(&Map(&ENTRY));

const ENTRY: MapShape = MapShape::new(
    "the entry",
    &[
        optional("by", Pattern("^[A-Za-z0-9][A-Za-z0-9_.-]*$"))
            .doc("Who answers: recorded as scripted-NAME, scripted if absent; of an eval, as eval-NAME or eval"),
        optional("data", Any).doc("What a step is given that waits for data"),
        optional("decision", Keywords(&DECISIONS))
            .doc("About a tool call or the output of a step; happened: about a call in doubt"),
        optional("match", Map(&MATCH)).doc("What is answered; everything if absent"),
        optional("overlay", Each(&Any)).doc("Fields of a reviewed output, and their new values"),
        optional("reason", Text).doc("Why, for the record"),
        optional("result", Text).doc("What a call in doubt gave that has happened"),
    ],
)
.one_of(&[&["data", "decision"]]);

const MATCH: MapShape = MapShape::new(
    "match",
    &[
        optional("arguments", Each(&Any))
            .doc("Arguments that the call has to have: {to: ann, amount: 5}; it may have others"),
        optional("attempt", Integer(1, 1_000_000)).doc("Data of this attempt of the step only"),
        optional("kind", Keywords(&KINDS))
            .doc("A tool call, one in doubt, the output of a step, or data"),
        optional("step", Text)
            .doc("The step: judge, ju*; with its path within the run: check.1/judge"),
        optional("tool", Text).doc("The tool of a call: charge, pay_*"),
    ],
);

/// The answers of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answers {
    /// The file.
    pub path: PathBuf,
    /// The author of an answer where its entry names no one.
    by: &'static str,
    entries: Vec<Entry>,
}

/// One answer, and what it is given to.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    kind: Option<String>,
    step: Option<String>,
    tool: Option<String>,
    arguments: Object<String, Value>,
    attempt: Option<u32>,
    by: Option<String>,
    said: Said,
}

/// The content of an entry: data, or a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Said {
    Data {
        data: Value,
        reason: Option<String>,
    },
    Decision {
        word: String,
        reason: Option<String>,
        overlay: Object<String, Value>,
        result: Option<String>,
    },
}

/// An answer, as the route takes it that records it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The name of its author.
    pub by: String,
    /// The body of the request.
    pub body: Value,
}

impl Answers {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn parse(path: &Path, text: &str) -> Result<Self, Faults> {
        let mut faults = Faults::default();
        faults.sources.insert(path.to_owned(), text.to_owned());
        let read = Self::read(path, text, &mut faults);
        faults.sort();
        read.filter(|_| !faults.has_errors()).ok_or(faults)
    }

    fn read(path: &Path, text: &str, faults: &mut Faults) -> Option<Self> {
        let node = read::tree(text, path, faults)?;
        let mut reader = ConfigReader::new(path, text);
        let answers = Self::of_file(&mut reader, &node);
        faults.faults.append(&mut reader.faults);
        answers
    }

    fn of_file(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<Self> {
        let fields = reader.filled(node, &ANSWERS, &[])?;
        Some(Self {
            path: reader.file.to_owned(),
            by: SCRIPTED,
            entries: entries(reader, fields.get("people")?, SCRIPTED)?,
        })
    }

    /// The answers of a suite.
    pub(crate) fn of_suite(reader: &mut ConfigReader<'_>, people: &YamlNode) -> Option<Self> {
        Some(Self {
            path: reader.file.to_owned(),
            by: EVAL,
            entries: entries(reader, people, EVAL)?,
        })
    }

    /// The answers to what waits for people, in the order of the file. Of each principal, the first one
    /// counts that is not refused.
    pub fn to(&self, record: &PersonRequest) -> Vec<Answer> {
        let fitting = self.entries.iter().filter(|entry| entry.fits(record));
        let answers = fitting.map(|entry| Answer {
            by: principal(self.by, entry.by.as_deref()),
            body: entry.body(record),
        });
        answers.collect()
    }
}

fn entries(
    reader: &mut ConfigReader<'_>,
    people: &YamlNode,
    base: &'static str,
) -> Option<Vec<Entry>> {
    let nodes = reader.list(people, "people")?;
    if nodes.len() > MAX_ENTRIES {
        let words = format!("there are more than {MAX_ENTRIES} answers");
        return reader.bad_value(people, words);
    }
    let read = nodes.iter().filter_map(|node| entry(reader, node, base));
    Some(read.collect())
}

fn entry(reader: &mut ConfigReader<'_>, node: &YamlNode, base: &'static str) -> Option<Entry> {
    let fields = reader.filled(node, &ENTRY, &["data"])?;
    let before = reader.faults.len();
    let said = said(reader, &fields, node)?;
    let mut entry = Entry {
        kind: None,
        step: None,
        tool: None,
        arguments: Object::new(),
        attempt: None,
        by: text(reader, &fields, "by"),
        said,
    };
    if let Some(node) = fields.get("match")
        && let Some(fields) = reader.filled(node, &MATCH, &[])
    {
        let kinds = KINDS.map(|word| (word, word));
        let kind = fields.read("kind", |node| reader.keyword(node, "kind", &kinds));
        entry.kind = kind.map(str::to_owned);
        entry.step = text(reader, &fields, "step");
        entry.tool = text(reader, &fields, "tool");
        let arguments = fields.read("arguments", |node| values(reader, node, "arguments"));
        entry.arguments = arguments.unwrap_or_default();
        let attempt = fields.read("attempt", |node| {
            reader.integer(node, "attempt", 1, 1_000_000)
        });
        entry.attempt = attempt.and_then(|attempt| u32::try_from(attempt).ok());
    }
    judge_match(reader, &fields, &entry);
    if let (Some(node), Some(by)) = (fields.get("by"), &entry.by)
        && (by.is_empty() || !is_name(&principal(base, Some(by))))
    {
        let words = "by must be a short name of letters, digits, _, . and -";
        reader.bad_value::<()>(node, words);
    }
    (reader.faults.len() == before).then_some(entry)
}

/// Reports what an entry names that it can never answer.
fn judge_match(reader: &mut ConfigReader<'_>, fields: &Fields<'_>, entry: &Entry) {
    let Some(node) = fields.get("match") else {
        return;
    };
    let is_data = matches!(entry.said, Said::Data { .. });
    let kind = entry.kind.as_deref();
    let words = match kind {
        Some("suspend") if !is_data => {
            Some("a step that waits for data is given data, and no decision")
        }
        Some("approval" | "in_doubt" | "review") if is_data => {
            Some("data are given to steps that wait for them: kind: suspend")
        }
        _ if entry.attempt.is_some() && !is_data => {
            Some("attempt goes with data: a decision is about every attempt")
        }
        _ if entry.tool.is_some() && (is_data || kind == Some("review")) => {
            Some("tool goes with decisions on tool calls")
        }
        _ if !entry.arguments.is_empty() && (is_data || kind == Some("review")) => {
            Some("arguments go with decisions on tool calls")
        }
        _ => None,
    };
    if let Some(words) = words {
        let fault = Fault::new(FaultCode::BadValue, node.place, words);
        reader.reject::<()>(fault.hint("match: {step: NAME} fits whatever the step waits for"));
    }
    for pattern in [&entry.step, &entry.tool].into_iter().flatten() {
        let name = pattern.strip_suffix('*').unwrap_or(pattern);
        if name.contains('*') || pattern.is_empty() {
            let words = format!("{pattern:?} can have a * at its end only");
            reader.bad_value::<()>(node, words);
        }
    }
}

/// `data` or `decision`, one of which has to be there.
fn said(reader: &mut ConfigReader<'_>, fields: &Fields<'_>, node: &YamlNode) -> Option<Said> {
    // Data may be null.
    let null = YamlNode {
        place: node.place,
        data: YamlValue::Null,
    };
    let data = fields.get("data");
    let data = data.or_else(|| fields.key("data").map(|_| &null));
    match (data, fields.get("decision")) {
        (Some(data), None) => {
            for name in ["overlay", "result"] {
                if let Some(node) = fields.get(name) {
                    let words = format!("{name} belongs to a decision, not to data");
                    reader.bad_value::<()>(node, words);
                }
            }
            Some(Said::Data {
                data: data.to_value(),
                reason: text(reader, fields, "reason"),
            })
        }
        (None, Some(word)) => decision(reader, fields, word),
        (Some(_), Some(decision)) => {
            reader.bad_value(decision, "an answer has data or a decision, and not both")
        }
        (None, None) => {
            let words = "the answer has neither data nor a decision";
            let fault = Fault::new(FaultCode::MissingKey, node.place, words);
            reader.reject(fault.hint("decision: approved, or data: {…}"))
        }
    }
}

fn decision(reader: &mut ConfigReader<'_>, fields: &Fields<'_>, node: &YamlNode) -> Option<Said> {
    let words = DECISIONS.map(|word| (word, word));
    let word = reader.keyword(node, "decision", &words)?;
    let overlay = fields.read("overlay", |node| values(reader, node, "overlay"));
    Some(Said::Decision {
        word: word.to_owned(),
        reason: text(reader, fields, "reason"),
        overlay: overlay.unwrap_or_default(),
        result: text(reader, fields, "result"),
    })
}

/// A map of any values.
fn values(
    reader: &mut ConfigReader<'_>,
    node: &YamlNode,
    name: &str,
) -> Option<Object<String, Value>> {
    reader.open_map(node, name)?;
    match node.to_value() {
        Value::Object(values) => Some(values),
        _ => None,
    }
}

fn text(reader: &mut ConfigReader<'_>, fields: &Fields<'_>, name: &str) -> Option<String> {
    fields.read(name, |node| reader.string(node, name).map(str::to_owned))
}

impl Entry {
    fn fits(&self, record: &PersonRequest) -> bool {
        let kind = kind(record);
        let is_data = matches!(self.said, Said::Data { .. });
        let fits = |pattern: &Option<String>, name: &str| {
            pattern.as_ref().is_none_or(|pattern| covers(pattern, name))
        };
        let call = match record {
            PersonRequest::Approval(call) => Some(call),
            PersonRequest::Review(_) | PersonRequest::Suspension(_) => None,
        };
        let is_given = |(name, value): (&String, &Value)| {
            let given = call.and_then(|call| call.arguments.get(name));
            given.is_some_and(|given| equal(given, value))
        };
        is_data == (kind == "suspend")
            && self.kind.as_deref().is_none_or(|word| word == kind)
            && self.step.as_ref().is_none_or(|step| is_step(step, record))
            && (self.tool.is_none() || call.is_some_and(|call| fits(&self.tool, &call.tool_name)))
            && self.arguments.iter().all(is_given)
            && self
                .attempt
                .is_none_or(|attempt| is_of_attempt(attempt, record))
    }

    /// The answer, as the request has it.
    fn body(&self, record: &PersonRequest) -> Value {
        let (mut body, reason) = match &self.said {
            Said::Data { data, reason } => {
                (json!({"data": data, "suspend_id": record.id()}), reason)
            }
            Said::Decision {
                word,
                reason,
                overlay,
                result,
            } => {
                let mut body = json!({"decision": word});
                match record {
                    PersonRequest::Approval(call) => {
                        body["approval_id"] = Value::from(call.approval_id.as_str());
                        body["digest"] = Value::from(call.digest.as_str());
                        if let Some(result) = result {
                            body["result"] = Value::from(result.as_str());
                        }
                    }
                    PersonRequest::Review(review) => {
                        body["review_id"] = Value::from(review.review_id.as_str());
                        if !overlay.is_empty() {
                            body["overlay"] = Value::Object(overlay.clone());
                        }
                    }
                    PersonRequest::Suspension(_) => {}
                }
                (body, reason)
            }
        };
        if let Some(reason) = reason {
            body["reason"] = Value::from(reason.as_str());
        }
        body
    }
}

/// The principal of an answer, by the name that it gives.
fn principal(base: &str, by: Option<&str>) -> String {
    by.map_or_else(|| base.to_owned(), |by| format!("{base}-{by}"))
}

/// The word for what waits.
fn kind(record: &PersonRequest) -> &'static str {
    match record {
        PersonRequest::Suspension(_) => "suspend",
        PersonRequest::Review(_) => "review",
        PersonRequest::Approval(call) if call.kind == ApprovalKind::InDoubt => "in_doubt",
        PersonRequest::Approval(_) => "approval",
    }
}

/// Returns `true` if data are asked for by this attempt.
fn is_of_attempt(attempt: u32, record: &PersonRequest) -> bool {
    matches!(record, PersonRequest::Suspension(waits) if waits.attempt == attempt)
}

/// Returns `true` if a pattern covers the step of a record, or the step of which it is an item. A
/// pattern with a slash is about the whole path within the run.
fn is_step(pattern: &str, record: &PersonRequest) -> bool {
    let step = record.step_id();
    let path = match record.scope() {
        "" => step.to_owned(),
        scope => format!("{scope}/{step}"),
    };
    let name = if pattern.contains('/') { &path } else { step };
    let whole = name.rsplit_once('.').map(|(step, _)| step);
    covers(pattern, name) || whole.is_some_and(|step| covers(pattern, step))
}

#[cfg(test)]
mod tests;
