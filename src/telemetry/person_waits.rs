//! Reviews and suspensions as they are counted: how many people were asked for, how they ended, and how
//! many wait.

use std::collections::BTreeSet;

use ktsu_ledger::event::ReviewDecision;
use ktsu_ledger::{Cause, Frame};
use ktsu_projections::life::{
    Change, Expiry, Given, PersonAnswer, PersonQuestion, QuestionKind, changes,
};
use ktsu_projections::run::RunState;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The input that a step waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaitKind {
    /// A decision on its output.
    Review,
    /// Data.
    Suspension,
}

/// The end of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaitEnd {
    /// As many people as the policy asks for approved.
    Approved,
    /// A person rejected.
    Rejected,
    /// The data came.
    Resumed,
    /// Neither a decision nor data came in time.
    TimedOut,
    /// Its step ended for another reason.
    Void,
}

impl WaitEnd {
    fn as_str(self) -> &'static str {
        match self {
            Self::Approved => "approved",
            Self::Rejected => "rejected",
            Self::Resumed => "resumed",
            Self::TimedOut => "timed_out",
            Self::Void => "void",
        }
    }
}

impl WaitKind {
    /// The label of its ends.
    fn label(self) -> &'static str {
        match self {
            Self::Review => "decision",
            Self::Suspension => "end",
        }
    }

    fn ends(self) -> &'static [WaitEnd] {
        use WaitEnd::{Approved, Rejected, Resumed, TimedOut, Void};
        match self {
            Self::Review => &[Approved, Rejected, TimedOut, Void],
            Self::Suspension => &[Resumed, TimedOut, Void],
        }
    }

    /// Those of a run that wait, by the frames that ask.
    fn pending(self, state: &RunState) -> BTreeSet<u64> {
        match self {
            Self::Review => {
                let pending = state.pending_reviews().into_iter();
                pending.map(|asked| asked.review.request).collect()
            }
            Self::Suspension => {
                let pending = state.pending_suspensions().into_iter();
                pending.map(|asked| asked.suspension.request).collect()
            }
        }
    }
}

/// The counters of one kind.
#[derive(Debug)]
struct WaitCounters {
    kind: WaitKind,
    requested: Counter,
    ended: Family<[(&'static str, &'static str); 1], Counter>,
    waiting: Gauge,
}

impl WaitCounters {
    fn new(kind: WaitKind) -> Self {
        let all = Self {
            kind,
            requested: Counter::default(),
            ended: Family::default(),
            waiting: Gauge::default(),
        };
        // Every end is shown before the first one.
        for end in kind.ends() {
            drop(all.ended.get_or_create(&[(kind.label(), end.as_str())]));
        }
        all
    }

    fn add_waiting(&self, count: usize) {
        self.waiting
            .inc_by(i64::try_from(count).unwrap_or(i64::MAX));
    }

    fn count(&self, change: &WaitChange) {
        self.requested.inc_by(change.requested);
        self.waiting
            .inc_by(i64::try_from(change.requested).unwrap_or(i64::MAX));
        for end in &change.ended {
            self.waiting.dec();
            let label = [(self.kind.label(), end.as_str())];
            self.ended.get_or_create(&label).inc();
        }
    }
}

/// The counters of an engine.
#[derive(Debug)]
pub(super) struct PersonWaitMetrics {
    reviews: WaitCounters,
    suspensions: WaitCounters,
}

impl Default for PersonWaitMetrics {
    fn default() -> Self {
        Self {
            reviews: WaitCounters::new(WaitKind::Review),
            suspensions: WaitCounters::new(WaitKind::Suspension),
        }
    }
}

impl PersonWaitMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        let Self {
            reviews,
            suspensions,
        } = self;
        registry.register(
            "reviews_requested",
            "Reviews that people were asked for since the start",
            reviews.requested.clone(),
        );
        registry.register(
            "reviews_decided",
            "Reviews that ended since the start, by decision",
            reviews.ended.clone(),
        );
        registry.register(
            "reviews_waiting",
            "Reviews that wait for a decision",
            reviews.waiting.clone(),
        );
        registry.register(
            "suspensions_requested",
            "Steps that began to wait for data since the start",
            suspensions.requested.clone(),
        );
        registry.register(
            "suspensions_ended",
            "Suspensions that ended since the start, by how",
            suspensions.ended.clone(),
        );
        registry.register(
            "suspensions_waiting",
            "Steps that wait for data",
            suspensions.waiting.clone(),
        );
    }

    pub(super) fn count(&self, change: &PersonWaitChange) {
        self.reviews.count(&change.reviews);
        self.suspensions.count(&change.suspensions);
    }
}

