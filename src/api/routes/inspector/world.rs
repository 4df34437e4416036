//! `GET /inspector/runs/{id}/world`: the page of the world of a run.

use axum::extract::State;
use axum::response::Response;
use ktsu_history::frame_page::PageLimit;
use ktsu_history::world::{WorldFilter, WorldReadError};
use ktsu_history::world_moment::WorldMoment;
use ktsu_inspector::{MAX_WORLD_ROWS, WorldPage, WorldPageView, world_page};
use ktsu_orchestrator::{Orchestrator, ReadKind};
use ktsu_server::ProblemDetails;

use super::super::RunTarget;
use super::super::parameter::{MAX_NUMBER, Parameter, ParameterKind};
use super::super::query::{Query, QueryParameters, RawQuery};
use super::{answer, signed_in};
use crate::access::Caller;
use crate::problems::world_error;
use ktsu_codes::ErrorCode;

/// The view of a world.
#[derive(Debug)]
pub(in crate::routes) struct WorldPageQuery(WorldPageView);

impl QueryParameters for WorldPageQuery {
    const PARAMETERS: &'static [Parameter] = &[
        Parameter::new(
            "at",
            ParameterKind::Number(0..=MAX_NUMBER),
            "The frame after which the world is shown; the last one if absent.",
        ),
        Parameter::new(
            "type",
            ParameterKind::Any,
            "Only objects and relations of this type; all if it is empty, as in the form of the page.",
        ),
        Parameter::new(
            "text",
            ParameterKind::Any,
            "In the tables, only what has this text in its ids, its type or its data; all if it is empty.",
        ),
        Parameter::new(
            "object",
            ParameterKind::Any,
            "The object that is selected, by its id. In a large world, it is drawn with what is near it.",
        ),
        Parameter::new(
            "from",
            ParameterKind::Number(0..=MAX_NUMBER),
            "Where the tables begin in the order of creation, as the links of the page have it.",
        ),
    ];

    fn read(given: &RawQuery) -> Result<Self, ProblemDetails> {
        Ok(Self(WorldPageView {
            at: given.number("at"),
            kind: given.owned("type").unwrap_or_default(),
            text: given.owned("text").unwrap_or_default(),
            object: given.owned("object").unwrap_or_default(),
            from: given.number("from").unwrap_or_default(),
        }))
    }
}

/// The page of the world of a run, for people.
#[utoipa::path(get, path = "/inspector/runs/{id}/world", operation_id = "world_page",
    params(RunTarget, Query::<WorldPageQuery>),
    responses((status = 200, body = String, content_type = "text/html")))]
pub(in crate::routes) async fn world(
    State(orchestrator): State<Orchestrator>,
    caller: Caller,
    run: RunTarget,
    Query(WorldPageQuery(view)): Query<WorldPageQuery>,
) -> Result<Response, ProblemDetails> {
    if !run.scope.is_empty() {
        return Err(ErrorCode::NoWorld.into());
    }
    let by = signed_in(&orchestrator, &caller);
    let read = orchestrator
        .readers()
        .with_kind(ReadKind::Run, move |reader| {
            let frames = ktsu_history::frames(reader, &run.stream)?;
            let moment = WorldMoment::of(&frames, view.at)?;
            let wanted = WorldFilter {
                kind: view.kind.clone(),
                text: view.text.clone(),
            };
            let limit = PageLimit::frames(MAX_WORLD_ROWS);
            let run_id = run.stream.name().to_owned();
            let found = moment.pages.found(&run_id, &wanted, view.from, limit);
            Ok::<_, WorldReadError>(world_page(&WorldPage {
                by,
                run_id,
                view,
                moment,
                found,
            }))
        });
    Ok(answer(read.await.map_err(world_error)?))
}
