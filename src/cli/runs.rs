//! `ktsu runs` and `ktsu runs get`.

use std::process::ExitCode;

use ktsu_ledger::Timestamp;
use ktsu_ledger::store::{Cursor, Filter, Reader};
use ktsu_projections::envelope::Envelope;
use serde_json::{Value, json};

use super::envelope::{self, EnvelopeView};
use super::layout::Column;
use super::output::{is_terminal, note, note_commands, note_dim, print_json};
use super::reading::open;
use super::table::{FailureReason, Rows};
use super::{Common, Failure, text};
use ktsu_config::read::duration_ms;
use ktsu_history as history;
use ktsu_history::steering::SteeringState;
use ktsu_opening::find::{find_run, no_such_child};
use ktsu_orchestrator::clock;
use ktsu_run_index::listed_kinds;

/// What `runs` takes.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Arguments {
    #[command(subcommand)]
    one: Option<RunsCommand>,
    /// Only runs of this kind [default: runs and their branches]
    #[arg(long, value_parser = ["run", "branch", "recompute"])]
    kind: Option<String>,
    /// Only runs of this workflow
    #[arg(long)]
    workflow: Option<String>,
    /// Only runs with this status
    #[arg(long, value_parser = ["pending", "running", "waiting", "complete", "failed", "cancelled", "unreadable"])]
    status: Option<String>,
    /// Only runs started within this time: 90s, 30m, 2h, 48h; or since 2026-11-22T14:00:00Z
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<Timestamp>,
    /// The maximum number of runs, newest first
    #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
}

#[derive(Debug, clap::Subcommand)]
enum RunsCommand {
    /// Shows the envelope of a run: its input, the outputs of its steps, how it ended
    ///
    /// On a terminal, prints a summary; with --json and in pipes, the whole envelope as indented JSON.
    Get {
        /// The run: its id, or a unique prefix or suffix of it; RUN/STEP for an inline child
        run: String,
        /// Shows instead what each step computed, what people laid over it, and what counts
        #[arg(long)]
        layers: bool,
    },
}

/// A moment, or how long ago it was.
fn since(text: &str) -> Result<Timestamp, String> {
    if let Some(ago) = duration_ms(text) {
        let now = (clock::system_clock())().as_micros();
        return Ok(Timestamp::from_micros(now.saturating_sub(ago * 1000)));
    }
    let whole = text.strip_suffix('Z').map(|text| match text.contains('.') {
        true => format!("{text}Z"),
        false => format!("{text}.000000Z"),
    });
    let moment = whole.and_then(|text| text.parse().ok());
    moment.ok_or_else(|| "a time such as 2h, or 2026-11-22T14:00:00Z".to_owned())
}

/// Fields of a row for internal use.
const INTERNAL: [&str; 1] = ["idempotency_digest"];

/// Lists runs, or shows one.
pub(super) fn run(common: &Common, arguments: Arguments) -> Result<ExitCode, Failure> {
    match &arguments.one {
        Some(RunsCommand::Get { run, layers: true }) => layers(common, run),
        Some(RunsCommand::Get { run, layers: false }) => get(common, run),
        None => list(common, arguments),
    }
}