/// The changes that a turn made.
#[derive(Debug)]
pub(super) struct PersonWaitChange {
    reviews: WaitChange,
    suspensions: WaitChange,
}

/// The changes that a turn made to waits of one kind.
#[derive(Debug, Default)]
struct WaitChange {
    requested: u64,
    ended: Vec<WaitEnd>,
}

/// The waits for people in a run.
#[derive(Debug)]
pub(super) struct PersonWaits {
    reviews: WaitsOfKind,
    suspensions: WaitsOfKind,
}

impl Default for PersonWaits {
    fn default() -> Self {
        Self {
            reviews: WaitsOfKind::new(WaitKind::Review),
            suspensions: WaitsOfKind::new(WaitKind::Suspension),
        }
    }
}

impl PersonWaits {
    /// Takes those that waited before the engine started, and counts them.
    pub(super) fn restore(&mut self, state: &RunState, metrics: &PersonWaitMetrics) {
        metrics.reviews.add_waiting(self.reviews.restore(state));
        let waiting = self.suspensions.restore(state);
        metrics.suspensions.add_waiting(waiting);
    }

    /// Takes a frame of a turn.
    pub(super) fn take(&mut self, frame: &Frame) {
        for change in changes(frame) {
            match change {
                Change::Asked(_, PersonQuestion::Outcome(_)) => self.reviews.ask(frame.seq),
                Change::Asked(_, PersonQuestion::Data(_)) => self.suspensions.ask(frame.seq),
                Change::Answered(_, answer) => self.answer(&answer),
                Change::Expired(_, Expiry::Question(kind)) => {
                    if let Some(Cause::Here(request)) = frame.cause.first() {
                        let of = match kind {
                            QuestionKind::Review => &mut self.reviews,
                            QuestionKind::Suspension => &mut self.suspensions,
                            QuestionKind::Approval | QuestionKind::InDoubt => continue,
                        };
                        of.said = Some((*request, WaitEnd::TimedOut));
                    }
                }
                _ => {}
            }
        }
    }

    fn answer(&mut self, answer: &PersonAnswer<'_>) {
        match answer.given {
            Given::Review(decision, _) => {
                let end = match decision {
                    ReviewDecision::Approved => WaitEnd::Approved,
                    ReviewDecision::Rejected => WaitEnd::Rejected,
                };
                self.reviews.said = Some((answer.request, end));
            }
            Given::Data(_) => self.suspensions.said = Some((answer.request, WaitEnd::Resumed)),
            Given::Decision(..) => {}
        }
    }

    /// The changes that the turn made, after which the run is in this state.
    pub(super) fn end_turn(&mut self, state: &RunState) -> Option<PersonWaitChange> {
        let reviews = self.reviews.end_turn(state);
        let suspensions = self.suspensions.end_turn(state);
        (reviews.is_some() || suspensions.is_some()).then(|| PersonWaitChange {
            reviews: reviews.unwrap_or_default(),
            suspensions: suspensions.unwrap_or_default(),
        })
    }
}

/// The waits of one kind in a run, by the frames that ask.
#[derive(Debug)]
struct WaitsOfKind {
    kind: WaitKind,
    waiting: BTreeSet<u64>,
    requested: u64,
    /// The end of one of them by the input of the turn.
    said: Option<(u64, WaitEnd)>,
}

impl WaitsOfKind {
    fn new(kind: WaitKind) -> Self {
        Self {
            kind,
            waiting: BTreeSet::new(),
            requested: 0,
            said: None,
        }
    }

    /// Takes those that waited before; gives how many.
    fn restore(&mut self, state: &RunState) -> usize {
        self.waiting = self.kind.pending(state);
        self.waiting.len()
    }

    fn ask(&mut self, request: u64) {
        self.waiting.insert(request);
        self.requested += 1;
    }

    fn end_turn(&mut self, state: &RunState) -> Option<WaitChange> {
        if self.waiting.is_empty() {
            return None;
        }
        let now = self.kind.pending(state);
        let said = self.said.take();
        let end = |request: &u64| match said {
            Some((of, end)) if of == *request => end,
            _ => WaitEnd::Void,
        };
        let change = WaitChange {
            requested: std::mem::take(&mut self.requested),
            ended: self.waiting.difference(&now).map(end).collect(),
        };
        self.waiting = now;
        (change.requested > 0 || !change.ended.is_empty()).then_some(change)
    }
}
