//! The lineage of frames: which follows from which.

mod agents;

use std::collections::BTreeSet;

use ktsu_ledger::event::{
    CommandKind, DeliveryEvent, Effects, EvalEvent, ItemEvent, KvEvent, LostReason, PersonEvent,
    RecomputeEvent, ReplicaTotals, RunCreated, RunEvent, SkipReason, StepEvent, StoreEvent,
    Verdict, WebhookEvent, WorkerEvent,
};
use ktsu_ledger::{Cause, Event, Frame, Timestamp};
use serde::Serialize;
use utoipa::ToSchema;

use self::agents::describe_agent;
pub use self::agents::dollars;
use crate::commanded_names::CommandNames;
use crate::world::describe::describe_world;

/// The causal graph of one stream.
#[derive(Debug, Clone, Default)]
pub struct Lineage {
    nodes: Vec<LineageNode>,
    effects: Vec<Vec<u64>>,
    commands: CommandNames,
}

/// A frame in the graph.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct LineageNode {
    /// Its number.
    pub seq: u64,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// The inline child it belongs to.
    pub scope: String,
    /// The step it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Who appended it.
    pub actor: String,
    /// When.
    #[schema(value_type = String)]
    pub at: Timestamp,
    /// The frames it follows from, in this stream.
    pub cause: Vec<u64>,
    /// The frames it follows from, in others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Option<Vec<String>>)]
    pub foreign: Vec<String>,
    /// Those of its causes that are not there. Of causes in other streams only whoever reads those
    /// knows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Option<Vec<String>>)]
    pub missing: Vec<String>,
    /// What a reader wants to know at a glance.
    pub detail: String,
}

impl Lineage {
    /// The graph of a whole stream.
    pub fn from_frames<'a>(frames: impl IntoIterator<Item = &'a Frame>) -> Self {
        let mut lineage = Self::default();
        for frame in frames {
            lineage.apply(frame);
        }
        lineage
    }

    /// Takes a frame. Frames come in order from 0.
    pub fn apply(&mut self, frame: &Frame) {
        let node = LineageNode::after(frame, &self.commands);
        for seq in &node.cause {
            if let Some(effects) = self.effects.get_mut(*seq as usize) {
                effects.push(frame.seq);
            }
        }
        self.nodes.push(node);
        self.commands.take(frame);
        self.effects.push(Vec::new());
    }

    /// All frames, in order.
    pub fn nodes(&self) -> &[LineageNode] {
        &self.nodes
    }

    /// All frames, for whoever knows more of them: which causes in other streams are missing.
    pub fn nodes_mut(&mut self) -> &mut [LineageNode] {
        &mut self.nodes
    }

    /// One frame.
    pub fn node(&self, seq: u64) -> Option<&LineageNode> {
        self.nodes.get(usize::try_from(seq).ok()?)
    }

    /// The frames that follow directly from a frame.
    pub fn effects(&self, seq: u64) -> &[u64] {
        usize::try_from(seq)
            .ok()
            .and_then(|at| self.effects.get(at))
            .map_or(&[], Vec::as_slice)
    }

    /// A frame and everything it follows from, each once, latest first, down to the root.
    pub fn ancestors(&self, seq: u64) -> Vec<u64> {
        self.reach(seq, |seq| {
            self.node(seq).map_or(&[], |node| node.cause.as_slice())
        })
        .into_iter()
        .rev()
        .collect()
    }

    /// A frame and everything that follows from it, each once, in order.
    pub fn descendants(&self, seq: u64) -> Vec<u64> {
        self.reach(seq, |seq| self.effects(seq))
            .into_iter()
            .collect()
    }

    fn reach<'a>(&'a self, from: u64, next: impl Fn(u64) -> &'a [u64]) -> BTreeSet<u64> {
        let mut reached = BTreeSet::new();
        let mut open = vec![from];
        while let Some(seq) = open.pop() {
            if self.node(seq).is_some() && reached.insert(seq) {
                open.extend(next(seq));
            }
        }
        reached
    }
}

