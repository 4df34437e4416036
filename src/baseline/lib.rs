//! Baselines: the input and output of an agent step, in a file that can be compared with any later
//! version of its kit (seed 004).
//!
//! Persisted, keep stable: [`FORMAT`] names the format. A baseline is made from a recorded run
//! alone, so the same run gives the same bytes. The hashes are computed as in other systems
//! (decision F7).

mod check;
mod results;

use std::collections::BTreeMap;

use ktsu_ledger::canonical::{JsonError, parse_strict};
use ktsu_ledger::event::RecordedResult;
use ktsu_ledger::{CanonicalJson, Timestamp, jcs};
use ktsu_projections::step_name::StepName;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use check::{
    BaselineComparison, BaselineCounts, BaselineReport, BaselineResult, BaselineStep,
    BaselineVerdict, RepeatedRun, ToleratedDifferences, compare, find_step,
};
pub use results::ToolResult;

use ktsu_workflow::recompute::{RecordedRun, RecordedTask};

/// The form of these files. 1: as declared here.
pub const FORMAT: &str = "ktsu-baseline@1";

/// The most bytes of such a file.
pub const MAX_FILE: usize = 4 << 20;

/// One task of an agent: what it was given, and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Baseline {
    /// [`FORMAT`].
    pub format: String,
    /// Whatever helps to find and to sort it; means nothing to the comparison.
    pub metadata: Metadata,
    /// The part that is compared.
    pub snapshot: Snapshot,
}

/// The origin of a baseline.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metadata {
    /// The item of a fan-out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
    /// A name somebody gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Whatever somebody wrote beside it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub meta: BTreeMap<String, String>,
    /// The run it was captured from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
}

/// The part that is compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Snapshot {
    /// The time at which the task ended, as its run recorded it.
    pub captured_at: Timestamp,
    /// The commands of its agent besides the output, in order; absent where the hash alone is kept,
    /// and in files of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commands: Option<Vec<Value>>,
    /// Of `commands`. Without it nothing shows what the agent commanded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commands_hash: Option<String>,
    /// The params of the agent; what resolves through a secret as its template.
    pub input: Map<String, Value>,
    /// Of `input`.
    pub input_hash: String,
    /// The output of the task, without reserved fields; absent where the hash alone is kept.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    pub output: Option<Value>,
    /// Of `output`. Without it nothing shows that the output is the one that was captured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_hash: Option<String>,
    /// The step, by its path from the workflow: `triage`, `call/inner`.
    pub step: String,
    /// The answers to the calls of tools that are not sent; absent where none is recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_results: Vec<ToolResult>,
    /// Of `tool_results`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_results_hash: Option<String>,
    /// The workflow's version.
    pub version: String,
    /// The workflow's name.
    pub workflow: String,
}

/// A member that is there is a value, null included.
fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

/// The reasons why a file is no baseline that can be used. Each is one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BaselineError {
    /// Too large to be one.
    #[error("larger than {MAX_FILE} bytes")]
    TooLarge,
    /// Not JSON, or JSON of another shape.
    #[error("malformed: {0}")]
    Malformed(String),
    /// A format this version does not know.
    #[error("format {0:?}, while this version of ktsu knows {FORMAT}")]
    Format(String),
    /// The input is not the one that was captured.
    #[error("input_hash_mismatch: the input has {actual}, the file says {said}; capture it again")]
    InputHash {
        /// The hash in the file.
        said: String,
        /// The hash of its input.
        actual: String,
    },
    /// The output is not the one that was captured.
    #[error("output_corrupted: the output has {actual}, the file says {said}; capture it again")]
    OutputHash {
        /// The hash in the file.
        said: String,
        /// The hash of its output.
        actual: String,
    },
    /// The commands are not those that were captured.
    #[error("commands_corrupted: they have {actual}, the file says {said}; capture it again")]
    CommandsHash {
        /// The hash in the file.
        said: String,
        /// The hash of its commands.
        actual: String,
    },
    /// The results of tools are not those that were captured.
    #[error("tool_results_corrupted: they have {actual}, the file says {said}; capture it again")]
    ToolsHash {
        /// The hash in the file.
        said: String,
        /// The hash of its results.
        actual: String,
    },
}

impl Baseline {
    /// Reads a file, and holds it to its own hashes.
    ///
    /// # Errors
    /// [`BaselineError`].
    pub fn read(bytes: &[u8]) -> Result<Self, BaselineError> {
        if bytes.len() > MAX_FILE {
            return Err(BaselineError::TooLarge);
        }
        let malformed = |words: String| {
            let plain: String = words.chars().take(200).map(one_line).collect();
            BaselineError::Malformed(plain)
        };
        let value = parse_strict(bytes).map_err(|unfit| malformed(unfit.to_string()))?;
        let format = value.get("format").and_then(Value::as_str);
        if let Some(other) = format.filter(|format| *format != FORMAT) {
            return Err(BaselineError::Format(other.chars().take(64).collect()));
        }
        let read: Result<Self, _> = serde_json::from_value(value);
        let read = read.map_err(|error| malformed(error.to_string()))?;
        let actual = jcs::digest(&Value::Object(read.snapshot.input.clone()));
        let said = display_digest(&read.snapshot.input_hash);
        if actual != read.snapshot.input_hash {
            return Err(BaselineError::InputHash { said, actual });
        }
        let actual = results::hash_of(&read.snapshot.tool_results);
        if actual != read.snapshot.tool_results_hash {
            let word = |hash: Option<&str>| hash.map_or_else(|| "none".to_owned(), display_digest);
            return Err(BaselineError::ToolsHash {
                said: word(read.snapshot.tool_results_hash.as_deref()),
                actual: word(actual.as_deref()),
            });
        }
        let commands = (&read.snapshot.commands, &read.snapshot.commands_hash);
        match (
            commands.0.as_ref().map(|one| hash_of_commands(one)),
            commands.1,
        ) {
            (Some(actual), said) if said.as_ref() != Some(&actual) => {
                let said = said
                    .as_deref()
                    .map_or_else(|| "none".to_owned(), display_digest);
                return Err(BaselineError::CommandsHash { said, actual });
            }
            (None, Some(hash)) if !is_digest(hash) => {
                return Err(malformed("commandsHash is not a SHA-256".to_owned()));
            }
            _ => {}
        }
        match (&read.snapshot.output, &read.snapshot.output_hash) {
            (Some(output), Some(hash)) if jcs::digest(output) != *hash => {
                Err(BaselineError::OutputHash {
                    said: display_digest(hash),
                    actual: jcs::digest(output),
                })
            }
            (None, Some(hash)) if !is_digest(hash) => {
                Err(malformed("outputHash is not a SHA-256 digest".to_owned()))
            }
            _ => Ok(read),
        }
    }

