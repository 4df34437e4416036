//! The record of a task whose orchestrator takes no reports: kept in memory, completed at once.

use parking_lot::Mutex;
use serde_json::Value;

use super::RecordError;
use crate::callbacks::{Callbacks, UnreachableWarning};
use crate::reflect::ReflectionTrigger;
use ktsu_contract::report::{
    ClaimedMetrics, Finished, LlmResponse, Purpose, ReportAck, ReportEvent, TaskCompletion,
};
use ktsu_contract::runtime::{InvokeAgent, RecordedFrame};

/// See the module documentation.
pub(crate) struct LocalRecorder {
    callbacks: Callbacks,
    silence: UnreachableWarning,
    url: String,
    run_id: String,
    step_id: String,
    trigger: ReflectionTrigger,
    kept: Mutex<LocalRecord>,
}

#[derive(Default)]
struct LocalRecord {
    seq: u64,
    cost_micro_usd: u64,
    metrics: ClaimedMetrics,
}

impl LocalRecorder {
    pub(super) fn new(task: &InvokeAgent, callbacks: Callbacks) -> Self {
        let kept = LocalRecord {
            seq: task
                .history
                .iter()
                .map(|event| event.seq)
                .max()
                .unwrap_or(0),
            ..LocalRecord::default()
        };
        Self {
            callbacks,
            silence: UnreachableWarning::default(),
            url: task.callback_url.clone(),
            run_id: task.run_id.clone(),
            step_id: task.step_id.clone(),
            trigger: ReflectionTrigger::of(task),
            kept: Mutex::new(kept),
        }
    }

    pub(super) async fn add(&self, events: Vec<ReportEvent>) -> Result<ReportAck, RecordError> {
        let mut recorded = Vec::new();
        let mut reflect = false;
        for event in events {
            match &event {
                ReportEvent::Decided(decided) => {
                    let draft = decided.draft.as_ref();
                    reflect = draft.is_some_and(|draft| self.trigger.fires(draft));
                }
                ReportEvent::Finished(finished) => self.complete(finished).await?,
                _ => {}
            }
            recorded.extend(self.keep(&event));
        }
        Ok(ReportAck {
            n: 0,
            events: recorded,
            reflect,
            suspended: false,
            refused: None,
        })
    }

    fn keep(&self, event: &ReportEvent) -> Option<RecordedFrame> {
        let mut kept = self.kept.lock();
        match event {
            ReportEvent::Request(request) => {
                kept.metrics.reflect_calls += u64::from(request.purpose == Purpose::Reflect);
            }
            ReportEvent::Response(response) => kept.count(response),
            ReportEvent::ToolCalled(_) => kept.metrics.tool_calls += 1,
            _ => {}
        }
        let mut written = serde_json::to_value(event).ok()?;
        let data = written.get_mut("data")?.take();
        let Value::String(kind) = written.get_mut("type")?.take() else {
            return None;
        };
        kept.seq += 1;
        Some(RecordedFrame {
            seq: kept.seq,
            kind,
            data,
        })
    }

    async fn complete(&self, finished: &Finished) -> Result<(), RecordError> {
        let outcome = &finished.outcome;
        let status = match outcome.error {
            None => "ok",
            Some(_) => "failed",
        };
        let message = TaskCompletion {
            run_id: self.run_id.clone(),
            step_id: self.step_id.clone(),
            status: status.to_owned(),
            output: outcome.output.clone(),
            error: outcome.error.as_ref().map(|error| {
                serde_json::json!({
                    "code": error.code,
                    "message": error.message,
                    "retryable": error.retryable,
                })
            }),
            raw_output: outcome.raw_output.clone().map(Value::String),
            metrics: Some(self.metrics()),
            pending_approval: None,
            events: outcome.events.clone(),
            commands: outcome.commands.clone(),
        };
        super::deliver(&self.callbacks, &self.url, &message, &self.silence).await?;
        Ok(())
    }

    fn metrics(&self) -> ClaimedMetrics {
        let kept = self.kept.lock();
        let mut metrics = kept.metrics.clone();
        metrics.cost_usd = kept.cost_micro_usd as f64 / 1e6;
        metrics
    }
}

impl LocalRecord {
    fn count(&mut self, response: &LlmResponse) {
        let metrics = &mut self.metrics;
        if !response.model.is_empty() {
            metrics.model_resolved = format!("{}/{}", response.provider, response.model);
        }
        metrics.tokens_in += response.tokens_in;
        metrics.tokens_out += response.tokens_out;
        metrics.duration_ms += response.duration_ms;
        metrics.llm_calls += 1;
        self.cost_micro_usd += response.cost_micro_usd;
    }
}
