//! The page of a workflow of a kit: its definition as a diagram, and the step that is selected.

use ktsu_ledger::event::plan::world::{ResponderPlan, ResponderWork, WorldPlan};
use maud::{Markup, html};

use crate::frame::{Section, page, query};
use crate::graph::{GraphDrawing, GraphNode, GraphView, draw_steps};
use crate::graph_svg::{GraphLinks, graph_list, graph_svg};
use crate::kit::invoked;
use crate::kit_faults::check_of;
use crate::kit_panel::{DefinedPanel, called, defined_panel};
use crate::kit_steps::{DefinedStep, defined_steps};
use crate::kit_view::{PLACE, WorkflowPage};
use crate::text::Verbatim;
use crate::units::{cost, counted, duration, size};
use crate::value::{defined_schema, defined_text, defined_value};

/// The most characters of a schema or an example.
const MAX_VALUE: usize = 4_000;
/// The most examples, worlds or responders that are listed.
const MAX_ROWS: usize = 100;

/// The links of the diagram.
struct WorkflowLinks<'p> {
    page: &'p WorkflowPage<'p>,
    drawing: &'p GraphDrawing,
}

impl GraphLinks for WorkflowLinks<'_> {
    fn select(&self, path: &str) -> String {
        format!("{}{}", self.page.select(path), self.drawing.anchor(path))
    }

    fn opener(&self, _: &GraphNode, _: &str) -> Option<Markup> {
        None
    }
}

/// The page of a workflow.
pub fn workflow_page(shown: &WorkflowPage<'_>) -> String {
    let steps: Vec<DefinedStep> = defined_steps(shown.plan, shown.workflow);
    let view = GraphView {
        selected: shown.step.clone(),
        ..GraphView::default()
    };
    let drawing = draw_steps(&steps, &view);
    let links = WorkflowLinks {
        page: shown,
        drawing: &drawing,
    };
    let whole = html! {
        div data-part="graph" {
            @if !drawing.marks.is_empty() || shown.plan.worlds.is_empty() {
                (graph_svg(&drawing, &links))
                (graph_list(&drawing, &links))
            }
            (rest(shown))
        }
    };
    let body = html! {
        (head(shown))
        @match &shown.step {
            None => (whole),
            Some(id) => {
                div class="columns" {
                    section aria-label="Definition" { (whole) }
                    aside class="kept" data-part="details" aria-label="Details" { (details(shown, id)) }
                }
            }
        }
    };
    let title = format!("Workflow {}", shown.shown.name);
    page(PLACE, Section::Kit, &title, &shown.by, &body)
}

fn details(shown: &WorkflowPage<'_>, id: &str) -> Markup {
    let step = shown.workflow.steps.iter().find(|step| step.id == id);
    html! {
        @match step {
            Some(step) => (defined_panel(&DefinedPanel { page: shown, step })),
            None => {
                p class="error" { "The workflow has no step " (Verbatim(id)) "." }
                p { a href=(shown.select("")) { "Close" } }
            }
        }
    }
}

fn head(shown: &WorkflowPage<'_>) -> Markup {
    let name = shown.shown.name;
    let policy = &shown.workflow.policy;
    let digest = shown.digest.get(..16).unwrap_or(shown.digest);
    html! {
        div data-live="kit" data-part="head" {
            div class="head" {
                p class="crumbs" {
                    a href=(PLACE.link("kit")) { "Kit" } " / " span class="id" { (Verbatim(shown.path)) }
                }
                h1 { (Verbatim(name)) " " span class="id" { (Verbatim(&shown.workflow.version)) } }
                @if let Some(description) = &shown.shown.description { p { (Verbatim(description)) } }
                dl class="facts" {
                    div { dt { (Verbatim(invoked(&shown.shown))) } dd { @if shown.shown.is_world { "a world on its own" } @else { (counted(shown.workflow.steps.len() as u64, "step")) } } }
                    @if let Some(ms) = policy.timeout_ms { div { dt { (duration(ms)) } dd { "at most" } } }
                    @if let Some(budget) = policy.cost_budget_micro_usd { div { dt { (cost(budget)) } dd { "at most" } } }
                    div { dt class="id" title=(shown.digest) { (digest) } dd { "digest of the definition" } }
                    div {
                        dt { a href=(PLACE.link(&format!("runs{}", query(&[("workflow", name)])))) { "Runs" } }
                        dd { "of this workflow" }
                    }
                }
            }
            @if let Some(check) = &shown.check { (check_of(check)) }
        }
    }
}

