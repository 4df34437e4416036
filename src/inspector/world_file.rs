//! A world as one file: the drawing of its page, with the style sheet within, and all data in tables.

use std::collections::BTreeMap;

use ktsu_history::report::WorldPart;
use ktsu_history::world::{WorldPages, WorldView};
use maud::html;

use crate::saved::saved_page;
use crate::text::Verbatim;
use crate::units::counted;
use crate::world_drawing::{MAX_OBJECTS, MAX_RELATIONS, WorldDrawing};
use crate::world_svg::{WorldSketch, world_svg};
use crate::world_tables::{WorldTables, row_anchor};

/// The most objects, and the most relations, in the tables; `ktsu world --json` has all.
const MAX_ROWS: usize = 5_000;
/// The most characters of the data of one of them.
const MAX_DATA: usize = 64 * 1024;

/// The page of a world, or of a part of it, to be saved.
pub fn world_file(view: &WorldView, pages: &WorldPages) -> String {
    let (labels, world) = (pages.labels(), pages.world());
    let part = WorldPart::of(view, labels, (MAX_OBJECTS, MAX_RELATIONS));
    let types: Vec<&str> = world.objects_by_type().into_keys().collect();
    let link = |id: &str| format!("#{}", row_anchor(id));
    let sketch = WorldSketch {
        part: &part,
        types: &types,
        selected: "",
        edits: &BTreeMap::new(),
        link: &link,
    };
    let tables = WorldTables {
        labels,
        types: &types,
        selected: "",
        most: MAX_DATA,
        link: &link,
        frame: &|_| None,
    };
    let drawing = WorldDrawing::of(&part);
    let (objects, more_objects) = first(&view.objects);
    let (relations, more_relations) = first(&view.relations);
    let title = format!("{} after frame {}", view.run_id, view.at);
    let left_out = [
        (part.objects_left_out, "object"),
        (part.relations_left_out + drawing.lines_left_out, "relation"),
    ];
    let body = html! {
        div class="head" {
            h1 { (Verbatim(&title)) }
            p { (counted(view.objects.len() as u64, "object")) ", " (counted(view.relations.len() as u64, "relation")) }
            p class="id dim" { (Verbatim(&view.world_hash)) }
            @for (count, noun) in left_out {
                @if count > 0 { p { (counted(count as u64, noun)) " not drawn" } }
            }
        }
        @if !part.objects.is_empty() {
            div class="scroll graph world" tabindex="0" role="region" aria-label="The world" { (world_svg(&sketch, &drawing)) }
        }
        h2 class="above" { "Objects" }
        (tables.objects(objects))
        @if more_objects > 0 { p class="above dim" { "and " (more_objects) " more" } }
        @if !relations.is_empty() {
            h2 class="above" { "Relations" }
            (tables.relations(relations))
        }
        @if more_relations > 0 { p class="above dim" { "and " (more_relations) " more" } }
    };
    saved_page(&title, "A world, saved as a file", &body, &html! {})
}

/// As many as the page has room for, and how many more there are.
fn first<T>(all: &[T]) -> (&[T], usize) {
    let (shown, rest) = all.split_at(all.len().min(MAX_ROWS));
    (shown, rest.len())
}
