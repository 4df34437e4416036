//! The check that frames about worlds hang together: who made them and from what, which outputs are
//! left of a trigger, ids, schemas, budgets, posts, and the world that the end names.
//!
//! What guards and templates make of a trigger is not evaluated here: `replay` decides every firing
//! again.

use std::sync::Arc;

use ktsu_ledger::event::{
    BudgetRaised, ContinueReason, Post, Posted, Principal, ResponderFailed, RunEvent, TimerKind,
    WorldBudgetExhausted, WorldEvent,
};
use ktsu_ledger::{Actor, Cause, Event, Frame};
use ktsu_projections::run::RunState;
use ktsu_projections::world::Responding;
use ktsu_projections::world::activity::is_world_frame;
use ktsu_projections::world::derivation::GOAL_ACTOR;
use ktsu_workflow::definition::{CompiledWorlds, Definition};
use ktsu_workflow::next::dropped_outputs;
use ktsu_workflow::replay::Definitions;
use ktsu_workflow::rules::DecisionRules;

use super::content::too_large;
use super::reading::EvidenceArchive;
use super::world_outputs::{Outputs, ReactingCandidate, judge_candidates, wrong_if};
use super::{
    ArchiveVerifyOptions, CheckResult, ClaimFailure, counted, for_one, not_covered, proven,
};

impl EvidenceArchive {
    /// Checks that frames about worlds follow from those before them, as far as nothing is
    /// evaluated.
    pub(super) fn world(&self, against: &ArchiveVerifyOptions) -> CheckResult {
        let mut definitions = Definitions::default();
        let (mut judged, mut unknown) = (0, None);
        for (stream, (_, last)) in self.by_stream() {
            if !matches!(
                stream.split(':').next(),
                Some("run" | "branch" | "recompute")
            ) {
                continue;
            }
            if self.is_too_large(stream, last, against) {
                unknown.get_or_insert_with(|| too_large(stream));
                continue;
            }
            let mut run = RunWorldCheck::new(&mut definitions);
            if let Some(why) = run.read(self, stream, last)? {
                unknown.get_or_insert(format!("{stream}: {why}"));
            }
            judged += run.judged;
        }
        match unknown {
            Some(words) => not_covered(words),
            None => {
                let follow = for_one(&judged, "follows", "follow");
                proven(format!(
                    "{} about worlds {follow} from others",
                    counted(judged, "frame")
                ))
            }
        }
    }
}

/// A run, frame by frame.
struct RunWorldCheck<'d> {
    definitions: &'d mut Definitions,
    definition: Option<Arc<Definition>>,
    state: Option<RunState>,
    has_goal: bool,
    /// The candidates of the trigger under way that react.
    fired: Vec<ReactingCandidate>,
    /// `output.rejected`, until its responder fails.
    rejected: Option<ResponderFailed>,
    /// The last posted frame, who posted it, and its post.
    post: Option<(u64, Principal, Post)>,
    judged: u64,
}

impl<'d> RunWorldCheck<'d> {
    fn new(definitions: &'d mut Definitions) -> Self {
        Self {
            definitions,
            definition: None,
            state: None,
            has_goal: false,
            fired: Vec::new(),
            rejected: None,
            post: None,
            judged: 0,
        }
    }

    /// Reads a run to its end. Gives why nothing can be said of the rest of it.
    fn read(
        &mut self,
        evidence: &EvidenceArchive,
        stream: &str,
        last: u64,
    ) -> Result<Option<String>, ClaimFailure> {
        let unread = || ClaimFailure::new(format!("the frames of {stream} cannot be read"));
        let is_about_worlds = |seq| {
            let placed = evidence.shared(stream, seq);
            placed.is_some_and(|placed| match &placed.frame.event {
                Event::World(_) => true,
                event => event.definition().is_some(),
            })
        };
        // A run without worlds is folded by others.
        let mut loads = false;
        for seq in (0..=last).filter(|seq| is_about_worlds(*seq)) {
            let frame = evidence.whole(stream, seq).ok_or_else(unread)?;
            loads |= match &frame.event {
                Event::World(_) => true,
                _ => match self.definitions.introduced_by(&frame) {
                    Ok(definition) => definition.is_some_and(|one| one.worlds().is_some()),
                    Err(unusable) => return Ok(Some(unusable.to_string())),
                },
            };
            if loads {
                break;
            }
        }
        if !loads {
            return Ok(None);
        }
        for seq in 0..=last {
            let frame = evidence.whole(stream, seq).ok_or_else(unread)?;
            match self.take(&frame) {
                Ok(None) => {}
                Ok(Some(unknown)) => return Ok(Some(unknown)),
                Err(words) => return Err(ClaimFailure::at(frame.id(), words)),
            }
        }
        Ok(None)
    }

