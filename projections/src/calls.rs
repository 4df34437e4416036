//! The tool calls of a whole history: one record for each call, from the reply that requests it to
//! its result or the end of its task, including people's decisions.
//!
//! The fold never refuses a frame. Whether a frame may follow is checked by the run state, with the
//! same table ([`crate::life::call`]).

use std::collections::BTreeMap;

use ktsu_ledger::event::plan::{ApprovalPolicy, OnReject};
use ktsu_ledger::event::{AgentEvent, ToolCalled};
use ktsu_ledger::{Event, Frame};

use crate::approvals::{ApprovalKind, ApprovalRecord, ApprovalStatus, approval_id};
use crate::asked_records::AskedRecord;
use crate::life::call::{CallKey, RequestedCall, RequestedCalls};
use crate::life::{Change, Expiry, PersonQuestion, changes};
use crate::lineage::item_name;
use crate::run::StepStatus;
use crate::step_name::scoped_run;

/// Everything that is recorded about a tool call.
#[derive(Debug, Clone)]
pub struct ToolCallRecord {
    /// The inline child; empty for the run itself.
    pub scope: String,
    /// The step; for an item `STEP.INDEX`.
    pub step: String,
    /// The `llm.response` that asks for it, and its index there.
    pub key: (u64, u32),
    /// The call as the model asked for it, and its state. A branch leaves the state as it is.
    pub call: RequestedCall,
    /// The server and the tool, once a frame names them.
    pub target: Option<(String, String)>,
    /// The questions about it that people were asked, in order.
    pub approvals: Vec<ApprovalRecord>,
    /// The frames with which it was sent, in order.
    pub sent: Vec<u64>,
    /// The last `tool.in_doubt` about it.
    pub doubt: Option<u64>,
    /// True if its result is an error.
    pub is_error: bool,
    /// True if its task or step has ended.
    pub ended: bool,
}

/// The tool calls of a run and of its inline children. See the module documentation.
#[derive(Debug, Clone, Default)]
pub struct CallHistory {
    calls: Vec<ToolCallRecord>,
    by_key: BTreeMap<(u64, u32), usize>,
    by_frame: BTreeMap<u64, usize>,
    /// The calls whose tasks have not ended.
    open: Vec<usize>,
    /// The calls that replies ask for, as long as no frame is about them.
    replies: BTreeMap<u64, Vec<RequestedCall>>,
    /// The person who started the run, or the branch.
    proposer: String,
}

impl CallHistory {
    /// The calls of a history.
    pub fn fold<'a>(frames: impl IntoIterator<Item = &'a Frame>) -> Self {
        let mut history = Self::default();
        for frame in frames {
            history.apply(frame);
        }
        history
    }

    /// The calls, in the order of the first frames about them.
    pub fn calls(&self) -> &[ToolCallRecord] {
        &self.calls
    }

    /// Forgets the calls of tasks that have ended, once no others are open: what follows a run for
    /// hours does not hold the arguments of all its calls.
    pub fn forget_ended(&mut self) {
        if self.open.is_empty() {
            self.calls.clear();
            self.by_key.clear();
            self.by_frame.clear();
            // Replies whose calls have all begun are empty by now.
            let waits = |call: &RequestedCall| !call.id.is_empty();
            self.replies.retain(|_, calls| calls.iter().any(waits));
        }
    }

    /// The questions that people were asked, in order.
    pub fn into_approvals(self) -> Vec<ApprovalRecord> {
        let calls = self.calls.into_iter();
        let mut approvals: Vec<_> = calls.flat_map(|call| call.approvals).collect();
        approvals.sort_by_key(|approval| approval.request);
        approvals
    }

    /// Applies a frame. Returns the call it is about, if it is about one.
    pub fn apply(&mut self, frame: &Frame) -> Option<&ToolCallRecord> {
        for change in changes(frame) {
            self.follow(frame, &change);
        }
        let Event::Agent(event) = &frame.event else {
            return None;
        };
        self.apply_agent(frame, event)
    }

    fn follow(&mut self, frame: &Frame, change: &Change<'_>) {
        if let Some(by) = change.proposer() {
            self.proposer.clone_from(&by.id);
        }
        if change.is_about_run() {
            self.each_approval(|approval| approval.follow(change, frame.at));
        } else if let Change::StepMoved(step, status) = change {
            if *status != StepStatus::Running {
                self.end(frame, step, *status == StepStatus::Pending);
            }
        } else if let Change::ItemMoved(item, status) = change {
            if *status != StepStatus::Running {
                self.end(frame, &item.name(), false);
            }
        } else if let Change::Finished(task, _) = change {
            self.end(frame, &task.name(), false);
        }
    }

    fn apply_agent(&mut self, frame: &Frame, event: &AgentEvent) -> Option<&ToolCallRecord> {
        if let AgentEvent::Response(answer) = event {
            let calls = RequestedCalls::of(frame.seq, answer)?;
            self.replies.insert(frame.seq, calls.list);
            return None;
        }
        let at = match CallKey::of(event)? {
            CallKey::Frame(earlier) => *self.by_frame.get(&earlier)?,
            CallKey::Place(response, index) => {
                let known = self.by_key.get(&(response, index)).copied();
                known.unwrap_or_else(|| self.begin(frame, event, (response, index)))
            }
        };
        self.by_frame.insert(frame.seq, at);
        let call = self.calls.get_mut(at)?;
        call.apply(frame, event, &self.proposer);
        Some(call)
    }

    /// Adds the record of a call that a frame is the first about.
    fn begin(&mut self, frame: &Frame, event: &AgentEvent, key: (u64, u32)) -> usize {
        let at = self.calls.len();
        let reply = self.replies.get_mut(&key.0);
        let call = reply.and_then(|calls| calls.get_mut(key.1 as usize));
        self.calls.push(ToolCallRecord {
            scope: frame.scope.clone(),
            step: item_name(event.step(), event.item()),
            key,
            call: call.map(std::mem::take).unwrap_or_default(),
            target: None,
            sent: Vec::new(),
            approvals: Vec::new(),
            doubt: None,
            is_error: false,
            ended: false,
        });
        self.by_key.insert(key, at);
        self.open.push(at);
        at
    }

    /// A step or an item ends, or begins again, and the tasks of these calls with it.
    fn end(&mut self, frame: &Frame, name: &str, resets: bool) {
        let calls = &mut self.calls;
        self.open.retain(|at| {
            let call = calls.get_mut(*at);
            let Some(call) = call.filter(|call| call.is_of(&frame.scope, name)) else {
                return true;
            };
            let approvals = call.approvals.iter_mut();
            approvals.for_each(|approval| approval.note_task_end(frame.at));
            call.ended = !resets;
            resets
        });
    }

    fn each_approval(&mut self, change: impl FnMut(&mut ApprovalRecord)) {
        let calls = self.calls.iter_mut();
        calls.flat_map(|call| &mut call.approvals).for_each(change);
    }
}

