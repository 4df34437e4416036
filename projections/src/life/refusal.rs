//! The reason why a frame may not follow: the rule that it breaks.

/// A rule of which frame may follow; a refusal names the first one that a frame breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Nothing begins while a person has paused the run.
    Paused,
    /// A run is paused, resumed, ended or forked only where it is in a state for that.
    Steering,
    /// A scope begins once, and ends once, after its steps.
    ScopeOrder,
    /// A child runs the workflow that its step, command or responder names, and begins in turn.
    Child,
    /// A frame about a step is of a scope in progress.
    OpenScope,
    /// A step begins once all that it needs has settled.
    Ready,
    /// A step, or an item, moves while it is in progress.
    Running,
    /// A run that fails begins and completes nothing.
    Failing,
    /// A frame is of the attempt that is in progress.
    Attempt,
    /// A step begins again only where a person, or its data, had it begin again.
    Reset,
    /// Reserved fields, the verdict on an output, notes and commands come in their order.
    OutcomeOrder,
    /// A step, or an item, completes with an output that was not refused.
    Output,
    /// A step, or an item, fails once no runtime has anything of it.
    AtRest,
    /// Items begin in their order, each once.
    ItemOrder,
    /// A webhook is announced before each answer.
    WebhookOrder,
    /// A notice is about a call that waits for people.
    Notice,
    /// A task is given to a runtime, lost, and ended, in this order.
    TaskOrder,
    /// A report is the next one, or the last one still.
    Report,
    /// A model answers what it was asked; a draft is reflected on once.
    ModelOrder,
    /// A call is requested, permitted, sent and answered, in this order.
    CallOrder,
    /// A call is to a tool that the definition permits, and as it demands approved.
    Permission,
    /// The person who started a run does not decide where the policy forbids that.
    Decider,
    /// A model is asked, or not any more, as the budget says.
    Budget,
    /// People are asked about an outcome, and decide on it, as its review is due.
    Review,
    /// Data are asked for, and given, as the suspension is due.
    Suspension,
    /// A value is laid over the output of a complete step.
    Overlay,
    /// A timer fires for something that waits.
    Timer,
    /// A post, a raised budget or a reaction comes while the run accepts it.
    World,
    /// A recompute is compared once, after its end.
    Comparison,
}

/// The verdict of a table on a frame.
pub type Allowed = Result<(), Rule>;

/// Checks that a rule holds.
///
/// # Errors
/// The rule, where it does not.
pub(crate) fn holds(rule: Rule, held: bool) -> Allowed {
    match held {
        true => Ok(()),
        false => Err(rule),
    }
}

/// A frame that a table has no arm for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{event} cannot follow: {subject} is {status}")]
pub struct Refusal {
    /// The rule that it breaks.
    pub rule: Rule,
    /// The type of the frame.
    pub event: String,
    /// The subject of the frame.
    pub subject: String,
    /// The status of that.
    pub status: &'static str,
}
