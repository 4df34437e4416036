//! `GET /inspector/diff`: the page of two runs, side by side.

use axum::extract::State;
use axum::response::Response;
use ktsu_history::diff;
use ktsu_inspector::DiffPage;
use ktsu_orchestrator::{Orchestrator, ReadKind};
use ktsu_server::ProblemDetails;

use super::super::find_run;
use super::super::parameter::{Parameter, ParameterKind};
use super::super::query::{Query, QueryParameters, RawQuery};
use super::{answer, name_of, signed_in};
use crate::access::Caller;
use crate::problems;

/// The runs that are compared.
#[derive(Debug)]
pub(in crate::routes) struct DiffPageQuery {
    a: String,
    b: String,
}

impl QueryParameters for DiffPageQuery {
    const PARAMETERS: &'static [Parameter] = &[
        Parameter::new(
            "a",
            ParameterKind::Any,
            "A run or a branch, or `R/call` for an inline child. Without both, the page has a form for them.",
        ),
        Parameter::new("b", ParameterKind::Any, "The one it is compared with."),
    ];

    fn read(given: &RawQuery) -> Result<Self, ProblemDetails> {
        let named = |name: &str| given.text(name).unwrap_or_default().trim().to_owned();
        Ok(Self {
            a: named("a"),
            b: named("b"),
        })
    }
}

/// The page of two runs side by side, for people.
#[utoipa::path(get, path = "/inspector/diff", operation_id = "diff_page", params(Query::<DiffPageQuery>),
    responses((status = 200, body = String, content_type = "text/html")))]
pub(in crate::routes) async fn diff(
    State(orchestrator): State<Orchestrator>,
    caller: Caller,
    Query(two): Query<DiffPageQuery>,
) -> Result<Response, ProblemDetails> {
    let mut page = DiffPage {
        by: signed_in(&orchestrator, &caller),
        a: two.a,
        b: two.b,
        compared: None,
    };
    if !page.a.is_empty() && !page.b.is_empty() {
        let a = find_run(&orchestrator, &page.a).await?;
        let b = find_run(&orchestrator, &page.b).await?;
        (page.a, page.b) = (name_of(&a), name_of(&b));
        let read = orchestrator
            .readers()
            .with_kind(ReadKind::Search, move |reader| {
                let (a, b) = ((a.stream, a.scope), (b.stream, b.scope));
                diff::compare_spans(reader, &a, &b)
            });
        let compared = read.await.map_err(problems::compare_error)?;
        page.compared = Some(Box::new(compared));
    }
    Ok(answer(ktsu_inspector::diff_page(&page)))
}
