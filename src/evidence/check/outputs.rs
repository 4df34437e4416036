//! The check that outputs match their origin, as far as no expression is involved: an agent's
//! output is the object in its model's reply, and a step's output is that of its agent, or the
//! response to its webhook.
//!
//! Outputs computed by expressions (of transforms, of children and of runs) are covered by
//! `replay`.

use std::collections::{BTreeMap, BTreeSet};

use ktsu_ledger::event::plan::{AgentPlan, Plan, StepWork};
use ktsu_ledger::event::{
    AgentEvent, AgentFinished, BranchCreated, FinishReason, ItemEvent, LlmResponse, PersonEvent,
    Purpose, Reference, RunEvent, StepEvent, WebhookEvent,
};
use ktsu_ledger::{CanonicalJson, Event, Frame, Hash, canonical};
use ktsu_projections::life::command_order::CommandOrder;
use ktsu_projections::life::invoked::InvokedPath;
use ktsu_projections::life::reserved::is_reserved;
use ktsu_projections::life::review::Review;
use ktsu_projections::life::suspension::Suspension;
use ktsu_secret::REDACTED;
use ktsu_workflow::rules::{DecisionRules, recorded_rules};
use serde_json::{Value, json};

use super::called::CalledCommands;
use super::content::too_large;
use super::history;
use super::reading::EvidenceArchive;
use super::resumptions::Resumptions;
use super::reviewed_outputs::ReviewedOutputs;
use super::step_outputs::{AskedBeside, StepOutputs};
use super::{
    ArchiveVerifyOptions, CheckResult, ClaimFailure, counted, for_one, not_covered, proven,
};
use ktsu_contract::gateway::strip_code_fence;

/// The code of an outcome that has no output because the budget was used up.
const BUDGET_EXCEEDED: &str = "budget_exceeded";
/// The levels that a reply may have: what is deeper is no output.
const MAX_DEPTH: usize = 56;

/// The findings of the check of outputs.
#[derive(Default)]
pub(super) struct OutputTally {
    held: u64,
    unknown: Option<String>,
}

impl EvidenceArchive {
    /// Checks that outputs are what replies and answers give.
    pub(super) fn outputs(&self, against: &ArchiveVerifyOptions) -> CheckResult {
        let mut found = OutputTally::default();
        for (stream, (first, last)) in self.by_stream() {
            if !matches!(
                stream.split(':').next(),
                Some("run" | "branch" | "recompute")
            ) {
                continue;
            }
            if self.is_too_large(stream, last, against) {
                found.unknown.get_or_insert_with(|| too_large(stream));
                continue;
            }
            OutputVerifier::of(self, stream, first, &mut found).read(last)?;
        }
        match found.unknown {
            Some(words) => not_covered(words),
            None => {
                let matches = for_one(&found.held, "matches its reply", "match their replies");
                let held = counted(found.held, "output");
                proven(format!(
                    "{held} {matches}; expressions are covered by replay"
                ))
            }
        }
    }
}

/// A run from its beginning, with all that it shares; only its own frames are checked.
pub(super) struct OutputVerifier<'a> {
    evidence: &'a EvidenceArchive,
    stream: &'a str,
    first: u64,
    found: &'a mut OutputTally,
    pub(super) steps: BTreeMap<(String, String), StepOutputs>,
    purposes: BTreeMap<u64, Purpose>,
    /// Requests whose replies may be repeated, and what those replies say.
    cacheable: BTreeSet<u64>,
    texts: BTreeMap<u64, String>,
    pub(super) plan: Option<Plan>,
    /// Outputs that people approved.
    pub(super) reviewed: ReviewedOutputs,
    /// The checkpoints and data that steps are given when they run again after a suspension.
    pub(super) resumed: Resumptions,
    /// The decision rules of the run.
    rules: u32,
    /// True if there is a definition, and it cannot be read.
    unread: bool,
}

impl<'a> OutputVerifier<'a> {
    fn of(
        evidence: &'a EvidenceArchive,
        stream: &'a str,
        first: u64,
        found: &'a mut OutputTally,
    ) -> Self {
        Self {
            evidence,
            stream,
            first,
            found,
            steps: BTreeMap::new(),
            purposes: BTreeMap::new(),
            cacheable: BTreeSet::new(),
            texts: BTreeMap::new(),
            plan: None,
            reviewed: ReviewedOutputs::default(),
            resumed: Resumptions::default(),
            rules: 0,
            unread: false,
        }
    }