impl LineageNode {
    /// A frame as a node. `end` reads the end of the task that it is about, for one that says of parts of an outcome
    /// no more than their places.
    ///
    /// # Errors
    /// Those of `end`.
    pub fn of<E>(frame: &Frame, end: impl FnOnce() -> Result<Option<Frame>, E>) -> Result<Self, E> {
        let mut commands = CommandNames::default();
        if places_of_commands(&frame.event).is_some()
            && let Some(end) = end()?
        {
            commands.take(&end);
        }
        Ok(Self::after(frame, &commands))
    }

    /// A frame after those with these commands.
    fn after(frame: &Frame, commands: &CommandNames) -> Self {
        let mut cause = Vec::new();
        let mut foreign = Vec::new();
        for one in &frame.cause {
            match one {
                Cause::Here(seq) => cause.push(*seq),
                Cause::There(..) => foreign.push(one.to_string()),
            }
        }
        let missing = cause.iter().filter(|seq| **seq >= frame.seq);
        let missing = missing.map(u64::to_string).collect();
        let task = frame.event.task();
        let detail = match places_of_commands(&frame.event) {
            Some((step, indexes)) => commands.at(&frame.scope, step, indexes),
            None => describe(&frame.event),
        };
        Self {
            seq: frame.seq,
            kind: frame.event.kind().to_owned(),
            scope: frame.scope.clone(),
            step: task.map(|(step, item)| item_name(step, item)),
            actor: frame.actor.to_string(),
            at: frame.at,
            cause,
            foreign,
            missing,
            detail,
        }
    }
}

/// The content of a frame in a few words, as far as it depends on no other frame.
pub fn detail(frame: &Frame) -> String {
    describe(&frame.event)
}

/// The step and the places of the commands that an event is about, by which alone it names them.
fn places_of_commands(event: &Event) -> Option<(&str, &[u32])> {
    if let Event::Step(StepEvent::CommandsDeferred(event)) = event {
        return Some((&event.step, &event.indexes));
    }
    if let Event::Step(StepEvent::CommandsDiscarded(event)) = event {
        return Some((&event.step, &event.indexes));
    }
    None
}

/// The content of a frame in a few words.
fn describe(event: &Event) -> String {
    match event {
        Event::Run(event) => describe_run(event),
        Event::Recompute(event) => describe_recompute(event),
        Event::Step(event) => describe_step(event),
        Event::Item(event) => describe_item(event),
        Event::Agent(event) => describe_agent(event),
        Event::Worker(event) => describe_worker(event),
        Event::Webhook(event) => describe_webhook(event),
        Event::Delivery(event) => describe_delivery(event),
        Event::Eval(event) => describe_eval(event),
        Event::Kv(KvEvent::Set(set)) => format!("{} is set", set.key),
        Event::Kv(KvEvent::Deleted(deleted)) => format!("{} is deleted", deleted.key),
        Event::Person(PersonEvent::OverlaySet(set)) => {
            format!("{} by {}: {}", set.field, set.by.id, set.reason)
        }
        Event::Person(PersonEvent::ReviewDecided(decided)) => {
            let (word, by) = (decided.decision.as_str(), &decided.by.id);
            let fields: Vec<&str> = decided.overlay.keys().map(String::as_str).collect();
            let replaced = match fields.is_empty() {
                true => String::new(),
                false => format!(", {} replaced", fields.join(", ")),
            };
            format!("{word} by {by}{replaced}{}", because(&decided.reason))
        }
        Event::Person(PersonEvent::SuspendResumed(resumed)) => {
            format!("data by {}{}", resumed.by.id, because(&resumed.reason))
        }
        Event::Store(StoreEvent::Opened(opened)) => format!("epoch {}", opened.epoch),
        Event::Store(StoreEvent::RunHead(head)) => {
            format!("{} {}, {} frames", head.stream, head.status, head.frames)
        }
        Event::Store(StoreEvent::CheckpointSigned(signed)) => {
            format!("{} frames, key {}", signed.size, signed.key)
        }
        Event::Store(StoreEvent::KeyAdded(added)) => format!("key {}", added.id),
        Event::Store(StoreEvent::KeyRevoked(revoked)) => {
            format!("key {}: {}", revoked.id, revoked.reason)
        }
        Event::Store(StoreEvent::Recovered(found)) => {
            format!("{} unfinished runs", found.unfinished)
        }
        Event::Store(StoreEvent::HoldPlaced(hold)) => {
            format!("{} by {}: {}", hold.stream, hold.by.id, hold.reason)
        }
        Event::Store(StoreEvent::HoldLifted(hold)) => {
            format!("{} by {}: {}", hold.stream, hold.by.id, hold.reason)
        }
        Event::Store(StoreEvent::RunRemoved(removed)) => {
            format!(
                "{} {}, {} frames, {}",
                removed.stream, removed.status, removed.frames, removed.reason
            )
        }
        Event::World(event) => describe_world(event),
        Event::Foreign { .. } => String::new(),
    }
}

