//! A recorded run decided again from changed inputs: what would have happened otherwise.
//!
//! The inputs of the record are given in their order, each as soon as the run waits for it: an
//! answer belongs to its step, item and attempt, wherever that stands now. What the run does not
//! ask for any more is left over; what it asks for and the record does not have is never made up:
//! the run then stays as it is, unfinished.

use std::collections::HashMap;

use ktsu_ledger::event::{AgentEvent, ContinueReason, Role, RunEvent};
use ktsu_ledger::{Cause, Draft, Event, Frame};
use ktsu_projections::Lineage;
use ktsu_projections::run::RunState;

use ktsu_workflow::definition::Definition;
use ktsu_workflow::next::Memo;
use ktsu_workflow::turn::{self, InvariantViolation, Turn};

/// A run as it would have gone.
#[derive(Debug)]
pub(crate) struct Again {
    /// Its frames.
    pub frames: Vec<Frame>,
    /// Where it stands.
    pub state: RunState,
    /// The recorded inputs that it did not ask for, by number.
    pub unused: Vec<u64>,
}

/// Decides a recorded run again. `change` gives another fact in place of a recorded input, or
/// nothing where that stays as it is; `definition` may be another than the recorded one.
///
/// # Errors
/// [`Broken`], where a changed input does not make a run, or a decision that follows does not fit
/// into a frame.
pub(crate) fn again(
    definition: &Definition,
    recorded: &[Frame],
    change: &dyn Fn(&Frame) -> Option<Event>,
) -> Result<Again, InvariantViolation> {
    let mut inputs = groups(recorded).into_iter();
    let Some(first) = inputs.next().and_then(|group| group.first().copied()) else {
        return Err(InvariantViolation::Refused(
            ktsu_projections::run::TransitionError::NotARun,
        ));
    };
    let memo = Memo::default();
    let draft = Draft {
        scope: first.scope.clone(),
        actor: first.actor.clone(),
        cause: first.cause.clone(),
        event: change(first).unwrap_or_else(|| first.event.clone()),
    };
    let (state, turn) = turn::begin(definition, first.stream.clone(), draft, first.at, &memo)?;
    let mut course = Course {
        definition,
        change,
        numbers: Numbers::of(recorded),
        memo,
        again: Again {
            frames: Vec::new(),
            state,
            unused: Vec::new(),
        },
        open: inputs.collect(),
    };
    course.took(turn)?;
    while !course.open.is_empty() {
        if !course.next()? {
            break;
        }
    }
    let left = course.open.iter().flatten().map(|frame| frame.seq);
    course.again.unused = left.collect();
    Ok(course.again)
}

/// The inputs of a record, those of one report or one post together.
fn groups(recorded: &[Frame]) -> Vec<Vec<&Frame>> {
    let mut groups: Vec<Vec<&Frame>> = Vec::new();
    let mut before = None;
    for frame in recorded {
        if frame.event.role() != Role::Input {
            before = None;
            continue;
        }
        let of = request_of(frame);
        match groups.last_mut() {
            Some(group) if of.is_some() && of == before => group.push(frame),
            _ => groups.push(vec![frame]),
        }
        before = of;
    }
    groups
}

/// The request that a frame came with, where frames that came with one are one input.
#[derive(Debug, PartialEq, Eq)]
enum RequestOf<'f> {
    /// Scope, step, item and attempt of a task, then digest and number of a report.
    Report(&'f str, &'f str, Option<u32>, u32, &'f str, u32),
    /// The number of a post.
    Post(u64),
}

fn request_of(frame: &Frame) -> Option<RequestOf<'_>> {
    if let Some((_, post)) = frame.event.posted() {
        return Some(RequestOf::Post(post.n));
    }
    let Event::Agent(event) = &frame.event else {
        return None;
    };
    let report = event.report()?;
    Some(RequestOf::Report(
        frame.scope.as_str(),
        event.step(),
        event.item(),
        event.attempt(),
        report.digest.as_str(),
        report.n,
    ))
}

struct Course<'a> {
    definition: &'a Definition,
    change: &'a dyn Fn(&Frame) -> Option<Event>,
    numbers: Numbers,
    memo: Memo,
    again: Again,
    open: Vec<Vec<&'a Frame>>,
}

