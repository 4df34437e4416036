//! A graph as markup: boxes and lines, and the same as a list.

use maud::{Markup, html};

use crate::frame::anchor;
use crate::graph::{GraphDrawing, GraphLine, GraphMark, GraphNode};
use crate::graph_words::that_fits;
use crate::line_path::{LineDirection, line_path};
use crate::text::Verbatim;
use crate::units::counted;

/// From this height on, links lead to their box, which may be far below the head of the page.
const TALL: u32 = 520;

/// The links of a drawing.
pub(crate) trait GraphLinks {
    /// The address of the same page with a step selected.
    fn select(&self, path: &str) -> String;
    /// What opens a box or closes it, where it holds others.
    fn opener(&self, node: &GraphNode, path: &str) -> Option<Markup>;
}

impl GraphDrawing {
    /// What leads to the box of a step in a tall drawing, at the end of an address.
    pub(crate) fn anchor(&self, path: &str) -> String {
        match self.height >= TALL && !path.is_empty() {
            true => format!("#{}", anchor("box", path)),
            false => String::new(),
        }
    }

    /// The boxes, in reading order.
    fn nodes(&self) -> impl Iterator<Item = &GraphNode> {
        self.marks.iter().filter_map(|mark| match mark {
            GraphMark::Node(node) => Some(node),
            GraphMark::Label { .. } | GraphMark::Line(_) => None,
        })
    }
}

/// The drawing.
pub(crate) fn graph_svg(drawing: &GraphDrawing, links: &impl GraphLinks) -> Markup {
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
                            GraphMark::Node(node) => (node_box(node, links)),
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

/// The same as a list, for those who do not see the drawing.
pub(crate) fn graph_list(drawing: &GraphDrawing, links: &impl GraphLinks) -> Markup {
    html! {
        details class="as-list" {
            summary { "The steps as a list" }
            ol {
                @for node in drawing.nodes() {
                    li {
                        @if let Some(path) = &node.path { a href=(links.select(path)) { (Verbatim(path)) } ": " }
                        (Verbatim(&node.words))
                    }
                }
            }
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

fn node_box(node: &GraphNode, links: &impl GraphLinks) -> Markup {
    let class = match node.is_selected {
        true => format!("node {} selected", node.class),
        false => format!("node {}", node.class),
    };
    let Some(path) = &node.path else {
        return html! { g class=(class) { (written(node)) } };
    };
    html! {
        a id=(anchor("box", path)) class=(class) href=(links.select(path))
            aria-current=[node.is_selected.then_some("true")] aria-label=(Verbatim(&node.words)) {
            (written(node))
        }
        @if let Some(opener) = links.opener(node, path) { (opener) }
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
