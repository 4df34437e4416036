//! `GET /runs/{id}/frames`: pages of JSON, or a resumable stream of events.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::{self, Stream};
use tokio::sync::watch;

use super::parameter::{LastEventId, MAX_NUMBER, Parameter, ParameterKind, whole};
use super::query::{Query, QueryParameters, RawQuery};
use super::{RecordTarget, RunTarget, wire};
use crate::stream_opener::StreamOpener;
use crate::streams::OpenStream;
use ktsu_codes::ErrorCode;
use ktsu_history::frame_page::{self, FramePage, FrameSelection, PageLimit};
use ktsu_history::frame_types::{FrameTypes, FrameTypesError};
use ktsu_orchestrator::{Orchestrator, Progress};
use ktsu_server::ProblemDetails;

/// The query of a list of frames.
#[derive(Debug)]
pub(super) struct FramesQuery {
    from: u64,
    limit: usize,
    world: bool,
    types: Option<String>,
    expand: bool,
}

impl QueryParameters for FramesQuery {
    const PARAMETERS: &'static [Parameter] = &[
        Parameter::new(
            "from",
            ParameterKind::Number(0..=MAX_NUMBER),
            "The first number; 0 if absent. A stream of events continues after `Last-Event-ID`.",
        ),
        Parameter::new(
            "limit",
            ParameterKind::Number(1..=frame_page::MAX_FRAMES as u64),
            "How many at the most; a page has at most 10,000 frames or 8 MiB.",
        ),
        Parameter::new(
            "world",
            ParameterKind::Flag,
            "Only the frames of responders that a budget of events counts.",
        ),
        Parameter::new(
            "type",
            ParameterKind::Text,
            "Only frames of this type: `review.decided`; or of several, with commas.",
        ),
        Parameter::new(
            "expand",
            ParameterKind::Flag,
            "Puts values that are kept as blobs back into `data`.",
        ),
    ];

    fn read(given: &RawQuery) -> Result<Self, ProblemDetails> {
        Ok(Self {
            from: given.number("from").unwrap_or_default(),
            limit: given.limit(frame_page::MAX_FRAMES),
            world: given.flag("world"),
            types: given.owned("type"),
            expand: given.flag("expand"),
        })
    }
}

fn types(given: Option<&str>) -> Result<FrameTypes, ProblemDetails> {
    FrameTypes::of(given).map_err(|error| {
        let code = match error {
            FrameTypesError::Unknown { .. } => ErrorCode::UnknownFrameType,
            FrameTypesError::TooMany => ErrorCode::InvalidQuery,
        };
        let problem = ProblemDetails::new(code, error.to_string());
        let none_near = || "ktsu frames RUN shows types".to_owned();
        match error {
            FrameTypesError::Unknown { .. } => {
                problem.with_hint(error.hint().unwrap_or_else(none_near))
            }
            FrameTypesError::TooMany => problem,
        }
    })
}

/// The frames of a run, as JSON or, with `Accept: text/event-stream`, as they become durable.
#[utoipa::path(get, path = "/runs/{id}/frames",
    params(RecordTarget,
        Query::<FramesQuery>, LastEventId),
    responses(
        (status = 200, content((wire::Frames = "application/json"), (String = "text/event-stream"))),
    ))]
pub(super) async fn frames(
    State(orchestrator): State<Orchestrator>,
    streams: StreamOpener,
    RecordTarget(run): RecordTarget,
    headers: HeaderMap,
    Query(wanted): Query<FramesQuery>,
) -> Result<Response, ProblemDetails> {
    let mut start = wanted.from;
    let last = LastEventId::PARAMETER.header(&headers)?.and_then(whole);
    let selection = FrameSelection {
        only: None,
        scope: run.scope.clone(),
        world: wanted.world,
        types: types(wanted.types.as_deref())?,
        expand: wanted.expand,
    };
    let accepts = headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok());
    if accepts.is_some_and(|accepts| accepts.contains("text/event-stream")) {
        if let Some(last) = last {
            start = last.saturating_add(1);
        }
        let follower = Follower {
            _open: streams.open()?,
            progress: orchestrator.watch(run.stream.name()),
            looks: orchestrator.is_observer(),
            orchestrator,
            run,
            from: start,
            selection,
            ready: Vec::new(),
            finished: false,
        };
        let events = Sse::new(follower.into_stream()).keep_alive(KeepAlive::default());
        return Ok(events.into_response());
    }
    let bound = PageLimit::frames(wanted.limit);
    let page = read(&orchestrator, &run, selection, start, bound).await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], text(page)).into_response())
}