fn list(common: &Common, arguments: Arguments) -> Result<ExitCode, Failure> {
    let (reader, place) = open(common)?;
    let limit = usize::try_from(arguments.limit).unwrap_or(usize::MAX);
    let is_filtered = arguments.kind.is_some()
        || arguments.workflow.is_some()
        || arguments.status.is_some()
        || arguments.since.is_some();
    let filter = Filter {
        kinds: arguments.kind.map_or_else(listed_kinds, |kind| vec![kind]),
        workflow: arguments.workflow,
        status: arguments.status,
        open: None,
    };
    let mut rows: Vec<Value> = Vec::new();
    let mut cursor: Option<Cursor> = None;
    let mut more = true;
    while more && rows.len() < limit {
        let wanted = (limit - rows.len()).min(1000);
        let page = reader.list(&filter, cursor.as_ref(), wanted)?;
        let found = page.rows.iter().map(|row| row.row.to_value());
        let before = rows.len() + page.rows.len();
        // Newest first: behind the first that is too old all are.
        let recent = |row: &Value| {
            let at = row["created_at"].as_str().and_then(|at| at.parse().ok());
            arguments.since.is_none_or(|since| at >= Some(since))
        };
        rows.extend(found.take_while(recent));
        more = page.next.is_some() && rows.len() == before;
        cursor = page.next;
    }
    if common.json {
        for row in &mut rows {
            if let Some(members) = row.as_object_mut() {
                members.retain(|name, _| !INTERNAL.contains(&name.as_str()));
            }
        }
        return print_json(&json!({"runs": rows}));
    }
    if rows.is_empty() {
        let none = match is_filtered {
            true => "no matching runs in",
            false => "no runs in",
        };
        note(&format!("{none} {}", place.ledger));
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Rows::new(&[
        Column::whole("RUN"),
        Column::name("WORKFLOW"),
        Column::whole("STATUS"),
        Column::whole("STARTED").spare(2),
        Column::whole("TIME").right().spare(3),
        Column::text("ERROR").spare(1),
    ]);
    // Where the column has no room, errors are below the table.
    let mut reasons = Vec::new();
    for (place, row) in rows.iter().enumerate() {
        let field = |name: &str| text::line(row[name].as_str().unwrap_or_default()).into_owned();
        let at = |name: &str| {
            row[name]
                .as_str()
                .and_then(|at| at.parse::<Timestamp>().ok())
        };
        let error = field("error");
        if !error.is_empty() {
            reasons.push(FailureReason {
                row: place,
                name: field("run_id"),
                words: error.clone(),
            });
        }
        let took = at("ended_at").zip(at("created_at"));
        table.push(vec![
            field("run_id"),
            field("workflow"),
            match row["paused_at"].is_null() {
                true => field("status"),
                false => format!("{}, paused", field("status")),
            },
            at("created_at").map(text::moment).unwrap_or_default(),
            took.map_or("-".to_owned(), |(end, start)| {
                text::duration(end.millis_since(start))
            }),
            error,
        ]);
    }
    table.print_with(&reasons);
    if more {
        note_dim("for more: --limit N");
    }
    Ok(ExitCode::SUCCESS)
}

/// An envelope, with the interventions in the whole run.
#[derive(serde::Serialize)]
struct RunJson {
    #[serde(flatten)]
    envelope: Envelope,
    #[serde(flatten)]
    steered: SteeringState,
}

fn layers(common: &Common, run: &str) -> Result<ExitCode, Failure> {
    let (reader, _) = open(common)?;
    let (stream, scope) = find_run(&reader, run)?;
    let found = history::layers::layers(&reader, &stream, &scope)?;
    print_json(&found.ok_or_else(|| no_such_child(&stream, &scope))?)
}

fn get(common: &Common, run: &str) -> Result<ExitCode, Failure> {
    let (reader, place) = open(common)?;
    let (stream, scope) = find_run(&reader, run)?;
    let fold = history::envelope(&reader, &stream)?;
    let found =
        fold.and_then(|fold| Some((fold.envelope(&scope)?, SteeringState::of(fold.state()))));
    let (envelope, steered) = found.ok_or_else(|| no_such_child(&stream, &scope))?;
    let shown = RunJson { envelope, steered };
    if common.json || !is_terminal() {
        return print_json(&shown);
    }
    let json = serde_json::to_string(&shown).map_err(Failure::of)?;
    let all = format!(
        "ktsu runs get {} --json{}",
        shown.envelope.run_id, place.flag
    );
    envelope::print(
        &json,
        EnvelopeView {
            steps: true,
            all: &all,
        },
    )?;
    if shown.envelope.world.is_some() {
        let world = format!("ktsu world {}{}", shown.envelope.run_id, place.flag);
        note_commands(&[(world, "objects and relations")]);
    }
    Ok(ExitCode::SUCCESS)
}
