//! Gives answers of a file in place of people.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::Request;
use ktsu_api::access::ScriptedCaller;
use ktsu_eval::{Answer, Answers};
use ktsu_peer::Peer;
use ktsu_projections::approvals::ApprovalStatus;
use ktsu_projections::person_requests::PersonRequest;
use serde_json::Value;

/// The outcome of an answer.
pub(super) struct Answered<'a> {
    /// The name of its author.
    pub(super) by: &'a str,
    /// The reason why it was refused, if it was.
    pub(super) refused: Option<&'a str>,
    /// The request that was answered, as it is afterwards.
    pub(super) record: &'a PersonRequest,
}

/// Gives the answers that fit what waits, until it no longer does; returns the record as it is then.
pub(super) async fn give(
    peer: &Peer,
    answers: &Answers,
    mut record: PersonRequest,
    mut tell: impl FnMut(Answered<'_>),
) -> PersonRequest {
    let mut answered = BTreeSet::new();
    for Answer { by, body } in answers.to(&record) {
        if record.status() != ApprovalStatus::Pending {
            break;
        }
        if answered.contains(&by) {
            continue;
        }
        let request = Request::post(record.decide_path())
            .extension(ScriptedCaller(by.clone()))
            .body(Body::from(body.to_string()));
        let Ok(request) = request else { continue };
        let refused = match peer.call_and_read(request).await {
            Ok((200, answer)) => match serde_json::from_slice(&answer) {
                Ok(after) => {
                    record = after;
                    None
                }
                Err(_) => Some(refusal(&answer)),
            },
            Ok((_, answer)) => Some(refusal(&answer)),
            Err(error) => Some(error.to_string()),
        };
        tell(Answered {
            by: &by,
            refused: refused.as_deref(),
            record: &record,
        });
        if refused.is_none() {
            answered.insert(by);
        }
    }
    record
}

/// The reason why an answer is refused, in the engine's words.
pub(super) fn refusal(body: &[u8]) -> String {
    let problem: Value = serde_json::from_slice(body).unwrap_or_default();
    let message = problem["message"].as_str();
    message.unwrap_or("the answer was not accepted").to_owned()
}
