//! The model calls of runs that an eval has no verdict on yet.

use std::collections::{BTreeMap, BTreeSet};

use ktsu_ledger::event::{AgentEvent, EvalSuite, LlmRequest, LlmResponse, ScenarioStarted};
use ktsu_ledger::{Cause, Frame, StreamId};
use ktsu_projections::usage::Usage;

use crate::model_judge::calls::{JudgeCall, request_digest};

/// A scenario, and which replica of it.
pub(crate) type Place = (u32, u32);

/// Calls by the scenario and the replica that they are about, and what all calls used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OpenCalls {
    /// The invariants that a model judges.
    checks: BTreeSet<String>,
    /// The number of scenarios, and of replicas of each.
    size: Place,
    calls: BTreeMap<Place, Vec<JudgeCall>>,
    usage: Usage,
}

impl OpenCalls {
    pub(crate) fn new(checks: BTreeSet<String>, suite: Option<&EvalSuite>) -> Self {
        Self {
            checks,
            size: suite.map_or((1, 1), |suite| (suite.scenarios, suite.replicas)),
            ..Self::default()
        }
    }

    /// The usage of all calls, those of runs with a verdict among them.
    pub(crate) fn usage(&self) -> Usage {
        self.usage
    }

    /// The calls about a run that is to be judged at a place.
    pub(crate) fn of(&self, place: Place, run: &(StreamId, u64)) -> Vec<JudgeCall> {
        let calls = self.calls.get(&place).into_iter().flatten();
        calls.filter(|call| call.run == *run).cloned().collect()
    }

    /// Gives away the calls about a run that is judged.
    pub(crate) fn close(&mut self, started: &ScenarioStarted) -> Vec<JudgeCall> {
        let place = (started.scenario, started.replica);
        let run = (started.run.clone(), started.frames.saturating_sub(1));
        let calls = self.calls.remove(&place).unwrap_or_default();
        calls.into_iter().filter(|call| call.run == run).collect()
    }

    /// Takes the frame of a call.
    ///
    /// # Errors
    /// It does not follow from the frames before it.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "of what agents do, an eval has model calls alone"
    )]
    pub(crate) fn take(
        &mut self,
        frame: &Frame,
        event: &AgentEvent,
        next: Option<Place>,
    ) -> Result<(), &'static str> {
        let place = place_of(&frame.scope).ok_or("its scope is no run of the eval")?;
        let is_left = next.is_some_and(|next| place >= next);
        if !is_left || place.0 >= self.size.0 || place.1 >= self.size.1 {
            return Err("the run that it is about is judged, or is none of the eval");
        }
        match event {
            AgentEvent::Request(request) => self.request(place, frame, request)?,
            AgentEvent::Response(answer) => self.answer(place, frame.seq, answer)?,
            _ => return Err("it is no event of an eval"),
        }
        self.usage.apply(frame, false);
        Ok(())
    }

    fn request(
        &mut self,
        place: Place,
        frame: &Frame,
        request: &LlmRequest,
    ) -> Result<(), &'static str> {
        let run = frame.cause.iter().find_map(|cause| match cause {
            Cause::There(run, last) => Some((run.clone(), *last)),
            Cause::Here(_) => None,
        });
        let run = run.ok_or("it names no run")?;
        if !self.checks.contains(&request.step) || request.attempt == 0 {
            return Err("it is of no check that asks a model");
        }
        let calls = self.calls.entry(place).or_default();
        if request_digest(request, calls).as_ref() != Some(&request.digest) {
            return Err("its digest is not that of what the model is asked");
        }
        calls.push(JudgeCall::of(frame.seq, run, request));
        Ok(())
    }

    fn answer(&mut self, place: Place, seq: u64, answer: &LlmResponse) -> Result<(), &'static str> {
        let mut calls = self.calls.get_mut(&place).into_iter().flatten();
        let call = calls.find(|call| call.request == answer.request);
        let call = call.ok_or("it is not the reply to a request")?;
        call.take(seq, answer)
    }
}

/// The scope of the calls about a run.
pub(crate) fn scope_of((scenario, replica): Place) -> String {
    format!("{scenario}.{replica}")
}

fn place_of(scope: &str) -> Option<Place> {
    let (scenario, replica) = scope.split_once('.')?;
    let place = (scenario.parse().ok()?, replica.parse().ok()?);
    (scope_of(place) == scope).then_some(place)
}
