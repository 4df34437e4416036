//! The requests of webhooks as they were sent: rendered again from the state before each.
//!
//! Only the hash of a body is recorded. A rendered body is compared with it, so that nothing is
//! shown as sent that was not. Secrets appear as their templates, as in the hashed body.

use std::collections::BTreeMap;
use std::sync::Arc;

use ktsu_ledger::event::{WebhookEvent, WebhookSent};
use ktsu_ledger::{CanonicalJson, Event, Frame, Hash};
use ktsu_projections::run::{Outline, RunState};
use serde::Serialize;
use utoipa::ToSchema;

use super::work_meter::{TooMuchWork, WorkMeter};
use ktsu_workflow::definition::Definition;
use ktsu_workflow::next::{REQUEST_HEADERS, SIGNATURE_HEADERS, webhook_preview};
use ktsu_workflow::replay::Definitions;

/// The request of a webhook, rendered again from the record. Secrets are shown as their templates.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WebhookRequest {
    /// HTTP method.
    pub method: String,
    /// Where it went; absent if it cannot be rendered any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The names of its headers.
    #[schema(value_type = Vec<String>)]
    pub headers: Vec<&'static str>,
    /// Its body; absent if it cannot be rendered any more, or exceeds the limit of the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub body: Option<CanonicalJson>,
    /// The length of its body.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub body_bytes: Option<usize>,
    /// Why this is not, or may not be, what was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl WebhookRequest {
    /// Returns `true` if it carries a signature.
    pub fn is_signed(&self) -> bool {
        SIGNATURE_HEADERS
            .iter()
            .all(|name| self.headers.contains(name))
    }
}

/// The work of folding a frame.
const FOLD_WORK: u64 = 4;

/// The work of rendering a request, apart from the bytes of its body.
const RENDER_WORK: u64 = 50;

/// The requests that the wanted frames announce, by frame. Bodies beyond `room` bytes in all are left
/// out.
pub fn requests(
    frames: &[Frame],
    wanted: impl Fn(u64) -> bool,
    room: usize,
) -> BTreeMap<u64, WebhookRequest> {
    requests_within(frames, wanted, room, &mut WorkMeter::unlimited()).unwrap_or_default()
}

/// As [`requests`], with a bound on the work.
///
/// # Errors
/// [`TooMuchWork`].
pub fn requests_within(
    frames: &[Frame],
    wanted: impl Fn(u64) -> bool,
    room: usize,
    meter: &mut WorkMeter,
) -> Result<BTreeMap<u64, WebhookRequest>, TooMuchWork> {
    let sent = |frame: &&Frame| sent(frame).is_some() && wanted(frame.seq);
    let Some(last) = frames.iter().rposition(|frame| sent(&frame)) else {
        return Ok(BTreeMap::new());
    };
    let mut renderer = RequestRenderer {
        remaining_bytes: room,
        ..RequestRenderer::default()
    };
    let mut found = BTreeMap::new();
    for frame in frames.iter().take(last + 1) {
        meter.spend(FOLD_WORK)?;
        if sent(&frame) {
            meter.spend(RENDER_WORK)?;
            let request = renderer.render(frame);
            let bytes = request.as_ref().and_then(|request| request.body_bytes);
            meter.spend_copy(bytes.unwrap_or_default())?;
            found.extend(request.map(|request| (frame.seq, request)));
        }
        renderer.take(frame);
    }
    Ok(found)
}

/// The request that a frame announces, whole.
pub fn request(frames: &[Frame], seq: u64) -> Option<WebhookRequest> {
    let found = request_within(frames, seq, &mut WorkMeter::unlimited());
    found.unwrap_or_default()
}

/// As [`request`], with a bound on the work.
///
/// # Errors
/// [`TooMuchWork`].
pub fn request_within(
    frames: &[Frame],
    seq: u64,
    meter: &mut WorkMeter,
) -> Result<Option<WebhookRequest>, TooMuchWork> {
    let found = requests_within(frames, |one| one == seq, usize::MAX, meter);
    found.map(|mut found| found.remove(&seq))
}

/// The sending that a frame announces.
pub(super) fn sent(frame: &Frame) -> Option<&WebhookSent> {
    match &frame.event {
        Event::Webhook(WebhookEvent::Sent(sent)) => Some(sent),
        _ => None,
    }
}

/// A run on its way through its frames.
#[derive(Default)]
struct RequestRenderer {
    state: Option<RunState>,
    definition: Option<Arc<Definition>>,
    definitions: Definitions,
    /// The reason why nothing can be rendered from here on.
    render_error: Option<String>,
    /// The number of bytes of bodies that may follow.
    remaining_bytes: usize,
}

impl RequestRenderer {
    fn render(&mut self, frame: &Frame) -> Option<WebhookRequest> {
        let sent = sent(frame)?;
        let mut request = WebhookRequest {
            method: sent.method.clone(),
            headers: REQUEST_HEADERS.to_vec(),
            ..WebhookRequest::default()
        };
        let rendered = match (&self.definition, &self.state, &self.render_error) {
            (Some(definition), Some(state), None) => webhook_preview(
                (definition, state),
                (&frame.scope, &sent.step),
                sent.approval,
            ),
            (_, _, broken) => Err(broken.clone().unwrap_or_default()),
        };
        let rendered = match rendered {
            Ok(rendered) => rendered,
            Err(why) => {
                request.problem = Some(format!("it cannot be rendered again: {why}"));
                return Some(request);
            }
        };
        let body = rendered.body.as_str();
        if Hash::of(body.as_bytes()).to_string() != sent.body_hash {
            let words = "the body rendered now is not the one that was sent: its hash differs";
            request.problem = Some(words.to_owned());
        }
        if rendered.signed {
            request.headers.extend(SIGNATURE_HEADERS);
        }
        request.url = Some(without_password(rendered.url));
        request.body_bytes = Some(body.len());
        if let Some(rest) = self.remaining_bytes.checked_sub(body.len()) {
            self.remaining_bytes = rest;
            request.body = Some(rendered.body);
        }
        Some(request)
    }

    fn take(&mut self, frame: &Frame) {
        if self.render_error.is_some() {
            return;
        }
        if let Err(why) = self.fold(frame) {
            self.render_error = Some(format!("frame {}: {why}", frame.seq));
        }
    }

    fn fold(&mut self, frame: &Frame) -> Result<(), String> {
        let brought = self.definitions.introduced_by(frame);
        if let Some(brought) = brought.map_err(|error| error.to_string())? {
            self.definition = Some(brought);
        }
        if let Some(state) = &mut self.state {
            return state.apply(frame).map_err(|refusal| refusal.to_string());
        }
        let outline = Outline::from_first_frame(frame).map_err(|error| error.to_string())?;
        let outline = outline.ok_or("no run begins with it")?;
        let begun = RunState::begin(frame, outline).map_err(|refusal| refusal.to_string())?;
        self.state = Some(begun);
        Ok(())
    }
}

/// A URL without its user name and password.
fn without_password(text: String) -> String {
    match url::Url::parse(&text) {
        Ok(mut url) if !url.username().is_empty() || url.password().is_some() => {
            let hidden = url.set_password(None).and(url.set_username("REDACTED"));
            hidden.map_or_else(|()| "[REDACTED]".to_owned(), |()| url.to_string())
        }
        Ok(_) | Err(_) => text,
    }
}