    fn take(&mut self, frame: &Frame) -> Result<Option<String>, String> {
        let introduced = match self.definitions.introduced_by(frame) {
            Ok(definition) => definition,
            Err(unusable) => return Ok(Some(unusable.to_string())),
        };
        let Some(state) = &self.state else {
            self.definition.clone_from(&introduced);
            let begun =
                introduced.and_then(|one| RunState::begin(frame, Arc::clone(&one.outline)).ok());
            self.state = begun;
            self.read_goal();
            return Ok(self
                .state
                .is_none()
                .then(|| "its first frame begins no run".to_owned()));
        };
        let is_about_world = matches!(frame.event, Event::World(_))
            || posted(frame).is_some()
            || is_responder_timer(frame);
        if let Err(refused) = state.check(frame) {
            self.may_end(frame)?;
            return match is_about_world {
                true => Err(refused.to_string()),
                false => Ok(Some(format!(
                    "frame {} does not follow; the claim `replay` gives the reason",
                    frame.seq
                ))),
            };
        }
        self.may_end(frame)?;
        if is_about_world {
            self.judge(frame)?;
            self.judged += 1;
        }
        let Some(state) = &mut self.state else {
            return Ok(None);
        };
        state.apply(frame).map_err(|refused| refused.to_string())?;
        let hash = state.check_world_hash(frame);
        hash.map_err(|refused| refused.to_string())?;
        if let Some(definition) = introduced {
            self.definition = Some(definition);
        }
        if frame.event.branched().is_some() {
            self.read_goal();
        }
        Ok(None)
    }

    /// A run ends once its responders have seen everything, and nothing is left that they must make.
    fn may_end(&self, frame: &Frame) -> Result<(), String> {
        let ends = match &frame.event {
            Event::Run(RunEvent::Continued(again)) => again.why == ContinueReason::Idle,
            Event::Run(RunEvent::Completed(_)) => frame.scope.is_empty(),
            _ => false,
        };
        let Some((responding, worlds)) = self.worlds().filter(|_| ends) else {
            return Ok(());
        };
        let waits = responding.has_open_tasks() || responding.next_timer().is_some();
        let waits = waits || !responding.is_idle() || self.rejected.is_some();
        if waits || !responding.is_loaded() {
            return Err("its responders have not seen everything by then".to_owned());
        }
        let outputs = self.outputs(worlds, responding);
        outputs.goal_may_be_over(self.has_goal)?;
        outputs.rest_may_make_nothing()
    }

    fn worlds(&self) -> Option<(&Responding, &CompiledWorlds)> {
        let responding = self.state.as_ref()?.responding()?;
        Some((responding, self.definition.as_ref()?.worlds()?))
    }