/// What a workflow has besides its steps.
fn rest(shown: &WorkflowPage<'_>) -> Markup {
    let output = shown.workflow.output.as_ref();
    html! {
        div class="answer" {
            @for (path, world) in shown.plan.worlds.iter().take(MAX_ROWS) { (world_of(shown, path, world)) }
            @if let Some(params) = &shown.workflow.params {
                section id="params" aria-label="Schema of the params" {
                    h2 { "Schema of the params" }
                    (defined_schema(params, MAX_VALUE, all(shown, "params").as_deref()))
                }
            }
            @if !shown.examples.is_empty() { (examples(shown)) }
            @if let Some(map) = output.and_then(|output| output.map.as_ref()) {
                section aria-label="Output" {
                    h2 { "Output" }
                    @if shown.closed.is_some() { p class="dim" { (size(map.as_str().len())) ", not shown to you" } }
                    @else { (defined_value(map.as_str(), MAX_VALUE, all(shown, "output").as_deref())) }
                }
            }
            @if let Some(schema) = output.and_then(|output| output.schema.as_ref()) {
                section aria-label="Schema of the output" {
                    h2 { "Schema of the output" }
                    (defined_schema(schema, MAX_VALUE, all(shown, "output-schema").as_deref()))
                }
            }
        }
    }
}

fn all(shown: &WorkflowPage<'_>, name: &str) -> Option<String> {
    // Beside a step, a name is that of a value of the step.
    let is_all = shown.all == name && shown.step.is_none();
    (!is_all).then(|| shown.address(&[("all", name)]))
}

fn examples(shown: &WorkflowPage<'_>) -> Markup {
    html! {
        section aria-label="Examples" {
            h2 { "Examples" }
            @for one in shown.examples.iter().take(MAX_ROWS) {
                details {
                    summary { span class="id" { (Verbatim(&one.file)) } ", " (size(one.bytes)) }
                    @match &one.text {
                        Some(text) => {
                            (defined_text(text, usize::MAX, Some("")))
                            @if text.len() < one.bytes { p class="cut" { "Cut: the first " (size(text.len())) " of " (size(one.bytes)) "." } }
                        }
                        None if shown.closed.is_some() => p class="dim" { "not shown to you" },
                        None => p class="dim" { "it cannot be shown" },
                    }
                }
            }
            @if shown.examples.len() > MAX_ROWS { p class="dim" { "and " (shown.examples.len() - MAX_ROWS) " more" } }
        }
    }
}

/// A world that a run of the workflow loads.
fn world_of(shown: &WorkflowPage<'_>, path: &str, world: &WorldPlan) -> Markup {
    let types = |names: Vec<&String>| {
        let left_out = names.len().saturating_sub(MAX_ROWS);
        let names: Vec<&str> = names
            .into_iter()
            .take(MAX_ROWS)
            .map(String::as_str)
            .collect();
        match left_out {
            0 => names.join(", "),
            more => format!("{} and {more} more", names.join(", ")),
        }
    };
    let responders: Vec<&ResponderPlan> = world.all_responders().collect();
    html! {
        section aria-label="World" {
            h2 { "World " (Verbatim(&world.name)) " " (Verbatim(&world.version)) }
            p class="id" { (Verbatim(path)) }
            p { "Objects: " (Verbatim(types(world.objects.keys().collect()))) }
            @if !world.relations.is_empty() { p { "Relations: " (Verbatim(types(world.relations.keys().collect()))) } }
            @if !responders.is_empty() {
                div class="scroll" tabindex="0" role="region" aria-label="Responders" {
                    table class="runs" {
                        thead { tr { th scope="col" { "Responder" } th scope="col" { "On" } th scope="col" { "It" } } }
                        tbody {
                            @for one in responders.iter().take(MAX_ROWS) {
                                tr {
                                    td { (Verbatim(&one.name)) }
                                    td class="id" {
                                        (Verbatim(one.on.join(", ")))
                                        @if !one.types.is_empty() { " of " (Verbatim(one.types.join(", "))) }
                                    }
                                    td { (work_of(shown, one)) }
                                }
                            }
                        }
                    }
                }
                @if responders.len() > MAX_ROWS { p class="dim" { "and " (responders.len() - MAX_ROWS) " more" } }
            }
        }
    }
}

fn work_of(shown: &WorkflowPage<'_>, responder: &ResponderPlan) -> Markup {
    html! {
        @match &responder.work {
            ResponderWork::Ask(ask) => { "asks a model of " (Verbatim(shown.workflow.policy.group(&ask.group))) }
            ResponderWork::Emit(_) => "makes entries",
            ResponderWork::Run(child) => { "runs the workflow " (called(shown, &child.workflow)) }
        }
    }
}

#[cfg(test)]
#[path = "kit_tests.rs"]
mod tests;
