//! The check that the results that a recompute reuses are those in its first frame, each for the
//! matching call and only once; and, if the run is in the archive, those that the run recorded.

use std::collections::BTreeSet;

use ktsu_ledger::event::{
    AgentEvent, RecomputeEvent, RecordedAt, RecordedResult, ToolReturned, UnsentReason,
};
use ktsu_ledger::{CanonicalJson, Event};

use super::history::History;

/// The results that a recompute brings.
#[derive(Default)]
pub(super) struct RepeatedResults {
    list: Option<Vec<RecordedResult>>,
    used: BTreeSet<usize>,
}

impl RepeatedResults {
    /// Takes a frame that repeats a result for a call with arguments of this digest.
    pub(super) fn take(
        &mut self,
        history: &History<'_>,
        digest: &str,
        at: &RecordedAt,
        returned: &ToolReturned,
    ) -> Result<(), &'static str> {
        let list = self.list.get_or_insert_with(|| brought(history));
        let mut left = (0..).zip(list).filter(|(at, _)| !self.used.contains(at));
        let found = left.find(|(_, one)| one.digest == digest && gives(one, at, returned));
        let (used, _) = found.ok_or("its recompute brings no such result for the call")?;
        self.used.insert(used);
        match is_of(history, at, returned, digest) {
            false => Err("the run recorded another result"),
            true => Ok(()),
        }
    }
}

/// The results that the first frame brings; nothing where the stream is no recompute.
fn brought(history: &History<'_>) -> Vec<RecordedResult> {
    match history.whole(0).map(|frame| frame.event) {
        Some(Event::Recompute(RecomputeEvent::Created(created))) => created.results,
        _ => Vec::new(),
    }
}

fn gives(result: &RecordedResult, at: &RecordedAt, returned: &ToolReturned) -> bool {
    result.recorded == *at
        && (Some(result.item), &result.step) == (returned.item, &returned.step)
        && returned.called.is_none()
        && result_fields(returned)
            == (
                &result.content,
                result.is_error,
                result.not_sent,
                result.structured.as_ref(),
            )
}

/// Returns `true` if the frame it names, as far as it is in the archive, says the same of the same
/// call.
fn is_of(history: &History<'_>, at: &RecordedAt, returned: &ToolReturned, digest: &str) -> bool {
    let Some(frame) = history.elsewhere(&at.stream, at.seq) else {
        return true;
    };
    let Some(there) = frame.event.tool_result() else {
        return false;
    };
    let called = there
        .called
        .and_then(|seq| history.elsewhere(&at.stream, seq));
    let same_call = match called.as_ref().map(|frame| &frame.event) {
        Some(Event::Agent(AgentEvent::ToolCalled(called))) => {
            (&called.server, &called.tool, called.digest.as_str()) == (&at.server, &at.tool, digest)
        }
        Some(_) => false,
        None => there.called.is_none(),
    };
    same_call && result_fields(there) == result_fields(returned)
}

/// Content, whether it is an error, why it was not sent, structured content.
type ResultFields<'a> = (
    &'a CanonicalJson,
    bool,
    Option<UnsentReason>,
    Option<&'a CanonicalJson>,
);

fn result_fields(returned: &ToolReturned) -> ResultFields<'_> {
    let structured = returned.structured.as_ref();
    (
        &returned.content,
        returned.is_error,
        returned.not_sent,
        structured,
    )
}
