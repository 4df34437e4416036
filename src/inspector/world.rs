//! The page of the world of a run: its objects and relations drawn and listed as a frame left them, what the
//! frame changed, and the responders that reacted to it.

use std::collections::{BTreeMap, BTreeSet};

use ktsu_history::provenance::field_path;
use ktsu_history::report::WorldPart;
use ktsu_history::world::WorldView;
use ktsu_history::world_moment::{MemberEdit, WorldEdit, WorldEditKind, WorldMoment};
use ktsu_projections::world::WorldObject;
use ktsu_projections::world::object::members;
use maud::{Markup, html};

use crate::frame::{
    PagePlace, RunTab, Section, SignedIn, anchor, frame_link, page, query, run_tabs, segment,
};
use crate::text::{TypedText, Verbatim, beginning};
use crate::units::{counted, exact_moment};
use crate::world_drawing::{MAX_OBJECTS, MAX_RELATIONS, WorldDrawing};
use crate::world_svg::{WorldSketch, world_svg};
use crate::world_tables::WorldTables;

/// The most objects and relations of the tables of a page.
pub const MAX_ROWS: usize = 200;
/// The most rows of a list beside them.
const MAX_LISTED: usize = 40;
/// The most characters of the data in a row.
const MAX_DATA: usize = 140;
/// The most characters of a value beside the tables.
const MAX_VALUE: usize = 2_000;
/// The most characters of a value of before or after.
const MAX_EDIT: usize = 120;
/// The number of places at which the strip below the slider has marks.
const STRIP: u64 = 1_000;
/// From this height on, links lead to their box, which may be far below the head of the page.
const TALL: u32 = 520;

/// What a page of a world shows.
#[derive(Debug, Clone)]
pub struct WorldPage {
    /// The principal that looks at it.
    pub by: SignedIn,
    /// The run or the branch.
    pub run_id: String,
    /// How it is looked at: the query of its address.
    pub view: WorldPageView,
    /// The world at the frame.
    pub moment: WorldMoment,
    /// The objects and relations of the tables.
    pub found: WorldView,
}

/// How a world is looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorldPageView {
    /// The frame after which it is shown; the last one if absent.
    pub at: Option<u64>,
    /// Only objects and relations of this type; all if it is empty.
    pub kind: String,
    /// Only those in the tables that have this text; all if it is empty.
    pub text: String,
    /// The object that is selected; empty for none.
    pub object: String,
    /// Where the tables begin in the order of creation.
    pub from: u64,
}

const PLACE: PagePlace = PagePlace::WITHIN;

/// The page of a world.
pub fn world_page(shown: &WorldPage) -> String {
    let world = shown.moment.pages.world();
    let types: Vec<&str> = world.objects_by_type().into_keys().collect();
    let object = world.object(&shown.view.object);
    let sketch = shown.moment.pages.sketch(
        &shown.run_id,
        &shown.view.kind,
        object.map(|object| &**object),
        MAX_OBJECTS,
    );
    let part = WorldPart::of(
        &sketch,
        shown.moment.pages.labels(),
        (MAX_OBJECTS, MAX_RELATIONS),
    );
    let drawing = WorldDrawing::of(&part);
    let link = |id: &str| object_link(shown, &drawing, id);
    let frame = |seq: u64| Some(at_link(shown, seq));
    let tables = WorldTables {
        labels: shown.moment.pages.labels(),
        types: &types,
        selected: &shown.view.object,
        most: MAX_DATA,
        link: &link,
        frame: &frame,
    };
    let is_selected = !shown.view.object.is_empty();
    let body = html! {
        (head(shown))
        div class="columns" {
            section aria-label="World" {
                (graph(shown, &part, &drawing, &tables))
                (filter(shown))
                (listed(shown, &tables))
            }
            aside class=[is_selected.then_some("kept")] aria-label="Details" {
                @if is_selected {
                    @match object {
                        Some(object) => (object_panel(shown, object, &tables)),
                        None => {
                            p class="error" { "There is no object " (Verbatim(&shown.view.object)) " after frame " (shown.moment.pages.at()) "." }
                            p { a href=(closed_link(shown)) { "Close" } }
                        }
                    }
                }
                (moment_panel(shown, &tables))
            }
        }
    };
    page(
        PLACE,
        Section::Runs,
        &format!("World of {}", shown.run_id),
        &shown.by,
        &body,
    )
}

/// The address of the same page with another view.
fn link(shown: &WorldPage, view: &WorldPageView) -> String {
    let at = view.at.map(|at| at.to_string()).unwrap_or_default();
    let from = match view.from {
        0 => String::new(),
        from => from.to_string(),
    };
    let query = query(&[
        ("at", &at),
        ("type", &view.kind),
        ("text", &view.text),
        ("object", &view.object),
        ("from", &from),
    ]);
    PLACE.link(&format!("runs/{}/world{query}", segment(&shown.run_id)))
}