/// A page as JSON. Frames make up most of it, so each is freed as soon as it is copied.
fn text(page: FramePage) -> String {
    const AROUND: usize = 64;
    let bytes: usize = page.frames.iter().map(|(_, text)| text.len() + 1).sum();
    let mut body = String::with_capacity(bytes + AROUND);
    body.push_str(r#"{"frames":["#);
    for (place, (_, text)) in page.frames.into_iter().enumerate() {
        if place > 0 {
            body.push(',');
        }
        body.push_str(&text);
    }
    body.push(']');
    if let Some(next) = page.next {
        body.push_str(&format!(r#","next":{next}"#));
    }
    body.push('}');
    body
}

/// Number of frames and bytes that are read ahead for each follower of a run.
const AHEAD: PageLimit = PageLimit {
    frames: 1000,
    bytes: 32 * 1024,
};

async fn read(
    orchestrator: &Orchestrator,
    run: &RunTarget,
    selection: FrameSelection,
    from: u64,
    bound: PageLimit,
) -> Result<FramePage, ProblemDetails> {
    let stream = run.stream.clone();
    let readers = orchestrator.readers();
    let page = readers
        .with(move |reader| frame_page::page(reader, &stream, &selection, from, bound))
        .await?;
    Ok(page)
}

/// The time between two reads of a run whose task is not here.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The last event of a stream that ends before its run does: a client would take an end for that of the
/// run.
fn problem_event(problem: &ProblemDetails) -> Event {
    let text = problem.to_json().to_string();
    Event::default().event("problem").data(text)
}

/// A follower of a run: reads what is durable from the ledger, then waits for more.
struct Follower {
    orchestrator: Orchestrator,
    run: RunTarget,
    progress: Option<watch::Receiver<Progress>>,
    /// True if the run may continue without a task here.
    looks: bool,
    from: u64,
    selection: FrameSelection,
    /// The next events, last first.
    ready: Vec<Event>,
    finished: bool,
    _open: OpenStream,
}

impl Follower {
    fn into_stream(self) -> impl Stream<Item = Result<Event, Infallible>> {
        stream::unfold(self, async |mut follower| {
            let event = follower.next().await?;
            Some((Ok(event), follower))
        })
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop() {
                return Some(event);
            }
            if self.finished {
                return None;
            }
            let (end, page) = match self.read_new_frames().await {
                Ok(read) => read,
                Err(problem) => {
                    self.finished = true;
                    return Some(problem_event(&problem));
                }
            };
            let more = page.next.is_some();
            self.from = page.after;
            let events = page.frames.into_iter().rev();
            self.ready = events
                .map(|(seq, text)| Event::default().id(seq.to_string()).data(text))
                .collect();
            if let Some(end) = end.filter(|_| !more) {
                self.finished = true;
                if let Err(reason) = end {
                    let problem = ProblemDetails::new(ErrorCode::LedgerStopped, reason);
                    self.ready.insert(0, problem_event(&problem));
                }
            } else if self.ready.is_empty() && !more {
                match &mut self.progress {
                    Some(progress) => {
                        if progress.changed().await.is_err() {
                            // Its task is gone: what it made durable meanwhile is there to read.
                            self.progress = None;
                        }
                    }
                    None => {
                        tokio::time::sleep(POLL_INTERVAL).await;
                        self.progress = self.orchestrator.watch(self.run.stream.name());
                    }
                }
            }
        }
    }

    /// The end of the run or the reason why this engine cannot continue it, if there is one yet, and the
    /// new frames. Checked in this order, so that an end during the read is found in the next round.
    async fn read_new_frames(
        &mut self,
    ) -> Result<(Option<Result<(), String>>, FramePage), ProblemDetails> {
        let end = match &mut self.progress {
            None => (!self.looks || self.has_ended().await?).then_some(Ok(())),
            Some(progress) => {
                let now = progress.borrow_and_update();
                let failed = now.failed.clone().map(Err);
                failed.or(now.ended.then_some(Ok(())))
            }
        };
        let selection = self.selection.clone();
        let page = read(&self.orchestrator, &self.run, selection, self.from, AHEAD).await?;
        Ok((end, page))
    }

    async fn has_ended(&self) -> Result<bool, ProblemDetails> {
        let stream = self.run.stream.clone();
        let readers = self.orchestrator.readers();
        let row = readers.with(move |reader| reader.row(&stream)).await?;
        Ok(row.is_none_or(|row| !row.open))
    }
}