    /// The definition that a frame brings, whatever its other blobs are.
    fn defined(&self, frame: &Frame) -> Option<Plan> {
        let mut apart = frame.ext.iter();
        let hash = apart
            .find(|one| one.path == "/definition")
            .map(|one| one.hash);
        let Some(hash) = hash else {
            let (definition, _) = frame.event.definition()?;
            return serde_json::from_str(definition.as_str()).ok();
        };
        let bytes = self.evidence.blob(&hash);
        let bytes = bytes.filter(|bytes| Hash::of(bytes) == hash)?;
        serde_json::from_slice(&bytes).ok()
    }

    fn read(mut self, last: u64) -> Result<(), ClaimFailure> {
        for seq in 0..=last {
            let placed = self.evidence.shared(self.stream, seq);
            let words =
                || ClaimFailure::new(format!("the frames of {} cannot be read", self.stream));
            let placed = placed.ok_or_else(words)?;
            let needs = needs_blobs(&placed.frame.event, self.has_asked());
            let apart = !placed.frame.ext.is_empty() && needs;
            if !apart {
                self.take(&placed.frame)?;
                continue;
            }
            let words = || {
                let words = "one of its blobs is missing or another";
                ClaimFailure::at(placed.frame.id(), words)
            };
            let whole = self.evidence.whole(self.stream, seq).ok_or_else(words)?;
            self.take(&whole)?;
        }
        Ok(())
    }

    /// A branch begins: what was in progress in the parent is asked again.
    fn fork(&mut self, frame: &Frame, branch: &BranchCreated) {
        if branch.restarts {
            self.steps.clear();
        }
        self.resumed.begin_again(frame.seq);
        if branch.digest.is_some() || branch.restarts {
            self.resumed.blur();
        }
        let steps = self.steps.values_mut();
        for asked in steps.flat_map(|step| step.asked.values_mut()) {
            asked.review.iter_mut().for_each(Review::ask_again);
            let suspension = asked.suspension.iter_mut();
            suspension.for_each(Suspension::ask_again);
        }
    }

    fn take(&mut self, frame: &Frame) -> Result<(), ClaimFailure> {
        self.rules = recorded_rules(&frame.event).unwrap_or(self.rules);
        let apart = frame.ext.iter().any(|one| one.path == "/definition");
        if apart || frame.event.definition().is_some() {
            self.plan = self.defined(frame);
            self.unread = self.plan.is_none();
            self.steps.clear();
        }
        if let Some(branch) = frame.event.branched() {
            self.fork(frame, branch);
        }
        match &frame.event {
            Event::Step(event @ (StepEvent::Started(_) | StepEvent::Reset(_))) => {
                self.begins_again(frame, event)?;
                *self.step(frame) = StepOutputs {
                    reset: matches!(event, StepEvent::Reset(_)).then_some(frame.seq),
                    ..StepOutputs::default()
                };
            }
            Event::Agent(event) => self.agent(frame, event)?,
            Event::Webhook(WebhookEvent::Delivered(answer) | WebhookEvent::Failed(answer))
                if answer.approval.is_none() =>
            {
                self.step(frame).answer = answer.status;
            }
            Event::Step(StepEvent::Noted(note)) => {
                let asked = self.step(frame).asked.entry(note.item).or_default();
                let at = ("events", asked.notes);
                let right = asked.is_at(&note.event, at, &[("type", &note.kind)]);
                let right = right && note.index == asked.notes && asked.may_note();
                asked.notes += 1;
                let right = right && self.tells_of_outcomes();
                let words = "it is not the next of the events that its agent gave";
                self.blame(frame, !right, words)?;
            }
            Event::Step(StepEvent::Commanded(command)) => {
                let asked = self.step(frame).asked.entry(command.item).or_default();
                let at = ("commands", command.index);
                let topic = command.topic.as_deref().map(|topic| ("topic", topic));
                let target = command.target.as_deref().map(|target| ("step", target));
                let about = topic.or(target).into_iter();
                let said: Vec<_> = about.chain([("type", command.kind.as_str())]).collect();
                let right = asked.is_at(&command.command, at, &said);
                let right = asked.takes_turn(command) && right;
                let right = right && self.tells_of_outcomes();
                let words = "it is not the next of the commands that its agent gave";
                self.blame(frame, !right, words)?;
                let plan = self.agent_plan(&frame.scope, &command.step);
                let asked = self.step(frame).asked.entry(command.item).or_default();
                let outcome = &asked.outcome;
                let right = asked
                    .runs
                    .request(frame.seq, command, outcome, plan.as_ref());
                let words = "its step does not declare the workflow that it runs";
                self.blame(frame, !right, words)?;
            }
            Event::Step(StepEvent::CommandCompleted(done)) => {
                let asked = self.step(frame).asked.entry(done.item).or_default();
                let right = asked.runs.complete(done);
                let words = "it does not name the ends of what its command runs";
                self.blame(frame, !right, words)?;
            }
            Event::Run(RunEvent::Started(started)) => {
                if let Some(path) = InvokedPath::parse(&frame.scope) {
                    let plan = self.agent_plan(&path.scope, &path.step);
                    let step = (path.scope.clone(), path.step.clone());
                    let step = self.steps.entry(step).or_default();
                    let asked = step.asked.entry(path.item).or_default();
                    let outcome = (asked.finished, &asked.outcome);
                    let right = asked.runs.begin(&path, started, outcome, plan.as_ref());
                    let words = "no command runs it next, with this input";
                    self.blame(frame, !right, words)?;
                }
            }
            Event::Run(RunEvent::Completed(_)) => {
                if let Some(path) = InvokedPath::parse(&frame.scope)
                    && let Some(step) = self.steps.get_mut(&(path.scope, path.step))
                    && let Some(asked) = step.asked.get_mut(&path.item)
                {
                    asked.runs.end(path.index, frame.seq);
                }
            }
            Event::Step(StepEvent::Completed(_)) if self.unread => {
                let words = "one of its blobs is missing or another";
                return Err(ClaimFailure::at(frame.id(), words));
            }
            Event::Step(StepEvent::Completed(done)) => {
                let (from, output) = (done.output_from.as_ref(), done.output.as_ref());
                match self.work(&frame.scope, &done.step).cloned() {
                    Some(StepWork::Agent(agent)) if agent.for_each.is_none() => {
                        self.check_all_recorded(frame, None)?;
                        self.given(frame, None, from, output, &done.stripped)?;
                    }
                    Some(StepWork::Webhook(_)) => self.answered(frame, output)?,
                    _ => {}
                }
            }
            Event::Item(ItemEvent::Completed(done)) => {
                let (from, item) = (done.output_from.as_ref(), Some(done.item));
                self.check_all_recorded(frame, item)?;
                if done.skipped.is_none() {
                    self.given(frame, item, from, None, &done.stripped)?;
                }
            }
            _ => {}
        }
        self.review(frame)?;
        self.suspension(frame)
    }

