//! The check that every tool call is accounted for: requested by a model with these arguments,
//! permitted by the definition, answered once or known to be in doubt; and that every result
//! without a call repeats a recorded one.

use std::collections::BTreeSet;

use ktsu_ledger::event::plan::ServerPlan;
use ktsu_ledger::event::{
    AgentDecided, AgentEvent, AgentFinished, DoubtReason, RecordedAt, Reference, ToolCalled,
    ToolInDoubt, ToolReturned, UnsentReason,
};
use ktsu_ledger::{Actor, Frame};
use ktsu_projections::life::call::is_full_name;
use ktsu_projections::life::task::result_digest;
use serde_json::Value;

use super::agent_timeline::{AgentTimeline, CheckedCall, ClaimKind, Question, TaskProgress};
use super::history::server;
use super::reading::EvidenceArchive;
use super::{
    ArchiveVerifyOptions, CheckResult, ClaimFailure, counted, for_one, not_covered, not_covered_at,
    proven,
};
use ktsu_workflow::admit::tools::idempotency_key;

impl EvidenceArchive {
    /// Checks that every call of a tool is accounted for.
    pub(super) fn tools(&self, against: &ArchiveVerifyOptions) -> CheckResult {
        let (mut open, mut made) = (None, BTreeSet::new());
        let large = self.each_history(against, &mut |history| {
            let mut timeline = AgentTimeline::of(history)?;
            if let Some(wrong) = timeline.wrong.remove(&ClaimKind::Tools) {
                return Err(wrong);
            }
            let calls = timeline.tasks.values().flat_map(|task| &task.calls);
            let mut stray = calls
                .filter(|call| call.open)
                .filter_map(|it| it.sent.last());
            if let Some((frame, _)) = stray.next() {
                let words = "its run has ended, and nothing says what became of the call";
                if timeline.ended {
                    return Err(ClaimFailure::at(frame.id(), words));
                }
                open.get_or_insert_with(|| frame.id());
            }
            made.append(&mut timeline.made);
            Ok(())
        })?;
        match (large, open, made.len()) {
            (Some(large), ..) => not_covered(large),
            (None, Some(frame), _) => {
                not_covered_at(frame, "its run continues, and the call has no result yet")
            }
            (None, None, 0) => proven("no tool was called"),
            (None, None, made) => {
                let are = for_one(&made, "is", "are");
                proven(format!("{} {are} accounted for", counted(made, "call")))
            }
        }
    }
}

/// A frame's statements about the tool call it is about.
pub(super) struct CallReference<'f> {
    pub(super) place: (u64, u32),
    pub(super) attempt: u32,
    pub(super) arguments: &'f Reference,
    pub(super) digest: &'f str,
    pub(super) server: &'f str,
    pub(super) tool: &'f str,
}

impl<'a> AgentTimeline<'a> {
    /// Checks what holds for every frame about a task: it is not over, and the report is the next
    /// one, or the last one still; who appended it, and in which attempt.
    pub(super) fn check_report(
        &mut self,
        task: &mut TaskProgress<'a>,
        frame: &Frame,
        event: &'a AgentEvent,
    ) {
        if let Some(report) = event.report() {
            let follows = task.report.is_none_or(|before| {
                let next = !task.awaits_people && before.n > 0 && report.n > before.n;
                before == report || report.n == 0 || next
            });
            let words = "its report is not the next one of its task";
            self.fail_if(ClaimKind::Tools, frame, !follows, words);
            task.report = Some(report);
        }
        let of = match frame.event.kind().starts_with("approval.") {
            true => ClaimKind::Approvals,
            false => ClaimKind::Tools,
        };
        let ends = matches!(event, AgentEvent::ToolInDoubt(_) | AgentEvent::Finished(_));
        self.fail_if(of, frame, task.over && !ends, "its task has ended");
        let decided = matches!(event, AgentEvent::ApprovalDecided(_));
        let by_engine = matches!(
            event,
            AgentEvent::ToolInDoubt(_) | AgentEvent::ApprovalExpired(_) | AgentEvent::Response(_)
        );
        if event.report().is_none() && !decided && !by_engine {
            return;
        }
        let current = Some(event.attempt()) == task.attempt;
        self.fail_if(of, frame, !current, "it is of an attempt that is not on");
        let actor = match event.report() {
            Some(_) => Actor::Runtime,
            None => Actor::Orchestrator,
        };
        let other = frame.actor != actor && !decided;
        self.fail_if(of, frame, other, "it was appended by another actor");
    }

    pub(super) fn decide_to_call(
        &mut self,
        task: &mut TaskProgress<'a>,
        frame: &Frame,
        decided: &AgentDecided,
    ) {
        if decided.response.is_none() {
            return;
        }
        let right = decided.response == task.response && !task.calls.is_empty() && !task.decided;
        let words = "it is not about the last reply of its task";
        self.fail_if(ClaimKind::Tools, frame, !right, words);
        task.decided = true;
    }

