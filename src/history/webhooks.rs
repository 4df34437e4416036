//! The requests of webhooks as they were sent: rendered again from the state before each.
//!
//! No more than the hash of a body is recorded. What is rendered is held against it, so that nothing
//! is shown as sent which was not. Secrets stand as their templates, as in that hash.

use std::collections::BTreeMap;
use std::sync::Arc;

use ktsu_ledger::event::{WebhookEvent, WebhookSent};
use ktsu_ledger::{Event, Frame, Hash, Json};
use ktsu_projections::run::{Outline, RunState};
use serde::Serialize;

use ktsu_workflow::definition::Definition;
use ktsu_workflow::next::{REQUEST_HEADERS, SIGNATURE_HEADERS, shown};
use ktsu_workflow::replay::Definitions;

/// A request to an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Request {
    /// HTTP method.
    pub method: String,
    /// Where it went; absent if it cannot be rendered any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The names of its headers.
    pub headers: Vec<&'static str>,
    /// What it said; absent if it cannot be rendered any more, or where there is no more room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<Json>,
    /// The length of what it said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_bytes: Option<usize>,
    /// Why this is not, or may not be, what was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl Request {
    /// Whether it carries a signature.
    pub fn is_signed(&self) -> bool {
        SIGNATURE_HEADERS
            .iter()
            .all(|name| self.headers.contains(name))
    }
}

/// The requests that the wanted frames announce, by frame. Bodies beyond `room` bytes in all are left
/// out.
pub fn requests(
    frames: &[Frame],
    wanted: impl Fn(u64) -> bool,
    room: usize,
) -> BTreeMap<u64, Request> {
    let sent = |frame: &&Frame| sent(frame).is_some() && wanted(frame.seq);
    let Some(last) = frames.iter().rposition(|frame| sent(&frame)) else {
        return BTreeMap::new();
    };
    let mut teller = Teller {
        room,
        ..Teller::default()
    };
    let mut found = BTreeMap::new();
    for frame in frames.iter().take(last + 1) {
        if sent(&frame) {
            found.extend(teller.tell(frame).map(|request| (frame.seq, request)));
        }
        teller.take(frame);
    }
    found
}

/// The request that a frame announces, whole.
pub fn request(frames: &[Frame], seq: u64) -> Option<Request> {
    requests(frames, |one| one == seq, usize::MAX).remove(&seq)
}

fn sent(frame: &Frame) -> Option<&WebhookSent> {
    match &frame.event {
        Event::Webhook(WebhookEvent::Sent(sent)) => Some(sent),
        _ => None,
    }
}

/// A run on its way through its frames.
#[derive(Default)]
struct Teller {
    state: Option<RunState>,
    definition: Option<Arc<Definition>>,
    definitions: Definitions,
    /// Why nothing can be rendered from here on.
    broken: Option<String>,
    /// How many bytes of bodies may follow.
    room: usize,
}

impl Teller {
    fn tell(&mut self, frame: &Frame) -> Option<Request> {
        let sent = sent(frame)?;
        let mut request = Request {
            method: sent.method.clone(),
            url: None,
            headers: REQUEST_HEADERS.to_vec(),
            body: None,
            body_bytes: None,
            problem: None,
        };
        let rendered = match (&self.definition, &self.state, &self.broken) {
            (Some(definition), Some(state), None) => shown(
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
        if let Some(rest) = self.room.checked_sub(body.len()) {
            self.room = rest;
            request.body = Some(rendered.body);
        }
        Some(request)
    }

    fn take(&mut self, frame: &Frame) {
        if self.broken.is_some() {
            return;
        }
        if let Err(why) = self.fold(frame) {
            self.broken = Some(format!("frame {}: {why}", frame.seq));
        }
    }

    fn fold(&mut self, frame: &Frame) -> Result<(), String> {
        let brought = self.definitions.brought(frame);
        if let Some(brought) = brought.map_err(|error| error.to_string())? {
            self.definition = Some(brought);
        }
        if let Some(state) = &mut self.state {
            return state.apply(frame).map_err(|refusal| refusal.to_string());
        }
        let outline = Outline::begun_by(frame).map_err(|error| error.to_string())?;
        let outline = outline.ok_or("no run begins with it")?;
        let begun = RunState::begin(frame, outline).map_err(|refusal| refusal.to_string())?;
        self.state = Some(begun);
        Ok(())
    }
}

/// A URL without the name and the password that may stand in it.
fn without_password(text: String) -> String {
    match url::Url::parse(&text) {
        Ok(mut url) if !url.username().is_empty() || url.password().is_some() => {
            let hidden = url.set_password(None).and(url.set_username("REDACTED"));
            hidden.map_or_else(|()| "[REDACTED]".to_owned(), |()| url.to_string())
        }
        Ok(_) | Err(_) => text,
    }
}
