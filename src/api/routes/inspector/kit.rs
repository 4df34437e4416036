//! `GET /inspector/kit…`: the pages of the kit that the engine serves.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use ktsu_codes::ErrorCode;
use ktsu_config::fault::{Fault, Severity};
use ktsu_config::render;
use ktsu_inspector::{
    KitPage, ShownCheck, ShownExample, ShownFault, ShownWorkflow, WorkflowPage, kit_page,
    workflow_page,
};
use ktsu_kit::{Kit, KitWorkflow, WorkflowSource};
use ktsu_orchestrator::Orchestrator;
use ktsu_server::ProblemDetails;

use super::super::parameter::{Parameter, ParameterKind};
use super::super::paths::PathNames;
use super::super::query::{NoParameters, Query, QueryParameters, RawQuery};
use super::kit_seen::may_see;
use super::shown::{answer, closed};
use super::signed_in;
use crate::access::Caller;
use crate::kit_checks::{KitChecks, KitVerdict};

/// The most workflows whose files are read for their descriptions.
const MAX_DESCRIBED: usize = 500;
/// The most examples, and the most bytes of each.
const MAX_EXAMPLES: usize = 20;
const MAX_EXAMPLE_BYTES: u64 = 64 * 1024;
/// The lines of an excerpt before and after a fault.
const AROUND: usize = 2;

/// The page of the kit that the engine serves, for people.
#[utoipa::path(get, path = "/inspector/kit", operation_id = "kit_page",
    responses((status = 200, body = String, content_type = "text/html")))]
pub(in crate::routes) async fn kit(
    State(orchestrator): State<Orchestrator>,
    Extension(checks): Extension<KitChecks>,
    caller: Caller,
    _: Query<NoParameters>,
) -> Result<Response, ProblemDetails> {
    let by = signed_in(&orchestrator, &caller);
    let kit = Arc::clone(orchestrator.kit());
    drawn(move || {
        let closed = closed(&caller);
        let reads_frames = closed.is_none();
        let seen = kit.workflows.iter();
        let seen = seen
            .filter(|(_, one)| may_see(one, reads_frames))
            .enumerate();
        let workflows = seen.map(|(at, (name, one))| {
            let source = match at < MAX_DESCRIBED {
                true => kit.workflow_source(&one.path),
                false => WorkflowSource::default(),
            };
            shown(&kit, (name, one), reads_frames, source.description)
        });
        kit_page(&KitPage {
            by,
            name: (!kit.is_empty()).then(|| kit.name.clone()),
            workflows: workflows.collect(),
            check: checks
                .last()
                .map(|last| shown_check(&last, &kit, reads_frames)),
        })
    })
    .await
}

/// What is selected of a workflow.
#[derive(Debug)]
pub(in crate::routes) struct WorkflowPageQuery {
    step: Option<String>,
    all: String,
}

impl QueryParameters for WorkflowPageQuery {
    const PARAMETERS: &'static [Parameter] = &[
        Parameter::new(
            "step",
            ParameterKind::Text,
            "The step that is selected, by its id.",
        ),
        Parameter::new(
            "all",
            ParameterKind::Any,
            "The value that is shown whole, as the links of the page have it.",
        ),
    ];

    fn read(given: &RawQuery) -> Result<Self, ProblemDetails> {
        Ok(Self {
            step: given.owned("step"),
            all: given.owned("all").unwrap_or_default(),
        })
    }
}

/// The page of a workflow of the kit, for people.
#[utoipa::path(get, path = "/inspector/kit/{workflow}", operation_id = "workflow_page",
    params(("workflow" = String, Path, description = "Its name, as `POST /invoke` has it."), Query::<WorkflowPageQuery>),
    responses((status = 200, body = String, content_type = "text/html")))]