    /// The bytes of its file: indented, members in order, a newline at the end.
    ///
    /// # Errors
    /// [`JsonError`] if it could not be read again.
    pub fn write(&self) -> Result<String, JsonError> {
        let value = serde_json::to_value(self).unwrap_or_default();
        let text = CanonicalJson::from_value(&value)?;
        if text.as_str().len() > MAX_FILE / 2 {
            // Indented it may be twice as long.
            return Err(JsonError::Syntax {
                reason: format!("more than {} bytes", MAX_FILE / 2),
                line: 1,
                column: 1,
            });
        }
        let mut pretty = serde_json::to_string_pretty(&value).unwrap_or_default();
        pretty.push('\n');
        Ok(pretty)
    }

    /// The answers to the calls of its task that are not sent.
    ///
    /// # Errors
    /// [`JsonError`] of what no frame could carry.
    pub fn results(&self) -> Result<Vec<RecordedResult>, JsonError> {
        let results = self.snapshot.tool_results.iter();
        results.map(ToolResult::to_recorded).collect()
    }

    /// A name for its file: `call__inner.2.baseline.json`.
    pub fn file_name(&self) -> String {
        let step = self.snapshot.step.replace('/', "__");
        match self.metadata.item {
            Some(item) => format!("{step}.{item}.baseline.json"),
            None => format!("{step}.baseline.json"),
        }
    }
}

/// The task to capture, and what to write beside it.
#[derive(Debug, Clone, Default)]
pub struct CaptureOptions {
    /// This step only, or this item of one, as people name them.
    pub step: Option<String>,
    /// See [`Metadata::label`].
    pub label: Option<String>,
    /// See [`Metadata::meta`].
    pub meta: BTreeMap<String, String>,
    /// Keeps hashes of outputs and commands instead of them.
    pub hash_only: bool,
}

/// The baselines of a recorded run, in the order its tasks began; and the tasks that have none,
/// since no output of theirs is recorded.
pub fn capture(recorded: &RecordedRun, wanted: &CaptureOptions) -> (Vec<Baseline>, Vec<String>) {
    let (mut made, mut left) = (Vec::new(), Vec::new());
    let tasks = recorded.ended();
    let name = wanted.step.as_deref().map(StepName::parse);
    let is_meant = |task: &&RecordedTask| {
        name.as_ref().is_none_or(|name| {
            let paths = [task.path(), task.definition_path()];
            paths.contains(&name.path) && (name.item.is_none() || name.item == task.item)
        })
    };
    for task in tasks.filter(is_meant) {
        match captured(recorded, task, wanted) {
            Some(baseline) => made.push(baseline),
            None => left.push(match task.item {
                Some(item) => format!("{}.{item}", task.path()),
                None => task.path(),
            }),
        }
    }
    (made, left)
}

fn captured(
    recorded: &RecordedRun,
    task: &RecordedTask,
    wanted: &CaptureOptions,
) -> Option<Baseline> {
    let output = task.end.as_ref()?.value()?;
    let Value::Object(input) = task.input() else {
        return None;
    };
    let tool_results: Vec<ToolResult> = task.calls.results().map(ToolResult::of).collect();
    Some(Baseline {
        format: FORMAT.to_owned(),
        metadata: Metadata {
            item: task.item,
            label: wanted.label.clone(),
            meta: wanted.meta.clone(),
            run: Some(recorded.stream.name().to_owned()),
        },
        snapshot: Snapshot {
            captured_at: task.ended_at?,
            commands: (!wanted.hash_only).then(|| task.commands.clone()),
            commands_hash: Some(hash_of_commands(&task.commands)),
            input_hash: jcs::digest(&Value::Object(input.clone())),
            input,
            output_hash: Some(jcs::digest(&output)),
            output: (!wanted.hash_only).then_some(output),
            step: task.definition_path(),
            tool_results_hash: results::hash_of(&tool_results),
            tool_results,
            version: recorded.version.clone(),
            workflow: recorded.workflow.clone(),
        },
    })
}

/// The hash of some commands, of none as well.
fn hash_of_commands(commands: &[Value]) -> String {
    jcs::digest(&Value::from(commands))
}

/// A digest as far as it is worth showing: what stands in its place may be anything.
fn display_digest(digest: &str) -> String {
    if is_digest(digest) {
        return digest.to_owned();
    }
    digest.chars().take(80).map(one_line).collect()
}

fn is_digest(text: &str) -> bool {
    let hex = text.strip_prefix("sha256:");
    hex.is_some_and(|hex| {
        let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        hex.len() == 64 && hex.bytes().all(digit)
    })
}

fn one_line(character: char) -> char {
    if character.is_control() {
        ' '
    } else {
        character
    }
}

#[cfg(test)]
mod tests;
