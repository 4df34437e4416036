//! The recorded results that answer the unsent calls of a recompute (seed 004). A call gets the
//! result of the same call of the same tool in the run: the first such call gets the first recorded
//! result, and each result is used once.
//!
//! ```text
//! recompute.created{results} ─▶ Results ─of a task─▶ Record ─answer(call)─▶ tool.returned{recorded}
//! ```
//!
//! The answer follows from the state alone, so no runtime has to be trusted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ktsu_ledger::CanonicalJson;
use ktsu_ledger::event::{RecomputeOf, RecordedAt, RecordedResult, RunCreated, ToolReturned};
use serde_json::Value;

use super::call::{RequestedCall, is_full_name};

/// The recorded results of all tasks, by step and item of the recompute.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecomputeResults {
    of: Option<RecomputeOf>,
    tasks: BTreeMap<String, BTreeMap<u32, Arc<Vec<RecordedResult>>>>,
}

impl RecomputeResults {
    pub(crate) fn of(created: &RunCreated) -> Self {
        let mut tasks: BTreeMap<String, BTreeMap<u32, Vec<RecordedResult>>> = BTreeMap::new();
        for result in &created.results {
            let step = tasks.entry(result.step.clone()).or_default();
            step.entry(result.item).or_default().push(result.clone());
        }
        let shared = |items: BTreeMap<u32, Vec<RecordedResult>>| {
            let items = items.into_iter();
            items.map(|(item, list)| (item, Arc::new(list))).collect()
        };
        let tasks = tasks.into_iter();
        Self {
            of: created.of.clone(),
            tasks: tasks.map(|(step, items)| (step, shared(items))).collect(),
        }
    }

    /// The recorded results that answer the calls of one task.
    pub(crate) fn task(&self, step: &str, item: u32) -> TaskResults {
        let results = self.tasks.get(step).and_then(|items| items.get(&item));
        TaskResults {
            of: self.of.as_ref().map(|of| of.stream.clone()),
            results: results.cloned().unwrap_or_default(),
            ..TaskResults::default()
        }
    }
}

/// The recorded results of one task, and which of them have answered a call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskResults {
    /// The stream of the run that is recomputed; of a baseline none.
    pub of: Option<String>,
    results: Arc<Vec<RecordedResult>>,
    used: BTreeSet<usize>,
    /// The tools its models were offered last.
    offered: Option<CanonicalJson>,
}

impl TaskResults {
    /// The recorded result that answers a call, if one is left that does. A call with a secret in
    /// it was not sent before either.
    pub fn result_for(&self, call: &RequestedCall) -> Option<&RecordedResult> {
        if call.secret || self.results.is_empty() {
            return None;
        }
        let (server, tool) = self.target(&call.name)?;
        let mut left = self.left().map(|(_, result)| result);
        left.find(|result| {
            let at = &result.recorded;
            (&at.server, &at.tool, &result.digest) == (&server, &tool, &call.digest)
        })
    }

    /// The tool that a model means by a name.
    pub fn target(&self, name: &str) -> Option<(String, String)> {
        target(self.offered.as_ref()?, name)
    }

    fn left(&self) -> impl Iterator<Item = (usize, &RecordedResult)> {
        let results = self.results.iter().enumerate();
        results.filter(|(at, _)| !self.used.contains(at))
    }

    /// Returns `true` if a frame says what the record says of the call: its result, or nothing.
    pub(crate) fn accepts(&self, call: &RequestedCall, returned: &ToolReturned) -> bool {
        // What was sent is not withheld any more, and gave what it gave.
        if returned.called.is_some() {
            return returned.recorded.is_none();
        }
        match self.result_for(call) {
            Some(result) => is_repeated_by(result, returned),
            None => returned.recorded.is_none(),
        }
    }

    /// Notes which tools a model is offered.
    pub(crate) fn set_offered_tools(&mut self, tools: Option<&CanonicalJson>) {
        self.offered = tools.cloned().or(self.offered.take());
    }

    /// Takes in that a result has answered a call.
    pub(crate) fn mark_used(&mut self, recorded: &RecordedAt) {
        let mut left = self.left();
        let spent = left.find(|(_, result)| result.recorded == *recorded);
        let spent = spent.map(|(at, _)| at);
        drop(left);
        self.used.extend(spent);
    }
}

/// Returns `true` if a frame repeats a result.
fn is_repeated_by(result: &RecordedResult, returned: &ToolReturned) -> bool {
    returned.recorded.as_deref() == Some(&result.recorded)
        && returned.called.is_none()
        && returned.content == result.content
        && returned.is_error == result.is_error
        && returned.not_sent == result.not_sent
        && returned.structured == result.structured
}

/// The server and the tool that a model means by a name: of the tools it was offered, the one with
/// this name, else the only one that is called so in full (decision A2).
pub fn target(offered: &CanonicalJson, name: &str) -> Option<(String, String)> {
    let offered = offered.to_value();
    let tools: Vec<(&str, &str, &str)> = offered.as_array()?.iter().filter_map(names).collect();
    let found = match tools.iter().find(|(offered, ..)| *offered == name) {
        Some(found) => found,
        None => {
            let tools = tools.iter();
            let mut found = tools.filter(|(_, server, tool)| is_full_name(name, server, tool));
            let first = found.next()?;
            found.next().is_none().then_some(first)?
        }
    };
    Some((found.1.to_owned(), found.2.to_owned()))
}

fn names(offered: &Value) -> Option<(&str, &str, &str)> {
    let text = |member: &str| offered.get(member)?.as_str();
    Some((text("name")?, text("server")?, text("tool")?))
}

#[cfg(test)]
mod tests {
    use ktsu_ledger::event::ReportReference;
    use serde_json::json;

    use super::super::call::CallState;
    use super::*;

    #[test]
    fn what_is_sent_after_all_has_a_result_of_its_own() {
        let at = RecordedAt {
            seq: 7,
            server: "s".to_owned(),
            stream: "run:r".to_owned(),
            tool: "write".to_owned(),
        };
        let record = TaskResults {
            of: None,
            results: Arc::new(vec![RecordedResult {
                content: CanonicalJson::null(),
                digest: "d".to_owned(),
                is_error: false,
                item: 0,
                not_sent: None,
                recorded: at.clone(),
                step: "a".to_owned(),
                structured: None,
            }]),
            used: BTreeSet::new(),
            offered: CanonicalJson::from_value(
                &json!([{"name": "write", "server": "s", "tool": "write"}]),
            )
            .ok(),
        };
        let call = RequestedCall {
            id: "c".to_owned(),
            name: "write".to_owned(),
            arguments: CanonicalJson::null(),
            digest: "d".to_owned(),
            secret: false,
            state: CallState::Requested,
        };
        let returned = |called: Option<u64>, recorded: bool| ToolReturned {
            attempt: 1,
            call: 0,
            called,
            content: CanonicalJson::null(),
            duration_ms: 0,
            is_error: false,
            item: None,
            not_sent: None,
            recorded: recorded.then(|| Box::new(at.clone())),
            report: ReportReference {
                digest: String::new(),
                n: 1,
            },
            response: 1,
            step: "a".to_owned(),
            structured: None,
        };
        assert!(record.accepts(&call, &returned(None, true)));
        assert!(!record.accepts(&call, &returned(None, false)));
        assert!(record.accepts(&call, &returned(Some(3), false)));
        assert!(!record.accepts(&call, &returned(Some(3), true)));
    }
}
