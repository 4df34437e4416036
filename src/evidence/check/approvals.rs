//! The check that required approvals were given: every call that needs approval by its definition
//! was approved for these arguments, by enough people, none of whom is excluded, and every decision
//! answers an open request (seed 000, invariant 34; decision A1).

use std::collections::BTreeSet;

use ktsu_ledger::event::plan::ServerPlan;
use ktsu_ledger::event::{
    AgentFinished, ApprovalDecided, ApprovalExpired, ApprovalRequested, Decision, ToolCalled,
    ToolReturned, UnsentReason,
};
use ktsu_ledger::{Actor, CanonicalJson, Frame};
use ktsu_projections::life::call::ForcedFailureReason;
use serde_json::json;

use super::agent_timeline::{
    AgentTimeline, CheckedCall, ClaimKind, Question, QuestionState, TaskProgress,
};
use super::history::server;
use super::reading::EvidenceArchive;
use super::tools::CallReference;
use super::{
    ArchiveVerifyOptions, CheckResult, ClaimFailure, counted, not_covered, not_covered_at, proven,
};

impl EvidenceArchive {
    /// Checks that people allowed what they had to be asked about.
    pub(super) fn approvals(&self, against: &ArchiveVerifyOptions) -> CheckResult {
        let (mut decided, mut unknown) = (BTreeSet::new(), None);
        let large = self.each_history(against, &mut |history| {
            let mut timeline = AgentTimeline::of(history)?;
            if let Some(wrong) = timeline.wrong.remove(&ClaimKind::Approvals) {
                return Err(wrong);
            }
            decided.append(&mut timeline.decided);
            unknown = unknown.take().or(timeline.unauthenticated);
            Ok(())
        })?;
        match (large, unknown, decided.len()) {
            (Some(large), ..) => not_covered(large),
            (None, Some(frame), _) => {
                not_covered_at(frame, "the person was not authenticated (auth: none)")
            }
            (None, None, 0) => proven("nothing required a decision"),
            (None, None, count) => proven(counted(count, "valid decision")),
        }
    }
}

impl<'a> AgentTimeline<'a> {
    /// A task that people's words have ended does nothing any more.
    pub(super) fn check_not_forced_to_fail(&mut self, task: &TaskProgress<'a>, frame: &Frame) {
        let ended = task.forced_failure.is_some();
        let words = "what people said has ended its task";
        self.fail_if(ClaimKind::Approvals, frame, ended, words);
    }

    pub(super) fn gate(
        &mut self,
        task: &mut TaskProgress<'a>,
        frame: &'a Frame,
        asked: &'a ApprovalRequested,
    ) -> Result<(), ClaimFailure> {
        if !self.is_requested(task, frame, (asked.response, asked.call)) {
            return Ok(());
        }
        let plan = self.plan(frame)?;
        let acting = self.acting(frame, &asked.step);
        let server = server(&plan, &frame.scope, acting, &asked.server);
        self.check_call(task, frame, &CallReference::of_gate(asked), server);
        let policy = server.and_then(|server| server.approval(&asked.tool));
        let other = policy != Some(&asked.policy);
        let words = "its definition says otherwise who is asked about it";
        self.fail_if(ClaimKind::Approvals, frame, other, words);
        self.check_not_forced_to_fail(task, frame);
        task.awaits_people = true;
        if let Some(call) = task.call(asked.response, asked.call) {
            let twice = call.gate.is_some() || !call.sent.is_empty();
            let words = "people were asked about the call before";
            self.fail_if(ClaimKind::Approvals, frame, twice, words);
            let timeout = asked.policy.timeout.as_ref();
            call.gate = Some(Question {
                gate: Some(asked),
                until: timeout.map(|timeout| frame.at.plus_millis(timeout.ms)),
                ..Question::new(frame.seq, &asked.digest)
            });
        }
        Ok(())
    }

