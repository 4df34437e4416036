//! `POST /runs/{id}/cancel`, `/terminate` and `/pause`: what people say about a whole run (decisions P1
//! and P2). It goes on by `/resume`.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;

use super::parameter::IfMatch;
use super::people::{Members, answer, expected};
use super::query::{Nothing, Query};
use super::{Run, wire};
use crate::access::Asker;
use crate::problems;
use ktsu_codes::ErrorCode;
use ktsu_orchestrator::{HumanCommand, Orchestrator};
use ktsu_server::Problem;
use ktsu_server::body::JsonObject;
use ktsu_workflow::admit::steer::Steer;

/// A route that says one of these words.
macro_rules! word {
    ($name:ident, $path:literal, $steer:expr, $summary:literal) => {
        #[doc = $summary]
        #[utoipa::path(post, path = $path,
            params(("id" = String, Path, description = "A run or a branch"), IfMatch),
            request_body = wire::RunWord,
            responses(
                (status = 200, body = wire::Said),
                (status = 400, body = wire::Problem, content_type = "application/problem+json"),
                (status = 403, body = wire::Problem, content_type = "application/problem+json"),
                (status = 404, body = wire::Problem, content_type = "application/problem+json"),
                (status = 409, body = wire::Problem, content_type = "application/problem+json"),
                (status = 413, body = wire::Problem, content_type = "application/problem+json"),
                (status = 422, body = wire::Problem, content_type = "application/problem+json"),
                (status = 503, body = wire::Problem, content_type = "application/problem+json"),
                (status = 507, body = wire::Problem, content_type = "application/problem+json"),
            ))]
        pub(super) async fn $name(
            State(orchestrator): State<Orchestrator>,
            asker: Asker,
            run: Run,
            headers: HeaderMap,
            _: Query<Nothing>,
            body: JsonObject,
        ) -> Result<Response, Problem> {
            say(&orchestrator, asker, &run, &headers, ($steer, body)).await
        }
    };
}

word!(
    cancel,
    "/runs/{id}/cancel",
    Steer::Cancel,
    "Ends a run: nothing new starts, and whoever works for it is told to stop."
);
word!(
    terminate,
    "/runs/{id}/terminate",
    Steer::Terminate,
    "Ends a run without telling anybody: what works for it finds that nobody waits for it."
);
word!(
    pause,
    "/runs/{id}/pause",
    Steer::Pause,
    "Holds a run: nothing new starts, what is under way may end, deadlines stand still."
);

async fn say(
    orchestrator: &Orchestrator,
    asker: Asker,
    run: &Run,
    headers: &HeaderMap,
    (steer, body): (Steer, JsonObject),
) -> Result<Response, Problem> {
    let verb = steer.as_str();
    if !run.scope.is_empty() {
        let id = run.stream.name();
        let words = format!("{verb} is about a whole run, here {id}, and not about a child of it");
        return Err(Problem::new(ErrorCode::InvalidRunState, words)
            .with_hint(format!("POST /runs/{id}/{verb}")));
    }
    let mut members = Members(body.0);
    let command = HumanCommand::Steer {
        steer,
        own_only: !asker.operates,
        by: asker.principal,
        reason: members.reason()?,
    };
    members.none_left()?;
    let said = orchestrator.say(&run.stream, command, expected(headers)?);
    Ok(answer(
        StatusCode::OK,
        run,
        said.await.map_err(problems::not_done)?,
    ))
}
