//! `GET /inspector/runs/{id}/graph`: the page of the graph of a run.

use axum::extract::State;
use axum::response::Response;
use ktsu_history::skeleton::RunSkeleton;
use ktsu_inspector::graph::GraphView;
use ktsu_inspector::{GraphPage, graph_page, open_steps};
use ktsu_orchestrator::{Orchestrator, ReadKind};
use ktsu_server::ProblemDetails;

use super::super::parameter::{Parameter, ParameterKind};
use super::super::query::{Query, QueryParameters, RawQuery};
use super::super::{RunTarget, no_such_run};
use super::shown::{closed, shown_step};
use super::{FEW_ITEMS, answer, signed_in};
use crate::access::Caller;
use crate::problems::run_error;
use crate::run_cache::SharedRunCache;
use ktsu_history::RunReadError;

/// The view of a graph.
#[derive(Debug)]
pub(in crate::routes) struct GraphPageQuery(GraphView);

impl QueryParameters for GraphPageQuery {
    const PARAMETERS: &'static [Parameter] = &[
        Parameter::new(
            "step",
            ParameterKind::Text,
            "The step or the item that is selected, by its path: `call/inner`, `classify.8`.",
        ),
        Parameter::new(
            "open",
            ParameterKind::Text,
            "The steps whose children or items are shown inside them, by their paths, with commas.",
        ),
    ];

    fn read(given: &RawQuery) -> Result<Self, ProblemDetails> {
        Ok(Self(GraphView {
            selected: given.owned("step"),
            open: open_steps(given.text("open").unwrap_or_default()),
        }))
    }
}

/// The page of the graph of a run, for people.
#[utoipa::path(get, path = "/inspector/runs/{id}/graph", params(RunTarget, Query::<GraphPageQuery>),
    responses((status = 200, body = String, content_type = "text/html")))]
pub(in crate::routes) async fn graph(
    State(orchestrator): State<Orchestrator>,
    caller: Caller,
    run: RunTarget,
    SharedRunCache(cache): SharedRunCache,
    Query(GraphPageQuery(view)): Query<GraphPageQuery>,
) -> Result<Response, ProblemDetails> {
    let by = signed_in(&orchestrator, &caller);
    let closed = closed(&caller);
    let read = orchestrator
        .readers()
        .with_kind(ReadKind::Run, move |reader| {
            let read = cache.folded(reader, &run.stream)?;
            Ok::<_, RunReadError>(read.and_then(|folded| {
                let selected = view.selected.as_deref();
                let shown = GraphPage {
                    by,
                    run: RunSkeleton::clone(&*folded.skeleton(&run.scope, FEW_ITEMS)?),
                    step: selected
                        .and_then(|path| shown_step(&folded.fold, &folded.frames, path, closed)),
                    view,
                };
                Some(graph_page(&shown))
            }))
        });
    let page = read.await.map_err(run_error)?;
    Ok(answer(page.ok_or_else(no_such_run)?))
}
