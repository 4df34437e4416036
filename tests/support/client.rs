//! A client that speaks HTTP over a real socket: the crate's own, with answers read whole.

use std::collections::BTreeMap;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Request};
use http_body_util::BodyExt as _;
use ktsu_peer::Peer;
use serde_json::{Value, json};

use super::guarded;

/// An answer, read whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error} in {}", self.text()))
    }

    pub(crate) fn kind(&self) -> &str {
        let kind = self.headers.get("content-type");
        kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default()
    }
}

/// An event of a stream of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) id: u64,
    pub(crate) data: String,
}

/// See the module documentation.
#[derive(Clone)]
pub(crate) struct Client {
    peer: Peer,
}

impl Client {
    pub(crate) fn of(url: &str) -> Self {
        Self {
            peer: Peer::remote(url, None),
        }
    }

    /// As a principal, on connections of its own.
    pub(crate) fn showing(url: &str, token: &str) -> Self {
        Self {
            peer: Peer::remote(url, Some(token.to_owned())),
        }
    }

    /// The same routes without a socket.
    pub(crate) fn within(router: axum::Router) -> Self {
        Self {
            peer: Peer::Local(router),
        }
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        self.try_send(method, path, headers, body).await.unwrap()
    }

    /// As [`Client::send`]; nothing if the server went away.
    pub(crate) async fn try_send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Option<Answer> {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body: Bytes = body.into();
        let request = request.body(Body::from(body)).unwrap();
        let answered = async {
            let response = self.peer.call(request).await.ok()?;
            let (parts, body) = response.into_parts();
            Some(Answer {
                status: parts.status.as_u16(),
                headers: parts.headers,
                body: body.collect().await.ok()?.to_bytes().to_vec(),
            })
        };
        guarded(path, answered).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], "").await
    }

    pub(crate) async fn post(&self, path: &str, body: impl Into<Bytes>) -> Answer {
        self.send("POST", path, &[], body).await
    }

    /// Starts a run; gives its id.
    pub(crate) async fn invoke(&self, workflow: &str, body: Value) -> String {
        let answer = self
            .post(&format!("/invoke/{workflow}"), body.to_string())
            .await;
        assert_eq!(answer.status, 202, "{}", answer.text());
        answer.json()["run_id"].as_str().unwrap().to_owned()
    }

    /// Runs a workflow to its end; gives the envelope.
    pub(crate) async fn run(&self, workflow: &str, body: Value) -> Value {
        let path = format!("/invoke/{workflow}?wait=60");
        let answer = self.post(&path, body.to_string()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        self.shows_the_same_later(&answer).await;
        answer.json()
    }

    /// Whoever waited for the end was told what the ledger tells everybody from then on. Not all
    /// clients may read it.
    async fn shows_the_same_later(&self, told: &Answer) {
        let run = told.json()["run_id"].as_str().unwrap().to_owned();
        let read = self.get(&format!("/runs/{run}/envelope")).await;
        if read.status == 200 {
            assert_eq!(told.text(), read.text());
            assert_eq!(told.kind(), read.kind());
        }
    }

    /// Waits for the end of a run, which closes its stream of events; gives the envelope.
    pub(crate) async fn ended(&self, run: &str) -> Value {
        self.events(run, None).await.drain().await;
        let answer = self.get(&format!("/runs/{run}/envelope")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    /// Runs the workflow `hello` so many times, one after the other, and gives the runs.
    pub(crate) async fn run_hello(&self, count: usize) -> Vec<String> {
        let mut runs = Vec::new();
        for at in 0..count {
            let envelope = self.run("hello", json!({"n": at})).await;
            runs.push(envelope["run_id"].as_str().unwrap().to_owned());
        }
        runs
    }

    /// The frames of runs as their own route shows them, with `run_id`, by id.
    pub(crate) async fn frames_by_id(&self, runs: &[String]) -> BTreeMap<String, Value> {
        let mut found = BTreeMap::new();
        for run in runs {
            for mut frame in self.frames(run).await {
                frame["run_id"] = json!(run);
                found.insert(frame["id"].as_str().unwrap().to_owned(), frame);
            }
        }
        found
    }

    /// All frames of a run, from pages of JSON.
    pub(crate) async fn frames(&self, run: &str) -> Vec<Value> {
        let mut frames = Vec::new();
        let mut path = format!("/runs/{run}/frames");
        loop {
            let page = self.get(&path).await;
            assert_eq!(page.status, 200, "{}", page.text());
            let page = page.json();
            frames.extend(page["frames"].as_array().unwrap().iter().cloned());
            match page.get("next").and_then(Value::as_u64) {
                Some(next) => path = format!("/runs/{run}/frames?from={next}"),
                None => return frames,
            }
        }
    }

    /// Follows a run.
    pub(crate) async fn events(&self, run: &str, last: Option<u64>) -> Events {
        let events = self.try_events(run, last).await;
        events.unwrap_or_else(|| panic!("{run} cannot be followed"))
    }

    /// As [`Client::events`]; nothing if the server went away.
    pub(crate) async fn try_events(&self, run: &str, last: Option<u64>) -> Option<Events> {
        let mut request = Request::get(format!("/runs/{run}/frames"));
        if let Some(last) = last {
            request = request.header("last-event-id", last.to_string());
        }
        let events = self.listen(request).await?;
        Some(events.unwrap_or_else(|status| panic!("{run}: {status}")))
    }

    /// Listens to a stream of any events, or tells the status of the refusal; nothing if the server
    /// went away.
    pub(crate) async fn listen(
        &self,
        request: axum::http::request::Builder,
    ) -> Option<Result<Events, u16>> {
        let request = request.header("accept", "text/event-stream");
        let request = request.body(Body::empty()).unwrap();
        let response = guarded("follow", self.peer.call(request)).await.ok()?;
        if response.status().as_u16() != 200 {
            return Some(Err(response.status().as_u16()));
        }
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Some(Ok(Events {
            body: response.into_body(),
            text: Vec::new(),
            broken: false,
        }))
    }
}

/// A stream of events under way.
pub(crate) struct Events {
    body: Body,
    /// Bytes: a piece may end within a character.
    text: Vec<u8>,
    /// Whether the connection broke rather than ended.
    pub(crate) broken: bool,
}

impl Events {
    /// The next event; nothing once the stream is closed. A stream that ends with a problem has not
    /// come to its end.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            let text = self.block().await?;
            assert_ne!(field(&text, "event").as_deref(), Some("problem"), "{text}");
            if let Some(event) = parse(&text) {
                return Some(event);
            }
        }
    }

    /// The next event; nothing once the stream is closed, or has a problem, which is no end either.
    pub(crate) async fn next_unless_broken(&mut self) -> Option<Event> {
        loop {
            let text = self.block().await?;
            if field(&text, "event").as_deref() == Some("problem") {
                self.broken = true;
                return None;
            }
            if let Some(event) = parse(&text) {
                return Some(event);
            }
        }
    }

    /// The id of the next event without data, which only says where to go on.
    pub(crate) async fn bookmark(&mut self) -> u64 {
        loop {
            let text = self.block().await.expect("the stream goes on");
            if let (Some(id), None) = (field(&text, "id"), field(&text, "data")) {
                return id.parse().unwrap();
            }
        }
    }

    /// The next event that has a name: the name, and its data.
    pub(crate) async fn named(&mut self) -> Option<(String, String)> {
        loop {
            let text = self.block().await?;
            if let (Some(name), Some(data)) = (field(&text, "event"), field(&text, "data")) {
                return Some((name, data));
            }
        }
    }

    async fn block(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.text.windows(2).position(|two| two == b"\n\n") {
                let block = self.text.drain(..end + 2).collect();
                return Some(String::from_utf8(block).unwrap());
            }
            match guarded("the next event", self.body.frame()).await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.text.extend_from_slice(&data);
                    }
                }
                Some(Err(_)) => {
                    self.broken = true;
                    return None;
                }
                None => return None,
            }
        }
    }

    /// Everything up to the end of the stream.
    pub(crate) async fn drain(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }
}

/// An event, unless it is a comment that keeps the connection alive.
fn parse(text: &str) -> Option<Event> {
    Some(Event {
        id: field(text, "id")?.parse().unwrap(),
        data: field(text, "data")?,
    })
}

fn field(text: &str, name: &str) -> Option<String> {
    let mut lines = text.lines();
    let found = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    found.map(|value| value.trim_start().to_owned())
}
