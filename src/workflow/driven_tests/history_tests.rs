//! Properties of a run that was driven by hand: its decisions follow from its inputs, and a log cut
//! after any frame leads to the same end if the outside world answers the same.

use super::*;
use crate::admit::budget::RaisedBudget;
use crate::effects::by_frames::hold_at_every_cut;
use ktsu_ledger::event::WorldEvent;
use ktsu_projections::calls::CallHistory;
use ktsu_projections::life::call::CallState;

impl Driven {
    /// Whatever was decided follows from the inputs alone, and a log cut anywhere ends the same.
    #[track_caller]
    pub(crate) fn holds_together(&self) {
        self.is_whole();
        hold_at_every_cut(&self.frames);
        for cut in 1..self.frames.len() {
            self.resume_from(cut);
        }
    }

    /// As [`Driven::holds_together`], for long logs: cut at every so many frames.
    #[track_caller]
    pub(crate) fn holds_together_every(&self, frames: usize) {
        self.is_whole();
        hold_at_every_cut(&self.frames);
        for cut in (1..self.frames.len()).step_by(frames) {
            self.resume_from(cut);
        }
    }

    /// The run is over, nothing of it is left open, and its inputs lead to it again.
    #[track_caller]
    pub(crate) fn is_whole(&self) {
        assert!(self.state.status().is_terminal(), "{:?}", self.kinds());
        for scope in self.state.scopes() {
            assert!(scope.status.is_terminal(), "scope {:?}", scope.path);
            for step in &scope.steps {
                let open = matches!(step.status, StepStatus::Pending | StepStatus::Running);
                assert!(!open, "{:?} of {:?}", step.status, scope.path);
                let tasks = step.tasks.iter().flat_map(|tasks| &tasks.list);
                assert!(!tasks.into_iter().any(AgentTask::is_unfinished));
            }
        }
        assert_eq!(self.state.spend().open(), 0, "calls are left open");
        self.shows_what_its_frames_show();
        replay(&self.frames, &mut Definitions::default()).unwrap();
    }

    #[track_caller]
    fn resume_from(&self, cut: usize) {
        let kept = &self.frames[..cut];
        same_call_states(&RunState::fold(kept).unwrap(), kept);
        let (state, details) = refolded(kept);
        let mut again = Self {
            definition: Arc::clone(&self.definition),
            state,
            details,
            memo: Memo::default(),
            frames: kept.to_vec(),
            now: kept.last().unwrap().at.as_micros(),
        };
        again.restarts();
        again.lives_through(&self.frames[cut..]);
        for (expected, got) in self.seen().into_iter().zip(again.seen()) {
            assert_eq!(got, expected, "cut at {cut}: {:#?}", again.kinds());
        }
        assert_eq!(self.state.scopes().len(), again.state.scopes().len());
        again.is_whole();
    }

    /// What is promised to be the same after a crash: everything but times and attempts.
    fn seen(&self) -> Vec<Value> {
        let fold = EnvelopeFold::of(&self.frames).unwrap();
        let paths = self.state.scopes().iter().map(|scope| scope.path.clone());
        let mut seen: Vec<Value> = paths
            .map(|path| serde_json::to_value(fold.envelope(&path).unwrap()).unwrap())
            .collect();
        seen.iter_mut().for_each(strip_times);
        seen.sort_by_key(|envelope| envelope["run_id"].to_string());
        let responding = self.state.responding();
        seen.extend(responding.map(|responding| responding.head().to_value()));
        seen
    }

    /// The engine is started again: what it worked on within the process is lost.
    pub(crate) fn restarts(&mut self) {
        let clock = Timestamp::from_micros(self.now);
        let more = !losses(&self.state).is_empty();
        for draft in admit::restart(&self.definition, &self.state, clock, more) {
            self.input(draft);
        }
        for (scope, news) in losses(&self.state) {
            let draft = lost(&self.state, &scope, news);
            self.input(draft.expect("a restart's losses are news"));
        }
        if self.state.worlds_are_idle() {
            self.input(continuation(&self.state, ContinueReason::Idle));
        }
    }

