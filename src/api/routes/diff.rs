//! `GET /diff`.

use axum::Json;
use axum::extract::State;
use ktsu_projections::step_name::scoped_run;
use serde_json::{Value, json as value};

use super::parameter::{Parameter, ParameterKind};
use super::query::{Query, QueryParameters, RawQuery, invalid};
use super::{find_run, wire};
use crate::problems;
use ktsu_history::diff;
use ktsu_orchestrator::{Orchestrator, ReadKind};
use ktsu_server::ProblemDetails;

/// The query of a comparison.
#[derive(Debug)]
pub(super) struct DiffQuery {
    a: String,
    b: String,
}

impl QueryParameters for DiffQuery {
    const PARAMETERS: &'static [Parameter] = &[
        Parameter::new(
            "a",
            ParameterKind::Run,
            "A run or a branch, or `R/call` for an inline child.",
        )
        .required(),
        Parameter::new("b", ParameterKind::Run, "The one it is compared with.").required(),
    ];

    fn read(given: &RawQuery) -> Result<Self, ProblemDetails> {
        let named = |name: &str| {
            let path = given.owned(name);
            path.ok_or_else(|| invalid(format!("{name} must be a run")))
        };
        Ok(Self {
            a: named("a")?,
            b: named("b")?,
        })
    }
}

/// What differs between two runs, branches or inline children.
#[utoipa::path(get, path = "/diff",
    params(Query::<DiffQuery>),
    responses((status = 200, body = wire::DiffView)))]
pub(super) async fn diff(
    State(orchestrator): State<Orchestrator>,
    Query(two): Query<DiffQuery>,
) -> Result<Json<Value>, ProblemDetails> {
    let a = find_run(&orchestrator, &two.a).await?;
    let b = find_run(&orchestrator, &two.b).await?;
    let names = [&a, &b].map(|run| scoped_run(run.stream.name(), &run.scope));
    let (of_a, of_b) = ((a.stream, a.scope), (b.stream, b.scope));
    let diff = orchestrator
        .readers()
        .with_kind(ReadKind::Search, move |reader| {
            diff::compare_runs(reader, &of_a, &of_b)
        })
        .await
        .map_err(problems::compare_error)?;
    let [a, b] = names;
    let same = diff.diff.is_empty();
    Ok(Json(value!(wire::DiffView {
        a,
        b,
        same,
        diff: diff.diff,
        world: diff.world,
        world_changes: diff.world_changes,
    })))
}
