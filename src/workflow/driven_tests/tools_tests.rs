//! Tool calls and people's decisions, in runs that are driven by hand.

use std::sync::Arc;

use super::history_tests::refolded;
use ktsu_ledger::event::{
    BranchCreated, Decision, Effects, LlmResponse, Principal, Reference, ReportReference,
    ReviewDecision, RunEvent,
};
use ktsu_ledger::{Actor, CanonicalJson, Cause, Draft, Event, Timestamp};
use ktsu_projections::life::call::{CallState, SentCall};
use ktsu_projections::run::TaskId;
use serde_json::{Value, json};

use super::{Driven, Say, place};
use crate::admit;
use crate::admit::approval::{ApprovalCommand, ApprovalDecisionError, decide, next_deadline};
use crate::admit::review::{ReviewCommand, ReviewDecisionError};
use crate::admit::suspend::{PermittedSuspension, StepResumption, StepResumptionError};
use crate::next::{Memo, TaskSpec, task_spec};
use crate::recompute::{RecordedRun, prepare};
use crate::timers;

/// A reply that asks for tools, each with the arguments `{"n": PLACE}`; one that is called `…!` has a
/// secret in them.
pub(super) fn wants(
    request: u64,
    (attempt, item, step): (u32, Option<u32>, &str),
    report: &ReportReference,
    tools: &[&str],
) -> LlmResponse {
    let calls = tools.iter().enumerate().map(|(at, tool)| {
        let mut call = json!({"id": format!("c{at}"), "name": tool, "arguments": {"n": at}});
        if tool.ends_with('!') {
            call["secret"] = json!(true);
        }
        call
    });
    LlmResponse {
        attempt,
        attempts: Vec::new(),
        cached: false,
        content: Some(CanonicalJson::string("")),
        cost_micro_usd: 10,
        duration_ms: 7,
        error: None,
        input_hash: String::new(),
        item,
        model: "m".to_owned(),
        output_hash: String::new(),
        prices: String::new(),
        provider: "scripted".to_owned(),
        repeats: None,
        report: Some(report.clone()),
        request,
        saved: None,
        step: step.to_owned(),
        tokens_cached: 0,
        tokens_in: 10,
        tokens_out: 5,
        tokens_reasoning: 0,
        tool_calls: Some(CanonicalJson::from_value(&calls.collect()).unwrap()),
        unpriced: false,
    }
}

/// What a model is told of tools.
pub(super) fn offered(tools: &[(&str, &str)]) -> CanonicalJson {
    let tools = tools.iter().map(|(server, tool)| {
        json!({"description": "", "digest": "", "input_schema": {"type": "object"},
            "name": tool, "server": server, "tool": tool})
    });
    CanonicalJson::from_value(&tools.collect()).unwrap()
}

pub(super) fn argument(frame: u64, call: u32) -> Reference {
    let path = format!("/tool_calls/{call}/arguments");
    Reference { frame, path }
}

impl Driven {
    /// A run that is created with its effects suppressed.
    pub(crate) fn invoke_suppressed(plan: Value, body: Value) -> Self {
        Self::invoke_as(crate::rules::RULES, Effects::Suppress, plan, body)
    }

    /// The recompute of a run.
    pub(crate) fn recompute(&self) -> Self {
        let principal = self.state.created().principal.clone();
        let recorded = RecordedRun::from_frames(&self.frames).unwrap();
        let prepared = prepare(&recorded, None, principal).unwrap();
        let definition = Arc::new(prepared.definition);
        Self::begun(definition, "recompute_test", prepared.created)
    }

    /// A branch of the run from before a frame, which somebody lets go on.
    pub(crate) fn branch(&self, at: usize, effects: Effects) -> Self {
        let mut branch = self.parked_branch(at, effects);
        branch.resumes_branch();
        branch
    }

    /// A branch of the run from before a frame.
    pub(crate) fn parked_branch(&self, at: usize, effects: Effects) -> Self {
        let kept = &self.frames[..at];
        let (state, details) = refolded(kept);
        let mut branch = Self {
            definition: Arc::clone(&self.definition),
            state,
            details,
            memo: Memo::default(),
            frames: kept.to_vec(),
            now: self.now,
        };
        let by = Principal {
            auth: "none".to_owned(),
            id: "local".to_owned(),
        };
        let event = Event::Run(RunEvent::Branched(Box::new(BranchCreated {
            branch_id: "branch_test".to_owned(),
            by: by.clone(),
            definition: None,
            digest: None,
            effects,
            engine: "test".to_owned(),
            env: None,
            fork_position: at as u64,
            limits: None,
            params: None,
            parent_run_id: "run_test".to_owned(),
            reason: None,
            references: Vec::new(),
            restarts: false,
            rules: crate::rules::RULES,
            version: None,
            workflow: None,
        })));
        branch.input(Draft {
            scope: String::new(),
            actor: Actor::Principal(by.id),
            cause: vec![Cause::Here(at as u64 - 1)],
            event,
        });
        branch
    }

    /// Somebody lets a parked branch go on.
    pub(crate) fn resumes_branch(&mut self) {
        let by = Principal {
            auth: "none".to_owned(),
            id: "local".to_owned(),
        };
        let resumed =
            admit::intervention::resume(&self.state, None, by, None, self.state.at()).unwrap();
        self.input(resumed);
    }

