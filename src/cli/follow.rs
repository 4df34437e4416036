//! Follows a run by its frames, here or in another process, until it ends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes};
use axum::http::{Request, Response};
use futures_util::StreamExt as _;
use ktsu_ledger::Frame;
use ktsu_ledger::event::Effects;
use ktsu_projections::life::{Change, changes};
use serde_json::Value;
use tokio::time::Instant;

use super::Failure;
use super::approval_prompt::ApprovalPrompt;
use super::live::Live;
use super::output::note;
use super::signals::Signals;
use ktsu_api::access::LocalInvocation;
use ktsu_eval::Answers;
use ktsu_opening::peer::problem;
use ktsu_orchestrator::References;
use ktsu_peer::Peer;

/// The time between two drawings of the last line of the live view.
const REDRAW_INTERVAL: Duration = Duration::from_millis(120);

/// The longest time that the engine may be silent while a run is followed. It sends a sign of life
/// every 15 seconds.
pub(super) const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);

/// A request to start a run.
#[derive(Clone)]
pub(super) struct StartRequest<'a> {
    /// The workflow.
    pub(super) workflow: &'a str,
    /// The params, as JSON.
    pub(super) input: String,
    /// Requests with the same key start one run.
    pub(super) key: Option<&'a str>,
    /// The treatment of webhooks and messages: sent or suppressed.
    pub(super) effects: Effects,
    /// True if every model call is made.
    pub(super) no_cache: bool,
    /// Model groups, and what is used in place of each; only within this process.
    pub(super) groups: BTreeMap<String, String>,
    /// The values of names in the run; only within this process.
    pub(super) references: Option<Arc<References>>,
    /// More headers: a name and a value each.
    pub(super) headers: Vec<(String, String)>,
}

/// Starts a run, and gives its id.
pub(super) async fn invoke(peer: &Peer, invocation: StartRequest<'_>) -> Result<String, Failure> {
    let query = match (invocation.no_cache, invocation.effects) {
        (true, Effects::Suppress) => "?no_cache=true&effects=suppress",
        (true, Effects::Execute) => "?no_cache=true",
        (false, Effects::Suppress) => "?effects=suppress",
        (false, Effects::Execute) => "",
    };
    let mut request = Request::post(format!("/invoke/{}{query}", invocation.workflow));
    if let Some(key) = invocation.key {
        request = request.header("idempotency-key", key);
    }
    for (name, value) in &invocation.headers {
        request = request.header(name, value);
    }
    let request = request
        .extension(LocalInvocation {
            groups: invocation.groups,
            references: invocation.references,
        })
        .body(Body::from(invocation.input))
        .map_err(Failure::of)?;
    let (status, body) = peer.call_and_read(request).await?;
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    match body["run_id"].as_str() {
        Some(run_id) if (200..300).contains(&status) => Ok(run_id.to_owned()),
        Some(_) | None if body["code"] == "workflow_not_found" => {
            let words = format!("there is no workflow {}", invocation.workflow);
            Err(Failure::could_not_run(words))
        }
        Some(_) | None => Err(problem(status, &body)),
    }
}

/// The viewer of a run that is under way.
#[derive(Default)]
pub(super) struct Viewer<'a> {
    /// The live view of the run.
    pub(super) live: Option<&'a mut Live>,
    /// The prompt for calls that need a decision.
    pub(super) asking: Option<&'a mut ApprovalPrompt>,
    /// True if looking ends once only people elsewhere can move the run.
    pub(super) leaves_waiting: bool,
    /// The longest time that the engine may be silent, if it is another process.
    pub(super) silence: Option<Duration>,
    /// True if a person has paused the run.
    pub(super) is_paused: bool,
}

/// The settings for watching a run at this terminal.
#[derive(Default)]
pub(super) struct Watch<'a> {
    /// ` --ledger PATH`, for the commands shown.
    pub(super) flag: &'a str,
    /// As of [`Viewer`].
    pub(super) leaves_waiting: bool,
    /// As of [`Viewer`].
    pub(super) silence: Option<Duration>,
    /// Answers in place of people.
    pub(super) answers: Option<Arc<Answers>>,
}

impl Watch<'_> {
    /// Shows a run and asks for decisions until it ends, and gives its envelope as JSON; `None` if a
    /// signal arrived first.
    pub(super) async fn follow(
        &self,
        peer: &Peer,
        run_id: &str,
        signals: &mut Signals,
    ) -> Option<Result<String, Failure>> {
        let mut live = Live::new();
        let mut asking =
            ApprovalPrompt::new(peer, run_id, self.flag).with_answers(self.answers.clone());
        let viewer = Viewer {
            live: Some(&mut live),
            asking: Some(&mut asking),
            leaves_waiting: self.leaves_waiting,
            silence: self.silence,
            is_paused: false,
        };
        tokio::select! {
            envelope = follow(peer, run_id, viewer) => return Some(envelope),
            () = signals.next() => {}
        }
        live.finish();
        None
    }
}

/// Shows a run until it ends, and gives its envelope as JSON.
pub(super) async fn follow(
    peer: &Peer,
    run_id: &str,
    viewer: Viewer<'_>,
) -> Result<String, Failure> {
    let path = format!("/runs/{run_id}/frames");
    let silence = viewer.silence;
    let response = within(silence, async {
        Ok(peer.get(&path, "text/event-stream").await?)
    });
    let response = response.await?;
    watch(peer, run_id, response, viewer).await?;
    within(silence, envelope(peer, run_id)).await
}

