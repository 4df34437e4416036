//! `POST /checks` checks a finished run; `GET /evals` and `GET /evals/{id}` show verdicts.

use axum::extract::{Path, State};
use axum::{Extension, Json};
use serde_json::{Value, json as value};

use super::command::{CommandBody, invalid};
use super::parameter::{Parameter, ParameterKind};
use super::query::{NoParameters, Query, QueryParameters, RawQuery};
use super::{find_eval, find_run, wire};
use crate::access::Caller;
use crate::checks::{self, CheckRequest, RunCheckError};
use crate::judges::JudgeModels;
use crate::problems;
use ktsu_codes::ErrorCode;
use ktsu_history::eval_list;
use ktsu_history::evals::{self, EvalReport};
use ktsu_orchestrator::{EvalAppendError, Orchestrator, ReadKind};
use ktsu_server::ProblemDetails;
use tokio::task::JoinError;

/// The default number of evals in a list.
const LISTED: usize = 50;
/// The most evals in a list.
const MAX_LISTED: u64 = 1000;

/// The most characters of the name of a file.
const MAX_FILE_CHARS: usize = 500;

/// The name of a spec's file where the request does not say it.
const UNNAMED: &str = "spec.eval.yaml";

/// Checks a finished run by a spec, and records the verdict. Only checks that need nothing of this
/// machine: `output`, `trace`, `forbidden`, and `llm_as_judge` of the output, which asks the models of
/// the kit.
#[utoipa::path(post, path = "/checks", request_body = wire::CheckPost,
    responses((status = 200, body = wire::Eval)))]
pub(super) async fn check(
    State(orchestrator): State<Orchestrator>,
    Extension(models): Extension<JudgeModels>,
    caller: Caller,
    _: Query<NoParameters>,
    CommandBody(body): CommandBody<wire::CheckPost>,
) -> Result<Json<EvalReport>, ProblemDetails> {
    if body
        .file
        .as_ref()
        .is_some_and(|file| file.chars().count() > MAX_FILE_CHARS)
    {
        let words = format!("file has more than {MAX_FILE_CHARS} characters");
        return Err(invalid(&words));
    }
    let run = find_run(&orchestrator, &body.run).await?;
    if !run.scope.is_empty() {
        let words = "a child cannot be checked on its own: name its run";
        return Err(ProblemDetails::new(ErrorCode::InvalidRunState, words));
    }
    let request = CheckRequest {
        run: run.stream,
        text: body.spec,
        file: body.file.unwrap_or_else(|| UNNAMED.to_owned()),
        by: caller.principal,
        reads_files: false,
        without_sandbox: false,
        workspace: None,
        models,
    };
    // Models take seconds, and what they are asked is recorded: a check is finished even if the client
    // has gone.
    let checking = async move { checks::check(&orchestrator, request).await };
    let checked = tokio::spawn(checking).await;
    let stopped =
        |error: JoinError| RunCheckError::Append(EvalAppendError::Ledger(error.to_string()));
    let checked = checked.map_err(stopped).and_then(|checked| checked);
    checked.map(Json).map_err(problems::check_error)
}

/// The filter of a list of evals.
#[derive(Debug)]
pub(super) struct EvalFilter {
    run: Option<String>,
    limit: usize,
}

impl QueryParameters for EvalFilter {
    const PARAMETERS: &'static [Parameter] = &[
        Parameter::new("run", ParameterKind::Text, "Of this run only."),
        Parameter::new(
            "limit",
            ParameterKind::Number(1..=MAX_LISTED),
            "How many; 50 if absent.",
        ),
    ];

    fn read(given: &RawQuery) -> Result<Self, ProblemDetails> {
        Ok(Self {
            run: given.owned("run"),
            limit: given.limit(LISTED),
        })
    }
}

/// Lists verdicts, newest first, without the results of their checks.
#[utoipa::path(get, path = "/evals", operation_id = "list_evals", params(Query::<EvalFilter>),
    responses((status = 200, body = wire::Evals)))]
pub(super) async fn list(
    State(orchestrator): State<Orchestrator>,
    Query(which): Query<EvalFilter>,
) -> Result<Json<Value>, ProblemDetails> {
    let run = match &which.run {
        Some(run) => Some(find_run(&orchestrator, run).await?.stream),
        None => None,
    };
    let readers = orchestrator.readers();
    let listed = readers.with_kind(ReadKind::Search, move |reader| {
        eval_list::list(reader, run.as_ref(), which.limit)
    });
    let listed = listed.await?;
    let listed: Vec<Value> = listed.iter().map(evals::listed_in_json).collect();
    Ok(Json(value!({ "evals": listed })))
}

/// Gets a verdict, with the result of every check.
#[utoipa::path(get, path = "/evals/{id}",
    params(("id" = String, Path, description = "An eval")),
    responses((status = 200, body = wire::Eval)))]
pub(super) async fn get(
    State(orchestrator): State<Orchestrator>,
    id: Result<Path<String>, axum::extract::rejection::PathRejection>,
    _: Query<NoParameters>,
) -> Result<Json<EvalReport>, ProblemDetails> {
    let Path(id) = id.map_err(|_| ErrorCode::EvalNotFound)?;
    let stream = find_eval(&orchestrator, id).await?.stream;
    let readers = orchestrator.readers();
    let read = readers.with_kind(ReadKind::Run, move |reader| evals::read(reader, &stream));
    let found = read.await.map_err(problems::eval_error)?;
    found
        .map(Json)
        .ok_or_else(|| ErrorCode::EvalNotFound.into())
}
