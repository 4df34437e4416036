//! The page of the graph of a run: its plan as a drawing, and the step that is selected.

use std::collections::BTreeSet;

use ktsu_history::skeleton::RunSkeleton;
use maud::{Markup, html};

use crate::frame::{PagePlace, RunTab, Section, SignedIn, page, query, root_of, run_tabs, segment};
use crate::graph::{GraphDrawing, GraphNode, GraphView, draw};
use crate::graph_svg::{GraphLinks, graph_list, graph_svg};
use crate::status::badge;
use crate::step_panel::{ShownStep, StepPanel, step_panel};
use crate::text::Verbatim;

/// What a page of a graph shows.
#[derive(Debug, Clone, PartialEq)]
pub struct GraphPage {
    /// The principal that looks at it.
    pub by: SignedIn,
    /// The run.
    pub run: RunSkeleton,
    /// How its graph is looked at.
    pub view: GraphView,
    /// The step that is selected.
    pub step: Option<ShownStep>,
}

const PLACE: PagePlace = PagePlace::WITHIN;

/// The page of the graph of a run.
pub fn graph_page(shown: &GraphPage) -> String {
    let drawing = draw(&shown.run, &shown.view);
    let links = RunGraphLinks {
        shown,
        drawing: &drawing,
    };
    let whole = html! {
        (graph_svg(&drawing, &links))
        (graph_list(&drawing, &links))
    };
    let whole = html! { div data-part="graph" { (whole) } };
    let body = html! {
        (head(shown))
        @match &shown.view.selected {
            None => (whole),
            Some(path) => {
                div class="columns" {
                    section aria-label="Graph" { (whole) }
                    aside class="kept" data-part="details" aria-label="Details" { (details(shown, &drawing, path)) }
                }
            }
        }
    };
    page(
        PLACE,
        Section::Runs,
        &format!("Graph of {}", shown.run.run_id),
        &shown.by,
        &body,
    )
}

fn head(shown: &GraphPage) -> Markup {
    let run = &shown.run;
    html! {
        div class="head" data-live=(root_of(&run.run_id)) data-part="head" {
            p class="crumbs" {
                a href=(PLACE.link("runs")) { "Runs" } " / "
                a href=(PLACE.link(&format!("runs{}", query(&[("workflow", &run.workflow)])))) {
                    (Verbatim(&run.workflow))
                }
                " " (Verbatim(&run.version))
            }
            h1 { span class="id" { (Verbatim(&run.run_id)) } " " (badge(run.status.as_str())) }
            (run_tabs(PLACE, &run.run_id, RunTab::Graph, run.loads_worlds))
        }
    }
}

/// The address of the same page with another view.
fn link(shown: &GraphPage, drawing: &GraphDrawing, view: &GraphView, to: &str) -> String {
    let open: Vec<&str> = view.open.iter().map(String::as_str).collect();
    let selected = view.selected.as_deref().unwrap_or_default();
    let query = query(&[("step", selected), ("open", &open.join(","))]);
    let page = format!("runs/{}/graph{query}", segment(&shown.run.run_id));
    PLACE.link(&format!("{page}{}", drawing.anchor(to)))
}

fn details(shown: &GraphPage, drawing: &GraphDrawing, path: &str) -> Markup {
    let none = GraphView {
        selected: None,
        ..shown.view.clone()
    };
    let close = link(shown, drawing, &none, "");
    html! {
        @match &shown.step {
            Some(content) => (step_panel(&StepPanel::beside(PLACE, &shown.run, path, content, Some(close)))),
            None => {
                p class="error" { "The run has no step " (Verbatim(path)) "." }
                p { a href=(close) { "Close" } }
            }
        }
    }
}

/// The links of the drawing of a run.
struct RunGraphLinks<'p> {
    shown: &'p GraphPage,
    drawing: &'p GraphDrawing,
}

impl GraphLinks for RunGraphLinks<'_> {
    fn select(&self, path: &str) -> String {
        let view = GraphView {
            selected: Some(path.to_owned()),
            ..self.shown.view.clone()
        };
        link(self.shown, self.drawing, &view, path)
    }

    fn opener(&self, node: &GraphNode, path: &str) -> Option<Markup> {
        let is_open = node.open?;
        Some(opener(self.shown, self.drawing, node, path, is_open))
    }
}

/// What opens a box, or closes it.
fn opener(
    shown: &GraphPage,
    drawing: &GraphDrawing,
    node: &GraphNode,
    path: &str,
    is_open: bool,
) -> Markup {
    let mut view = shown.view.clone();
    if is_open {
        let is_inside = |other: &str| is_in(other, path);
        view.open.retain(|one| one != path && !is_inside(one));
        view.selected = view.selected.filter(|one| !is_inside(one));
    } else {
        view.open.insert(path.to_owned());
    }
    let (x, y) = (node.x + node.width - 29, node.y + 4);
    let label = if is_open { "Close" } else { "Open" };
    html! {
        a class="opener" href=(link(shown, drawing, &view, path)) aria-label={ (label) " " (Verbatim(path)) }
            aria-expanded=(is_open) {
            svg x=(x) y=(y) width="25" height="25" {
                title { (label) }
                rect x="1" y="1" width="23" height="23" rx="6" {}
                path d=(if is_open { "M8 12.5H17" } else { "M8 12.5H17M12.5 8V17" }) {}
            }
        }
    }
}

/// Returns `true` if a path is that of a step of a child of another step, or of an item of it.
fn is_in(path: &str, of: &str) -> bool {
    let rest = path.strip_prefix(of);
    rest.is_some_and(|rest| rest.starts_with(['/', '.', '@']))
}

/// The steps that are open, as the address has them.
pub fn open_steps(text: &str) -> BTreeSet<String> {
    let steps = text.split(',').filter(|step| !step.is_empty());
    steps.map(str::to_owned).collect()
}
