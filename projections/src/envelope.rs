//! The envelope: what a run was given, what its steps gave, how it ended (decision E2).
//!
//! The envelope of an inline child is the same projection, seen from its scope.

use std::collections::BTreeMap;

use ktsu_ledger::event::plan::Work;
use ktsu_ledger::event::{EnvValue, RunEvent, StepEvent};
use ktsu_ledger::{Event, Frame, Json, Timestamp};
use serde::Serialize;
use serde_json::{Value, json};

use crate::run::{Effective, FoldError, RunState, Scope, Step};
use crate::usage::Usage;

/// What stands in place of a secret.
pub const REDACTED: &str = "[REDACTED]";

/// What the outside sees of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Envelope {
    /// `run_…`, or `run_…/call/inner` for an inline child.
    pub run_id: String,
    /// The workflow's name.
    pub workflow: String,
    /// The workflow's version.
    pub version: String,
    /// See [`crate::run::RunStatus`].
    pub status: String,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Fault>,
    /// Validated params, with defaults.
    pub params: Value,
    /// Declared variables; secret ones as [`REDACTED`].
    pub env: BTreeMap<String, String>,
    /// Every step, in file order.
    pub steps: Vec<StepView>,
    /// The workflow's output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Json>,
    /// What all of it used.
    pub totals: Metrics,
    /// When it was accepted or, for a child, begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

/// An error in an envelope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// A stable code.
    pub code: String,
    /// For people.
    pub message: String,
    /// The step, by path from the run it is shown in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
}

/// A step in an envelope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StepView {
    /// Its id.
    pub id: String,
    /// `agent`, `transform`, `webhook` or `workflow`.
    #[serde(rename = "type")]
    pub kind: String,
    /// See [`crate::run::StepStatus`].
    pub status: String,
    /// Which attempt this is, once there is one.
    #[serde(skip_serializing_if = "is_zero")]
    pub attempt: u32,
    /// When it started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Its output; for a skipped step, its marker (decision S3).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Json>,
    /// The output the air-lock refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw_output: Option<Json>,
    /// Why it was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip_reason: Option<String>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Fault>,
    /// What it used.
    pub metrics: Metrics,
}

/// What was used, as it is shown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Metrics {
    /// Milliseconds.
    pub duration_ms: u64,
    /// Tokens sent to models.
    pub tokens_in: u64,
    /// Tokens received from models.
    pub tokens_out: u64,
    /// US dollars, for reading; the exact figure is `cost_micro_usd`.
    pub cost_usd: Value,
    /// Millionths of a US dollar.
    pub cost_micro_usd: u64,
    /// Model calls.
    pub llm_calls: u64,
    /// Tool calls.
    pub tool_calls: u64,
}

/// The fold behind envelopes: the run's state, and what the state has no need of.
#[derive(Debug, Clone)]
pub struct EnvelopeFold {
    state: RunState,
    steps: BTreeMap<(u32, u32), Detail>,
    scopes: BTreeMap<u32, ScopeDetail>,
}

#[derive(Debug, Clone, Default)]
struct Detail {
    started: Option<Timestamp>,
    ended: Option<Timestamp>,
    error: Option<Fault>,
    raw: Option<Json>,
    usage: Usage,
}

#[derive(Debug, Clone, Default)]
struct ScopeDetail {
    began: Option<Timestamp>,
    ended: Option<Timestamp>,
    error: Option<Fault>,
    usage: Usage,
}

impl EnvelopeFold {
    /// Folds a whole recorded run.
    ///
    /// # Errors
    /// [`FoldError`] names the first frame that does not follow from those before it.
    pub fn of(frames: &[Frame]) -> Result<Self, FoldError> {
        let (first, rest) = frames.split_at(frames.len().min(1));
        let state = RunState::fold(first)?;
        let mut fold = Self {
            state,
            steps: BTreeMap::new(),
            scopes: BTreeMap::new(),
        };
        for frame in first {
            fold.note(frame);
        }
        for frame in rest {
            let taken = fold.state.apply(frame);
            taken.map_err(|refusal| FoldError::Refused(frame.seq, refusal))?;
            fold.note(frame);
        }
        Ok(fold)
    }