    fn outputs<'a>(
        &'a self,
        worlds: &'a CompiledWorlds,
        responding: &'a Responding,
    ) -> Outputs<'a> {
        Outputs {
            worlds,
            responding,
            rules: self.state.as_ref().map(DecisionRules::of),
            fired: &self.fired,
        }
    }

    /// Reads whether the run has a goal. Params may be large: they are read where they change alone, at
    /// the beginning of a run or a branch.
    fn read_goal(&mut self) {
        #[cfg(test)]
        count::one();
        let params = self.state.as_ref().map(|state| &state.created().params);
        let goal = params.and_then(|params| params.pointer("/goal"));
        self.has_goal = goal.is_some_and(|goal| goal.is_string());
    }

    /// Checks what the fold of a run does not ask, since the one that decides cannot do otherwise.
    fn judge(&mut self, frame: &Frame) -> Result<(), String> {
        if is_responder_timer(frame) {
            // That it was set and is due, the fold has seen to.
            let words = "the actor is not the one it is from";
            return wrong_if(frame.actor != Actor::Orchestrator, words);
        }
        let posted = posted(frame);
        if let Some((by, post)) = &posted {
            self.follows_post(frame, by, post)?;
        }
        let Some((responding, worlds)) = self.worlds() else {
            return Ok(());
        };
        if is_world_frame(frame) {
            within_budget(worlds, responding, frame)?;
        }
        let Event::World(event) = &frame.event else {
            self.post = posted.map(|(by, post)| (frame.seq, by, post));
            return Ok(());
        };
        let outputs = self.outputs(worlds, responding);
        if posted.is_none() && !matches!(event, WorldEvent::BudgetRaised(_)) {
            self.is_decided(frame, event, responding)?;
        }
        match event {
            WorldEvent::Loaded(loaded) => {
                let told = loaded.worlds.iter();
                let told = told.map(|world| (&world.path, &world.name, &world.version));
                let plans = worlds.worlds().iter();
                let plans = plans.map(|(path, plan)| (path, &plan.name, &plan.version));
                wrong_if(
                    !plans.eq(told),
                    "its worlds are not those of the definition",
                )?;
            }
            WorldEvent::Fired(fired) => {
                outputs.goal_may_be_over(self.has_goal)?;
                if outputs.is_of_next(frame) {
                    outputs.rest_may_make_nothing()?;
                }
                self.fired = judge_candidates(worlds, &fired.candidates)?;
            }
            WorldEvent::Failed(failed) => {
                if let Some(rejected) = &self.rejected {
                    let words = "it does not fail with what was rejected";
                    wrong_if(rejected != failed, words)?;
                }
                outputs.may_fail(frame, failed)?;
                self.rejected = None;
            }
            WorldEvent::Rejected(rejected) => {
                let reply = outputs.judge_rejected(frame, rejected)?;
                self.rejected = Some(ResponderFailed {
                    address: reply,
                    code: rejected.code.clone(),
                    entry: Some(rejected.derived.entry),
                    item: rejected.derived.item,
                    message: rejected.message.clone(),
                    responder: rejected
                        .derived
                        .responder
                        .clone()
                        .unwrap_or(GOAL_ACTOR.to_owned()),
                });
            }
            WorldEvent::Completed(done) => outputs.judge_completed(frame, done)?,
            WorldEvent::BudgetExhausted(exhausted) => {
                judge_exhausted(worlds, responding, exhausted)?;
            }
            WorldEvent::BudgetRaised(raised) => judge_raised(frame, raised)?,
            WorldEvent::ObjectCreated(_)
            | WorldEvent::ObjectPatched(_)
            | WorldEvent::RelationCreated(_)
            | WorldEvent::RelationRemoved(_)
            | WorldEvent::Noted(_)
            | WorldEvent::Commanded(_) => {
                outputs.judge_schema(event)?;
                if let Some(derived) = event.derived() {
                    outputs.judge_output(frame, event, derived, self.has_goal)?;
                }
            }
        }
        if let Some((by, post)) = posted {
            self.post = Some((frame.seq, by, post));
        }
        Ok(())
    }

    /// Checks who decided it, and because of what alone.
    fn is_decided(
        &self,
        frame: &Frame,
        event: &WorldEvent,
        responding: &Responding,
    ) -> Result<(), String> {
        let state = self.state.as_ref();
        let started = state.and_then(|state| state.scope(0)?.started);
        let by_engine = matches!(
            event,
            WorldEvent::Loaded(_) | WorldEvent::Fired(_) | WorldEvent::BudgetExhausted(_)
        );
        let words = "the actor is not the one it is from";
        wrong_if(by_engine && frame.actor != Actor::Orchestrator, words)?;
        let loads = matches!(event, WorldEvent::Loaded(_));
        let words = "nothing happens in a world before kit.loaded";
        wrong_if(!loads && !responding.is_loaded(), words)?;
        let of_goal = frame.actor == Actor::Responder(GOAL_ACTOR.to_owned());
        let cause = match event {
            WorldEvent::Loaded(_) => started,
            WorldEvent::BudgetExhausted(_) => responding.activity().last().or(started),
            _ if of_goal => None,
            // The fold has seen to it that the first is the trigger.
            _ => first_cause(frame),
        };
        let expected: Vec<Cause> = cause.map(Cause::Here).into_iter().collect();
        wrong_if(
            frame.cause != expected,
            "its cause is not what it follows from, alone",
        )
    }

    /// The events of a post are one input: nothing comes between them.
    fn follows_post(&self, frame: &Frame, by: &Principal, post: &Post) -> Result<(), String> {
        let Some((seq, before, last)) = self.post.as_ref() else {
            return Ok(());
        };
        let same = last.n == post.n;
        let next = seq + 1 == frame.seq && before == by && last.digest == post.digest;
        wrong_if(same && !next, "it is not of the post that it names")
    }
}