    /// Checks that a frame is about a call of the last reply that is still to be made. Returns
    /// `false` if the last reply does not ask for the call.
    pub(super) fn is_requested(
        &mut self,
        task: &mut TaskProgress<'a>,
        frame: &Frame,
        (response, call): (u64, u32),
    ) -> bool {
        let decided = task.decided;
        let Some(call) = task.call(response, call) else {
            let words = "the last reply of its task does not ask for this call";
            self.fail_if(ClaimKind::Tools, frame, true, words);
            return false;
        };
        let words = "the agent has not decided to make the call";
        self.fail_if(ClaimKind::Tools, frame, !decided, words);
        let words = "the call has a result already";
        self.fail_if(ClaimKind::Tools, frame, call.returned, words);
        true
    }

    /// Checks that a frame that names a tool is about what the reply asks for, and permitted.
    pub(super) fn check_call(
        &mut self,
        task: &mut TaskProgress<'a>,
        frame: &Frame,
        named: &CallReference<'_>,
        server: Option<&ServerPlan>,
    ) {
        let (response, at) = named.place;
        let meant = task.names_tool(named.place, named.attempt, named.server, named.tool);
        let Some(call) = task.call(response, at) else {
            return;
        };
        let path = format!("/tool_calls/{at}/arguments");
        let place = (named.arguments.frame, named.arguments.path.as_str());
        let right = place == (response, &path) && call.requested.digest == named.digest;
        let words = "its arguments are not those that the reply asks for";
        self.fail_if(ClaimKind::Tools, frame, !right, words);
        let words = "its arguments hold a secret, and such a call is not sent";
        self.fail_if(ClaimKind::Tools, frame, call.requested.secret, words);
        let words = "its tool is not the one that the reply asks for";
        self.fail_if(ClaimKind::Tools, frame, !meant, words);
        let permitted = server.is_some_and(|server| server.permits(named.tool));
        let words = "its definition does not permit the call";
        self.fail_if(ClaimKind::Tools, frame, !permitted, words);
    }

    pub(super) fn call(
        &mut self,
        task: &mut TaskProgress<'a>,
        frame: &'a Frame,
        called: &'a ToolCalled,
    ) -> Result<(), ClaimFailure> {
        self.made.insert(frame.id());
        let place = (called.response, called.call);
        if !self.is_requested(task, frame, place) {
            return Ok(());
        }
        let plan = self.plan(frame)?;
        let acting = self.acting(frame, &called.step);
        let server = server(&plan, &frame.scope, acting, &called.server);
        self.check_call(task, frame, &CallReference::of_call(called), server);
        self.check_approved(task, frame, called, server);
        let Some(call) = task.call(called.response, called.call) else {
            return Ok(());
        };
        let first = call.sent.first().copied();
        let follows = match first {
            None => called.again.is_none(),
            Some((sent, before)) => {
                called.again == Some(sent.seq)
                    && (&before.server, &before.tool, before.approval)
                        == (&called.server, &called.tool, called.approval)
            }
        };
        let words = "it does not follow from the earlier sending of the call";
        self.fail_if(ClaimKind::Tools, frame, !follows, words);
        let first = first.map_or(frame.seq, |(sent, _)| sent.seq);
        let own = called.idempotency_key == idempotency_key(&frame.stream, first);
        let words = "its idempotency key is not that of the call";
        self.fail_if(ClaimKind::Tools, frame, !own, words);
        if let Some((_, before)) = call.sent.last().filter(|_| call.open) {
            let lost = before.attempt < called.attempt;
            let right = lost && server.is_some_and(|server| !server.stateful);
            self.fail_if(ClaimKind::Tools, frame, !right, "it was on its way already");
        }
        call.sent.push((frame, called));
        call.open = true;
        call.doubt = None;
        Ok(())
    }

    pub(super) fn doubt(
        &mut self,
        task: &mut TaskProgress<'a>,
        frame: &Frame,
        doubt: &ToolInDoubt,
    ) {
        let mut calls = task.calls.iter_mut().filter(|call| call.open);
        let called = calls.find_map(|call| {
            let (sent, called) = call.sent.last().copied()?;
            (sent.seq == doubt.called).then_some((call, called))
        });
        let words = "it is about a call that is not on its way";
        self.fail_if(ClaimKind::Tools, frame, called.is_none(), words);
        if let Some((call, called)) = called {
            task.over = doubt.reason == DoubtReason::TaskEnded;
            call.open = false;
            task.awaits_people |= doubt.report.is_some();
            call.doubt = match doubt.reason {
                DoubtReason::TaskEnded => None,
                DoubtReason::NoAnswer | DoubtReason::WorkerLost => {
                    Some(Question::new(frame.seq, &called.digest))
                }
            };
        }
    }

