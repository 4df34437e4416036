//! The life of a webhook, as the phases of its step: to be sent → sent → delivered, or failed → to be
//! sent again … → given up.

use ktsu_ledger::event::WebhookEvent;

use super::refusal::{Allowed, Rule, holds};
use super::step::{Phase, Step};

/// A webhook's table.
///
/// # Errors
/// The rule that the frame breaks.
pub(crate) fn check(step: &Step, event: &WebhookEvent) -> Allowed {
    let follows = match (event, &step.phase) {
        (WebhookEvent::Sent(sent), Phase::Begun) => sent.sending == 1,
        (WebhookEvent::Sent(sent), Phase::ToResend { sending, .. }) => sent.sending == *sending,
        (
            WebhookEvent::Delivered(answer) | WebhookEvent::Failed(answer),
            Phase::Sent { sending, .. },
        ) => {
            holds(Rule::Attempt, answer.attempt == step.attempt)?;
            answer.sending == *sending
        }
        (WebhookEvent::Dead(_), Phase::Undelivered { dead, .. }) => !dead,
        _ => false,
    };
    holds(Rule::WebhookOrder, follows)
}