/// The person who posted a frame, and the post.
fn posted(frame: &Frame) -> Option<(Principal, Post)> {
    if let Event::World(event) = &frame.event {
        return event.by().cloned().zip(event.post().cloned());
    }
    let posted = Posted::of(&frame.event)?;
    Some((posted.by, posted.post))
}

/// Returns `true` if it says that a responder has waited long enough.
fn is_responder_timer(frame: &Frame) -> bool {
    matches!(&frame.event, Event::Run(RunEvent::TimerFired(fired))
        if fired.timer == TimerKind::After || fired.responder.is_some())
}

fn first_cause(frame: &Frame) -> Option<u64> {
    match frame.cause.first() {
        Some(Cause::Here(seq)) => Some(*seq),
        Some(Cause::There(..)) | None => None,
    }
}

/// An event counts only within the limits in force. What a model replies is an input, and may be one
/// more.
fn within_budget(
    worlds: &CompiledWorlds,
    responding: &Responding,
    frame: &Frame,
) -> Result<(), String> {
    if matches!(frame.event, Event::Agent(_)) {
        return Ok(());
    }
    let budget = responding.budget(worlds.budget);
    let activity = responding.activity();
    let depth = activity.depth_below(&frame.cause);
    wrong_if(
        activity.events() >= budget.max_events || depth > budget.max_recursion_depth,
        "the budget of the world does not allow it",
    )
}

/// Checks that what is exceeded is exceeded already, by what a model replied, or would be by an
/// event that follows from a trigger. The reasons that depend on the time and on costs are compared
/// by `replay` alone.
fn judge_exhausted(
    worlds: &CompiledWorlds,
    responding: &Responding,
    told: &WorldBudgetExhausted,
) -> Result<(), String> {
    let budget = responding.budget(worlds.budget);
    let activity = responding.activity();
    let triggers = [
        responding.current().map(|(current, _)| current.seq),
        responding.after_current().map(|(next, _)| next.seq),
    ];
    let asked = responding.tasks().map(|task| task.context.trigger.seq);
    let follows = triggers.into_iter().flatten().chain(asked);
    let mut depths: Vec<_> = follows
        .map(|seq| Some(activity.depth_below(&[Cause::Here(seq)])))
        .collect();
    depths.push(None);
    // What the goal becomes follows from nothing.
    depths.extend(responding.next_of_goal().map(|_| Some(0)));
    let counted = |reason: &&String| {
        let name = reason.split('=').next();
        matches!(name, Some("max_events" | "max_recursion_depth"))
    };
    let (events, depth) = (budget.max_events, budget.max_recursion_depth);
    let exceeds = depths.into_iter().any(|next| {
        let deepest = activity.deepest().max(next).unwrap_or_default();
        let mut reasons = Vec::new();
        if activity.events() + u64::from(next.is_some()) > events {
            reasons.push(format!("max_events={events}"));
        }
        if deepest > depth {
            reasons.push(format!("max_recursion_depth={depth}"));
        }
        told.depth == next.unwrap_or(deepest) && told.reasons.iter().filter(counted).eq(&reasons)
    });
    let words = "no such limit would be exceeded";
    wrong_if(!exceeds || told.reasons.is_empty(), words)?;
    let dropped = dropped_outputs(worlds, responding);
    let right = told.event_count == activity.events()
        && told.dropped.outputs == dropped
        && told.dropped.triggers == responding.queued_triggers()
        && told.dropped.timers == responding.timer_count() as u64;
    wrong_if(!right, "its numbers are not those of the frames before it")
}

