//! `ktsu world`: the objects and relations of a run, as any of its frames left them.

use std::process::ExitCode;
use std::sync::Arc;

use ktsu_ledger::{Frame, StreamId};
use ktsu_projections::world::{World, WorldDiff, WorldObject};
use serde::Serialize;

use super::layout::Column;
use super::output::{BOLD, DIM, exit_code, line, note, painted, print_json, row};
use super::reading::open;
use super::table::Rows;
use super::{Common, Failure, json as shape, text};
use ktsu_codes::ErrorCode;
use ktsu_history as history;
use ktsu_history::report::{GraphFormat, world_graph};
use ktsu_history::world::{
    self, ObjectView, RecordedWorld, RelationView, WorldPages, WorldReadError, WorldView,
};
use ktsu_inspector::world_file;
use ktsu_opening::find::find_run;

/// What `world` takes.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The run: its id, or a unique prefix or suffix of it
    run: String,
    /// As it was after this frame, instead of after the last
    #[arg(long, value_name = "N")]
    at: Option<u64>,
    /// One object, with its relations: its id, or a unique prefix or suffix of it
    #[arg(long, value_name = "ID")]
    object: Option<String>,
    /// Only objects, or relations, of this type
    #[arg(long = "type", value_name = "TYPE", conflicts_with = "object")]
    kind: Option<String>,
    /// What differs between the worlds after two frames; exits with 1 if anything does
    #[arg(
        long,
        num_args = 2,
        value_names = ["A", "B"],
        conflicts_with_all = ["at", "object", "kind", "graph"]
    )]
    diff: Option<Vec<u64>>,
    /// Draws it: as a Mermaid flowchart, as a graph for Graphviz, or as a page for a browser
    #[arg(long, value_name = "FORMAT")]
    graph: Option<Format>,
}

/// The language of a diagram.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Format {
    Mermaid,
    Dot,
    Html,
}

/// The differences between the worlds after two frames, as JSON.
#[derive(Serialize)]
struct Differences<'d> {
    run_id: &'d str,
    a: u64,
    b: u64,
    same: bool,
    #[serde(flatten)]
    diff: &'d WorldDiff,
}

/// The fewest characters of an id that serve as a part of it.
const MIN_PART: usize = 3;
/// The most ids that are named where several match.
const MAX_NAMED: usize = 10;

/// Prints a world.
pub(super) fn run(common: &Common, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let (reader, _) = open(common)?;
    let (stream, scope) = find_run(&reader, &arguments.run)?;
    if !scope.is_empty() {
        let words = format!("{}/{scope} has no world of its own", stream.name());
        return Err(Failure::could_not_run(words)
            .with_problem(Some(ErrorCode::NoWorld))
            .hint(format!("ktsu world {}", stream.name())));
    }
    let frames = history::frames(&reader, &stream)?;
    let refused = |error| refused(&stream, error);
    if let Some([a, b]) = arguments.diff.as_deref() {
        let diff = world::diff(&frames, *a, *b).map_err(refused)?;
        return differences(common, stream.name(), (*a, *b), &diff);
    }
    let read = RecordedWorld::of(&frames, arguments.at).map_err(refused)?;
    if let Some(id) = &arguments.object {
        let object = find_object(read.world(), id)?;
        let view = read.pages().one(stream.name(), object);
        if let Some(format) = arguments.graph {
            return Ok(draw(&view, read.pages(), format));
        }
        return match common.json {
            true => print_json(&view),
            false => Ok(print_object(&read, &view)),
        };
    }
    let view = match &arguments.kind {
        Some(kind) => read.pages().of_type(stream.name(), kind),
        None => read.pages().view(stream.name()),
    };
    if let Some(kind) = &arguments.kind
        && view.objects.is_empty()
        && view.relations.is_empty()
    {
        note(&format!(
            "no objects or relations of type {}",
            text::line(kind)
        ));
    }
    if let Some(format) = arguments.graph {
        return Ok(draw(&view, read.pages(), format));
    }
    match common.json {
        true => print_json(&view),
        false => Ok(print_world(&read, &view)),
    }
}

fn draw(view: &WorldView, pages: &WorldPages, format: Format) -> ExitCode {
    let graph = match format {
        Format::Mermaid => world_graph(view, pages.labels(), GraphFormat::Mermaid),
        Format::Dot => world_graph(view, pages.labels(), GraphFormat::Dot),
        Format::Html => world_file(view, pages),
    };
    line(&text::clean(&graph));
    ExitCode::SUCCESS
}

/// The failure where there is no world to show.
fn refused(stream: &StreamId, error: WorldReadError) -> Failure {
    let words = error.to_string();
    match error {
        WorldReadError::Run(error) => error.into(),
        WorldReadError::NoWorld => Failure::could_not_run(format!("{}: {words}", stream.name()))
            .with_problem(Some(ErrorCode::NoWorld))
            .hint(format!("ktsu runs get {}", stream.name())),
        WorldReadError::NoFrame { .. } => {
            Failure::could_not_run(format!("{}: {words}", stream.name()))
                .hint(format!("ktsu frames {}", stream.name()))
        }
    }
}

