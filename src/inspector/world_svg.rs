//! The drawing of a world as SVG.

use std::collections::BTreeMap;

use ktsu_history::report::{PartObject, WorldPart};
use ktsu_history::world_moment::WorldEditKind;
use maud::{Markup, html};

use crate::frame::anchor;
use crate::graph_words::that_fits;
use crate::line_path::{LineDirection, line_path};
use crate::text::Verbatim;
use crate::world_drawing::{BOX, LABEL_HEIGHT, RelationLine, WorldDrawing};

/// The number of colours that types have in turns.
const COLOURS: usize = 5;

/// A drawing, and what is marked in it.
pub(crate) struct WorldSketch<'s> {
    /// What is drawn.
    pub(crate) part: &'s WorldPart<'s>,
    /// The types of the world, in order.
    pub(crate) types: &'s [&'s str],
    /// The object that is selected.
    pub(crate) selected: &'s str,
    /// What became of objects by the frame.
    pub(crate) edits: &'s BTreeMap<&'s str, WorldEditKind>,
    /// The address of an object.
    pub(crate) link: &'s dyn Fn(&str) -> String,
}

/// The class of the colour of a type.
pub(crate) fn colour(types: &[&str], kind: &str) -> String {
    let place = types.iter().position(|one| *one == kind);
    place.map_or_else(String::new, |place| format!("t{}", place % COLOURS))
}

/// Draws it.
pub(crate) fn world_svg(sketch: &WorldSketch<'_>, drawing: &WorldDrawing) -> Markup {
    let (width, height) = (drawing.width + 4, drawing.height + 4);
    let is_selected = |one: &usize| {
        let object = sketch.part.objects.get(*one);
        object.is_some_and(|object| object.id == sketch.selected)
    };
    html! {
        svg width=(width) height=(height) viewBox={ "-2 -2 " (width) " " (height) } role="group" aria-label="Objects, with the relations between them" {
            @for line in &drawing.lines { (half(line, line.ends.iter().any(is_selected))) }
            @for label in &drawing.labels {
                text class="relation" x=(label.x + label.width / 2) y=(label.y + LABEL_HEIGHT - 5) {
                    @if label.shown != label.text { title { (Verbatim(&label.text)) } }
                    (Verbatim(&label.shown))
                }
            }
            @for one in &drawing.order {
                @if let Some((object, corner)) = sketch.part.objects.get(*one).zip(drawing.corners.get(*one)) {
                    (object_box(sketch, object, *corner, drawing.loops.get(one)))
                }
            }
        }
    }
}

/// Half of a line, with its tip.
fn half(line: &RelationLine, is_near: bool) -> Markup {
    let path = line_path(&line.points, LineDirection::Across);
    let class = if is_near { "edge near" } else { "edge" };
    let tip = |(x, y): (u32, u32), back: i64| {
        let from = i64::from(x) + back;
        format!("M{from} {}L{x} {y}L{from} {}Z", i64::from(y) - 4, y + 4)
    };
    let first = line.points.first().filter(|_| line.tip_before);
    let last = line.points.last().filter(|_| line.tip_behind);
    html! {
        path class=(class) d=(path) {}
        @if let Some(place) = first { path class={ (class) " tip" } d=(tip(*place, 7)) {} }
        @if let Some(place) = last { path class={ (class) " tip" } d=(tip(*place, -7)) {} }
    }
}

fn object_box(
    sketch: &WorldSketch<'_>,
    object: &PartObject<'_>,
    (x, y): (u32, u32),
    loops: Option<&String>,
) -> Markup {
    let is_selected = object.id == sketch.selected;
    let edit = sketch.edits.get(object.id).copied();
    let (mark, class, edited) = match edit {
        Some(WorldEditKind::Added) => ("+", " added", ", new"),
        Some(WorldEditKind::Changed) => ("~", " changed", ", changed"),
        Some(WorldEditKind::Removed) | None => ("", "", ""),
    };
    let colour = object
        .kind
        .map_or_else(|| "rest".to_owned(), |kind| colour(sketch.types, kind));
    let class = format!(
        "node {colour}{class}{}",
        if is_selected { " selected" } else { "" }
    );
    let kind = object.kind.unwrap_or("not there");
    let about = match (&object.name, loops) {
        (Some(_), Some(loops)) => format!("{kind} · {} · to itself: {loops}", object.id),
        (Some(_), None) => format!("{kind} · {}", object.id),
        (None, Some(loops)) => format!("{kind} · to itself: {loops}"),
        (None, None) => kind.to_owned(),
    };
    let name = object.name.as_deref().unwrap_or(object.id);
    let (width, height) = BOX;
    let mut room = width - 24;
    if edit.is_some() {
        room -= 18;
    }
    let (shown, fits) = that_fits(name, room);
    let (more, more_fits) = that_fits(&about, width - 24);
    html! {
        a id=(anchor("box", object.id)) class=(class) href=((sketch.link)(object.id))
            aria-current=[is_selected.then_some("true")] aria-label={ (Verbatim(name)) ", " (Verbatim(&about)) (edited) } {
            svg x=(x) y=(y) width=(width) height=(height) {
                @if !fits || !more_fits { title { (Verbatim(name)) "\n" (Verbatim(&about)) } }
                rect class="box" x="1" y="1" width=(width - 2) height=(height - 2) rx="7" {}
                rect class="stripe" x="1" y="8" width="4" height=(height - 16) {}
                text class="name" x="14" y="20" { (Verbatim(shown)) @if !fits { "…" } }
                text class="more" x="14" y="36" { (Verbatim(more)) @if !more_fits { "…" } }
                @if !mark.is_empty() { text class="sign" x=(width - 20) y="20" aria-hidden="true" { (mark) } }
            }
        }
    }
}
