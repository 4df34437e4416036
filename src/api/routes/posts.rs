//! `POST /runs/{id}/events`: people and peers post events to a run that loads worlds (seed 002).

use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde_json::Value;

use super::command::{CommandTarget, invalid};
use super::parameter::{PostKey, SubjectIfMatch};
use super::shape::in_words;
use super::{RunTarget, wire};
use crate::problems;
use ktsu_codes::ErrorCode;
use ktsu_orchestrator::HumanCommand;
use ktsu_server::body::JsonBody;
use ktsu_server::pointer_errors::read;
use ktsu_server::{FieldViolation, ProblemDetails};
use ktsu_workflow::admit::post::{EventMembers, MAX_POST_EVENTS, PostCommand, PostedEvent};
use ktsu_workflow::world::{MAX_ID_CHARS, is_kit_event};

/// Posts events to the world of a run; a complete run continues with them.
#[utoipa::path(post, path = "/runs/{id}/events",
    params(RunTarget, PostKey, SubjectIfMatch), request_body = wire::EventPosts,
    responses((status = 200, body = wire::PostRecorded)))]
pub(super) async fn post_events(
    target: CommandTarget,
    JsonBody(body): JsonBody,
) -> Result<Response, ProblemDetails> {
    let key = PostKey::PARAMETER.header(&target.headers)?;
    let expected = target.expected()?;
    let events = events(&body)?;
    if !target.run.scope.is_empty() {
        return Err(ErrorCode::NoWorld.into());
    }
    target.must_not_use_keys_of_others(None).await?;
    let command = PostCommand {
        events: events.clone(),
        by: target.caller.principal.clone(),
        key: key.map(str::to_owned),
        expected,
    };
    let receipt = target
        .orchestrator
        .submit_command(&target.run.stream, HumanCommand::Post(command), None)
        .await
        .map_err(problems::command_error)?;
    let n = receipt.post.unwrap_or_default();
    let events = (0u32..)
        .zip(&events)
        .map(|(place, event)| wire::RecordedEvent {
            seq: receipt.seq + u64::from(place),
            event_type: event.event_type().to_owned(),
            id: event.subject(n, place),
        });
    let body = wire::PostRecorded {
        run_id: target.run.stream.name().to_owned(),
        post: n,
        events: events.collect(),
    };
    Ok((StatusCode::OK, axum::Json(body)).into_response())
}

/// The events of a body: one, or a list.
fn events(body: &Value) -> Result<Vec<PostedEvent>, ProblemDetails> {
    let one = |at: &str, event: &Value| {
        read_event(event, at).map_err(|violation| {
            let violation = vec![violation];
            invalid(&in_words(&violation)).with_errors(violation)
        })
    };
    match body {
        Value::Object(_) => Ok(vec![one("", body)?]),
        Value::Array(several) if (1..=MAX_POST_EVENTS).contains(&several.len()) => {
            let places = several.iter().enumerate();
            places
                .map(|(place, event)| one(&format!("/{place}"), event))
                .collect()
        }
        Value::Array(several) => {
            let words = format!(
                "a post has 1 to {MAX_POST_EVENTS} events, this one has {}",
                several.len()
            );
            Err(invalid(&words))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            Err(ErrorCode::NotAnObject.into())
        }
    }
}

/// An event by its type.
fn read_event(event: &Value, at: &str) -> Result<PostedEvent, FieldViolation> {
    let kind = event
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or_default();
    match kind {
        "object.created" => {
            let wire::ObjectPost { data, .. } = read(event, at)?;
            Ok(PostedEvent::Object {
                id: data.id.map(|id| name(id, at, "id")).transpose()?,
                kind: name(data.kind, at, "type")?,
                data: data.data.unwrap_or_default(),
            })
        }
        "object.patched" => {
            let wire::ObjectPatchPost { data, .. } = read(event, at)?;
            Ok(PostedEvent::Patch {
                id: name(data.id, at, "id")?,
                patch: data.patch,
            })
        }
        "relation.created" => {
            let wire::RelationPost { data, .. } = read(event, at)?;
            Ok(PostedEvent::Relation {
                id: data.id.map(|id| name(id, at, "id")).transpose()?,
                kind: name(data.kind, at, "type")?,
                source_id: name(data.source_id, at, "source_id")?,
                target_id: name(data.target_id, at, "target_id")?,
                data: data.data.unwrap_or_default(),
            })
        }
        "relation.removed" => {
            let wire::RelationRemovalPost { data, .. } = read(event, at)?;
            let id = name(data.id, at, "id")?;
            Ok(PostedEvent::Removal { id })
        }
        "note" => {
            let wire::NotePost { data, .. } = read(event, at)?;
            let data: EventMembers = data.unwrap_or_default();
            Ok(PostedEvent::Note { data })
        }
        kind if is_kit_event(kind) => {
            let wire::KitEventPost { event_type, data } = read(event, at)?;
            let data = data.unwrap_or_default();
            Ok(PostedEvent::Kit {
                kind: event_type,
                data,
            })
        }
        _ => Err(FieldViolation {
            path: format!("{at}/type"),
            message: "is no event that can be posted: expected one of object.created, \
                      object.patched, relation.created, relation.removed, note, x.KIT.NAME"
                .to_owned(),
            rule: "enum".to_owned(),
        }),
    }
}

/// An id or a type of usable length.
fn name(text: String, at: &str, member: &str) -> Result<String, FieldViolation> {
    let rule = match text.chars().count() {
        0 => "minLength",
        1..=MAX_ID_CHARS => return Ok(text),
        _ => "maxLength",
    };
    Err(FieldViolation {
        path: format!("{at}/data/{member}"),
        message: format!("must have 1 to {MAX_ID_CHARS} characters"),
        rule: rule.to_owned(),
    })
}