    /// The state underneath.
    pub fn state(&self) -> &RunState {
        &self.state
    }

    /// The envelope of the run (`""`) or of an inline child, if there is one at that path.
    pub fn envelope(&self, path: &str) -> Option<Envelope> {
        let at = self.state.scope_at(path)?;
        let scope = self.state.scope(at)?;
        let detail = self.scopes.get(&at).cloned().unwrap_or_default();
        let run = self.state.stream().name();
        Some(Envelope {
            run_id: if path.is_empty() {
                run.to_owned()
            } else {
                format!("{run}/{path}")
            },
            workflow: scope.shape.plan.name.clone(),
            version: scope.shape.plan.version.clone(),
            status: scope.status.as_str().to_owned(),
            error: detail.error,
            params: self.state.params(at),
            env: if scope.parent.is_none() {
                self.env()
            } else {
                BTreeMap::new()
            },
            steps: self.step_views(at, scope),
            output: scope
                .ended
                .as_ref()
                .and_then(|ended| ended.output.as_ref())
                .map(|held| held.json.clone()),
            totals: Metrics::of(&detail.usage),
            created_at: detail.began,
            ended_at: detail.ended,
        })
    }

    fn env(&self) -> BTreeMap<String, String> {
        let shown = |value: &EnvValue| match value {
            EnvValue::Value(value) => value.clone(),
            EnvValue::Secret => REDACTED.to_owned(),
        };
        let env = &self.state.created().env;
        env.iter()
            .map(|(name, value)| (name.clone(), shown(value)))
            .collect()
    }

    fn step_views(&self, at: u32, scope: &Scope) -> Vec<StepView> {
        let steps = scope.shape.plan.steps.iter().zip(&scope.steps);
        (0u32..)
            .zip(steps)
            .map(|(position, (plan, step))| {
                let detail = self.steps.get(&(at, position)).cloned().unwrap_or_default();
                let took = detail.started.zip(detail.ended);
                let mut metrics = Metrics::of(&detail.usage);
                metrics.duration_ms = took.map_or(0, |(from, to)| to.millis_since(from));
                StepView {
                    id: plan.id.clone(),
                    kind: kind_of(&plan.work).to_owned(),
                    status: step.status.as_str().to_owned(),
                    attempt: step.attempt,
                    started_at: detail.started,
                    ended_at: detail.ended,
                    output: shown_output(self.state.effective(at, position)),
                    raw_output: detail.raw,
                    skip_reason: skip_reason(step),
                    error: detail.error,
                    metrics,
                }
            })
            .collect()
    }

    fn note(&mut self, frame: &Frame) {
        let at = self.state.scope_at(&frame.scope).unwrap_or_default();
        self.note_usage(frame, at);
        match &frame.event {
            Event::Run(event) => self.note_run(frame, at, event),
            Event::Step(event) => {
                let step = self
                    .state
                    .scope(at)
                    .and_then(|s| s.shape.position(event.step()));
                let Some(step) = step else { return };
                let detail = self.steps.entry((at, step)).or_default();
                match event {
                    StepEvent::Started(_) => detail.started = Some(frame.at),
                    StepEvent::OutputChecked(_) | StepEvent::ReservedEvaluated(_) => {}
                    StepEvent::Completed(_) | StepEvent::Skipped(_) => {
                        detail.ended = Some(frame.at);
                    }
                    StepEvent::Failed(failed) => {
                        detail.ended = Some(frame.at);
                        detail.raw.clone_from(&failed.raw);
                        detail.error = Some(Fault {
                            code: failed.code.clone(),
                            message: failed.message.clone(),
                            step: None,
                        });
                    }
                }
            }
            Event::Item(_)
            | Event::Agent(_)
            | Event::Worker(_)
            | Event::Webhook(_)
            | Event::Store(_)
            | Event::Foreign { .. } => {}
        }
    }