    /// Returns `true` if people were asked anything about outcomes.
    fn has_asked(&self) -> bool {
        !self.reviewed.is_empty() || !self.resumed.is_empty()
    }

    /// Returns `true` if events and commands of outcomes have frames in the run.
    fn tells_of_outcomes(&self) -> bool {
        DecisionRules::from_recorded(self.rules).is_ok_and(DecisionRules::carries_out_commands)
    }

    /// Checks that every event and command of an outcome that counts has its frame.
    fn check_all_recorded(&mut self, frame: &Frame, item: Option<u32>) -> Result<(), ClaimFailure> {
        let asked = self.step(frame).asked.get(&item);
        let left = asked.is_some_and(|asked| !asked.has_all_frames());
        let runs = asked.is_some_and(|asked| !asked.runs.is_done());
        let words = "some of the events or commands that its agent gave have no frame";
        self.blame(frame, left && self.tells_of_outcomes(), words)?;
        let words = "some of what its commands run has not ended";
        self.blame(frame, runs, words)
    }

    /// The facts that are known of the step that a frame is about.
    pub(super) fn step(&mut self, frame: &Frame) -> &mut StepOutputs {
        let step = frame.event.task().map_or("", |(step, _)| step);
        let key = (frame.scope.clone(), step.to_owned());
        self.steps.entry(key).or_default()
    }

    /// The work of a step, as the definition has it.
    fn work(&self, scope: &str, step: &str) -> Option<&StepWork> {
        let acting = self.resumed.acting(scope, step).unwrap_or(step);
        history::work(self.plan.as_ref()?, scope, acting)
    }

    /// The plan that the definition has of an agent step.
    pub(super) fn agent_plan(&self, scope: &str, step: &str) -> Option<AgentPlan> {
        match self.work(scope, step)? {
            StepWork::Agent(agent) => Some(agent.clone()),
            StepWork::Transform(_) | StepWork::Webhook(_) | StepWork::Workflow(_) => None,
        }
    }

    fn is_own(&self, frame: &Frame) -> bool {
        frame.seq >= self.first && frame.stream.as_str() == self.stream
    }

    pub(super) fn blame(
        &self,
        frame: &Frame,
        wrong: bool,
        words: &str,
    ) -> Result<(), ClaimFailure> {
        match wrong && self.is_own(frame) {
            true => Err(ClaimFailure::at(frame.id(), words)),
            false => Ok(()),
        }
    }