    /// A call on its way.
    pub(crate) fn sending(&self, name: &str, call: u32) -> &SentCall {
        let calls = self.task(name).calls.as_ref().unwrap();
        match &calls.list[call as usize].state {
            CallState::Sent(sending) => sending,
            other => panic!("{other:?}"),
        }
    }

    /// A person's word about the only call of a task that waits, or one of them.
    pub(crate) fn decides(
        &mut self,
        name: &str,
        by: &str,
        decision: Decision,
        id: Option<&str>,
    ) -> Result<(), ApprovalDecisionError> {
        let (scope, step, item) = place(name);
        let now = Timestamp::from_micros(self.now);
        let said = ApprovalCommand {
            scope,
            step,
            item,
            approval_id: id.map(str::to_owned),
            digest: None,
            decision,
            by: Principal {
                auth: "token".to_owned(),
                id: by.to_owned(),
            },
            reason: None,
            result: (decision == Decision::Happened).then(|| "done".to_owned()),
        };
        let draft = decide(&self.state, said, now)?;
        self.input(draft);
        Ok(())
    }

    /// What a person decides about the outcome of a step, and what they replace of it.
    pub(crate) fn reviews(
        &mut self,
        name: &str,
        by: &str,
        (decision, overlay): (ReviewDecision, Value),
    ) -> Result<(), ReviewDecisionError> {
        let (scope, step, _) = place(name);
        let now = Timestamp::from_micros(self.now);
        let overlay = overlay.as_object().cloned().unwrap_or_default();
        let said = ReviewCommand {
            scope,
            step,
            review_id: None,
            permitted: self.asked(name, |task| {
                task.review.as_ref()?.pending().map(|it| it.request)
            }),
            decision,
            overlay: overlay.into_iter().collect(),
            by: Principal {
                auth: "token".to_owned(),
                id: by.to_owned(),
            },
            reason: Some("as the contract says".to_owned()),
        };
        let draft = admit::review::decide(&self.definition, &self.state, said, now)?;
        self.input(draft);
        Ok(())
    }

    /// The frame that asks people about a step.
    fn asked(
        &self,
        name: &str,
        of: impl Fn(&ktsu_projections::run::AgentTask) -> Option<u64>,
    ) -> Option<u64> {
        let (scope, step, _) = place(name);
        let at = self.state.step_at(&scope, &step)?;
        of(self.state.task(at, None)?)
    }

    /// What a runtime gets to know of a task.
    pub(crate) fn spec(&self, name: &str, memo: &Memo) -> TaskSpec {
        let (scope, step, item) = place(name);
        let step = self.state.step_at(&scope, &step);
        let id = step.map(|step| TaskId { step, item });
        let spec = id.and_then(|id| task_spec(&self.definition, &self.state, memo, id));
        spec.unwrap_or_else(|| panic!("no task {name}"))
    }

    /// The data that a step waits for come.
    pub(crate) fn resumes_step(
        &mut self,
        name: &str,
        by: &str,
        data: Value,
    ) -> Result<(), StepResumptionError> {
        let given = self.resumption(name, by, data);
        self.gives(given)
    }

    /// Data as they are judged now.
    pub(crate) fn resumption(&self, name: &str, by: &str, data: Value) -> StepResumption {
        let (scope, step, _) = place(name);
        StepResumption {
            scope,
            step,
            suspend_id: None,
            permitted: PermittedSuspension::Request(self.asked(name, |task| {
                Some(task.suspension.as_ref()?.pending()?.request)
            })),
            data,
            by: Principal {
                auth: "token".to_owned(),
                id: by.to_owned(),
            },
            reason: None,
        }
    }

    /// They come.
    pub(crate) fn gives(&mut self, given: StepResumption) -> Result<(), StepResumptionError> {
        let now = Timestamp::from_micros(self.now);
        let draft = admit::suspend::resume(&self.definition, &self.state, given, now)?;
        self.input(draft);
        Ok(())
    }

    /// There is no decision until the time for it is over.
    pub(crate) fn waits_too_long_for_people(&mut self) {
        let until = timers::next(&self.state).expect("something waits").until;
        self.now = self.now.max(until.as_micros());
        self.input(timers::due(&self.state, until).expect("it is over"));
    }

    /// Nobody decides until the next wait is over.
    pub(crate) fn waits_too_long(&mut self) {
        let (until, _) = next_deadline(&self.state).expect("something waits");
        self.now = self.now.max(until.as_micros());
        self.input(timers::due(&self.state, until).expect("it is over"));
    }

    /// Calls whose answers are in history were sent by a runtime that is lost: they are sent again.
    pub(super) fn calls_again(&mut self, name: &str, says: &[Say]) {
        let attempt = self.task(name).attempt;
        for say in says {
            let Say::Result(call) = say else { continue };
            let Some(calls) = &self.task(name).calls else {
                continue;
            };
            if let CallState::Sent(sending) = &calls.list[*call as usize].state
                && sending.attempt < attempt
            {
                let again = Say::Call(*call, sending.server.clone(), sending.tool.clone());
                self.says(name, &[again]);
            }
        }
    }
}

/// The tools that a recorded reply asks for.
pub(super) fn names(calls: &CanonicalJson) -> Vec<&'static str> {
    let calls = calls.to_value();
    let names = calls.as_array().unwrap().iter();
    let leaked = |call: &Value| &*call["name"].as_str().unwrap().to_owned().leak();
    names.map(leaked).collect()
}