impl ToolCallRecord {
    fn apply(&mut self, frame: &Frame, event: &AgentEvent, proposer: &str) {
        if let AgentEvent::ToolCalled(called) = event {
            self.target = Some((called.server.clone(), called.tool.clone()));
            self.note_sending(frame.seq, called);
        } else if let AgentEvent::ToolReturned(returned) = event {
            self.is_error = returned.is_error;
        } else if let AgentEvent::ToolInDoubt(_) = event {
            self.doubt = Some(frame.seq);
        }
        for change in changes(frame) {
            self.take(frame, &change, proposer);
        }
        self.call.apply(frame.seq, frame.at, event, false);
    }

    /// Takes what people are asked about it, and what came of that.
    fn take(&mut self, frame: &Frame, change: &Change<'_>, proposer: &str) {
        if let Change::Asked(_, PersonQuestion::Call(asked)) = change {
            self.target = Some((asked.server.clone(), asked.tool.clone()));
            self.ask(frame, ApprovalKind::Approval, &asked.policy, proposer);
        } else if let Change::Asked(_, PersonQuestion::Doubt(_)) = change {
            let policy = ApprovalPolicy {
                not_by_proposer: false,
                on_reject: OnReject::Fail,
                quorum: 1,
                timeout: None,
            };
            self.ask(frame, ApprovalKind::InDoubt, &policy, proposer);
        } else if let Change::Answered(_, answer) = change {
            if let Some(approval) = self.approval(answer.request) {
                approval.answer(frame, answer);
            }
        } else if let Change::Expired(_, Expiry::Request(request)) = change
            && let Some(approval) = self.approval(*request)
        {
            approval.wait().close(ApprovalStatus::Timeout, frame.at);
        }
    }

    /// Notes with which decision the call is sent, or sent again.
    fn note_sending(&mut self, seq: u64, called: &ToolCalled) {
        self.sent.push(seq);
        if let Some(approval) = called.approval.and_then(|it| self.approval(it)) {
            approval.executed.get_or_insert(seq);
        }
        let mut approvals = self.approvals.iter_mut();
        let doubt = approvals.find(|approval| approval.allows_resending());
        if let (Some(doubt), Some(_)) = (doubt, called.again) {
            doubt.executed = Some(seq);
        }
    }

    /// The record of a question about a call that begins at a frame.
    fn open_approval(
        &self,
        frame: &Frame,
        kind: ApprovalKind,
        policy: &ApprovalPolicy,
        proposer: &str,
    ) -> ApprovalRecord {
        let timeout = policy.timeout.as_ref();
        let (server, tool_name) = self.target.clone().unwrap_or_default();
        ApprovalRecord {
            approval_id: approval_id(&frame.stream, frame.seq),
            kind,
            run_id: scoped_run(frame.stream.name(), &frame.scope),
            step_id: self.step.clone(),
            server,
            tool_name,
            tool_use_id: self.call.id.clone(),
            arguments: self.call.arguments.to_value(),
            digest: self.call.digest.clone(),
            on_reject: policy.on_reject.as_str().to_owned(),
            timeout_ms: timeout.map_or(0, |timeout| timeout.ms),
            timeout_behavior: timeout.map(|timeout| timeout.behavior.as_str().to_owned()),
            quorum: policy.quorum,
            not_by_proposer: policy.not_by_proposer,
            status: ApprovalStatus::Pending,
            created_at: frame.at,
            expires_at: timeout.map(|timeout| frame.at.plus_millis(timeout.ms)),
            paused_at: None,
            decided_at: None,
            proposer: proposer.to_owned(),
            votes: Vec::new(),
            request: frame.seq,
            executed: None,
            not_called: None,
            pending: Vec::new(),
        }
    }

    fn ask(&mut self, frame: &Frame, kind: ApprovalKind, policy: &ApprovalPolicy, proposer: &str) {
        let record = self.open_approval(frame, kind, policy, proposer);
        self.approvals.push(record);
    }

    fn approval(&mut self, request: u64) -> Option<&mut ApprovalRecord> {
        let mut approvals = self.approvals.iter_mut();
        approvals.find(|approval| approval.request == request)
    }

    /// Returns `true` if it is a call of a step, or of an item or the items of one.
    fn is_of(&self, scope: &str, name: &str) -> bool {
        let rest = self.step.strip_prefix(name);
        self.scope == scope && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}