    fn unknown(&mut self, frame: &Frame, words: &str) {
        if self.is_own(frame) {
            let words = format!("{}: {words}", frame.id());
            self.found.unknown.get_or_insert(words);
        }
    }

    fn holds(&mut self, frame: &Frame) {
        self.found.held += u64::from(self.is_own(frame));
    }

    fn agent(&mut self, frame: &Frame, event: &AgentEvent) -> Result<(), ClaimFailure> {
        match event {
            AgentEvent::Request(request) => {
                self.purposes.insert(frame.seq, request.purpose);
                if request.routing.is_some() {
                    self.cacheable.insert(frame.seq);
                }
            }
            AgentEvent::Response(response) => self.replied(frame, response),
            AgentEvent::Decided(decided) => {
                if let Some(draft) = &decided.draft {
                    self.follows(frame, decided.item, &draft.to_value(), "draft")?;
                }
            }
            AgentEvent::BudgetExhausted(spent) => {
                self.step(frame).spent.insert(spent.item);
            }
            AgentEvent::ToolCalled(called) => {
                let calls = &mut self.step(frame).called;
                calls
                    .entry(called.item)
                    .or_default()
                    .send(frame.seq, called);
            }
            AgentEvent::ToolInDoubt(doubt) => {
                let calls = &mut self.step(frame).called;
                calls.entry(doubt.item).or_default().doubt(doubt.called);
            }
            AgentEvent::ToolReturned(returned) => {
                let calls = &mut self.step(frame).called;
                calls
                    .entry(returned.item)
                    .or_default()
                    .answer(frame.seq, returned);
            }
            AgentEvent::Finished(finished) => self.finished(frame, finished)?,
            _ => {}
        }
        Ok(())
    }

    fn finished(&mut self, frame: &Frame, finished: &AgentFinished) -> Result<(), ClaimFailure> {
        let outcome = finished.outcome.to_value();
        let output = outcome.get("output").cloned().unwrap_or_default();
        let code = outcome.pointer("/error/code").and_then(Value::as_str);
        let spent =
            finished.reason == FinishReason::BudgetExceeded || code == Some(BUDGET_EXCEEDED);
        let rules = self.rules;
        let step = self.step(frame);
        let unsaid = spent && finished.report.is_some() && !step.spent.contains(&finished.item);
        let called = step.called.remove(&finished.item).unwrap_or_default();
        step.given
            .insert(finished.item, (frame.seq, output.clone()));
        let order = CommandOrder::of_outcome(&finished.outcome, rules);
        let asked = AskedBeside::of((frame.seq, finished.attempt), outcome, order);
        let commands = asked.list("commands").to_vec();
        step.asked.insert(finished.item, asked);
        let words = "nothing says that its budget was used up";
        self.blame(frame, unsaid, words)?;
        if output.is_null() {
            return Ok(());
        }
        if self.tells_of_outcomes() {
            self.commands(frame, &called, &commands)?;
        }
        self.follows(frame, finished.item, &output, "output")
    }

    /// Checks that the commands of an outcome are those that the calls of its model gave.
    fn commands(
        &mut self,
        frame: &Frame,
        called: &CalledCommands,
        commands: &[Value],
    ) -> Result<(), ClaimFailure> {
        let hidden = || Value::from(commands).to_string().contains(REDACTED);
        let rules = DecisionRules::from_recorded(self.rules).ok();
        match called.give(commands, rules) {
            Some(true) => self.holds(frame),
            Some(false) if hidden() || called.is_hidden() => {
                self.unknown(frame, "its commands hold what was redacted");
            }
            Some(false) => {
                let words = "its commands are not those that its model called for";
                self.blame(frame, true, words)?;
            }
            None if commands.is_empty() => {}
            None => self.unknown(frame, "no call of a tool gave its commands"),
        }
        Ok(())
    }

    /// A reply that asks for no tools: whoever was asked to repair or to reflect may call nothing.
    fn replied(&mut self, frame: &Frame, response: &LlmResponse) {
        let purpose = self.purposes.get(&response.request);
        let turn = purpose.is_none_or(|purpose| *purpose == Purpose::Turn);
        let calls = response.tool_calls.as_ref().map(CanonicalJson::to_value);
        let calls = calls.as_ref().and_then(Value::as_array);
        let calls = calls.cloned().unwrap_or_default();
        let asks = !calls.is_empty();
        let step = self.step(frame);
        let called = step.called.entry(response.item).or_default();
        called.reply(frame.seq, calls);
        if let Some(error) = &response.error
            && error.code == BUDGET_EXCEEDED
        {
            step.spent.insert(response.item);
        }
        if response.error.is_some() || (turn && asks) {
            return;
        }
        let repeated = response.repeats.map(|seq| self.texts.get(&seq).cloned());
        let text = repeated.map(Option::unwrap_or_default);
        let text = text.unwrap_or_else(|| text_of(response));
        if self.cacheable.contains(&response.request) {
            self.texts.insert(frame.seq, text.clone());
        }
        let step = self.step(frame);
        step.replies.entry(response.item).or_default().push(text);
    }