fn object_link(shown: &WorldPage, drawing: &WorldDrawing, id: &str) -> String {
    let to = link(
        shown,
        &WorldPageView {
            object: id.to_owned(),
            ..shown.view.clone()
        },
    );
    match drawing.height >= TALL {
        true => format!("{to}#{}", anchor("box", id)),
        false => to,
    }
}

fn closed_link(shown: &WorldPage) -> String {
    link(
        shown,
        &WorldPageView {
            object: String::new(),
            ..shown.view.clone()
        },
    )
}

/// The same view after another frame.
fn at_link(shown: &WorldPage, seq: u64) -> String {
    link(
        shown,
        &WorldPageView {
            at: Some(seq),
            from: 0,
            ..shown.view.clone()
        },
    )
}

fn head(shown: &WorldPage) -> Markup {
    let world = shown.moment.pages.world();
    let counts = |of: BTreeMap<&str, usize>| {
        let counts = of.iter().map(|(kind, count)| format!("{count} {kind}"));
        counts.collect::<Vec<_>>().join(", ")
    };
    html! {
        div class="head" {
            p class="crumbs" {
                a href=(PLACE.link("runs")) { "Runs" } " / "
                a href=(PLACE.link(&format!("runs/{}", segment(&shown.run_id)))) { (Verbatim(&shown.run_id)) }
            }
            h1 { "World" }
            (run_tabs(PLACE, &shown.run_id, RunTab::World, true))
            (slider(shown))
            dl class="facts" {
                div { dt { (counted(world.object_count() as u64, "object")) } dd { (Verbatim(counts(world.objects_by_type()))) } }
                div { dt { (counted(world.relation_count() as u64, "relation")) } dd { (Verbatim(counts(world.relations_by_type()))) } }
                div { dt { (counted(shown.found.events, "world frame")) } dd { "count towards the budget" } }
            }
            @if world.is_exhausted() { p class="note" { "The budget is used up." } }
        }
    }
}

/// Goes from frame to frame: by number, from change to change, and with a script by a slider.
fn slider(shown: &WorldPage) -> Markup {
    let moment = &shown.moment;
    let (at, last) = (moment.pages.at(), moment.last);
    let view = &shown.view;
    let kept = [
        ("type", &view.kind),
        ("text", &view.text),
        ("object", &view.object),
    ];
    let place = |seq: u64| seq * (STRIP - 4) / last.max(1);
    let marks: BTreeSet<u64> = moment.changes.iter().map(|seq| place(*seq)).collect();
    html! {
        form method="get" action="world" class="filter moment" {
            @for (name, value) in kept {
                @if !value.is_empty() { input type="hidden" name=(name) value=(TypedText(value)); }
            }
            label { "After frame " input type="number" name="at" min="0" max=(last) required value=(at); }
            span class="dim" { "of " (last) }
            button type="submit" { "Show" }
            @match moment.earlier() {
                Some(seq) => a class="button" href=(at_link(shown, seq)) { "‹ Change before, " (seq) },
                None => span class="dim" { "no change before" },
            }
            @match moment.later() {
                Some(seq) => a class="button" href=(at_link(shown, seq)) { "Change after, " (seq) " ›" },
                None => span class="dim" { "no change after" },
            }
            @if at != last { a href=(at_link(shown, last)) { "The last frame" } }
            div class="slider" {
                input type="range" data-slides="at" aria-label="Frame" min="0" max=(last) value=(at) hidden;
                svg viewBox={ "0 0 " (STRIP) " 10" } preserveAspectRatio="none" role="img" aria-label={ (counted(moment.changes.len() as u64, "frame")) " changed the world" } {
                    @for x in &marks { rect x=(x) y="3" width="3" height="7" {} }
                    rect class="at" x=(place(at)) y="0" width="4" height="10" {}
                }
            }
        }
    }
}

fn graph(
    shown: &WorldPage,
    part: &WorldPart<'_>,
    drawing: &WorldDrawing,
    tables: &WorldTables<'_>,
) -> Markup {
    let edits = shown.moment.changed.iter();
    let edits = edits.filter(|edit| edit.ends.is_none());
    let edits: BTreeMap<&str, WorldEditKind> =
        edits.map(|edit| (edit.id.as_str(), edit.kind)).collect();
    let sketch = WorldSketch {
        part,
        types: tables.types,
        selected: &shown.view.object,
        edits: &edits,
        link: tables.link,
    };
    html! {
        @if part.objects.is_empty() {
            p class="empty" {
                @if shown.view.kind.is_empty() { "The world is empty after frame " (shown.moment.pages.at()) "." }
                @else { "Nothing is of the type " (Verbatim(&shown.view.kind)) " after frame " (shown.moment.pages.at()) "." }
            }
        } @else {
            div class="scroll graph world" tabindex="0" role="region" aria-label="The world" { (world_svg(&sketch, drawing)) }
            (left_out(shown, part, drawing))
        }
    }
}