fn judge_raised(frame: &Frame, raised: &BudgetRaised) -> Result<(), String> {
    let words = "the actor is not the one it is from";
    wrong_if(frame.actor != Actor::Principal(raised.by.id.clone()), words)?;
    let limits = [
        raised.max_events,
        raised.max_llm_cost_micro_usd,
        raised.max_recursion_depth.map(u64::from),
        raised.max_wall_ms,
    ];
    wrong_if(limits.iter().all(Option::is_none), "it raises nothing")
}

/// The number of times that this thread has read the goal of a run from its params: what tests
/// count instead of time.
#[cfg(test)]
mod count {
    use std::cell::Cell;

    thread_local! {
        static GOALS_READ: Cell<u64> = const { Cell::new(0) };
    }

    pub(super) fn one() {
        GOALS_READ.set(GOALS_READ.get() + 1);
    }

    pub(super) fn goals_read() -> u64 {
        GOALS_READ.get()
    }
}

#[cfg(test)]
mod tests {
    use ktsu_ledger::store::{MemoryStore, Store as _};
    use ktsu_ledger::{Blob, CanonicalJson, Entry, Hash, Record, StreamId};

    use super::*;
    use crate::check::ClaimVerdict;
    use crate::export::{ExportSelection, export};

    fn lines(name: &str) -> Vec<String> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/v3-worlds/");
        let text = std::fs::read_to_string(format!("{folder}{name}")).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    /// Params may be as large as a run may be, and it makes thousands of outputs: they are not read
    /// for each of them.
    #[test]
    fn the_params_of_a_run_are_read_once_however_many_outputs_it_has() {
        let lines_of_frames = lines("frames.jsonl").into_iter();
        let records = (0u64..).zip(lines_of_frames).map(|(seq, line)| {
            let (open, hash) = line.rsplit_once(",\"hash\":\"").unwrap();
            Record {
                seq,
                hash: hash.trim_end_matches("\"}").parse().unwrap(),
                body: format!("{open}}}"),
            }
        });
        let blobs = lines("blobs.jsonl").into_iter().map(|line| Blob {
            hash: Hash::of(line.as_bytes()),
            text: CanonicalJson::parse(line.as_bytes()).unwrap(),
        });
        let stream = StreamId::run("run_worlds").unwrap();
        let entry = Entry::from_records(&stream, records.collect(), blobs.collect()).unwrap();
        let mut store = MemoryStore::default();
        let epoch = store.acquire().unwrap();
        for outcome in store.append(epoch, &[entry]).unwrap() {
            outcome.unwrap();
        }
        let all = ExportSelection {
            all: true,
            ..ExportSelection::default()
        };
        let bytes = export(&store, &all).unwrap().bytes;
        let archive = EvidenceArchive::read(std::io::Cursor::new(bytes), u64::MAX).unwrap();
        let (verdict, _, words) = archive.world(&ArchiveVerifyOptions::default()).unwrap();
        assert_eq!(verdict, ClaimVerdict::Proven, "{words}");
        let judged: u64 = words.split(' ').next().unwrap().parse().unwrap();
        assert!(judged > 30, "{words}");
        assert_eq!(count::goals_read(), 1);
    }
}
