//! Reviews of outcomes as they are counted: how many were asked for, how they ended, and how many wait.

use std::collections::BTreeSet;

use ktsu_ledger::event::{PersonEvent, ReviewDecision, RunEvent, StepEvent, TimerKind};
use ktsu_ledger::{Cause, Event, Frame};
use ktsu_projections::run::RunState;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// How a review ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReviewEnd {
    /// As many people as the policy asks for approved.
    Approved,
    /// A person rejected.
    Rejected,
    /// There was no decision in time.
    TimedOut,
    /// Its step ended for another reason.
    Void,
}

impl ReviewEnd {
    const ALL: [Self; 4] = [Self::Approved, Self::Rejected, Self::TimedOut, Self::Void];

    fn as_str(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Rejected => "rejected",
            Self::TimedOut => "timed_out",
            Self::Void => "void",
        }
    }
}

/// The counters of an engine.
#[derive(Debug)]
pub(super) struct ReviewMetrics {
    requested: Counter,
    decided: Family<[(&'static str, &'static str); 1], Counter>,
    waiting: Gauge,
}

impl Default for ReviewMetrics {
    fn default() -> Self {
        let all = Self {
            requested: Counter::default(),
            decided: Family::default(),
            waiting: Gauge::default(),
        };
        // Every end is shown before the first review.
        for end in ReviewEnd::ALL {
            drop(all.decided.get_or_create(&[("decision", end.as_str())]));
        }
        all
    }
}

impl ReviewMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "reviews_requested",
            "Reviews that people were asked for since the start",
            self.requested.clone(),
        );
        registry.register(
            "reviews_decided",
            "Reviews that ended since the start, by decision",
            self.decided.clone(),
        );
        registry.register(
            "reviews_waiting",
            "Reviews that wait for a decision",
            self.waiting.clone(),
        );
    }

    /// Reviews that waited before the engine started.
    pub(super) fn add_waiting(&self, count: usize) {
        self.waiting
            .inc_by(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(super) fn count(&self, change: &ReviewChange) {
        self.requested.inc_by(change.requested);
        self.waiting
            .inc_by(i64::try_from(change.requested).unwrap_or(i64::MAX));
        for end in &change.ended {
            self.waiting.dec();
            let counter = self.decided.get_or_create(&[("decision", end.as_str())]);
            counter.inc();
        }
    }
}

/// What a turn changed.
#[derive(Debug, Default)]
pub(super) struct ReviewChange {
    requested: u64,
    ended: Vec<ReviewEnd>,
}

/// The reviews of a run that wait, by the frames that ask for them.
#[derive(Debug, Default)]
pub(super) struct WaitingReviews {
    waiting: BTreeSet<u64>,
    requested: u64,
    /// What the input of the turn says of a review.
    said: Option<(u64, ReviewEnd)>,
}

impl WaitingReviews {
    /// Takes those that waited before; gives how many.
    pub(super) fn restore(&mut self, state: &RunState) -> usize {
        self.waiting = pending(state);
        self.waiting.len()
    }

    /// Takes a frame of a turn.
    pub(super) fn take(&mut self, frame: &Frame) {
        match &frame.event {
            Event::Step(StepEvent::ReviewRequested(_)) => {
                self.waiting.insert(frame.seq);
                self.requested += 1;
            }
            Event::Person(PersonEvent::ReviewDecided(decided)) => {
                let end = match decided.decision {
                    ReviewDecision::Approved => ReviewEnd::Approved,
                    ReviewDecision::Rejected => ReviewEnd::Rejected,
                };
                self.said = Some((decided.request, end));
            }
            Event::Run(RunEvent::TimerFired(fired)) if fired.timer == TimerKind::Review => {
                if let Some(Cause::Here(request)) = frame.cause.first() {
                    self.said = Some((*request, ReviewEnd::TimedOut));
                }
            }
            _ => {}
        }
    }

    /// What the turn changed, after which the run is like this.
    pub(super) fn end_turn(&mut self, state: &RunState) -> Option<ReviewChange> {
        if self.waiting.is_empty() {
            return None;
        }
        let now = pending(state);
        let said = self.said.take();
        let end = |request: &u64| match said {
            Some((of, end)) if of == *request => end,
            _ => ReviewEnd::Void,
        };
        let change = ReviewChange {
            requested: std::mem::take(&mut self.requested),
            ended: self.waiting.difference(&now).map(end).collect(),
        };
        self.waiting = now;
        (change.requested > 0 || !change.ended.is_empty()).then_some(change)
    }
}

fn pending(state: &RunState) -> BTreeSet<u64> {
    let pending = state.pending_reviews().into_iter();
    pending.map(|asked| asked.review.request).collect()
}
