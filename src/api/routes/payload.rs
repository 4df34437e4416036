//! `GET /runs/{id}/payload`: one value of a run, an item at a time; `GET /runs/{id}/search`: where words occur
//! in its frames.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderName, Method, header};
use axum::response::{IntoResponse as _, Response};
use ktsu_codes::ErrorCode;
use ktsu_history::Blobs;
use ktsu_history::frame_page::is_within;
use ktsu_history::payload::{MAX_CHARACTERS, Payload, PayloadWindow};
use ktsu_history::payload_search::{self, MAX_HITS, SearchPage};
use ktsu_history::provenance::{self, TraceError, TracedRun};
use ktsu_ledger::branch::Ancestry;
use ktsu_ledger::store::{Reader, StoreError};
use ktsu_orchestrator::{Orchestrator, ReadKind};
use ktsu_server::ProblemDetails;

use super::parameter::{MAX_NUMBER, Parameter, ParameterKind};
use super::query::{Query, QueryParameters, RawQuery, invalid};
use super::trace::too_much_work;
use super::{RunTarget, no_such_run, policy};
use crate::access::{Caller, TraceWork, forbidden};
use crate::problems::run_error;

/// The items or characters of a window unless others are asked for.
const USUAL_ITEMS: usize = 100;
const USUAL_CHARACTERS: usize = 16 * 1024;

/// A value of a run, and what is wanted of it.
#[derive(Debug)]
pub(super) struct PayloadQuery {
    value: WantedValue,
    from: usize,
    limit: Option<usize>,
    download: Option<Download>,
}

/// The place of a value.
#[derive(Debug)]
enum WantedValue {
    /// The envelope.
    Envelope,
    /// In the envelope.
    Field(String),
    /// In a frame.
    Place(u64, String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Download {
    Json,
    Text,
}

/// Parameters that ask for different values: one of them at the most is given.
#[cfg(test)]
pub(super) const EXCLUSIVE: [&str; 2] = ["path", "frame"];
/// A parameter, and the one it requires.
#[cfg(test)]
pub(super) const REQUIRED_TOGETHER: (&str, &str) = ("at", "frame");

impl QueryParameters for PayloadQuery {
    const PARAMETERS: &'static [Parameter] = &[
        Parameter::new(
            "path",
            ParameterKind::Text,
            "A field of the envelope, as `of` of a trace names it: `params.x`, `step.triage.output.priority`, \
             `output.x`. If absent, and no frame is asked for, the whole envelope. Excludes `frame`.",
        ),
        Parameter::new(
            "frame",
            ParameterKind::Number(0..=MAX_NUMBER),
            "The number of a frame, for those who may read frames. Excludes `path`.",
        ),
        Parameter::new(
            "at",
            ParameterKind::Any,
            "With `frame`: JSON pointer to the value in the frame, such as `/data/content`; empty for the frame.",
        ),
        Parameter::new(
            "from",
            ParameterKind::Number(0..=MAX_NUMBER),
            "The first item, member or character, counted from 0; 0 if absent.",
        ),
        Parameter::new(
            "limit",
            ParameterKind::Number(1..=MAX_CHARACTERS as u64),
            "How many at the most: 100 items or 16,384 characters if absent, never more than 1,000 items or \
             65,536 characters.",
        ),
        Parameter::new(
            "download",
            ParameterKind::Words(&["json", "text"]),
            "The whole value as a file: `json` as the ledger has it, or `text`, of a text its characters.",
        ),
    ];

    fn read(given: &RawQuery) -> Result<Self, ProblemDetails> {
        let at = given.owned("at");
        let value = match (given.owned("path"), given.number("frame")) {
            (Some(_), Some(_)) => return Err(invalid("path and frame exclude each other")),
            (_, None) if at.is_some() => return Err(invalid("at requires frame")),
            (None, None) => WantedValue::Envelope,
            (Some(path), None) => WantedValue::Field(path),
            (None, Some(frame)) => WantedValue::Place(frame, at.unwrap_or_default()),
        };
        let number = |name| {
            given
                .number(name)
                .map(|one| usize::try_from(one).unwrap_or(usize::MAX))
        };
        Ok(Self {
            value,
            from: number("from").unwrap_or_default(),
            limit: number("limit"),
            download: given.text("download").map(|form| match form {
                "text" => Download::Text,
                _ => Download::Json,
            }),
        })
    }
}

impl PayloadQuery {
    /// The address of the whole value, relative to that of this answer.
    fn address(&self) -> String {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        match &self.value {
            WantedValue::Envelope => {}
            WantedValue::Field(path) => {
                query.append_pair("path", path);
            }
            WantedValue::Place(frame, at) => {
                query.append_pair("frame", &frame.to_string());
                query.append_pair("at", at);
            }
        }
        query.append_pair("download", "json");
        format!("payload?{}", query.finish())
    }
}

/// One value of a run: its type, its size, and a window of its items or characters.
#[utoipa::path(get, path = "/runs/{id}/payload", params(RunTarget, Query::<PayloadQuery>), responses(
    (status = 200, content((PayloadWindow = "application/json"), (String = "application/octet-stream"))),
))]
pub(super) async fn payload(
    State(orchestrator): State<Orchestrator>,
    caller: Caller,
    TraceWork(most): TraceWork,
    run: RunTarget,
    Query(wanted): Query<PayloadQuery>,
) -> Result<Response, ProblemDetails> {
    // Frames have parts of the definition and whole prompts, which not every reader may see.
    let frames = policy::of(&Method::GET, "/runs/{id}/frames");
    if let (WantedValue::Place(..), Some(closed)) =
        (&wanted.value, frames.filter(|frames| !caller.may(*frames)))
    {
        return Err(forbidden(closed));
    }
    let readers = orchestrator.readers();
    let read = readers.with_kind(ReadKind::Search, move |reader| {
        let text = match &wanted.value {
            WantedValue::Envelope => envelope(reader, &run)?,
            WantedValue::Field(path) => field(reader, &run, path, most)?,
            WantedValue::Place(frame, at) => place(reader, &run, *frame, at)?,
        };
        Ok::<_, ProblemDetails>(respond(&wanted, text))
    });
    read.await
}

