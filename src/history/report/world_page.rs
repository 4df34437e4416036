//! A world as one page: its objects and relations drawn, and listed in full.

use std::collections::VecDeque;
use std::fmt::Display;

use maud::{Markup, Render as _, html};

use super::html::{HtmlText, details, document, row};
use super::world_graph::{Diagram, Edge};
use crate::world::{ObjectView, RelationView, WorldView};

/// The most objects, and the most relations, in the tables; `ktsu world --json` has all.
const MAX_ROWS: usize = 5000;
/// The most characters of a text in a box.
const MAX_BOX_TEXT: usize = 26;

/// In pixels: a box, and the distance from one box to the next.
const BOX: (usize, usize) = (200, 44);
const STEP: (usize, usize) = (320, 64);
const MARGIN: usize = 10;

/// The page of a world, or of a part of it.
pub fn world_page(view: &WorldView) -> String {
    let title = format!("{} after frame {}", view.run_id, view.at);
    let diagram = Diagram::of(view);
    let body = html! {
        p class="dim" { (HtmlText(&view.world_hash)) }
        @if diagram.left_out > 0 {
            p { (HtmlText(format_args!("{} more are not drawn", diagram.left_out))) }
        }
        (drawing(&diagram))
        h2 { "Objects" }
        (listed(&view.objects, object_details))
        h2 { "Relations" }
        table { (listed(&view.relations, relation_row)) }
    };
    document(&title, &body)
}

/// As many as the page has room for, and how many more there are.
fn listed<T>(all: &[T], one: impl Fn(&T) -> Markup) -> Markup {
    let more = all.len().saturating_sub(MAX_ROWS);
    html! {
        @for item in all.iter().take(MAX_ROWS) { (one(item)) }
        @if more > 0 { (row(&[&format_args!("and {more} more")])) }
    }
}

fn object_details(object: &ObjectView) -> Markup {
    let summary = format!("{} {}", object.kind, object.id);
    details(summary, object.data.as_str())
}

fn relation_row(relation: &RelationView) -> Markup {
    let data = match relation.data.as_str() {
        "{}" => "",
        data => data,
    };
    let RelationView {
        kind,
        source_id,
        target_id,
        ..
    } = relation;
    row(&[kind, source_id, &"→", target_id, &data])
}

/// Objects as boxes in columns, relations as lines from one column to another.
fn drawing(diagram: &Diagram<'_>) -> Markup {
    let boxes = places(diagram);
    let (columns, rows) = boxes.iter().fold((0, 0), |(columns, rows), at| {
        (columns.max(at.column + 1), rows.max(at.row + 1))
    });
    let size = (2 * MARGIN + columns * STEP.0, 2 * MARGIN + rows * STEP.1);
    html! {
        div class="drawing" {
            svg xmlns="http://www.w3.org/2000/svg" width=(size.0) height=(size.1) {
                defs {
                    marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7"
                        markerHeight="7" orient="auto" { path d="M0 0 8 4 0 8z"; }
                }
                @for edge in &diagram.edges { (line(edge, &boxes)) }
                @for (at, (id, title)) in boxes.iter().zip(&diagram.nodes) { (boxed(*at, id, title)) }
            }
        }
    }
}

fn boxed(at: Place, id: &str, title: &str) -> Markup {
    let (x, y) = at.corner();
    html! {
        g {
            title { (HtmlText(id)) }
            rect x=(x) y=(y) width=(BOX.0) height=(BOX.1) rx="4" {}
            (text(x + 8, y + 18, "", &short(id)))
            (text(x + 8, y + 35, "dim", &short(title)))
        }
    }
}

fn line(edge: &Edge<'_>, boxes: &[Place]) -> Markup {
    let (Some(from), Some(to)) = (boxes.get(edge.from), boxes.get(edge.to)) else {
        return Markup::default();
    };
    let ((x, y), (to_x, to_y)) = (from.corner(), to.corner());
    let (x, y) = (x + BOX.0, y + BOX.1 / 2);
    let to_y = to_y + BOX.1 / 2;
    // A line that ends in its own column or before it goes round on the right.
    let (bend, to_bend, end) = match from.column < to.column {
        true => (x + 60, to_x.saturating_sub(60), to_x),
        false => (x + 60, to_x + BOX.0 + 60, to_x + BOX.0),
    };
    let curve = format!("M{x} {y}C{bend} {y} {to_bend} {to_y} {end} {to_y}");
    let middle = ((x + end) / 2, (y + to_y) / 2);
    html! {
        path class="line" d=(curve) marker-end="url(#end)" {}
        (text(middle.0, middle.1, "dim label", &short(edge.kind)))
    }
}

