//! `GET /inspector/runs/{id}/frames`: the page of the frames of a run.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use ktsu_history::fork_estimate::estimate_by_agent;
use ktsu_history::frame_window::{self, FrameWanted, FrameWindowError};
use ktsu_history::payload_search;
use ktsu_history::recorded_prompts::recorded_prompts;
use ktsu_history::run_cache::RunCache;
use ktsu_history::work_meter::WorkMeter;
use ktsu_history::world_moment::loads_worlds;
use ktsu_inspector::{
    ForkDraft, ForkOffer, ForkPage, FoundFrames, FramesPage, Permissions, SignedIn,
};
use ktsu_ledger::store::Reader;
use ktsu_orchestrator::{Orchestrator, ReadKind};
use ktsu_projections::index::RunRow;
use ktsu_server::ProblemDetails;

use super::super::parameter::{MAX_NUMBER, Parameter, ParameterKind};
use super::super::query::{Query, QueryParameters, RawQuery};
use super::super::trace::too_much_work;
use super::super::{RunTarget, no_such_run};
use super::failed::Navigation;
use super::shown::closed;
use super::two_parts::{answer_with, first_part};
use super::{name_of, permissions, signed_in};
use crate::access::{Caller, TraceWork};
use crate::run_cache::SharedRunCache;

/// The most places at which words occur on a page.
const MAX_PLACES: usize = 100;

/// The frames that a page shows.
#[derive(Debug)]
pub(in crate::routes) struct FramesPageQuery {
    wanted: FrameWanted,
    words: String,
    from: u64,
}

impl QueryParameters for FramesPageQuery {
    const PARAMETERS: &'static [Parameter] = &[
        Parameter::new(
            "type",
            ParameterKind::Any,
            "Only frames whose type begins like this; all if it is empty, as in the form of the page.",
        ),
        Parameter::new(
            "step",
            ParameterKind::Any,
            "Only frames about this step or item, or inside it: `call/inner`, `classify.8`; all if it is empty.",
        ),
        Parameter::new(
            "actor",
            ParameterKind::Any,
            "Only frames of this actor; all if it is empty.",
        ),
        Parameter::new(
            "from",
            ParameterKind::Number(0..=MAX_NUMBER),
            "The number from which on frames are shown, 500 at the most. If absent, those around `frame`, or \
             the first ones.",
        ),
        Parameter::new(
            "frame",
            ParameterKind::Number(0..=MAX_NUMBER),
            "The frame that is shown whole beside the others.",
        ),
        Parameter::new(
            "search",
            ParameterKind::Any,
            "In place of the list: where these words occur in frames, for those who may read them.",
        ),
        Parameter::new(
            "search_from",
            ParameterKind::Number(0..=MAX_NUMBER),
            "The frame from which on they are searched for; 0 if absent.",
        ),
    ];

    fn read(given: &RawQuery) -> Result<Self, ProblemDetails> {
        Ok(Self {
            wanted: FrameWanted {
                kind: given.owned("type").unwrap_or_default(),
                step: given.owned("step").unwrap_or_default(),
                actor: given.owned("actor").unwrap_or_default(),
                from: given.number("from"),
                frame: given.number("frame"),
            },
            words: given.owned("search").unwrap_or_default(),
            from: given.number("search_from").unwrap_or_default(),
        })
    }
}

/// The most frames of a run for which its page has an estimate of a fork.
const MAX_ESTIMATED: u64 = 20_000;

/// The page of the frames of a run, for people.
#[utoipa::path(get, path = "/inspector/runs/{id}/frames", operation_id = "frames_page",
    params(RunTarget, Query::<FramesPageQuery>),
    responses((status = 200, body = String, content_type = "text/html")))]
pub(in crate::routes) async fn frames(
    State(orchestrator): State<Orchestrator>,
    caller: Caller,
    TraceWork(most): TraceWork,
    run: RunTarget,
    (SharedRunCache(cache), draft): (SharedRunCache, Option<Extension<Arc<ForkDraft>>>),
    Query(asked): Query<FramesPageQuery>,
    opened: Navigation,
) -> Result<Response, ProblemDetails> {
    let may = permissions(&orchestrator, &caller);
    let by = signed_in(&orchestrator, &caller);
    let look = {
        let (run, cache, wanted) = (run.clone(), cache.clone(), asked.wanted.clone());
        let (by, closed) = (by.clone(), closed(&caller));
        let is_list = draft.is_none() && asked.words.is_empty() && run.scope.is_empty();
        move |reader: &dyn Reader| match is_list {
            true => first_look(reader, &run, wanted, (by, closed, &cache)),
            false => Ok(None),
        }
    };
    let first = first_part(&orchestrator, opened, look).await?;
    let page = async move {
        let read = orchestrator
            .readers()
            .with_kind(ReadKind::Search, move |reader| {
                read_page(reader, &run, asked, (&caller, by, may), (&cache, most))
            });
        let page = read.await?;
        let Some(Extension(draft)) = draft else {
            return Ok(ktsu_inspector::frames_page(&page));
        };
        let opened = page.window.opened.filter(|_| page.may.operate);
        Ok(ktsu_inspector::fork_page(&ForkPage {
            by: page.by,
            last: opened.ok_or_else(no_such_run)?.row.node.seq,
            run_id: page.run_id,
            offer: page.fork,
            draft: Arc::unwrap_or_clone(draft),
        }))
    };
    answer_with(first, page).await
}