impl Course<'_> {
    /// Takes the first input that the run waits for; says whether there was one.
    fn next(&mut self) -> Result<bool, InvariantViolation> {
        for at in 0..self.open.len() {
            let Some(group) = self.open.get(at).cloned() else {
                break;
            };
            if let Some(turn) = self.try_taking(&group)? {
                self.open.remove(at);
                self.took(turn)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn try_taking(&mut self, group: &[&Frame]) -> Result<Option<Turn>, InvariantViolation> {
        let Some(first) = group.first() else {
            return Ok(None);
        };
        let at = first.at.max(self.again.state.at());
        // Frames of one report may name each other, so they are numbered before they are judged.
        let start = self.again.state.next_seq();
        let own: HashMap<u64, u64> = group.iter().map(|frame| frame.seq).zip(start..).collect();
        let mut drafts = Vec::new();
        let mut trial: Option<RunState> = None;
        for (number, frame) in group.iter().enumerate() {
            let draft = self.draft(frame, &own);
            let state = trial.as_ref().unwrap_or(&self.again.state);
            let sealed = draft.clone().seal(state.link(), at)?;
            if state.check(&sealed.frame).is_err() {
                return Ok(None);
            }
            drafts.push(draft);
            // What comes after it in its report is judged by the state after it.
            if number + 1 < group.len() {
                let state = trial.get_or_insert_with(|| self.again.state.clone());
                if state.apply(&sealed.frame).is_err() {
                    return Ok(None);
                }
            }
        }
        let state = &mut self.again.state;
        turn::apply_report(self.definition, state, drafts, at, &self.memo).map(Some)
    }

    /// An input as it would stand in this run: changed, and with the numbers of this run.
    fn draft(&self, frame: &Frame, own: &HashMap<u64, u64>) -> Draft {
        let last = self.again.state.next_seq().saturating_sub(1);
        let here = |seq: u64| {
            let own = own.get(&seq).copied();
            own.or_else(|| self.numbers.now(seq))
        };
        let mut event = (self.change)(frame).unwrap_or_else(|| frame.event.clone());
        if let Event::Agent(agent) = &mut event {
            match agent {
                AgentEvent::Request(request) => {
                    request.base = request.base.map(|base| here(base).unwrap_or(base));
                }
                AgentEvent::Response(answer) => {
                    answer.request = here(answer.request).unwrap_or(answer.request);
                }
                AgentEvent::Decided(decided) => {
                    decided.response = decided.response.map(|at| here(at).unwrap_or(at));
                }
                AgentEvent::ToolCalled(called) => {
                    called.response = here(called.response).unwrap_or(called.response);
                    called.arguments.frame = called.response;
                    called.again = called.again.map(|at| here(at).unwrap_or(at));
                    called.approval = called.approval.map(|at| here(at).unwrap_or(at));
                }
                AgentEvent::ToolReturned(returned) => {
                    returned.response = here(returned.response).unwrap_or(returned.response);
                    returned.called = returned.called.map(|at| here(at).unwrap_or(at));
                }
                AgentEvent::ToolInDoubt(doubt) => {
                    doubt.called = here(doubt.called).unwrap_or(doubt.called);
                }
                AgentEvent::ApprovalRequested(asked) => {
                    asked.response = here(asked.response).unwrap_or(asked.response);
                    asked.arguments.frame = asked.response;
                }
                AgentEvent::ApprovalDecided(decided) => {
                    decided.request = here(decided.request).unwrap_or(decided.request);
                }
                AgentEvent::ApprovalExpired(expired) => {
                    expired.request = here(expired.request).unwrap_or(expired.request);
                }
                AgentEvent::ReflectStarted(_)
                | AgentEvent::BudgetExhausted(_)
                | AgentEvent::Finished(_) => {}
            }
        }
        let cause = frame.cause.iter().map(|cause| match cause {
            Cause::Here(seq) => Cause::Here(here(*seq).unwrap_or(last)),
            there @ Cause::There(..) => there.clone(),
        });
        Draft {
            scope: frame.scope.clone(),
            actor: frame.actor.clone(),
            cause: cause.collect(),
            event,
        }
    }

    /// Keeps what a turn appends, and goes on where a bound ended it.
    fn took(&mut self, turn: Turn) -> Result<(), InvariantViolation> {
        let mut turn = turn;
        loop {
            let more = turn.more;
            for sealed in turn.sealed {
                self.numbers.take(&sealed.frame);
                self.again.frames.push(sealed.frame);
            }
            if !more {
                self.memo.clear();
                return Ok(());
            }
            let bound = |group: &Vec<&Frame>| {
                let first = group.first().map(|frame| &frame.event);
                matches!(first, Some(Event::Run(RunEvent::Continued(one))) if one.why == ContinueReason::Bound)
            };
            let recorded = self.open.iter().position(bound);
            let recorded = recorded.map(|at| self.open.remove(at));
            let state = &mut self.again.state;
            let at = recorded.and_then(|group| group.first().map(|frame| frame.at));
            let at = at.unwrap_or(state.at()).max(state.at());
            let draft = turn::continuation(state, ContinueReason::Bound);
            turn = turn::apply_report(self.definition, state, vec![draft], at, &self.memo)?;
        }
    }
}

/// What a frame is, whatever its number: type, scope, step or item, and how many such came before.
type Name = (String, String, Option<String>, usize);

/// Which frame of this run stands where one of the record stood.
struct Numbers {
    recorded: HashMap<u64, Name>,
    now: HashMap<Name, u64>,
    lineage: Lineage,
    counts: HashMap<(String, String, Option<String>), usize>,
}

impl Numbers {
    fn of(recorded: &[Frame]) -> Self {
        let lineage = Lineage::from_frames(recorded);
        let mut counts = HashMap::new();
        let names = lineage.nodes().iter().map(|node| {
            let key = (node.kind.clone(), node.scope.clone(), node.step.clone());
            (node.seq, counted(&mut counts, key))
        });
        Self {
            recorded: names.collect(),
            now: HashMap::new(),
            lineage: Lineage::default(),
            counts: HashMap::new(),
        }
    }

    fn take(&mut self, frame: &Frame) {
        self.lineage.apply(frame);
        if let Some(node) = self.lineage.nodes().last() {
            let key = (node.kind.clone(), node.scope.clone(), node.step.clone());
            let name = counted(&mut self.counts, key);
            self.now.insert(name, frame.seq);
        }
    }

    fn now(&self, seq: u64) -> Option<u64> {
        self.now.get(self.recorded.get(&seq)?).copied()
    }
}

fn counted(
    counts: &mut HashMap<(String, String, Option<String>), usize>,
    key: (String, String, Option<String>),
) -> Name {
    let count = counts.entry(key.clone()).or_default();
    *count += 1;
    (key.0, key.1, key.2, *count)
}