    pub(super) fn answer(
        &mut self,
        task: &mut TaskProgress<'a>,
        frame: &Frame,
        returned: &ToolReturned,
    ) {
        let place = (returned.response, returned.call);
        if !self.is_requested(task, frame, place) {
            return;
        }
        if let Some(at) = &returned.recorded {
            let meant = task.names_tool(place, returned.attempt, &at.server, &at.tool);
            let words = "its tool is not the one that the reply asks for";
            self.fail_if(ClaimKind::Tools, frame, !meant, words);
        }
        let suppresses = self.suppresses;
        if let (Some(call), Some(at)) = (
            task.call(returned.response, returned.call),
            &returned.recorded,
        ) {
            self.repeat(call, frame, at, returned);
            call.returned = true;
        } else if let Some(call) = task.call(returned.response, returned.call) {
            match returned.not_sent {
                None => {
                    let sent = call.sent.last().map(|(sent, _)| sent.seq);
                    let waited = call.open || call.doubt.is_some();
                    let right = sent.is_some() && returned.called == sent && waited;
                    let words = "it is the result of a call that was never made";
                    self.fail_if(ClaimKind::Tools, frame, !right, words);
                }
                Some(why) => {
                    let sent = returned.called.is_some() || call.open;
                    let words = "it was sent, and is said not to have been";
                    self.fail_if(ClaimKind::Tools, frame, sent, words);
                    let words = "what was not sent gives no result";
                    self.fail_if(ClaimKind::Tools, frame, !returned.is_error, words);
                    let lie = (why == UnsentReason::SecretInArguments && !call.requested.secret)
                        || (why == UnsentReason::SuppressedInBranch && !suppresses);
                    self.fail_if(ClaimKind::Tools, frame, lie, "nothing held the call back");
                }
            }
            self.check_result_decision(call, frame, returned);
            call.returned = true;
            call.open = false;
        }
        // Later requests may name it.
        let digest = result_digest(returned);
        task.context_digests.insert(frame.seq, digest);
        self.check_not_forced_to_fail(task, frame);
    }

    /// A result that a recompute repeats; whoever was asked about the call was asked in the run that
    /// is recomputed.
    fn repeat(
        &mut self,
        call: &CheckedCall<'a>,
        frame: &Frame,
        at: &RecordedAt,
        returned: &ToolReturned,
    ) {
        self.made.insert(frame.id());
        let sent = !call.sent.is_empty() || call.gate.is_some();
        let words = "it was sent, and is said to repeat a recorded result";
        self.fail_if(ClaimKind::Tools, frame, sent, words);
        let history = self.history;
        let repeats = self
            .results
            .take(history, &call.requested.digest, at, returned);
        if let Err(words) = repeats {
            self.fail_if(ClaimKind::Tools, frame, true, words);
        }
    }

    /// Checks that what is still on its way when a task ends is in doubt before, and that an output
    /// rests on every result.
    pub(super) fn finish(
        &mut self,
        task: &TaskProgress<'a>,
        frame: &Frame,
        finished: &AgentFinished,
    ) {
        for call in task.calls.iter().filter(|call| call.open) {
            if let Some((sent, _)) = call.sent.last() {
                let words = "its task has ended, and nothing says what became of the call";
                self.fail_if(ClaimKind::Tools, sent, true, words);
            }
        }
        let output = finished.outcome.pointer("/output");
        let early = output.is_some_and(|output| !output.is_null()) && task.waits();
        let words = "it has an output before it has every result";
        self.fail_if(ClaimKind::Tools, frame, early, words);
    }
}

impl TaskProgress<'_> {
    /// Returns `true` if a tool is the one that the model means by the name it was given.
    fn names_tool(&mut self, place: (u64, u32), attempt: u32, server: &str, tool: &str) -> bool {
        let offered = self.offered.clone();
        let offered = offered.as_deref().and_then(Value::as_array);
        let offered = offered.map(Vec::as_slice).unwrap_or_default();
        let later = self.replied != Some(attempt);
        let (response, call) = place;
        let Some(call) = self.call(response, call) else {
            return false;
        };
        let text = |one: &Value, name: &str| one.get(name)?.as_str().map(str::to_owned);
        let own = |one: &&Value| text(one, "name").as_ref() == Some(&call.requested.name);
        let full = is_full_name(&call.requested.name, server, tool);
        let right = match offered.iter().find(own) {
            Some(told) => {
                text(told, "server").as_deref() == Some(server)
                    && text(told, "tool").as_deref() == Some(tool)
            }
            None => full,
        };
        // A later attempt asks the servers again what they offer, and no request shows that.
        let unknown = offered.is_empty() || later;
        right || (unknown && (full || call.requested.name == tool))
    }
}

impl<'f> CallReference<'f> {
    fn of_call(called: &'f ToolCalled) -> Self {
        Self {
            place: (called.response, called.call),
            attempt: called.attempt,
            arguments: &called.arguments,
            digest: &called.digest,
            server: &called.server,
            tool: &called.tool,
        }
    }
}