fn respond(wanted: &PayloadQuery, text: String) -> Response {
    let value = Payload::of(&text);
    let (body, name) = match wanted.download {
        None => {
            let usual = match value.characters() {
                Some(_) => USUAL_CHARACTERS,
                None => USUAL_ITEMS,
            };
            let limit = wanted.limit.unwrap_or(usual);
            let window: PayloadWindow = value.window(wanted.from, limit, wanted.address());
            return Json(window).into_response();
        }
        Some(Download::Text) => match value.characters() {
            Some(characters) => (characters, "payload.txt"),
            None => (text, "payload.json"),
        },
        Some(Download::Json) => (text, "payload.json"),
    };
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (
            header::CONTENT_DISPOSITION,
            format!("attachment; filename=\"{name}\""),
        ),
        (header::CONTENT_SECURITY_POLICY, "sandbox".to_owned()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (header::CACHE_CONTROL, "no-store".to_owned()),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin".to_owned(),
        ),
    ];
    (headers, body).into_response()
}

/// The JSON of an envelope.
fn envelope(reader: &dyn Reader, run: &RunTarget) -> Result<String, ProblemDetails> {
    let read = ktsu_history::envelope(reader, &run.stream).map_err(run_error)?;
    let found = read.and_then(|fold| fold.envelope(&run.scope));
    let found = found.ok_or_else(no_such_run)?;
    Ok(serde_json::to_string(&found).unwrap_or_default())
}