/// How much of the world is not in the drawing.
fn left_out(shown: &WorldPage, part: &WorldPart<'_>, drawing: &WorldDrawing) -> Markup {
    let world = shown.moment.pages.world();
    let objects = match shown.view.kind.as_str() {
        "" => world.object_count(),
        kind => world.of_type(kind).count(),
    };
    let there = part
        .objects
        .iter()
        .filter(|object| object.kind.is_some())
        .count();
    let is_cut = there < objects || part.objects_left_out > 0;
    let relations = part.relations_left_out + drawing.lines_left_out;
    html! {
        @if is_cut {
            p class="above dim" {
                (there) " of " (counted(objects as u64, "object")) " drawn: "
                @if shown.view.object.is_empty() { "those created first. An object that is selected is drawn with what is near it." }
                @else { "those nearest to the one that is selected." }
            }
        }
        @if relations > 0 { p class="above dim" { (counted(relations as u64, "relation")) " of these not drawn; the table has all." } }
    }
}

fn filter(shown: &WorldPage) -> Markup {
    let (world, view) = (shown.moment.pages.world(), &shown.view);
    let mut types: Vec<&str> = world.objects_by_type().into_keys().collect();
    types.extend(world.relations_by_type().into_keys());
    let is_other = !view.kind.is_empty() && !types.contains(&view.kind.as_str());
    html! {
        form method="get" action="world" class="filter above" role="search" {
            input type="hidden" name="at" value=(shown.moment.pages.at());
            @if !view.object.is_empty() { input type="hidden" name="object" value=(TypedText(&view.object)); }
            label {
                "Type "
                select name="type" {
                    option value="" selected[view.kind.is_empty()] { "any" }
                    @if is_other { option value=(Verbatim(&view.kind)) selected { (Verbatim(&view.kind)) } }
                    @for one in types { option value=(Verbatim(one)) selected[one == view.kind] { (Verbatim(one)) } }
                }
            }
            label { "Text " input type="text" name="text" value=(TypedText(&view.text)); }
            button type="submit" { "Show" }
            @if !view.kind.is_empty() || !view.text.is_empty() {
                a href=(link(shown, &WorldPageView { kind: String::new(), text: String::new(), from: 0, ..view.clone() })) { "Show all" }
            }
        }
    }
}

fn listed(shown: &WorldPage, tables: &WorldTables<'_>) -> Markup {
    let (found, view) = (&shown.found, &shown.view);
    let from = |from: u64| {
        link(
            shown,
            &WorldPageView {
                from,
                ..view.clone()
            },
        )
    };
    html! {
        @if found.objects.is_empty() && found.relations.is_empty() { p class="empty" { "Nothing is like this." } }
        @if !found.objects.is_empty() { (tables.objects(&found.objects)) }
        @if !found.relations.is_empty() { (tables.relations(&found.relations)) }
        nav class="pages" aria-label="More of the world" {
            @if view.from > 0 { a class="button" href=(from(0)) { "From the beginning" } }
            @if let Some(next) = found.next { a class="button" href=(from(next)) { "Next " (MAX_ROWS) } }
        }
    }
}

fn object_panel(shown: &WorldPage, object: &WorldObject, tables: &WorldTables<'_>) -> Markup {
    let world = shown.moment.pages.world();
    let name = tables.labels.of_object(&object.kind, &object.data);
    let relations: Vec<_> = world
        .relations_of(&object.id, None)
        .take(MAX_LISTED + 1)
        .collect();
    html! {
        h2 { (Verbatim(name.as_deref().unwrap_or(&object.id))) }
        p class="dim" { (Verbatim(&object.kind)) " " span class="id" { (Verbatim(&object.id)) } }
        p class="dim" {
            "Created by frame " a href=(at_link(shown, object.created)) { (object.created) }
            @if object.changed != object.created { ", last changed by frame " a href=(at_link(shown, object.changed)) { (object.changed) } }
        }
        table class="fields" {
            tbody { @for (member, json) in members(&object.data) { (field(shown, &object.id, &member, json.get())) } }
        }
        @if !relations.is_empty() { h3 { "Relations" } }
        ul class="plain" {
            @for relation in relations.iter().take(MAX_LISTED) {
                li {
                    @if *relation.source_id == *object.id { (Verbatim(&relation.kind)) " → " (tables.end(&relation.target_id)) }
                    @else { (tables.end(&relation.source_id)) " → " (Verbatim(&relation.kind)) " → this" }
                }
            }
            @if relations.len() > MAX_LISTED { li class="dim" { "and more; the table has all" } }
        }
        p { a href=(closed_link(shown)) { "Close" } }
    }
}

