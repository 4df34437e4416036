//! The recording of a task's events: reported one by one, or collected here for a single
//! completion.

mod local;

use std::sync::atomic::{AtomicU32, Ordering};

use axum::body::Bytes;
use serde::Serialize;

use self::local::LocalRecorder;
use super::callbacks::{Backoff, Callbacks, DeliveryOutcome, UnreachableWarning, is_passing};
use ktsu_contract::in_process::{ErrorResponse, ReportReceiver};
use ktsu_contract::report::{Report, ReportAck, ReportEvent};
use ktsu_contract::runtime::InvokeAgent;

/// The recorder of a task.
pub(super) enum TaskRecorder {
    /// An orchestrator that takes reports.
    Reported(Box<Reporter>),
    /// Nobody: the orchestrator knows the end alone.
    Local(Box<LocalRecorder>),
}

/// The reason why a task does not continue.
#[derive(Debug)]
pub(super) enum RecordError {
    /// The orchestrator does not wait for this task, or does not believe it: end without a word.
    Unwanted,
    /// It refuses what it was told, with this status, however often it is told: end with an error.
    Refused(u16),
}

/// Numbers reports and sends each until it is answered.
pub(super) struct Reporter {
    callbacks: Callbacks,
    silence: UnreachableWarning,
    url: String,
    run_id: String,
    step_id: String,
    attempt: u32,
    sent: AtomicU32,
}

impl TaskRecorder {
    /// The record of a task.
    pub(super) fn of(task: &InvokeAgent, callbacks: Callbacks) -> Self {
        match &task.report_url {
            Some(url) => Self::Reported(Box::new(Reporter {
                callbacks,
                silence: UnreachableWarning::default(),
                url: url.clone(),
                run_id: task.run_id.clone(),
                step_id: task.step_id.clone(),
                attempt: task.attempt,
                sent: AtomicU32::new(0),
            })),
            None => Self::Local(Box::new(LocalRecorder::new(task, callbacks))),
        }
    }

    /// Returns `true` if events are recorded one by one, so that a task can be resumed and
    /// approvals can be requested.
    pub(super) fn takes_reports(&self) -> bool {
        matches!(self, Self::Reported(_))
    }

    /// Adds events; gives what is recorded of them.
    pub(super) async fn add(&self, events: Vec<ReportEvent>) -> Result<ReportAck, RecordError> {
        match self {
            Self::Reported(reporter) => reporter.report(events).await,
            Self::Local(own) => own.add(events).await,
        }
    }
}

impl Reporter {
    async fn report(&self, events: Vec<ReportEvent>) -> Result<ReportAck, RecordError> {
        let report = Report {
            attempt: self.attempt,
            n: self.sent.fetch_add(1, Ordering::Relaxed) + 1,
            events,
        };
        if let Some(receiver) = self.callbacks.receiver() {
            return self.hand_over(&*receiver, report).await;
        }
        let body = deliver(&self.callbacks, &self.url, &report, &self.silence).await?;
        serde_json::from_slice(&body).map_err(|error| {
            tracing::error!(%error, "cannot read the response to a report; dropping the task");
            RecordError::Unwanted
        })
    }

    /// Hands a report to an orchestrator of the same process, until it is answered.
    async fn hand_over(
        &self,
        receiver: &dyn ReportReceiver,
        report: Report,
    ) -> Result<ReportAck, RecordError> {
        let bytes = encode(&report)?;
        let mut backoff = Backoff::default();
        let mut report = report;
        loop {
            let answer = receiver.report(&self.run_id, &self.step_id, report, &bytes);
            match answer.await {
                Ok(ack) => return Ok(ack),
                Err(ErrorResponse { status, body }) if is_passing(status) => {
                    tracing::debug!(status, body, "retrying a report");
                }
                Err(ErrorResponse { status, .. }) => return Err(refused(status)),
            }
            backoff.wait().await;
            report = serde_json::from_slice(&bytes).map_err(|_| RecordError::Unwanted)?;
        }
    }
}

/// Sends until it is answered; gives the answer's body.
async fn deliver(
    callbacks: &Callbacks,
    url: &str,
    message: &impl Serialize,
    silence: &UnreachableWarning,
) -> Result<Vec<u8>, RecordError> {
    let bytes = Bytes::from(encode(message)?);
    match callbacks.deliver(url, bytes, silence).await {
        DeliveryOutcome::Accepted(body) => Ok(body),
        DeliveryOutcome::Refused(status) => Err(refused(status)),
    }
}

/// A message's bytes. They are made once: another try is recognised by them.
fn encode(message: &impl Serialize) -> Result<Vec<u8>, RecordError> {
    serde_json::to_vec(message).map_err(|error| {
        tracing::error!(%error, "cannot encode a message; dropping the task");
        RecordError::Unwanted
    })
}

/// The error that follows from a refusal that no repetition changes.
fn refused(status: u16) -> RecordError {
    // Nobody waits for it any more: that is no fault.
    if status == 409 {
        return RecordError::Unwanted;
    }
    tracing::warn!(status, "the orchestrator refused a message");
    match status {
        401 | 404 => RecordError::Unwanted,
        _ => RecordError::Refused(status),
    }
}