/// The beginning of the page, if it takes long to make the rest.
fn first_look(
    reader: &dyn Reader,
    run: &RunTarget,
    wanted: FrameWanted,
    (by, closed, cache): (SignedIn, Option<String>, &RunCache),
) -> Result<Option<String>, ProblemDetails> {
    let Some(total) = cache.frames_to_index(reader, &run.stream)? else {
        return Ok(None);
    };
    // Damage is for the page itself to report.
    let window = frame_window::first_look(reader, &run.stream, &wanted, total);
    let Ok(Some(window)) = window else {
        return Ok(None);
    };
    Ok(Some(ktsu_inspector::frames_opening(&FramesPage {
        by,
        may: Permissions::default(),
        run_id: name_of(run),
        has_world: loads_worlds(reader, &run.stream).unwrap_or_default(),
        branch_of: None,
        found: FoundFrames::default(),
        wanted,
        window,
        fork: ForkOffer::default(),
        closed,
    })))
}

fn read_page(
    reader: &dyn Reader,
    run: &RunTarget,
    asked: FramesPageQuery,
    (caller, by, may): (&Caller, SignedIn, Permissions),
    (cache, most): (&RunCache, u64),
) -> Result<FramesPage, ProblemDetails> {
    let FramesPageQuery {
        wanted,
        words,
        from,
    } = asked;
    let mut meter = WorkMeter::limited_to(most);
    let read = frame_window::window(
        reader,
        &run.stream,
        &run.scope,
        &wanted,
        (cache, &mut meter),
    );
    let window = read.map_err(|error| match error {
        FrameWindowError::Store(error) => error.into(),
        FrameWindowError::TooLarge(_) => too_much_work(run, "frames", ""),
    })?;
    let mut window = window.ok_or_else(no_such_run)?;
    // What is recorded has parts of the definition and all payloads, which not every reader may see.
    let closed = closed(caller);
    if let (Some(_), Some(opened)) = (&closed, &mut window.opened) {
        opened.json.clear();
        opened.hash.clear();
        opened.external.clear();
    }
    let found = match closed {
        Some(_) => FoundFrames::default(),
        None => FoundFrames {
            page: payload_search::search(
                reader,
                &run.stream,
                &run.scope,
                &words,
                (from, MAX_PLACES),
            )?,
            words,
            from,
        },
    };
    let row = reader.row(&run.stream).ok().flatten();
    let row = row.and_then(|row| serde_json::from_str::<RunRow>(row.row.as_str()).ok());
    let opened = window.opened.as_ref().map(|opened| opened.row.node.seq);
    let estimated = opened.filter(|_| may.operate && run.scope.is_empty());
    let fork =
        estimated.and_then(|last| offer(reader, run, (window.total, last), closed.is_none()));
    Ok(FramesPage {
        by,
        fork: fork.unwrap_or_default(),
        may,
        run_id: name_of(run),
        has_world: run.scope.is_empty() && loads_worlds(reader, &run.stream).unwrap_or_default(),
        branch_of: row.and_then(|row| row.parent_run_id.zip(row.fork_position)),
        found,
        wanted,
        window,
        closed,
    })
}

/// What a fork after a frame would ask, and the prompts there for those who may read them. It folds the run twice
/// more, so a large one has the estimate at `GET /runs/{id}/fork` alone.
fn offer(
    reader: &dyn Reader,
    run: &RunTarget,
    (total, last): (u64, u64),
    shows_prompts: bool,
) -> Option<ForkOffer> {
    if total > MAX_ESTIMATED {
        return None;
    }
    let frames = ktsu_history::frames(reader, &run.stream).ok()?;
    let (estimate, asking) = estimate_by_agent(&frames, last + 1).ok()??;
    let until = frames.iter().take_while(|frame| frame.seq <= last).count();
    let until = frames.get(..until).filter(|_| shows_prompts);
    let prompts = until.map(|frames| recorded_prompts(frames, &asking));
    Some(ForkOffer {
        estimate: Some(estimate),
        prompts: prompts.unwrap_or_default(),
    })
}
