//! Whether people allowed what they had to be asked about: every call that its definition gates was
//! approved for these arguments, by enough people, none of whom may not, and every decision is about
//! a question that was open (seed 000, invariant 34; decision A1).

use std::collections::BTreeSet;

use ktsu_ledger::event::plan::{OnReject, ServerPlan, TimeoutBehavior};
use ktsu_ledger::event::{
    AgentFinished, ApprovalDecided, ApprovalExpired, ApprovalRequested, Decision, NotSent,
    ToolCalled, ToolReturned,
};
use ktsu_ledger::{Actor, Frame, Json};
use serde_json::json;

use super::history::server;
use super::reading::Evidence;
use super::story::{Call, Of, Question, State, Story, Task};
use super::tools::Named;
use super::{Against, Claim, Wrong};

/// The codes by which people's words end a task.
const ENDS: [&str; 3] = ["approval_rejected", "approval_timed_out", "tool_in_doubt"];

impl Evidence {
    /// Whether people allowed what they had to be asked about.
    pub(super) fn approvals(&self, against: &Against) -> Claim {
        let (mut decided, mut unknown) = (BTreeSet::new(), None);
        let judged = self.each_history(against, &mut |history| {
            let mut story = Story::of(history)?;
            if let Some(wrong) = story.wrong.remove(&Of::Approvals) {
                return Err(wrong);
            }
            decided.append(&mut story.decided);
            unknown = unknown.take().or(story.unknown);
            Ok(())
        });
        match (judged, unknown, decided.len()) {
            (Err(wrong), ..) => Claim::failed("approvals", wrong),
            (Ok(Some(large)), ..) => Claim::not_covered("approvals", large),
            (Ok(None), Some(frame), _) => Claim {
                frame: Some(frame),
                ..Claim::not_covered("approvals", "nobody was asked who they are: auth is none")
            },
            (Ok(None), None, 0) => Claim::proven("approvals", "nobody decided, and nobody had to"),
            (Ok(None), None, count) => {
                Claim::proven("approvals", format!("{count} decisions of people hold"))
            }
        }
    }
}

impl<'a> Story<'a> {
    /// A task that people's words have ended does nothing any more.
    pub(super) fn heed(&mut self, task: &Task<'a>, frame: &Frame) {
        let words = "what people said has ended its task";
        self.blame(Of::Approvals, frame, task.doomed.is_some(), words);
    }

    pub(super) fn gate(
        &mut self,
        task: &mut Task<'a>,
        frame: &'a Frame,
        asked: &'a ApprovalRequested,
    ) -> Result<(), Wrong> {
        if !self.is_wanted(task, frame, (asked.response, asked.call)) {
            return Ok(());
        }
        let plan = self.plan(frame)?;
        let server = server(&plan, &frame.scope, &asked.step, &asked.server);
        self.fits(task, frame, &Named::of_gate(asked), server);
        let policy = server.and_then(|server| server.approval(&asked.tool));
        let words = "its definition says otherwise who is asked about it";
        self.blame(Of::Approvals, frame, policy != Some(&asked.policy), words);
        self.heed(task, frame);
        task.asks = true;
        if let Some(call) = task.call(asked.response, asked.call) {
            let twice = call.gate.is_some() || !call.sent.is_empty();
            let words = "people were asked about the call before";
            self.blame(Of::Approvals, frame, twice, words);
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
        task: &mut Task<'a>,
        frame: &'a Frame,
        decided: &'a ApprovalDecided,
    ) {
        let by = decided.by.id.as_str();
        self.decided.insert(frame.id());
        if decided.by.auth == "none" {
            self.unknown.get_or_insert_with(|| frame.id());
        }
        let other = frame.actor != Actor::Principal(by.to_owned());
        let words = "whoever decided is not whoever appended it";
        self.blame(Of::Approvals, frame, other, words);
        let (proposer, now) = (self.proposer, self.time(frame));
        let Some(asked) = task.question(decided.request) else {
            let words = "it answers a question that nobody asked";
            self.blame(Of::Approvals, frame, true, words);
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
                asked.state != State::Open,
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
                "it tells the result of a call that did not happen",
            ),
            (
                approves && own,
                "whoever started the run may not approve the call",
            ),
            (
                approves && asked.approved_by.contains(by),
                "one person counts once",
            ),
        ] {
            self.blame(Of::Approvals, frame, wrong, words);
        }
        asked.take(by, decided);
        let dooms = asked.dooms();
        task.doomed = task.doomed.or(dooms);
    }

    pub(super) fn expire(&mut self, task: &mut Task<'a>, frame: &Frame, expired: &ApprovalExpired) {
        let (asked, now) = (task.question(expired.request), self.time(frame));
        let over = asked.as_ref().is_some_and(|asked| {
            asked.state == State::Open && asked.until.is_some_and(|until| until <= now)
        });
        self.blame(Of::Approvals, frame, !over, "no wait was over");
        if let Some(asked) = asked {
            asked.state = State::Expired;
            let dooms = asked.dooms();
            task.doomed = task.doomed.or(dooms);
        }
    }