fn describe_created(created: &RunCreated) -> String {
    let RunCreated {
        workflow,
        version,
        principal,
        lock,
        ..
    } = created;
    let locked = if lock.is_some() { ", locked" } else { "" };
    let uncached = if created.no_cache {
        ", without cache"
    } else {
        ""
    };
    let silent = match created.effects() {
        Effects::Suppress => ", effects suppressed",
        Effects::Execute => "",
    };
    format!(
        "{workflow} {version} by {}{locked}{uncached}{silent}",
        principal.id
    )
}

fn describe_recompute(event: &RecomputeEvent) -> String {
    match event {
        RecomputeEvent::Created(created) => describe_created(created),
        RecomputeEvent::Compared(compared) => compared.status.as_str().to_owned(),
    }
}

fn describe_run(event: &RunEvent) -> String {
    match event {
        RunEvent::Created(created) => describe_created(created),
        RunEvent::Started(started) => started.plan.clone().unwrap_or_default(),
        RunEvent::Continued(continued) => match continued.why {
            ktsu_ledger::event::ContinueReason::Bound => "the turn before was full".to_owned(),
            ktsu_ledger::event::ContinueReason::Idle => "as nothing is due".to_owned(),
            ktsu_ledger::event::ContinueReason::Restart => "after a restart".to_owned(),
        },
        RunEvent::Resumed(resumed) => {
            let from = resumed.from.as_ref();
            let from = from.map_or_else(String::new, |from| format!("from {from} "));
            format!("{from}by {}{}", resumed.by.id, because(&resumed.reason))
        }
        RunEvent::Paused(word) | RunEvent::Cancelled(word) | RunEvent::Terminated(word) => {
            format!("by {}{}", word.by.id, because(&word.reason))
        }
        RunEvent::Branched(branch) => format!(
            "of {} at {} by {}{}",
            branch.parent_run_id,
            branch.fork_position,
            branch.by.id,
            because(&branch.reason)
        ),
        RunEvent::Completed(_) => String::new(),
        RunEvent::Failed(failed) => format!("{}: {}", failed.code, failed.message),
        RunEvent::TimerFired(fired) => match fired.timer {
            ktsu_ledger::event::TimerKind::After => {
                let responder = fired.responder.as_deref().unwrap_or_default();
                format!("{responder} has waited long enough")
            }
            ktsu_ledger::event::TimerKind::Retry => "time to send again".to_owned(),
            ktsu_ledger::event::TimerKind::Review => "the time to decide is over".to_owned(),
            ktsu_ledger::event::TimerKind::Suspend => {
                "the time to give the data is over".to_owned()
            }
            ktsu_ledger::event::TimerKind::RunTimeout => "the run's time is over".to_owned(),
            ktsu_ledger::event::TimerKind::WorldBudget => {
                "the time of the world's budget is used up".to_owned()
            }
        },
        RunEvent::ClockJumped(jump) => match jump.forward_ms {
            Some(by_ms) => format!("the clock went forward by {by_ms} ms that did not pass"),
            None => format!("the clock said {} after {}", jump.clock, jump.last),
        },
    }
}