/// Awaits a response of the engine within the silence limit.
async fn within<T>(
    silence: Option<Duration>,
    saying: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let Some(silence) = silence else {
        return saying.await;
    };
    let heard = tokio::time::timeout(silence, saying).await;
    heard.unwrap_or_else(|_| {
        Err(Failure::could_not_run("the engine stopped responding")
            .hint("the run may still be running; ktsu runs shows it"))
    })
}

async fn envelope(peer: &Peer, run_id: &str) -> Result<String, Failure> {
    let request = Request::get(format!("/runs/{run_id}/envelope"))
        .body(Body::empty())
        .map_err(Failure::of)?;
    let (status, body) = peer.call_and_read(request).await?;
    let text = String::from_utf8_lossy(&body).into_owned();
    if status == 200 {
        return Ok(text);
    }
    Err(problem(
        status,
        &serde_json::from_str(&text).unwrap_or_default(),
    ))
}

async fn watch(
    peer: &Peer,
    run_id: &str,
    response: Response<Body>,
    mut viewer: Viewer<'_>,
) -> Result<(), Failure> {
    let mut body = response.into_body().into_data_stream();
    let mut pending = Vec::new();
    let mut ticks = tokio::time::interval(REDRAW_INTERVAL);
    let (silence, mut last) = (viewer.silence, Instant::now());
    // Whether any frame has arrived since the last check whether the run is waiting.
    let mut moved = false;
    loop {
        // Whichever comes first ends the others: nothing here may be half done when it is dropped.
        tokio::select! {
            chunk = within(until(silence, last), next(&mut body)) => {
                last = Instant::now();
                let Some(chunk) = chunk? else { break };
                for frame in frames(&mut pending, &chunk) {
                    viewer.apply(&frame).await;
                }
                moved = true;
            }
            _ = ticks.tick() => {
                viewer.tick();
                if viewer.may_leave() && std::mem::take(&mut moved) && is_waiting(peer, run_id).await? {
                    break;
                }
            }
            line = viewer.line() => {
                viewer.hear(line).await;
                moved = true;
            }
        }
    }
    if let Some(live) = viewer.live {
        live.finish();
    }
    Ok(())
}

/// The next piece of a stream, unless it has ended.
async fn next(body: &mut BodyDataStream) -> Result<Option<Bytes>, Failure> {
    body.next().await.transpose().map_err(lost)
}

/// The rest of a timeout that started with the last message.
fn until(silence: Option<Duration>, last: Instant) -> Option<Duration> {
    silence.map(|silence| silence.saturating_sub(last.elapsed()))
}

fn lost(error: axum::Error) -> Failure {
    Failure::lost(format!("the connection was lost: {error}"))
        .hint("the run continues; ktsu runs shows it")
}

/// The frames that are complete once this chunk is added. A frame that this version cannot read is
/// named and left out.
fn frames(pending: &mut Vec<u8>, chunk: &[u8]) -> Vec<Frame> {
    pending.extend_from_slice(chunk);
    let mut frames = Vec::new();
    while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
        let line: Vec<u8> = pending.drain(..=end).collect();
        let line = String::from_utf8_lossy(&line);
        match line.strip_prefix("data:").map(Frame::from_json) {
            Some(Ok(frame)) => frames.push(frame),
            Some(Err(error)) => note(&format!("a frame is not shown: {error}")),
            None => {}
        }
    }
    frames
}

impl Viewer<'_> {
    async fn apply(&mut self, frame: &Frame) {
        for change in changes(frame) {
            match change {
                Change::Paused(_) => self.is_paused = true,
                Change::Resumed(_) => self.is_paused = false,
                _ => {}
            }
        }
        if let Some(live) = &mut self.live {
            live.apply(frame);
        }
        if let Some(asking) = &mut self.asking {
            asking.apply(frame).await;
        }
    }

    /// Draws the last line again; not over a question.
    fn tick(&self) {
        let asks = self
            .asking
            .as_ref()
            .is_some_and(|asking| asking.is_asking());
        if let Some(live) = self.live.as_ref().filter(|_| !asks) {
            live.tick();
        }
    }

    /// Returns `true` if looking may end because only people can move the run.
    fn may_leave(&self) -> bool {
        let elsewhere = |asking: &&mut ApprovalPrompt| asking.waits_elsewhere();
        self.leaves_waiting && (self.is_paused || self.asking.as_ref().is_some_and(elsewhere))
    }

    /// The next line typed at the prompt, if one is shown.
    async fn line(&mut self) -> Option<String> {
        match &mut self.asking {
            Some(asking) => asking.line().await,
            None => std::future::pending().await,
        }
    }

    async fn hear(&mut self, line: Option<String>) {
        if let Some(asking) = &mut self.asking {
            asking.heard(line).await;
        }
    }
}

async fn is_waiting(peer: &Peer, run_id: &str) -> Result<bool, Failure> {
    let envelope: Value = serde_json::from_str(&envelope(peer, run_id).await?).unwrap_or_default();
    Ok(envelope["status"] == "waiting")
}

#[cfg(test)]
mod tests;
