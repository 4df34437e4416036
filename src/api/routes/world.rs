//! `GET /runs/{id}/world`.

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json as value};

use super::RunTarget;
use super::parameter::{MAX_NUMBER, Parameter, ParameterKind};
use super::query::{Query, QueryParameters, RawQuery};
use crate::problems;
use ktsu_codes::ErrorCode;
use ktsu_history as history;
use ktsu_history::frame_page::PageLimit;
use ktsu_history::world::{MAX_ENTRIES, RecordedWorld, WorldPages, WorldReadError, WorldView};
use ktsu_orchestrator::{Orchestrator, ReadKind, RecentRun};
use ktsu_server::ProblemDetails;

/// The query of a part of a world.
#[derive(Debug)]
pub(super) struct WorldQuery {
    at: Option<u64>,
    from: u64,
    limit: usize,
}

impl QueryParameters for WorldQuery {
    const PARAMETERS: &'static [Parameter] = &[
        Parameter::new(
            "at",
            ParameterKind::Number(0..=MAX_NUMBER),
            "The frame after which the world is shown; the last one if absent.",
        ),
        Parameter::new(
            "from",
            ParameterKind::Number(0..=MAX_NUMBER),
            "Where the page begins: `next` of the page before, with its `at`.",
        ),
        Parameter::new(
            "limit",
            ParameterKind::Number(1..=MAX_ENTRIES as u64),
            "How many objects and relations at the most; a page has at most 10,000, or 8 MiB.",
        ),
    ];

    fn read(given: &RawQuery) -> Result<Self, ProblemDetails> {
        Ok(Self {
            at: given.number("at"),
            from: given.number("from").unwrap_or_default(),
            limit: given.limit(MAX_ENTRIES),
        })
    }
}

/// The objects and relations of a run, as any of its frames left them.
#[utoipa::path(get, path = "/runs/{id}/world",
    params(RunTarget, Query::<WorldQuery>),
    responses((status = 200, body = WorldView)))]
pub(super) async fn world(
    State(orchestrator): State<Orchestrator>,
    run: RunTarget,
    Query(wanted): Query<WorldQuery>,
) -> Result<Json<Value>, ProblemDetails> {
    if !run.scope.is_empty() {
        return Err(ErrorCode::NoWorld.into());
    }
    // Folding a long run takes time, so it happens on a reader thread.
    let recent = orchestrator.recent_runs();
    let page = orchestrator
        .readers()
        .with_kind(ReadKind::Run, move |reader| {
            let limit = PageLimit::frames(wanted.limit);
            let (id, from) = (run.stream.name(), wanted.from);
            let last = |run: &RecentRun| run.fold().state().next_seq().checked_sub(1);
            let kept = recent.find(reader, &run.stream)?;
            let kept = kept.filter(|run| wanted.at.is_none_or(|at| Some(at) == last(run)));
            if let Some(kept) = kept {
                let pages = WorldPages::of(kept.fold().state(), kept.world_hash())?;
                return Ok(pages.page(id, from, limit));
            }
            let frames = history::frames(reader, &run.stream)?;
            if wanted.at.is_none() {
                let fold = history::fold(&frames)?;
                let kept = recent.keep(&run.stream, fold, &frames);
                let pages = WorldPages::of(kept.fold().state(), kept.world_hash())?;
                return Ok(pages.page(id, from, limit));
            }
            let frames = history::frames(reader, &run.stream)?;
            let world = RecordedWorld::of(&frames, wanted.at)?;
            Ok::<_, WorldReadError>(world.pages().page(id, from, limit))
        })
        .await
        .map_err(problems::world_error)?;
    Ok(Json(value!(page)))
}