fn text(x: usize, y: usize, class: &str, words: &dyn Display) -> Markup {
    html! { text class=(class) x=(x) y=(y) { (HtmlText(words).render()) } }
}

fn short(words: &str) -> String {
    match words.char_indices().nth(MAX_BOX_TEXT) {
        Some((end, _)) => format!("{}…", words.get(..end).unwrap_or_default()),
        None => words.to_owned(),
    }
}

/// The place of a box.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    column: usize,
    row: usize,
}

impl Place {
    fn corner(self) -> (usize, usize) {
        (MARGIN + self.column * STEP.0, MARGIN + self.row * STEP.1)
    }
}

/// The place of each object: to the right of all that have a relation to it. Where relations form a
/// circle, what has no other place is in the first column.
fn places(diagram: &Diagram<'_>) -> Vec<Place> {
    let count = diagram.nodes.len();
    let mut leads_to: Vec<Vec<usize>> = vec![Vec::new(); count];
    let mut waits_for = vec![0usize; count];
    for edge in diagram.edges.iter().filter(|edge| edge.from != edge.to) {
        if let (Some(next), Some(waiting)) =
            (leads_to.get_mut(edge.from), waits_for.get_mut(edge.to))
        {
            next.push(edge.to);
            *waiting += 1;
        }
    }
    let mut columns = vec![0usize; count];
    let free = (0..count).filter(|at| waits_for.get(*at) == Some(&0));
    let mut free: VecDeque<usize> = free.collect();
    while let Some(at) = free.pop_front() {
        let column = columns.get(at).copied().unwrap_or_default();
        for to in leads_to.get(at).into_iter().flatten() {
            if let (Some(waiting), Some(placed)) = (waits_for.get_mut(*to), columns.get_mut(*to)) {
                *placed = (*placed).max(column + 1);
                *waiting -= 1;
                if *waiting == 0 {
                    free.push_back(*to);
                }
            }
        }
    }
    let mut filled = vec![0usize; count];
    let place = columns.into_iter().map(|column| {
        let row = filled.get(column).copied().unwrap_or_default();
        if let Some(filled) = filled.get_mut(column) {
            *filled += 1;
        }
        Place { column, row }
    });
    place.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diagram(count: usize, edges: &[(usize, usize)]) -> Diagram<'static> {
        let edges = edges.iter().map(|(from, to)| Edge {
            from: *from,
            to: *to,
            kind: "of",
        });
        Diagram {
            nodes: vec![("id".to_owned(), String::new()); count],
            edges: edges.collect(),
            left_out: 0,
        }
    }

    fn columns(diagram: &Diagram<'_>) -> Vec<usize> {
        places(diagram).iter().map(|at| at.column).collect()
    }

    #[test]
    fn an_object_is_to_the_right_of_all_that_lead_to_it() {
        let diamond = diagram(4, &[(0, 1), (0, 2), (1, 3), (2, 3), (0, 3)]);
        assert_eq!(columns(&diamond), [0, 1, 1, 2]);
        let rows: Vec<usize> = places(&diamond).iter().map(|at| at.row).collect();
        assert_eq!(rows, [0, 0, 1, 0]);
    }

    #[test]
    fn circles_and_relations_to_itself_are_drawn_too() {
        let circle = diagram(4, &[(0, 1), (1, 2), (2, 1), (3, 3)]);
        assert_eq!(columns(&circle).len(), 4);
        let drawn = drawing(&circle).into_string();
        assert_eq!(drawn.matches("<rect").count(), 4);
        assert_eq!(drawn.matches("class=\"line\"").count(), 4);
    }

    #[test]
    fn a_long_text_is_shortened_at_a_character() {
        assert_eq!(
            short(&"é".repeat(MAX_BOX_TEXT)).chars().count(),
            MAX_BOX_TEXT
        );
        assert_eq!(
            short(&"é".repeat(MAX_BOX_TEXT + 1)).chars().count(),
            MAX_BOX_TEXT + 1
        );
    }
}