fn because(reason: &Option<String>) -> String {
    let reason = reason.iter();
    reason.map(|reason| format!(": {reason}")).collect()
}

fn describe_step(event: &StepEvent) -> String {
    match event {
        StepEvent::Started(started) => match (started.items, started.attempt) {
            (Some(1), _) => "1 item".to_owned(),
            (Some(items), _) => format!("{items} items"),
            (None, 0 | 1) => String::new(),
            (None, attempt) => format!("attempt {attempt}"),
        },
        StepEvent::Completed(_) => String::new(),
        StepEvent::Reset(reset) => match reset.attempt {
            0 => String::new(),
            attempt => format!("attempt {attempt} no longer counts"),
        },
        StepEvent::ReservedEvaluated(one) => {
            let verdict = match one.verdict {
                Verdict::Pass | Verdict::Noted => "",
                Verdict::Skip => ": to be skipped",
                Verdict::Fail => ": fails",
                Verdict::FailRun => ": fails the run",
            };
            format!("{} {}{verdict}", one.field, one.value.as_str())
        }
        StepEvent::OutputChecked(checked) if checked.valid => "valid".to_owned(),
        StepEvent::OutputChecked(checked) => format!("{} violations", checked.errors.len()),
        StepEvent::Noted(note) => note.kind.clone(),
        StepEvent::Commanded(command) => {
            let about = command.topic.as_ref().or(command.target.as_ref());
            let about = match command.kind {
                CommandKind::Review => "review",
                CommandKind::Suspend => "suspend",
                CommandKind::Emit | CommandKind::Fanout | CommandKind::Invoke => {
                    about.map_or("", String::as_str)
                }
            };
            match (command.kind.invokes(), command.suppressed) {
                (false, true) => format!("{about}: suppressed"),
                (false, false) => about.to_owned(),
                (true, true) => format!("{} {about}: suppressed", command.kind.as_str()),
                (true, false) => format!("{} {about}", command.kind.as_str()),
            }
        }
        StepEvent::CommandCompleted(done) => match done.children.len() {
            1 => "1 child".to_owned(),
            count => format!("{count} children"),
        },
        // Named by the outcome that has them.
        StepEvent::CommandsDeferred(_) | StepEvent::CommandsDiscarded(_) => String::new(),
        StepEvent::ReviewRequested(asked) => match asked.policy.quorum {
            0 | 1 => String::new(),
            quorum => format!("{quorum} people have to approve"),
        },
        StepEvent::SuspendRequested(asked) => match asked.policy.roles.is_empty() {
            true => "waits for data".to_owned(),
            false => format!("waits for data of {}", asked.policy.roles.join(" or ")),
        },
        StepEvent::Failed(failed) => format!("{}: {}", failed.code, failed.message),
        StepEvent::Skipped(skipped) => {
            let reason = SkipReason::as_str(skipped.reason);
            let detail = skipped.detail.iter();
            detail.fold(reason.to_owned(), |reason, detail| {
                format!("{reason}: {detail}")
            })
        }
    }
}

/// `STEP` or `STEP.INDEX` (decision H1).
pub fn item_name(step: &str, item: Option<u32>) -> String {
    item.map_or_else(|| step.to_owned(), |item| format!("{step}.{item}"))
}

fn describe_item(event: &ItemEvent) -> String {
    match event {
        ItemEvent::Started(_) => String::new(),
        ItemEvent::Completed(done) => match &done.skipped {
            Some(why) => format!("skipped: {why}"),
            None => String::new(),
        },
        ItemEvent::Failed(failed) => format!("{}: {}", failed.code, failed.message),
    }
}

