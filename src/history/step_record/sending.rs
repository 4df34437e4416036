//! What a step sent to an endpoint, and what came back.

use std::collections::BTreeMap;

use ktsu_ledger::event::WebhookEvent;
use ktsu_ledger::{Event, Frame};

use super::placed::PlacedValue;
use crate::webhooks::WebhookRequest;

/// A request of a webhook, and its response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookSending {
    /// The frame that announces it.
    pub frame: u64,
    /// The request, rendered again from what is recorded.
    pub request: WebhookRequest,
    /// The frame with the response, and the status or the code of the error.
    pub end: Option<(u64, String)>,
    /// The body of the response.
    pub response: Option<PlacedValue>,
}

impl WebhookSending {
    pub(super) fn close(&mut self) {
        self.request.body = None;
        if let Some(response) = &mut self.response {
            response.json = None;
        }
    }
}

/// The requests that the frames of a step announce, each with the response that follows it.
pub(super) fn of<'w>(
    own: &[&Frame],
    requests: impl Fn() -> &'w BTreeMap<u64, WebhookRequest>,
) -> Vec<WebhookSending> {
    let mut all: Vec<WebhookSending> = Vec::new();
    for frame in own {
        match &frame.event {
            Event::Webhook(WebhookEvent::Sent(_)) => {
                all.extend(requests().get(&frame.seq).map(|request| WebhookSending {
                    frame: frame.seq,
                    request: request.clone(),
                    end: None,
                    response: None,
                }));
            }
            Event::Webhook(WebhookEvent::Delivered(answer) | WebhookEvent::Failed(answer)) => {
                if let Some(open) = all.iter_mut().rfind(|one| one.end.is_none()) {
                    let status = answer.status.map(|status| format!("status {status}"));
                    let words = status.or_else(|| answer.code.clone()).unwrap_or_default();
                    open.end = Some((frame.seq, words));
                    open.response = Some(PlacedValue::new(
                        frame.seq,
                        "/data/response",
                        &answer.response,
                    ));
                }
            }
            _ => {}
        }
    }
    all
}