    fn note_run(&mut self, frame: &Frame, at: u32, event: &RunEvent) {
        let detail = self.scopes.entry(at).or_default();
        match event {
            RunEvent::Created(_) => detail.began = Some(frame.at),
            RunEvent::Started(_) => {
                detail.began.get_or_insert(frame.at);
            }
            RunEvent::Completed(_) => detail.ended = Some(frame.at),
            RunEvent::Failed(failed) => {
                detail.ended = Some(frame.at);
                detail.error = Some(Fault {
                    code: failed.code.clone(),
                    message: failed.message.clone(),
                    step: failed.step.clone(),
                });
            }
            RunEvent::Continued(_) | RunEvent::TimerFired(_) | RunEvent::ClockJumped(_) => {}
        }
    }

    /// A frame counts for its step, its scope, and every scope and step around it (seed 000,
    /// invariant 29: an inline child's use is its parent's).
    fn note_usage(&mut self, frame: &Frame, at: u32) {
        let step = match &frame.event {
            Event::Webhook(event) => Some(event.step()),
            Event::Agent(event) => Some(event.step()),
            Event::Run(_)
            | Event::Step(_)
            | Event::Item(_)
            | Event::Worker(_)
            | Event::Store(_)
            | Event::Foreign { .. } => None,
        };
        let mut inner = step.and_then(|step| self.state.scope(at)?.shape.position(step));
        let mut at = at;
        loop {
            self.scopes.entry(at).or_default().usage.apply(frame);
            if let Some(step) = inner {
                self.steps.entry((at, step)).or_default().usage.apply(frame);
            }
            match self.state.scope(at).and_then(|scope| scope.parent) {
                Some((parent, step)) => (at, inner) = (parent, Some(step)),
                None => break,
            }
        }
    }
}

impl Metrics {
    fn of(usage: &Usage) -> Self {
        let micros = usage.cost_micro_usd;
        let dollars = micros as f64 / 1_000_000.0;
        Self {
            duration_ms: usage.duration_ms,
            tokens_in: usage.tokens_in,
            tokens_out: usage.tokens_out,
            cost_usd: if micros == 0 {
                Value::from(0)
            } else {
                Value::from(dollars)
            },
            cost_micro_usd: micros,
            llm_calls: usage.llm_calls,
            tool_calls: usage.tool_calls,
        }
    }
}

/// The agent's words, where it was the agent who wanted the step skipped.
fn skip_reason(step: &Step) -> Option<String> {
    let reason = step.skipped?;
    let words = step.skip_words.as_deref();
    Some(words.unwrap_or(reason.as_str()).to_owned())
}

/// The name of a primitive.
pub fn kind_of(work: &Work) -> &'static str {
    match work {
        Work::Agent(_) => "agent",
        Work::Transform(_) => "transform",
        Work::Webhook(_) => "webhook",
        Work::Workflow(_) => "workflow",
    }
}

/// The marker later steps see in place of an output, if the step was skipped (decision S3).
pub fn marker(value: &Effective<'_>) -> Option<Value> {
    match value {
        Effective::Skipped(reason) => Some(json!({"skipped": true, "reason": reason})),
        Effective::Suppressed(reason) => {
            Some(json!({"suppressed": true, "reason": reason.as_str()}))
        }
        Effective::Output(_) | Effective::Absent => None,
    }
}

fn shown_output(value: Effective<'_>) -> Option<Json> {
    match value {
        Effective::Output(held) => Some(held.json.clone()),
        Effective::Skipped(_) | Effective::Suppressed(_) => {
            marker(&value).and_then(|marker| Json::from_value(&marker).ok())
        }
        Effective::Absent => None,
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature serde asks for"
)]
fn is_zero(attempt: &u32) -> bool {
    *attempt == 0
}