    pub(super) fn decide(
        &mut self,
        task: &mut TaskProgress<'a>,
        frame: &'a Frame,
        decided: &'a ApprovalDecided,
    ) {
        let by = decided.by.id.as_str();
        self.decided.insert(frame.id());
        if decided.by.auth == "none" {
            self.unauthenticated.get_or_insert_with(|| frame.id());
        }
        let other = frame.actor != Actor::Principal(by.to_owned());
        let words = "the person who decided is not the one who appended it";
        self.fail_if(ClaimKind::Approvals, frame, other, words);
        let (proposer, now) = (self.proposer, self.time(frame));
        let Some(asked) = task.question(decided.request) else {
            let words = "it answers a request that does not exist";
            self.fail_if(ClaimKind::Approvals, frame, true, words);
            return;
        };
        let late = asked.until.is_some_and(|until| until <= now);
        let unsent = asked.gate.is_some();
        let happened = decided.decision == Decision::Happened;
        let approves = decided.decision == Decision::Approved;
        let policy = asked.gate.map(|gate| &gate.policy);
        let own = policy.is_some_and(|policy| policy.not_by_proposer) && by == proposer;
        for (wrong, words) in [
            (
                asked.state != QuestionState::Open,
                "the question was answered before",
            ),
            (
                asked.digest != decided.digest,
                "it is about other arguments than those of the call",
            ),
            (late, "it came when the time to decide was over"),
            (
                unsent && happened,
                "a call that was not sent cannot have happened",
            ),
            (
                decided.result.is_some() && !happened,
                "it gives the result of a call that did not happen",
            ),
            (
                approves && own,
                "the person who started the run may not approve the call",
            ),
            (
                approves && asked.approved_by.contains(by),
                "one person counts once",
            ),
        ] {
            self.fail_if(ClaimKind::Approvals, frame, wrong, words);
        }
        asked.take(by, decided);
        let dooms = asked.forced_failure();
        task.forced_failure = task.forced_failure.or(dooms);
    }

    pub(super) fn expire(
        &mut self,
        task: &mut TaskProgress<'a>,
        frame: &Frame,
        expired: &ApprovalExpired,
    ) {
        let (asked, now) = (task.question(expired.request), self.time(frame));
        let over = asked.as_ref().is_some_and(|asked| {
            asked.state == QuestionState::Open && asked.until.is_some_and(|until| until <= now)
        });
        self.fail_if(ClaimKind::Approvals, frame, !over, "no wait was over");
        if let Some(asked) = asked {
            asked.state = QuestionState::Expired;
            let dooms = asked.forced_failure();
            task.forced_failure = task.forced_failure.or(dooms);
        }
    }

    /// Checks that people allowed a call, if they had to be asked.
    pub(super) fn check_approved(
        &mut self,
        task: &mut TaskProgress<'a>,
        frame: &Frame,
        called: &ToolCalled,
        server: Option<&ServerPlan>,
    ) {
        self.check_not_forced_to_fail(task, frame);
        let Some(call) = task.call(called.response, called.call) else {
            return;
        };
        let gated = server.is_some_and(|server| server.approval(&called.tool).is_some());
        let missing = gated && called.approval.is_none();
        let words = "it was made without the approval that its definition asks for";
        self.fail_if(ClaimKind::Approvals, frame, missing, words);
        if let Some(approval) = called.approval {
            let asked = call.gate.as_ref();
            let asked = asked.filter(|asked| asked.request == approval);
            let words = "no approval was requested for it";
            self.fail_if(ClaimKind::Approvals, frame, asked.is_none(), words);
            let named = |gate: &ApprovalRequested| {
                (&gate.digest, &gate.server, &gate.tool)
                    == (&called.digest, &called.server, &called.tool)
            };
            let other = asked.is_some_and(|asked| !asked.gate.is_some_and(named));
            let words = "people were asked about another call";
            self.fail_if(ClaimKind::Approvals, frame, other, words);
            let refused = asked.is_some_and(|asked| asked.state != QuestionState::Approved);
            let words = "people did not approve it";
            self.fail_if(ClaimKind::Approvals, frame, refused, words);
        }
        let doubt = call.doubt.as_ref();
        let doubted = doubt.is_some_and(|doubt| doubt.state != QuestionState::Approved);
        let words = "it was in doubt, and no decision allows sending it again";
        self.fail_if(ClaimKind::Approvals, frame, doubted, words);
    }