    /// The world does what it did in history.
    #[track_caller]
    fn lives_through(&mut self, history: &[Frame]) {
        let mut at = 0;
        while let Some(frame) = history.get(at) {
            at += 1;
            if let Event::World(WorldEvent::BudgetRaised(raised)) = &frame.event {
                // Where the log was cut before its budget ended, that ends as it did.
                self.raises(RaisedBudget {
                    max_events: raised.max_events,
                    max_llm_cost_micro_usd: raised.max_llm_cost_micro_usd,
                    max_recursion_depth: raised.max_recursion_depth,
                    max_wall_ms: raised.max_wall_ms,
                })
                .unwrap();
                continue;
            }
            if frame.event.is_world_input() {
                let same = |other: &&Frame| other.event.posted() == frame.event.posted();
                let more = history[at..].iter().take_while(same);
                let frames: Vec<&Frame> = std::iter::once(frame).chain(more).collect();
                at += frames.len() - 1;
                self.posts_again(&frames);
                continue;
            }
            if frame.event.role() != Role::Input || self.state.status().is_terminal() {
                continue;
            }
            match &frame.event {
                Event::Agent(AgentEvent::ApprovalDecided(decided)) => {
                    let name = join(&frame.scope, &item_name(&decided.step, decided.item));
                    let said = self.decides(&name, &decided.by.id, decided.decision, None);
                    said.unwrap();
                }
                Event::Agent(AgentEvent::ApprovalExpired(_)) => self.waits_too_long(),
                Event::Person(PersonEvent::ReviewDecided(decided)) => {
                    let name = join(&frame.scope, &decided.step);
                    let overlay = decided.overlay.iter();
                    let overlay = overlay.map(|(name, value)| (name.clone(), value.to_value()));
                    let said = (decided.decision, Value::Object(overlay.collect()));
                    self.reviews(&name, &decided.by.id, said).unwrap();
                }
                Event::Person(PersonEvent::SuspendResumed(resumed)) => {
                    let name = join(&frame.scope, &resumed.step);
                    let data = resumed.data.to_value();
                    self.resumes_step(&name, &resumed.by.id, data).unwrap();
                }
                Event::Run(RunEvent::TimerFired(fired)) if fired.timer.is_for_people() => {
                    self.waits_too_long_for_people();
                }
                Event::Agent(event) => {
                    let said = event.report().cloned();
                    let same = |other: &&Frame| match &other.event {
                        Event::Agent(other) => {
                            other.report().cloned() == said && task_name(other) == task_name(event)
                        }
                        _ => false,
                    };
                    let more = history[at..].iter().take_while(same);
                    let events: Vec<&Frame> = std::iter::once(frame).chain(more).collect();
                    at += events.len() - 1;
                    self.hears(&events);
                }
                Event::Webhook(WebhookEvent::Delivered(answer) | WebhookEvent::Failed(answer)) => {
                    let answer = WebhookOutcome {
                        scope: frame.scope.clone(),
                        answer: answer.clone(),
                    };
                    self.input(admit::answer(&self.state, answer).expect("it waits for it"));
                }
                Event::Worker(WorkerEvent::Lost(lost)) => {
                    let name = join(&frame.scope, &item_name(&lost.step, lost.item));
                    assert!(self.loses(&name, lost.reason, lost.runtime_alive), "{name}");
                }
                Event::Run(RunEvent::TimerFired(fired)) if fired.timer == TimerKind::RunTimeout => {
                    self.times_out();
                }
                Event::Run(RunEvent::TimerFired(fired))
                    if fired.timer == TimerKind::WorldBudget =>
                {
                    self.uses_up_its_time();
                }
                Event::Run(RunEvent::TimerFired(fired)) if fired.timer == TimerKind::After => {
                    assert!(self.waits_for_responder(), "no responder waits");
                }
                _ => {}
            }
        }
    }