    /// Whether people allowed a call, if they had to be asked.
    pub(super) fn allowed(
        &mut self,
        task: &mut Task<'a>,
        frame: &Frame,
        called: &ToolCalled,
        server: Option<&ServerPlan>,
    ) {
        self.heed(task, frame);
        let Some(call) = task.call(called.response, called.call) else {
            return;
        };
        let gated = server.is_some_and(|server| server.approval(&called.tool).is_some());
        let missing = gated && called.approval.is_none();
        let words = "it was made without the approval that its definition asks for";
        self.blame(Of::Approvals, frame, missing, words);
        if let Some(approval) = called.approval {
            let asked = call.gate.as_ref();
            let asked = asked.filter(|asked| asked.request == approval);
            let words = "nobody was asked about it";
            self.blame(Of::Approvals, frame, asked.is_none(), words);
            let named = |gate: &ApprovalRequested| {
                (&gate.digest, &gate.server, &gate.tool)
                    == (&called.digest, &called.server, &called.tool)
            };
            let other = asked.is_some_and(|asked| !asked.gate.is_some_and(named));
            let words = "people were asked about another call";
            self.blame(Of::Approvals, frame, other, words);
            let refused = asked.is_some_and(|asked| asked.state != State::Approved);
            self.blame(Of::Approvals, frame, refused, "people did not approve it");
        }
        let doubt = call.doubt.as_ref();
        let doubted = doubt.is_some_and(|doubt| doubt.state != State::Approved);
        let words = "it was in doubt, and nobody said to send it again";
        self.blame(Of::Approvals, frame, doubted, words);
    }

    /// Whether people say the same of a result: that it was told, or that nothing was sent.
    pub(super) fn said_of(&mut self, call: &Call<'a>, frame: &Frame, returned: &ToolReturned) {
        let gate = call.gate.as_ref().map(|asked| asked.state);
        let doubt = call.doubt.as_ref();
        let state = doubt.map(|asked| asked.state);
        let right = match returned.not_sent {
            None => {
                let words = "it is not what the call is said to have given";
                let told = doubt.is_none_or(|doubt| doubt.gave(returned));
                self.blame(Of::Approvals, frame, !told, words);
                matches!(state, None | Some(State::Happened))
            }
            Some(NotSent::Rejected) => {
                matches!(gate, Some(State::Rejected | State::Expired)) && state.is_none()
            }
            Some(NotSent::InDoubt) => state == Some(State::Rejected),
            Some(
                NotSent::UnknownTool
                | NotSent::InvalidArguments
                | NotSent::SecretInArguments
                | NotSent::SuppressedInBranch,
            ) => {
                let free = |state| matches!(state, None | Some(State::Approved));
                free(gate) && free(state)
            }
        };
        self.blame(Of::Approvals, frame, !right, "people did not say so");
    }

    /// A task that people ended was ended by people, and gives nothing.
    pub(super) fn end(&mut self, task: &Task<'a>, frame: &Frame, finished: &AgentFinished) {
        let outcome = finished.outcome.to_value();
        let code = outcome
            .pointer("/error/code")
            .and_then(|code| code.as_str());
        let ends = code.filter(|code| finished.report.is_none() && ENDS.contains(code));
        let other = ends.is_some() && ends != task.doomed;
        let words = "nobody made the decision that it ended by";
        self.blame(Of::Approvals, frame, other, words);
        let gives = outcome
            .get("output")
            .is_some_and(|output| !output.is_null());
        let words = "what people said has ended its task";
        self.blame(Of::Approvals, frame, gives && task.doomed.is_some(), words);
    }
}

impl<'a> Question<'a> {
    fn take(&mut self, by: &'a str, decided: &'a ApprovalDecided) {
        self.result = decided.result.as_deref();
        self.state = match decided.decision {
            Decision::Happened => State::Happened,
            Decision::Rejected => State::Rejected,
            Decision::Approved => {
                self.approved_by.insert(by);
                let needed = self.gate.map_or(1, |gate| gate.policy.quorum.max(1));
                match self.approved_by.len() >= needed as usize {
                    true => State::Approved,
                    false => self.state,
                }
            }
        };
    }

    /// The code that the task has to end with now, if it has to.
    fn dooms(&self) -> Option<&'static str> {
        let Some(gate) = self.gate else {
            return (self.state == State::Rejected).then_some("tool_in_doubt");
        };
        let recovers = gate.policy.on_reject == OnReject::Recover;
        let timeout = gate.policy.timeout.as_ref();
        let told = timeout.is_some_and(|timeout| timeout.behavior == TimeoutBehavior::Reject);
        match self.state {
            State::Rejected => (!recovers).then_some("approval_rejected"),
            State::Expired => (!(recovers && told)).then_some("approval_timed_out"),
            State::Open | State::Approved | State::Happened => None,
        }
    }

    /// Whether this is the result that somebody told.
    fn gave(&self, returned: &ToolReturned) -> bool {
        let words = self.result.unwrap_or_default();
        let told = Json::from_value(&json!([{"text": words, "type": "text"}]));
        told.is_ok_and(|told| told == returned.content)
            && returned.structured.is_none()
            && !returned.is_error
    }
}

impl<'f> Named<'f> {
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