fn describe_worker(event: &WorkerEvent) -> String {
    match event {
        WorkerEvent::Dispatched(sent) if sent.attempt > 1 => format!("attempt {}", sent.attempt),
        WorkerEvent::Dispatched(_) => String::new(),
        WorkerEvent::Lost(lost) => match lost.reason {
            LostReason::Heartbeat => "no heartbeat".to_owned(),
            LostReason::Instance => "the runtime was started again".to_owned(),
            LostReason::Restart => "the orchestrator was started again".to_owned(),
        },
    }
}

fn describe_webhook(event: &WebhookEvent) -> String {
    match event {
        WebhookEvent::Sent(sent) => {
            format!("{} {} as {}", sent.method, sent.target, sent.delivery_id)
        }
        WebhookEvent::Delivered(answer) | WebhookEvent::Failed(answer) => {
            let what = match (answer.status, &answer.code) {
                (Some(status), _) => format!("status {status}"),
                (None, Some(code)) => code.clone(),
                (None, None) => "no answer".to_owned(),
            };
            format!("{what} after {} ms", answer.duration_ms)
        }
        WebhookEvent::Dead(dead) => format!("given up after {} sendings", dead.sendings),
    }
}

fn describe_eval(event: &EvalEvent) -> String {
    match event {
        EvalEvent::Started(started) => format!("{} by {}", started.file, started.by.id),
        EvalEvent::ScenarioStarted(scenario) => {
            format!("{}, {} frames", scenario.run.name(), scenario.frames)
        }
        EvalEvent::Checked(result) => {
            format!(
                "{} {}: {}",
                result.name,
                result.status.as_str(),
                result.reason
            )
        }
        EvalEvent::ScenarioFinished(finished) => {
            format!(
                "{}, composite {}",
                finished.status.as_str(),
                finished.composite
            )
        }
        EvalEvent::Aggregated(scenario) => {
            let ReplicaTotals {
                errors,
                failed,
                passed,
            } = scenario.replicas;
            let status = scenario.status.as_str();
            format!("{status}, replicas: {passed} passed, {failed} failed, {errors} errors")
        }
        EvalEvent::Finished(finished) => format!(
            "{} passed, {} failed, {} errors",
            finished.passed, finished.failed, finished.errors
        ),
    }
}

fn describe_delivery(event: &DeliveryEvent) -> String {
    match event {
        DeliveryEvent::Added(added) => format!("{} to {}", added.pattern, added.url),
        DeliveryEvent::Removed(removed) => format!("by {}", removed.by.id),
        DeliveryEvent::Advanced(advanced) => format!("up to frame {}", advanced.position),
        DeliveryEvent::Dead(dead) => {
            let (stream, seq) = (&dead.stream, dead.seq);
            format!(
                "{stream}#{seq}: {} after {} attempts",
                dead.code, dead.attempts
            )
        }
        DeliveryEvent::Redriven(redriven) => {
            format!("{} frames by {}", redriven.count, redriven.by.id)
        }
        DeliveryEvent::Settled(settled) => format!("{} frames", settled.positions.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(seq: u64, cause: Vec<u64>) -> LineageNode {
        LineageNode {
            seq,
            kind: String::new(),
            scope: String::new(),
            step: None,
            actor: String::new(),
            at: Timestamp::from_micros(0),
            cause,
            foreign: Vec::new(),
            missing: Vec::new(),
            detail: String::new(),
        }
    }

    #[test]
    fn a_million_causes_are_followed_in_both_directions() {
        let last = 1_000_000;
        let nodes = (0..=last).map(|seq: u64| node(seq, seq.checked_sub(1).into_iter().collect()));
        let lineage = Lineage {
            nodes: nodes.collect(),
            effects: (0..=last)
                .map(|seq| (seq < last).then_some(seq + 1).into_iter().collect())
                .collect(),
            ..Lineage::default()
        };
        let back = lineage.ancestors(last);
        assert_eq!((back.len(), back.last()), (1_000_001, Some(&0)));
        let on = lineage.descendants(0);
        assert_eq!((on.len(), on.last()), (1_000_001, Some(&last)));
    }
}