    /// A report of history, in the words of the attempt that is under way now.
    #[track_caller]
    fn hears(&mut self, frames: &[&Frame]) {
        let Event::Agent(first) = &frames[0].event else {
            return;
        };
        let name = join(&frames[0].scope, &task_name(first));
        let say = |frame: &&Frame| match &frame.event {
            Event::Agent(AgentEvent::Request(request)) => Say::Ask(request.purpose),
            Event::Agent(AgentEvent::BudgetExhausted(_)) => Say::Ask(Purpose::Turn),
            Event::Agent(AgentEvent::Response(answer)) => match (&answer.tool_calls, &answer.error)
            {
                (Some(calls), _) => Say::Wants(names(calls)),
                (None, Some(_)) => Say::NoReply {
                    cost: answer.cost_micro_usd,
                },
                (None, None) => Say::Reply {
                    cost: answer.cost_micro_usd,
                },
            },
            Event::Agent(AgentEvent::Decided(decided)) => match &decided.draft {
                Some(draft) => Say::Draft(draft.to_value()),
                None => Say::Decide,
            },
            Event::Agent(AgentEvent::ToolCalled(called)) => {
                Say::Call(called.call, called.server.clone(), called.tool.clone())
            }
            Event::Agent(AgentEvent::ToolReturned(returned)) => match returned.not_sent {
                Some(why) => Say::NotSent(returned.call, why),
                None => Say::Result(returned.call),
            },
            Event::Agent(AgentEvent::ApprovalRequested(asked)) => {
                Say::Gate(asked.call, asked.server.clone(), asked.tool.clone())
            }
            Event::Agent(AgentEvent::Finished(end)) => {
                Say::End(end.reason, end.outcome.to_value(), end.metrics.clone())
            }
            _ => panic!("{frame:?}"),
        };
        let says: Vec<Say> = frames.iter().map(say).collect();
        self.calls_again(&name, &says);
        match first.report().map(|report| report.n) {
            Some(0) => {
                let judged = self.reports(&name, self.task(&name).attempt, 0, &says);
                assert!(
                    matches!(judged, ReportAdmission::Accepted(_)),
                    "{name}: {judged:?}"
                );
            }
            _ => self.says(&name, &says),
        }
    }
}

/// The history of the calls has the states that the run state has, as far as a branch did not reset
/// them.
#[track_caller]
fn same_call_states(state: &RunState, frames: &[Frame]) {
    let history = CallHistory::fold(frames);
    let steps = state.scopes().iter().flat_map(|scope| &scope.steps);
    let tasks = steps.flat_map(|step| step.tasks.iter().flat_map(|tasks| &tasks.list));
    for calls in tasks.filter_map(|task| task.calls.as_deref()) {
        for (call, index) in calls.list.iter().zip(0..) {
            let key = (calls.response, index);
            let record = history.calls().iter().find(|record| record.key == key);
            if call.state == CallState::Requested {
                continue;
            }
            let record = record.unwrap();
            let kind = std::mem::discriminant::<CallState>;
            assert_eq!(kind(&record.call.state), kind(&call.state), "{call:?}");
            assert_eq!(record.call.digest, call.digest);
            assert!(!record.ended);
        }
    }
}

/// A state and the details beside it, from recorded frames.
pub(crate) fn refolded(frames: &[Frame]) -> (RunState, EnvelopeDetails) {
    let mut state = RunState::fold(&frames[..1]).unwrap();
    let mut details = EnvelopeDetails::begin(&state, &frames[0]);
    for frame in &frames[1..] {
        details.apply(&mut state, frame).unwrap();
    }
    (state, details)
}

fn strip_times(value: &mut Value) {
    match value {
        Value::Object(members) => {
            let told = |name: &str| name.ends_with("_at") || name == "duration_ms";
            members.retain(|name, _| !told(name) && name != "attempt");
            members.values_mut().for_each(strip_times);
        }
        Value::Array(items) => items.iter_mut().for_each(strip_times),
        _ => {}
    }
}