    /// Checks that people say the same of a result: that it was reported, or that nothing was sent.
    pub(super) fn check_result_decision(
        &mut self,
        call: &CheckedCall<'a>,
        frame: &Frame,
        returned: &ToolReturned,
    ) {
        let gate = call.gate.as_ref().map(|asked| asked.state);
        let doubt = call.doubt.as_ref();
        let state = doubt.map(|asked| asked.state);
        let right = match returned.not_sent {
            None => {
                let words = "it is not what the call is said to have given";
                let told = doubt.is_none_or(|doubt| doubt.is_reported_result(returned));
                self.fail_if(ClaimKind::Approvals, frame, !told, words);
                matches!(state, None | Some(QuestionState::Happened))
            }
            Some(UnsentReason::Rejected) => {
                matches!(gate, Some(QuestionState::Rejected | QuestionState::Expired))
                    && state.is_none()
            }
            Some(UnsentReason::InDoubt) => state == Some(QuestionState::Rejected),
            Some(
                UnsentReason::UnknownTool
                | UnsentReason::InvalidArguments
                | UnsentReason::SecretInArguments
                | UnsentReason::SuppressedInBranch,
            ) => {
                let free = |state| matches!(state, None | Some(QuestionState::Approved));
                free(gate) && free(state)
            }
        };
        self.fail_if(ClaimKind::Approvals, frame, !right, "people did not say so");
    }

    /// A task that people ended was ended by people, and gives nothing.
    pub(super) fn end(&mut self, task: &TaskProgress<'a>, frame: &Frame, finished: &AgentFinished) {
        let outcome = finished.outcome.to_value();
        let code = outcome
            .pointer("/error/code")
            .and_then(|code| code.as_str());
        let codes = ForcedFailureReason::ALL.map(ForcedFailureReason::code);
        let ends = code.filter(|code| finished.report.is_none() && codes.contains(code));
        let other = ends.is_some() && ends != task.forced_failure;
        let words = "the decision that it ended by was not made";
        self.fail_if(ClaimKind::Approvals, frame, other, words);
        let output = outcome.get("output");
        if output.is_some_and(|output| !output.is_null()) {
            self.check_not_forced_to_fail(task, frame);
        }
    }
}

impl<'a> Question<'a> {
    fn take(&mut self, by: &'a str, decided: &'a ApprovalDecided) {
        self.result = decided.result.as_deref();
        self.state = match decided.decision {
            Decision::Happened => QuestionState::Happened,
            Decision::Rejected => QuestionState::Rejected,
            Decision::Approved => {
                self.approved_by.insert(by);
                let needed = self.gate.map_or(1, |gate| gate.policy.quorum.max(1));
                match self.approved_by.len() >= needed as usize {
                    true => QuestionState::Approved,
                    false => self.state,
                }
            }
        };
    }

    /// The code that the task has to end with now, if it has to.
    fn forced_failure(&self) -> Option<&'static str> {
        let reason = match (self.gate, self.state) {
            (None, QuestionState::Rejected) => Some(ForcedFailureReason::InDoubt),
            (Some(gate), QuestionState::Rejected) => {
                ForcedFailureReason::of_rejection(&gate.policy)
            }
            (Some(gate), QuestionState::Expired) => ForcedFailureReason::of_expiry(&gate.policy),
            _ => None,
        };
        reason.map(ForcedFailureReason::code)
    }

    /// Returns `true` if this is the result that a person reported.
    fn is_reported_result(&self, returned: &ToolReturned) -> bool {
        let words = self.result.unwrap_or_default();
        let told = CanonicalJson::from_value(&json!([{"text": words, "type": "text"}]));
        told.is_ok_and(|told| told == returned.content)
            && returned.structured.is_none()
            && !returned.is_error
    }
}

impl<'f> CallReference<'f> {
    fn of_gate(asked: &'f ApprovalRequested) -> Self {
        Self {
            place: (asked.response, asked.call),
            attempt: asked.attempt,
            arguments: &asked.arguments,
            digest: &asked.digest,
            server: &asked.server,
            tool: &asked.tool,
        }
    }
}
