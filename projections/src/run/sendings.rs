//! Applies frames about the sendings of webhooks.

use ktsu_ledger::Frame;
use ktsu_ledger::event::plan::{RetryOn, StepWork, WebhookPlan};
use ktsu_ledger::event::{WebhookAnswer, WebhookEvent};

use super::{Phase, RunState, StepKey, TaskId, Todo};

impl RunState {
    pub(super) fn apply_webhook(&mut self, frame: &Frame, at: StepKey, event: &WebhookEvent) {
        self.announce_webhook(frame.seq, TaskId::step(at), event);
        let phase = match event {
            WebhookEvent::Sent(sent) => {
                self.todo.remove(&Todo::Effect(at));
                Phase::Sent {
                    sending: sent.sending,
                    seq: frame.seq,
                }
            }
            WebhookEvent::Delivered(answer) => {
                self.todo.insert(Todo::Step(at));
                if let Some(step) = self.step_mut(at) {
                    step.delivered = answer.status;
                }
                Phase::Delivered {
                    seq: frame.seq,
                    status: answer.status.unwrap_or_default(),
                }
            }
            WebhookEvent::Failed(answer) => self.undelivered(frame, at, answer),
            WebhookEvent::Dead(_) => {
                let step = self.step_mut(at).map(|step| step.phase.clone());
                match step {
                    Some(Phase::Undelivered {
                        seq,
                        code,
                        status,
                        sending,
                        ..
                    }) => Phase::Undelivered {
                        seq,
                        code,
                        status,
                        sending,
                        dead: true,
                    },
                    other => other.unwrap_or(Phase::Begun),
                }
            }
        };
        if let Some(step) = self.step_mut(at) {
            step.phase = phase;
        }
    }

    /// A sending failed: wait for the next one, if the file declares one for such a failure.
    fn undelivered(&mut self, frame: &Frame, at: StepKey, answer: &WebhookAnswer) -> Phase {
        let again = match self.work(at) {
            Some(StepWork::Webhook(plan)) => sends_again(plan, answer),
            Some(StepWork::Agent(_) | StepWork::Transform(_) | StepWork::Workflow(_)) | None => {
                false
            }
        };
        if again {
            self.retries.insert(at);
            return Phase::Backoff {
                seq: frame.seq,
                since: self.effective_time(frame.at),
                sending: answer.sending,
            };
        }
        self.todo.insert(Todo::Step(at));
        Phase::Undelivered {
            seq: frame.seq,
            code: answer.code.clone().unwrap_or_default(),
            status: answer.status,
            sending: answer.sending,
            dead: false,
        }
    }

    pub(super) fn retry_now(&mut self, frame: &Frame, at: StepKey) {
        let Some(step) = self.step_mut(at) else {
            return;
        };
        if let Phase::Backoff { sending, .. } = step.phase {
            step.phase = Phase::ToResend {
                seq: frame.seq,
                sending: sending + 1,
            };
            self.retries.remove(&at);
            self.todo.insert(Todo::Effect(at));
        }
    }
}

/// Returns `true` if the file declares another sending after such a failure (decision S5).
fn sends_again(plan: &WebhookPlan, answer: &WebhookAnswer) -> bool {
    let Some(retry) = &plan.retry else {
        return false;
    };
    let kind = match (answer.code.as_deref(), answer.status) {
        (Some("webhook_timeout"), _) => RetryOn::Timeout,
        (Some("webhook_unreachable"), _) => RetryOn::Unreachable,
        (_, Some(429)) => RetryOn::RateLimited,
        (_, Some(500..=599)) => RetryOn::ServerError,
        _ => return false,
    };
    retry.on.contains(&kind) && answer.sending < retry.attempts
}