/// The JSON of a field of an envelope.
fn field(
    reader: &dyn Reader,
    run: &RunTarget,
    path: &str,
    most: u64,
) -> Result<String, ProblemDetails> {
    let frames = ktsu_history::frames(reader, &run.stream)?;
    if !frames
        .iter()
        .any(|frame| is_within(&frame.scope, &run.scope))
    {
        return Err(no_such_run());
    }
    let story = TracedRun::of(&frames).map_err(run_error)?.limited_to(most);
    let found = provenance::recorded_field(&story, &run.scope, path);
    found.map_err(|error| match error {
        TraceError::NotFound(error) => {
            let problem = ProblemDetails::new(ErrorCode::NotFound, error.unnamed);
            match error.there.is_empty() {
                true => problem,
                false => problem.with_hint(format!("the run has {}", error.there.join(", "))),
            }
        }
        TraceError::TooLarge => too_much_work(run, "trace", " --of PATH"),
    })
}

/// The JSON of a value in a frame, with what is kept beside it.
fn place(
    reader: &dyn Reader,
    run: &RunTarget,
    seq: u64,
    at: &str,
) -> Result<String, ProblemDetails> {
    let missing = || ProblemDetails::new(ErrorCode::NotFound, "the run has no such frame");
    let text = frame_text(reader, run, seq)?.ok_or_else(missing)?;
    let value = Payload::of(&text).at(at);
    let words = "the frame has no such value";
    let value = value.ok_or_else(|| ProblemDetails::new(ErrorCode::NotFound, words))?;
    Ok(value.json().to_owned())
}

fn frame_text(
    reader: &dyn Reader,
    run: &RunTarget,
    seq: u64,
) -> Result<Option<String>, StoreError> {
    if reader.tail(&run.stream)?.is_none() {
        return Ok(None);
    }
    let path = Ancestry::of(reader, &run.stream)?;
    let records = path.read(reader, seq, 1)?;
    let Some(record) = records.first().filter(|record| record.seq == seq) else {
        return Ok(None);
    };
    let owner = path.owner(seq).unwrap_or(&run.stream);
    let frame = Blobs::new(reader).decode(owner, record)?;
    let is_there = is_within(&frame.scope, &run.scope);
    Ok(is_there.then(|| record.to_json_with(&frame)))
}

/// Words that are searched for.
#[derive(Debug)]
pub(super) struct SearchQuery {
    text: String,
    from: u64,
    limit: usize,
}

impl QueryParameters for SearchQuery {
    const PARAMETERS: &'static [Parameter] = &[
        Parameter::new(
            "text",
            ParameterKind::Text,
            "The words: upper and lower case are the same.",
        )
        .required(),
        Parameter::new(
            "from",
            ParameterKind::Number(0..=MAX_NUMBER),
            "The first frame: 0 if absent, then the `next` of the answer before.",
        ),
        Parameter::new(
            "limit",
            ParameterKind::Number(1..=MAX_HITS as u64),
            "How many places, except where one frame has more; 100 if absent.",
        ),
    ];

    fn read(given: &RawQuery) -> Result<Self, ProblemDetails> {
        let text = given.owned("text").ok_or_else(|| invalid("give a text"))?;
        Ok(Self {
            text,
            from: given.number("from").unwrap_or_default(),
            limit: given.limit(USUAL_ITEMS),
        })
    }
}

/// The places in the frames of a run at which words occur.
#[utoipa::path(get, path = "/runs/{id}/search", params(RunTarget, Query::<SearchQuery>),
    responses((status = 200, body = SearchPage)))]
pub(super) async fn search(
    State(orchestrator): State<Orchestrator>,
    run: RunTarget,
    Query(wanted): Query<SearchQuery>,
) -> Result<Json<SearchPage>, ProblemDetails> {
    let read = orchestrator
        .readers()
        .with_kind(ReadKind::Search, move |reader| {
            let window = (wanted.from, wanted.limit);
            payload_search::search(reader, &run.stream, &run.scope, &wanted.text, window)
        });
    Ok(Json(read.await?))
}