/// An object by its id, or by a part of it that no other has.
fn find_object<'w>(world: &'w World, given: &str) -> Result<&'w Arc<WorldObject>, Failure> {
    if let Some(object) = world.object(given) {
        return Ok(object);
    }
    let is_part = |id: &str| id.starts_with(given) || id.ends_with(given);
    let mut found = world.objects();
    found.retain(|object| given.len() >= MIN_PART && is_part(&object.id));
    match found.as_slice() {
        [one] => Ok(one),
        [] => Err(
            Failure::could_not_run(format!("there is no object {given}"))
                .hint("ktsu world RUN lists them; at least three characters of an id are needed"),
        ),
        many => {
            let ids = many.iter().take(MAX_NAMED).map(|object| &*object.id);
            let ids = ids.collect::<Vec<_>>().join("\n  ");
            let words = format!("{given} matches several objects:\n  {ids}");
            Err(Failure::could_not_run(words).hint("give more of the id"))
        }
    }
}

fn print_world(read: &RecordedWorld<'_>, view: &WorldView) -> ExitCode {
    head(read, view);
    if !view.objects.is_empty() {
        line("");
        object_table(&view.objects);
    }
    if !view.relations.is_empty() {
        line("");
        relation_table(&view.relations);
    }
    ExitCode::SUCCESS
}

/// Prints which world it is.
fn head(read: &RecordedWorld<'_>, view: &WorldView) {
    let world = read.world();
    let objects = text::count(world.object_count() as u64, "object");
    let relations = text::count(world.relation_count() as u64, "relation");
    let run = text::line(&view.run_id).into_owned();
    line(&format!(
        "{} after frame {}: {objects}, {relations}",
        painted(BOLD, &run),
        view.at
    ));
    line(&painted(DIM, &view.world_hash));
    if world.is_exhausted() {
        line("the budget is used up");
    }
    if world.ignored_patches() > 0 {
        let patches = text::count(world.ignored_patches(), "patch");
        note(&format!("warning: {patches} of objects that do not exist"));
    }
}

fn object_table(objects: &[ObjectView]) {
    let mut table = Rows::new(&[
        Column::whole("OBJECT"),
        Column::name("TYPE"),
        Column::whole("CHANGED").right().spare(1),
        Column::text("DATA"),
    ]);
    for object in objects {
        table.push(vec![
            text::line(&object.id).into_owned(),
            text::line(&object.kind).into_owned(),
            object.changed.to_string(),
            text::line(object.data.as_str()).into_owned(),
        ]);
    }
    table.print();
}

fn relation_table(relations: &[RelationView]) {
    let mut table = Rows::new(&[
        Column::name("RELATION"),
        Column::whole("FROM"),
        Column::whole("TO"),
        Column::text("DATA").spare(1),
        Column::whole("ID").spare(2),
    ]);
    for relation in relations {
        let data = match relation.data.as_str() {
            "{}" => "-",
            data => data,
        };
        table.push(vec![
            text::line(&relation.kind).into_owned(),
            text::line(&relation.source_id).into_owned(),
            text::line(&relation.target_id).into_owned(),
            text::line(data).into_owned(),
            text::line(&relation.id).into_owned(),
        ]);
    }
    table.print();
}

/// An object in full.
fn print_object(read: &RecordedWorld<'_>, view: &WorldView) -> ExitCode {
    for object in &view.objects {
        let id = text::line(&object.id).into_owned();
        let kind = text::line(&object.kind);
        line(&format!(
            "{} {kind}, after frame {}",
            painted(BOLD, &id),
            view.at
        ));
        if let Some(created) = object.created.and_then(|seq| read.frame(seq)) {
            row(&frame_line("created", created));
        }
        let changed = Some(object.changed).filter(|seq| Some(*seq) != object.created);
        if let Some(changed) = changed.and_then(|seq| read.frame(seq)) {
            row(&frame_line("changed", changed));
        }
        line("");
        for one in text::clean(&shape::pretty(object.data.as_str())).lines() {
            line(one);
        }
    }
    if !view.relations.is_empty() {
        line("");
        relation_table(&view.relations);
    }
    ExitCode::SUCCESS
}

/// A line that names a frame, and its author.
fn frame_line(verb: &str, frame: &Frame) -> String {
    let (kind, actor) = (frame.event.kind(), frame.actor.to_string());
    format!(
        "{verb} by frame {:>5}  {}  {}",
        frame.seq,
        text::line(kind),
        text::line(&actor)
    )
}

fn differences(
    common: &Common,
    run_id: &str,
    (a, b): (u64, u64),
    diff: &WorldDiff,
) -> Result<ExitCode, Failure> {
    let same = diff.is_empty();
    if common.json {
        print_json(&Differences {
            run_id,
            a,
            b,
            same,
            diff,
        })?;
        return Ok(exit_code(same));
    }
    line(&diff.to_string());
    for (sign, what, ids) in [
        ("+", "object", &diff.added_objects),
        ("-", "object", &diff.removed_objects),
        ("~", "object", &diff.patched_objects),
        ("+", "relation", &diff.added_relations),
        ("-", "relation", &diff.removed_relations),
        ("~", "relation", &diff.patched_relations),
    ] {
        for id in ids {
            line(&format!("  {sign} {what:<8}  {}", text::line(id)));
        }
    }
    Ok(exit_code(same))
}