pub(in crate::routes) async fn workflow(
    State(orchestrator): State<Orchestrator>,
    Extension(checks): Extension<KitChecks>,
    caller: Caller,
    PathNames(name): PathNames<String>,
    Query(asked): Query<WorkflowPageQuery>,
) -> Result<Response, ProblemDetails> {
    let by = signed_in(&orchestrator, &caller);
    let kit = Arc::clone(orchestrator.kit());
    let closed = closed(&caller);
    let reads_frames = closed.is_none();
    // One that may not be seen is answered as one that does not exist.
    let found = kit.workflows.get(&name);
    if !found.is_some_and(|one| may_see(one, reads_frames)) {
        let problem = ProblemDetails::from(ErrorCode::WorkflowNotFound);
        return Err(problem.with_hint("GET /inspector/kit lists those of the kit"));
    }
    drawn(move || {
        let (name, one) = kit.workflows.get_key_value(&name)?;
        let plan = &one.definition.plan;
        let source = kit.workflow_source(&one.path);
        let seen = kit.workflows.iter();
        let seen = seen.filter(|(_, other)| may_see(other, reads_frames));
        let page = WorkflowPage {
            by,
            shown: shown(&kit, (name, one), reads_frames, source.description),
            plan,
            workflow: plan.workflows.get(&plan.root)?,
            path: &one.path,
            lines: source.steps,
            digest: &one.definition.digest,
            linked: seen
                .map(|(name, other)| (other.path.clone(), name.clone()))
                .collect::<BTreeMap<_, _>>(),
            examples: match kit.default_root() == Some(name) {
                true => examples(&kit, reads_frames),
                false => Vec::new(),
            },
            check: checks
                .last()
                .map(|last| shown_check(&last, &kit, reads_frames)),
            closed,
            step: asked.step,
            all: asked.all,
        };
        Some(workflow_page(&page))
    })
    .await
}

/// The answer with a page that is drawn in a thread of its own, since it reads files.
async fn drawn<P: Into<Option<String>> + Send + 'static>(
    draw: impl FnOnce() -> P + Send + 'static,
) -> Result<Response, ProblemDetails> {
    let page = tokio::task::spawn_blocking(draw).await;
    let page = page.map_err(|_| ErrorCode::Internal)?;
    Ok(answer(page.into().ok_or(ErrorCode::WorkflowNotFound)?))
}

fn shown<'k>(
    kit: &Kit,
    (name, one): (&'k str, &'k KitWorkflow),
    reads_frames: bool,
    description: Option<String>,
) -> ShownWorkflow<'k> {
    ShownWorkflow {
        name,
        plan: &one.definition.plan,
        description,
        groups: one.definition.groups(),
        is_world: one.is_world(),
        is_default: kit.default_root() == Some(name),
        shows_header: reads_frames,
    }
}

/// The examples of a kit, which are params of its default workflow.
fn examples(kit: &Kit, reads_frames: bool) -> Vec<ShownExample> {
    let most = if reads_frames { MAX_EXAMPLE_BYTES } else { 0 };
    let names = kit.examples.keys().take(MAX_EXAMPLES);
    let examples = names.filter_map(|name| {
        let read = kit.example(name, most)?;
        Some(ShownExample {
            file: format!("examples/{name}.json"),
            bytes: usize::try_from(read.bytes).unwrap_or(usize::MAX),
            text: read.text.filter(|_| reads_frames),
        })
    });
    examples.collect()
}

/// A verdict as pages show it: the lines of files to those who may read frames.
fn shown_check(verdict: &KitVerdict, kit: &Kit, reads_frames: bool) -> ShownCheck {
    let mut excerpts = match reads_frames {
        true => render::excerpts(&verdict.faults, AROUND),
        false => Vec::new(),
    };
    excerpts.reverse();
    let faults = verdict.faults.faults.iter().take(render::MAX_SHOWN);
    let shown = |fault: &Fault| ShownFault {
        file: relative(&fault.file),
        line: fault.line,
        column: fault.column,
        length: fault.length,
        is_warning: fault.severity == Severity::Warning,
        code: fault.code.text(),
        message: fault.message.clone(),
        hint: fault.hint.clone(),
        excerpt: excerpts.pop().unwrap_or_default(),
    };
    ShownCheck {
        is_sound: verdict.is_sound,
        is_loaded: !kit.workflows.is_empty(),
        faults: faults.map(shown).collect(),
        count: verdict.faults.faults.len(),
        unset: verdict.unset.clone(),
    }
}

/// The path of a file; of one outside of the kit, its name.
fn relative(file: &Path) -> String {
    let shown = match file.is_absolute() {
        true => file.file_name().map_or(file, Path::new),
        false => file,
    };
    shown.to_string_lossy().into_owned()
}
