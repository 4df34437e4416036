//! The page of the graph of a run: its plan as a drawing, and the step that is selected.

use std::collections::BTreeSet;

use ktsu_history::skeleton::RunSkeleton;
use maud::{Markup, html};

use crate::frame::{
    PagePlace, RunTab, Section, SignedIn, anchor, page, query, root_of, run_tabs, segment,
};
use crate::graph::{GraphDrawing, GraphLine, GraphMark, GraphNode, GraphView, draw};
use crate::graph_words::that_fits;
use crate::line_path::{LineDirection, line_path};
use crate::status::badge;
use crate::step_panel::{ShownStep, StepPanel, step_panel};
use crate::text::Verbatim;
use crate::units::counted;

/// From this height on, links lead to their box, which may be far below the head of the page.
const TALL: u32 = 520;

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
    let whole = html! {
        (graph(shown, &drawing))
        (list(shown, &drawing))
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
    let anchor = match drawing.height >= TALL && !to.is_empty() {
        true => format!("#{}", anchor("box", to)),
        false => String::new(),
    };
    PLACE.link(&format!("{page}{anchor}"))
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

fn graph(shown: &GraphPage, drawing: &GraphDrawing) -> Markup {
    let (width, height) = (drawing.width + 2, drawing.height + 2);
    html! {
        @if drawing.marks.is_empty() { p class="empty" { "The workflow has no steps." } }
        @else {
            div class="scroll graph" tabindex="0" role="region" aria-label="The steps of the plan" {
                svg width=(width) height=(height) viewBox={ "-1 -1 " (width) " " (height) } role="group" aria-label="Steps, each below those that it waits for" {
                    @for mark in &drawing.marks {
                        @match mark {
                            GraphMark::Label { x, y, text } => text class="label" x=(x) y=(y) { (Verbatim(text)) },
                            GraphMark::Line(line) => (edge(line)),
                            GraphMark::Node(node) => (node_box(shown, drawing, node)),
                        }
                    }
                }
            }
        }
        @if drawing.lines_left_out > 0 {
            p class="dim" { (counted(drawing.lines_left_out as u64, "long line")) " left out; the list has all" }
        }
        @if drawing.children_left_out > 0 {
            p class="dim" { (counted(drawing.children_left_out as u64, "workflow")) " left out; each has a page of its own" }
        }
    }
}

/// A line with its tip. Where it changes its column, it leaves and arrives straight down.
fn edge(line: &GraphLine) -> Markup {
    let path = line_path(&line.points, LineDirection::Down);
    let (x, y) = line.points.last().copied().unwrap_or_default();
    let (left, right, above) = (x.saturating_sub(4), x + 4, y.saturating_sub(7));
    let class = match (line.is_near, line.is_past) {
        (true, true) => "edge near",
        (true, false) => "edge near open",
        (false, true) => "edge",
        (false, false) => "edge open",
    };
    html! {
        path class=(class) d=(path) {}
        path class={ (class) " tip" } d={ "M" (left) " " (above) "L" (x) " " (y) "L" (right) " " (above) "Z" } {}
    }
}

fn node_box(shown: &GraphPage, drawing: &GraphDrawing, node: &GraphNode) -> Markup {
    let class = match node.is_selected {
        true => format!("node {} selected", node.class),
        false => format!("node {}", node.class),
    };
    let Some(path) = &node.path else {
        return html! { g class=(class) { (written(node)) } };
    };
    let view = GraphView {
        selected: Some(path.clone()),
        ..shown.view.clone()
    };
    html! {
        a id=(anchor("box", path)) class=(class) href=(link(shown, drawing, &view, path))
            aria-current=[node.is_selected.then_some("true")] aria-label=(Verbatim(&node.words)) {
            (written(node))
        }
        @if let Some(is_open) = node.open { (opener(shown, drawing, node, path, is_open)) }
    }
}

/// What is written in a box, cut where it would not fit.
fn written(node: &GraphNode) -> Markup {
    let (width, height) = (node.width - 2, node.height - 2);
    let is_cut = |(at, line): (usize, &String)| !that_fits(line, room_of(node, at)).1;
    let any_cut = node.lines.iter().enumerate().any(is_cut);
    html! {
        svg x=(node.x) y=(node.y) width=(node.width) height=(node.height) {
            @if any_cut { title { (Verbatim(node.lines.join("\n"))) } }
            rect class="box" x="1" y="1" width=(width) height=(height) rx="7" {}
            rect class="stripe" x="1" y="8" width="4" height=(height - 14) {}
            text class="sign" x="14" y="22" aria-hidden="true" { (node.sign) }
            @for (at, line) in node.lines.iter().enumerate() {
                @let (start, fits) = that_fits(line, room_of(node, at));
                text class=(class_of_line(at)) x=(if at == 0 { 31 } else { 14 }) y=(22 + 17 * at) {
                    (Verbatim(start)) @if !fits { "…" }
                }
            }
        }
    }
}

fn room_of(node: &GraphNode, line: usize) -> u32 {
    let beside = match (line, node.open) {
        (0, Some(_)) => 62,
        (0, None) => 38,
        _ => 22,
    };
    node.width.saturating_sub(beside)
}

fn class_of_line(at: usize) -> &'static str {
    match at {
        0 => "name",
        _ => "more",
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

/// The same as a list, for those who do not see the drawing.
fn list(shown: &GraphPage, drawing: &GraphDrawing) -> Markup {
    let nodes = drawing.marks.iter().filter_map(|mark| match mark {
        GraphMark::Node(node) => Some(node),
        GraphMark::Label { .. } | GraphMark::Line(_) => None,
    });
    html! {
        details class="as-list" {
            summary { "The steps as a list" }
            ol {
                @for node in nodes {
                    li {
                        @if let Some(path) = &node.path {
                            @let view = GraphView { selected: Some(path.clone()), ..shown.view.clone() };
                            a href=(link(shown, drawing, &view, path)) { (Verbatim(path)) } ": "
                        }
                        (Verbatim(&node.words))
                    }
                }
            }
        }
    }
}

/// The steps that are open, as the address has them.
pub fn open_steps(text: &str) -> BTreeSet<String> {
    let steps = text.split(',').filter(|step| !step.is_empty());
    steps.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_to_a_step_that_has_not_begun_is_dashed() {
        let line = |is_past, is_near| GraphLine {
            points: vec![(5, 0), (5, 20)],
            is_past,
            is_near,
        };
        for (is_past, is_near, class) in [
            (true, false, "edge"),
            (false, false, "edge open"),
            (true, true, "edge near"),
            (false, true, "edge near open"),
        ] {
            let drawn = edge(&line(is_past, is_near)).into_string();
            let shown = format!("<path class=\"{class}\" d=\"M5 0V20\">");
            assert!(drawn.contains(&shown), "{drawn}");
        }
    }
}