    /// Checks that a value is the object that the last reply is.
    fn follows(
        &mut self,
        frame: &Frame,
        item: Option<u32>,
        value: &Value,
        what: &str,
    ) -> Result<(), ClaimFailure> {
        let replies = self.step(frame).replies.get(&item);
        let Some(reply) = replies.and_then(|replies| replies.last()).cloned() else {
            self.unknown(frame, "its runtime reported no reply");
            return Ok(());
        };
        let said = spoken(&reply);
        let same = said.as_ref().is_some_and(|said| said.to_value() == *value);
        let hidden = reply.contains(REDACTED) || value.to_string().contains(REDACTED);
        if same {
            self.holds(frame);
        } else if said.is_none() || hidden {
            self.unknown(frame, "its reply, as it is recorded, is not such an object");
        } else {
            let words = format!("its {what} is not what its model replied");
            self.blame(frame, true, &words)?;
        }
        Ok(())
    }

    /// Checks that an output is the one that the agent of the step or of the item gave.
    fn given(
        &mut self,
        frame: &Frame,
        item: Option<u32>,
        from: Option<&Reference>,
        output: Option<&CanonicalJson>,
        stripped: &[String],
    ) -> Result<(), ClaimFailure> {
        let given = self.step(frame).given.get(&item).cloned();
        let (seq, value) = given.unwrap_or_default();
        let named = from.is_some_and(|from| from.frame == seq && from.path == "/outcome/output");
        let right = named && value.is_object() && output.is_none();
        let words = "its output is not the one that its agent gave";
        self.blame(frame, !right, words)?;
        let members = value.as_object().into_iter().flatten();
        let reserved = members
            .map(|(name, _)| name)
            .filter(|name| is_reserved(name));
        let mut reserved: Vec<&String> = reserved.collect();
        let mut stripped: Vec<&String> = stripped.iter().collect();
        reserved.sort_unstable();
        stripped.sort_unstable();
        let words = "what it leaves out is not what is reserved";
        self.blame(frame, reserved != stripped, words)?;
        self.holds(frame);
        Ok(())
    }

    /// Checks that an output is the answer to the webhook of the step.
    fn answered(
        &mut self,
        frame: &Frame,
        output: Option<&CanonicalJson>,
    ) -> Result<(), ClaimFailure> {
        let given = json!({"sent": true, "status_code": self.step(frame).answer});
        let right = output.is_some_and(|output| output.to_value() == given);
        let words = "its output is not what its webhook was answered with";
        self.blame(frame, !right, words)?;
        self.holds(frame);
        Ok(())
    }
}

/// The text of a reply.
fn text_of(response: &LlmResponse) -> String {
    match response.content.as_ref().map(CanonicalJson::to_value) {
        Some(Value::String(text)) => text,
        Some(other) => other.to_string(),
        None => String::new(),
    }
}

/// The object that a reply is, alone or within one fence, as strictly as runtimes read it; nothing
/// where it is none.
fn spoken(text: &str) -> Option<CanonicalJson> {
    let value = canonical::parse_strict(strip_code_fence(text).as_bytes()).ok()?;
    let fits = value.is_object() && !canonical::deeper_than(&value, MAX_DEPTH);
    fits.then(|| CanonicalJson::from_value(&value).ok())
        .flatten()
}

/// Returns `true` if what is checked here may be in a blob.
fn needs_blobs(event: &Event, asked: bool) -> bool {
    match event {
        // What is taken from reviewed outputs is compared with what people replaced of them, and what
        // is taken of data with those.
        Event::Step(StepEvent::Started(_)) | Event::Item(ItemEvent::Started(_)) => asked,
        Event::Person(PersonEvent::ReviewDecided(_) | PersonEvent::SuspendResumed(_)) => true,
        Event::Agent(event) => matches!(
            event,
            AgentEvent::Response(_) | AgentEvent::Decided(_) | AgentEvent::Finished(_)
        ),
        Event::Step(StepEvent::Completed(_) | StepEvent::CommandCompleted(_))
        | Event::Run(RunEvent::Started(_)) => true,
        _ => false,
    }
}
