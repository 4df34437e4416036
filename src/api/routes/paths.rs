//! Raw slashes in the path of an inline child.

use axum::extract::{FromRequestParts, Path, Request};
use axum::http::Uri;
use axum::http::request::Parts;
use ktsu_codes::ErrorCode;
use ktsu_server::ProblemDetails;
use serde::de::DeserializeOwned;

use super::policy;

/// The names in a path; an axum extractor. Nothing has a name that is not UTF-8.
pub(super) struct PathNames<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for PathNames<T> {
    type Rejection = ProblemDetails;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ProblemDetails> {
        match Path::<T>::from_request_parts(parts, state).await {
            Ok(Path(names)) => Ok(Self(names)),
            Err(_) => Err(ErrorCode::NotFound.into()),
        }
    }
}

/// Rewrites `/runs/R/call/inner/frames` to `/runs/R%2Fcall%2Finner/frames`: everything between the
/// run and the name of a sub-resource is the path of a child (decision H1).
pub(super) fn join_scopes(mut request: Request) -> Request {
    if let Some(uri) = joined(request.uri()) {
        *request.uri_mut() = uri;
    }
    request
}

fn joined(uri: &Uri) -> Option<Uri> {
    let segments: Vec<&str> = uri.path().strip_prefix("/runs/")?.split('/').collect();
    let (run, below) = match segments.as_slice() {
        [
            run @ ..,
            "steps",
            step,
            what @ ("approval" | "review"),
            "decide",
        ] => (run, Some(format!("steps/{step}/{what}/decide"))),
        [
            run @ ..,
            "steps",
            step,
            what @ ("suspend" | "resume"),
            "link",
        ] => (run, Some(format!("steps/{step}/{what}/link"))),
        [run @ .., "steps", step, last] if is_route("/runs/{id}/steps/{step}/", last) => {
            (run, Some(format!("steps/{step}/{last}")))
        }
        [run @ .., "steps", step] => (run, Some(format!("steps/{step}"))),
        [run @ .., last] if is_route("/runs/{id}/", last) => (run, Some((*last).to_owned())),
        run => (run, None),
    };
    if run.len() < 2 {
        return None;
    }
    let mut path = format!("/runs/{}", run.join("%2F"));
    if let Some(part) = below {
        path.push('/');
        path.push_str(&part);
    }
    if let Some(query) = uri.query() {
        path.push('?');
        path.push_str(query);
    }
    path.parse().ok()
}

fn is_route(above: &str, segment: &str) -> bool {
    let mut routes = policy::TABLE.iter().map(|(_, path, _)| path);
    routes.any(|path| path.strip_prefix(above) == Some(segment))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_path_of_a_child_is_joined() {
        let cases = [
            ("/runs/R", None),
            ("/runs/R/frames?from=3", None),
            ("/runs/R%2Fcall/frames", None),
            ("/runs/R/call", Some("/runs/R%2Fcall")),
            ("/runs/R/steps/s.3/report?token=x", None),
            (
                "/runs/R/call/steps/s/complete?token=x",
                Some("/runs/R%2Fcall/steps/s/complete?token=x"),
            ),
            (
                "/runs/R/call/inner/frames?from=3",
                Some("/runs/R%2Fcall%2Finner/frames?from=3"),
            ),
            (
                "/runs/R/call/steps/s.3/approval/decide",
                Some("/runs/R%2Fcall/steps/s.3/approval/decide"),
            ),
            (
                "/runs/R/call/steps/s/resume/link?token=x",
                Some("/runs/R%2Fcall/steps/s/resume/link?token=x"),
            ),
            (
                "/runs/R/call/steps/s/resume",
                Some("/runs/R%2Fcall/steps/s/resume"),
            ),
            ("/runs/R/steps/s/approval", None),
            ("/runs/R/steps/s.3", None),
            (
                "/runs/R/call/inner/steps/s.3",
                Some("/runs/R%2Fcall%2Finner/steps/s.3"),
            ),
            ("/invoke/a/b", None),
        ];
        for (from, to) in cases {
            let uri: Uri = from.parse().unwrap();
            assert_eq!(
                joined(&uri).map(|uri| uri.to_string()).as_deref(),
                to,
                "{from}"
            );
        }
    }
}