fn field(shown: &WorldPage, id: &str, member: &str, json: &str) -> Markup {
    let text: Option<String> = serde_json::from_str(json).ok();
    let (value, left_out) = beginning(text.as_deref().unwrap_or(json), MAX_VALUE);
    let path = field_path(id, member);
    let why = format!(
        "runs/{}/why{}",
        segment(&shown.run_id),
        query(&[("of", &path)])
    );
    html! {
        tr {
            th scope="row" { (Verbatim(member)) }
            td {
                (Verbatim(value))
                @if left_out > 0 { span class="dim" { " … " (counted(left_out as u64, "character")) " more" } }
            }
            td class="number" { a href=(PLACE.link(&why)) aria-label={ "Why is " (Verbatim(member)) " so?" } { "why" } }
        }
    }
}

fn moment_panel(shown: &WorldPage, tables: &WorldTables<'_>) -> Markup {
    let moment = &shown.moment;
    let at = moment.pages.at();
    html! {
        section class="of-frame" aria-label="The frame" {
            h2 { a href=(frame_link(PLACE, &shown.run_id, at)) { "Frame " (at) } " " span class="id" { (Verbatim(&moment.kind)) } }
            p class="dim" {
                (exact_moment(moment.at)) " UTC, " (Verbatim(&moment.maker))
                @for (place, cause) in moment.causes.iter().take(MAX_LISTED).enumerate() {
                    (if place == 0 { "; follows from " } else { ", " })
                    a href=(at_link(shown, *cause)) { (cause) }
                }
            }
            h3 { "What it changed" }
            @if moment.changed.is_empty() {
                p {
                    "Nothing."
                    @if let Some(seq) = moment.earlier() { " The last change before it: frame " a href=(at_link(shown, seq)) { (seq) } "." }
                }
            }
            ul class="plain" {
                @for edit in moment.changed.iter().take(MAX_LISTED) { li { (edited(edit, tables)) } }
                @let more = moment.changed.len().saturating_sub(MAX_LISTED);
                @if more > 0 { li class="dim" { "and " (more) " more" } }
            }
            h3 { "Responders" }
            @if moment.reactions.is_empty() { p class="dim" { "None was asked about this frame." } }
            ul class="plain" {
                @for one in moment.reactions.iter().take(MAX_LISTED) {
                    li class=[(!one.has_fired).then_some("dim")] {
                        span class={ "dot " (if one.has_fired { "run" } else { "" }) } {}
                        (Verbatim(&one.responder)) ": " (Verbatim(&one.words))
                        ", frame " a href=(at_link(shown, one.frame)) { (one.frame) }
                    }
                }
                @let more = moment.reactions.len().saturating_sub(MAX_LISTED);
                @if more > 0 { li class="dim" { "and " (more) " more" } }
            }
        }
    }
}

fn edited(edit: &WorldEdit, tables: &WorldTables<'_>) -> Markup {
    let (sign, class, word) = match edit.kind {
        WorldEditKind::Added => ("+", "added", "new"),
        WorldEditKind::Changed => ("~", "changed", "changed"),
        WorldEditKind::Removed => ("−", "removed", "removed"),
    };
    html! {
        span class={ "edit " (class) } aria-label=(word) { (sign) } " "
        @match &edit.ends {
            Some((source, target)) => {
                (tables.end(source)) " → " (Verbatim(&edit.type_name)) " → " (tables.end(target))
            }
            None => {
                @if edit.kind == WorldEditKind::Removed { (Verbatim(edit.name.as_deref().unwrap_or(&edit.id))) }
                @else { (tables.end(&edit.id)) }
                " " span class="dim" { (Verbatim(&edit.type_name)) }
            }
        }
        @for member in edit.members.iter().take(MAX_LISTED) { (member_edit(member)) }
    }
}

fn member_edit(member: &MemberEdit) -> Markup {
    let side = |json: &str| {
        let (shown, left_out) = beginning(json, MAX_EDIT);
        html! { (Verbatim(shown)) @if left_out > 0 { " … " (counted(left_out as u64, "character")) " more" } }
    };
    html! {
        div class="member" {
            (Verbatim(&member.name)) ": "
            @if let Some(before) = &member.before { del { (side(before)) } " " }
            @if let Some(after) = &member.after { ins { (side(after)) } }
        }
    }
}
