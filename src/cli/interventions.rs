//! `ktsu fork`, `ktsu overlay` and `ktsu resume`: interventions in recorded runs.

use std::path::PathBuf;
use std::process::ExitCode;

use ktsu_ledger::store::Reader as _;
use ktsu_ledger::{LedgerPlace, StreamId};
use ktsu_projections::step_name::StepName;
use ktsu_projections::step_name::path_in;
use serde_json::{Map, Value, json};

use super::embedded;
use super::follow::{SILENCE_TIMEOUT, Watch};
use super::fork_prompts::prompts_of;
use super::output::{line, note_dim, print_failure};
use super::owner::{EngineArguments, EngineHandle};
use super::posts;
use super::reading::open_at;
use super::signals::Signals;
use super::{Common, Failure, origin, text};
use ktsu_codes::{EXIT_COULD_NOT_RUN, ErrorCode, nearest};
use ktsu_history as history;
use ktsu_opening::find::find_run;
use ktsu_opening::kit::load_kit;

/// What `fork` takes.
#[derive(Debug, clap::Args)]
pub(super) struct ForkArguments {
    /// The run or branch: its id, or a unique prefix or suffix of it
    run: String,
    /// Shares the first N frames [default: all of them]
    #[arg(long, value_name = "N", group = "point")]
    at: Option<u64>,
    /// Shares everything up to this frame
    #[arg(long, value_name = "FRAME", group = "point")]
    at_frame: Option<String>,
    /// Shares everything before the latest attempt of a step: notify, call/inner
    #[arg(long, value_name = "STEP", group = "point")]
    before: Option<String>,
    /// Changes a value from that point on: params.NAME=VALUE or step.ID.output.FIELD=VALUE
    #[arg(long = "set", value_name = "PATH=VALUE")]
    set: Vec<String>,
    /// Continues with the workflow as it is in this kit
    #[arg(long, value_name = "DIR")]
    with: Option<PathBuf>,
    /// Edits a prompt of an agent step: STEP.system=TEXT, or STEP.user=@FILE
    #[arg(
        long = "prompt",
        value_name = "STEP.PROMPT=TEXT",
        conflicts_with = "with"
    )]
    prompts: Vec<String>,
    /// Whether webhooks of the branch are sent
    #[arg(long, value_name = "WHAT", default_value = "suppress", value_parser = ["suppress", "execute"])]
    effects: String,
    /// Continues at once, and shows the branch until it ends
    #[arg(long)]
    go: bool,
    /// The reason
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    engine: EngineArguments,
}

/// What `overlay` takes.
#[derive(Debug, clap::Args)]
pub(super) struct OverlayArguments {
    /// The run: its id, or a unique prefix or suffix of it; RUN/call for an inline child
    run: String,
    /// The field to replace, and its new value: triage.priority=high
    #[arg(value_name = "STEP.FIELD=VALUE")]
    set: String,
    /// The reason
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// The last frame you know of: refuses if the run has moved on
    #[arg(long, value_name = "FRAME")]
    expect: Option<u64>,
    #[command(flatten)]
    engine: EngineArguments,
}

/// What `resume` takes.
#[derive(Debug, clap::Args)]
pub(super) struct ResumeArguments {
    /// The run or branch: its id, or a unique prefix or suffix of it
    pub(super) run: String,
    /// Restarts this step, all that depend on it, and all that the failure stopped
    #[arg(long, value_name = "STEP")]
    from: Option<String>,
    /// Raises limits of the budget of the run's worlds, separated by commas: max_events,
    /// max_llm_cost_usd, max_recursion_depth, max_wall_seconds
    #[arg(
        long,
        value_name = "LIMIT=VALUE",
        value_delimiter = ',',
        conflicts_with = "from"
    )]
    raise: Vec<String>,
    /// The step that waits for data; RUN can be the suspension (sus_ID) instead
    #[arg(long, value_name = "STEP", conflicts_with_all = ["from", "raise"])]
    pub(super) step: Option<String>,
    /// The data: JSON, @FILE, or - for stdin. The step runs again with them
    #[arg(long, value_name = "JSON", conflicts_with_all = ["from", "raise", "expect"])]
    pub(super) data: Option<String>,
    /// Prints a link whose holder can give the data, once
    #[arg(long, conflicts_with_all = ["from", "raise", "expect", "data", "reason"])]
    pub(super) link: bool,
    /// The reason
    #[arg(long, value_name = "TEXT")]
    pub(super) reason: Option<String>,
    /// The last frame you know of: refuses if the run has moved on
    #[arg(long, value_name = "FRAME")]
    expect: Option<u64>,
    #[command(flatten)]
    pub(super) engine: EngineArguments,
}

/// Makes a branch.
pub(super) async fn fork(
    common: &Common,
    mut arguments: ForkArguments,
) -> Result<ExitCode, Failure> {
    if arguments.engine.kit.is_none() {
        arguments.engine.kit.clone_from(&arguments.with);
    }
    let place = EngineHandle::ledger_location(common, &arguments.engine)?;
    let reader = open_at(&place.ledger)?;
    let (stream, scope) = find_run(&reader, &arguments.run)?;
    if !scope.is_empty() {
        return Err(
            Failure::could_not_run("an inline child cannot be forked on its own")
                .hint(format!("ktsu fork {} --before {scope}", stream.name())),
        );
    }
    let before = arguments.before.as_deref();
    let before = before.map(|step| is_whole_step(step, "ktsu fork RUN --before"));
    let before = before.transpose()?;
    let at_frame = arguments.at_frame.as_deref().map(number).transpose()?;
    let at_frame = at_frame.map(Value::from);
    let mut body = json!({"effects": arguments.effects, "go": arguments.go});
    let members = [
        ("at", arguments.at.map(Value::from)),
        ("at_frame", at_frame),
        ("before", before.clone().map(Value::from)),
        ("reason", arguments.reason.clone().map(Value::from)),
    ];
    for (name, value) in members {
        if let Some(value) = value {
            body[name] = value;
        }
    }
    let mut set = Map::new();
    for one in &arguments.set {
        let (path, value) = assigned(one, "--set params.NAME=VALUE or step.ID.output.FIELD=VALUE")?;
        set.insert(path.to_owned(), value);
    }
    if !set.is_empty() {
        body["set"] = Value::Object(set);
    }
    if !arguments.prompts.is_empty() {
        body["prompts"] = Value::Object(prompts_of(&arguments.prompts)?);
    }
    if let Some(dir) = &arguments.with {
        let workflow = reader.row(&stream)?.map(|row| row.workflow);
        body["definition"] = definition(dir, &workflow.unwrap_or_default())?;
    }
    drop(reader);
    let named: Vec<String> = before
        .into_iter()
        .chain(steps_set(&arguments.set))
        .collect();
    let ledger = place.ledger.clone();
    // A branch that waits needs no kit.
    let wanted = match arguments.go {
        true => arguments.engine,
        false => arguments.engine.without_kit(),
    };
    let owner = EngineHandle::open(place, &wanted, arguments.go).await?;
    let path = format!("/runs/{}/fork", stream.name());
    let branch = owner.post(&path, &body, None).await;
    let branch = match branch {
        Ok(branch) => branch,
        Err(failure) => {
            owner.close().await?;
            return Err(with_step_suggestion(failure, &ledger, &stream, &named));
        }
    };
    let id = branch["branch_id"].as_str().unwrap_or_default().to_owned();
    let shared = branch["fork_position"].as_u64().unwrap_or_default();
    if arguments.go {
        note_dim(&format!(
            "{id} shares {shared} frames with {}",
            stream.name()
        ));
        return follow_and_print(common, owner, &id, false).await;
    }
    let flag = owner.place.flag.clone();
    owner.close().await?;
    if common.json {
        line(&branch.to_string());
        return Ok(ExitCode::SUCCESS);
    }
    line(&id);
    let status = text::line(branch["status"].as_str().unwrap_or_default()).into_owned();
    let words = format!("  shares {shared} frames with {}; {status}", stream.name());
    note_dim(&words);
    if status == "waiting" {
        note_dim(&format!("  ktsu resume {id} --kit DIR{flag}"));
    }
    note_dim(&format!("  ktsu trace {id}{flag}"));
    Ok(ExitCode::SUCCESS)
}

/// The resolved workflow of a kit.
fn definition(dir: &std::path::Path, workflow: &str) -> Result<Value, Failure> {
    let kit = load_kit(dir)?;
    let found = kit.workflows.get(workflow).ok_or_else(|| {
        let words = format!("{} has no workflow {workflow:?}", dir.display());
        Failure::could_not_run(words).hint("a branch continues with the workflow of its run")
    })?;
    Ok(found.definition.json.to_value())
}

/// Lays a value over an output.
pub(super) async fn overlay(
    common: &Common,
    arguments: OverlayArguments,
) -> Result<ExitCode, Failure> {
    let form = "ktsu overlay RUN STEP.FIELD=VALUE --reason TEXT";
    let (place, stream, scope) = named(common, &arguments.engine, &arguments.run)?;
    let (path, value) = assigned(&arguments.set, form)?;
    let path = path.strip_prefix("step.").unwrap_or(path);
    let (step, field) = path.split_once('.').ok_or_else(|| {
        Failure::could_not_run(format!("{path:?} is not a field of a step")).hint(form)
    })?;
    let field = field.strip_prefix("output.").unwrap_or(field);
    let (inner, step) = step.rsplit_once('/').unwrap_or(("", step));
    let scope = match inner {
        "" => scope,
        inner => path_in(&scope, inner),
    };
    let named = path_in(&scope, step);
    let ledger = place.ledger.clone();
    let body = json!({"step": step, "field": field, "value": value, "reason": arguments.reason});
    let owner = EngineHandle::open(place, &arguments.engine, false).await?;
    let run = match scope.as_str() {
        "" => stream.name().to_owned(),
        scope => format!("{}%2F{}", stream.name(), scope.replace('/', "%2F")),
    };
    let path = format!("/runs/{run}/overlay");
    let receipt = owner.post(&path, &body, arguments.expect).await;
    let flag = owner.place.flag.clone();
    // Responders react to it, and nobody else goes on with the run.
    let goes_on = receipt
        .as_ref()
        .is_ok_and(|receipt| receipt["status"] == "running");
    if goes_on && owner.is_ours() && posts::settled(&owner, stream.name()).await?.is_none() {
        note_dim(&format!(
            "interrupted; to continue: ktsu resume {} --kit DIR{flag}",
            stream.name()
        ));
    }
    owner.close().await?;
    let receipt =
        receipt.map_err(|failure| with_step_suggestion(failure, &ledger, &stream, &[named]))?;
    if common.json {
        line(&receipt.to_string());
        return Ok(ExitCode::SUCCESS);
    }
    line(&format!("{}#{}", stream, receipt["seq"]));
    let dependants = format!(
        "  to restart the steps that depend on it: ktsu resume {} --from STEP --kit DIR{flag}",
        stream.name()
    );
    note_dim(&dependants);
    Ok(ExitCode::SUCCESS)
}

/// Lets a branch go on, or begins steps again; shows the run until it ends.
pub(super) async fn resume(
    common: &Common,
    arguments: ResumeArguments,
) -> Result<ExitCode, Failure> {
    let (place, stream, scope) = named(common, &arguments.engine, &arguments.run)?;
    if !scope.is_empty() {
        let words = "an inline child cannot be resumed on its own";
        let step = scope.split('/').next().unwrap_or_default();
        let hint = format!("ktsu resume {} --from {step}", stream.name());
        return Err(Failure::could_not_run(words).hint(hint));
    }
    let mut body = Map::new();
    let from = arguments.from.as_deref();
    let from = from.map(|step| is_whole_step(step, "ktsu resume RUN --from"));
    let from = from.transpose()?;
    let named: Vec<String> = from.iter().cloned().collect();
    let ledger = place.ledger.clone();
    if !arguments.raise.is_empty() {
        body.insert("raise".to_owned(), raised(&arguments.raise)?);
    }
    body.extend(from.map(|from| ("from".to_owned(), Value::from(from))));
    body.extend(
        arguments
            .reason
            .map(|reason| ("reason".to_owned(), Value::from(reason))),
    );
    let owner = EngineHandle::open(place, &arguments.engine, true).await?;
    let path = format!("/runs/{}/resume", stream.name());
    match owner
        .post(&path, &Value::Object(body), arguments.expect)
        .await
    {
        Ok(_) => follow_and_print(common, owner, stream.name(), false).await,
        Err(failure) => {
            owner.close().await?;
            Err(with_step_suggestion(failure, &ledger, &stream, &named))
        }
    }
}

/// The limits that can be raised.
const LIMITS: [&str; 4] = [
    "max_events",
    "max_llm_cost_usd",
    "max_recursion_depth",
    "max_wall_seconds",
];

/// Limits as they are sent: `max_events=20000`.
fn raised(limits: &[String]) -> Result<Value, Failure> {
    let form = "ktsu resume RUN --raise max_events=20000,max_llm_cost_usd=5";
    let mut raised = Map::new();
    for limit in limits {
        let (name, value) = assigned(limit, form)?;
        if !LIMITS.contains(&name) {
            let failure = Failure::could_not_run(format!("there is no limit {name:?}"));
            return Err(match nearest(name, LIMITS) {
                Some(near) => failure.hint(format!("did you mean {near}?")),
                None => failure.hint(format!("limits: {}", LIMITS.join(", "))),
            });
        }
        if !value.is_number() {
            let words = format!("{limit:?} is not a number, or too large a one");
            return Err(Failure::could_not_run(words).hint(form));
        }
        if raised.insert(name.to_owned(), value).is_some() {
            return Err(Failure::could_not_run(format!("{name} is given twice")));
        }
    }
    Ok(Value::Object(raised))
}

/// The steps among what a fork sets.
fn steps_set(set: &[String]) -> impl Iterator<Item = String> + '_ {
    set.iter().filter_map(|one| {
        let (path, _) = one.split_once('=')?;
        let (step, _) = path.strip_prefix("step.")?.split_once('.')?;
        Some(step.to_owned())
    })
}

/// Adds a suggestion to the error about an unknown step. The engine reveals no names in its errors;
/// a local reader of the ledger may see them.
fn with_step_suggestion(
    failure: Failure,
    ledger: &LedgerPlace,
    stream: &StreamId,
    steps: &[String],
) -> Failure {
    if failure.problem() != Some(ErrorCode::StepNotFound) {
        return failure;
    }
    failure.or_hint(|| {
        let reader = open_at(ledger).ok()?;
        let frames = history::frames(&reader, stream).ok()?;
        steps
            .iter()
            .find_map(|step| origin::suggest_step(&frames, step))
    })
}

/// Follows a run until it ends and shows its envelope; with `leaves_waiting`, also until only people
/// elsewhere can move it.
pub(super) async fn follow_and_print(
    common: &Common,
    owner: EngineHandle,
    run: &str,
    leaves_waiting: bool,
) -> Result<ExitCode, Failure> {
    let mut signals = Signals::new()?;
    let silence = Some(SILENCE_TIMEOUT);
    let flag = owner.place.flag.as_str();
    let watch = Watch {
        flag,
        leaves_waiting,
        silence,
        ..Watch::default()
    };
    let envelope = watch.follow(&owner.peer, run, &mut signals).await;
    let place = owner.place.clone();
    let ours = owner.is_ours();
    signals.unless_again(owner.close()).await?;
    // An engine that ran only this run ends with it, possibly before it reports the end.
    let envelope = envelope.map(|result| match result {
        Err(failure) if !ours => ended_in(&place, run).ok_or(failure),
        result => result,
    });
    let Some(envelope) = envelope else {
        let words = match ours {
            true => format!(
                "is kept; to continue: ktsu resume {run} --kit DIR{0}; to end it: ktsu cancel {run}{0}",
                place.flag
            ),
            false => format!(
                "continues without this command; to end it: ktsu cancel {run}{}",
                place.flag
            ),
        };
        print_failure(&format!("interrupted: {run} {words}"));
        return Ok(ExitCode::from(EXIT_COULD_NOT_RUN));
    };
    embedded::finish(common, run, &envelope?, Some(&place))
}

/// The envelope of a run that has ended, from its ledger.
fn ended_in(place: &super::location::LedgerLocation, run: &str) -> Option<String> {
    let reader = open_at(&place.ledger).ok()?;
    let (stream, scope) = find_run(&reader, run).ok()?;
    let fold = history::envelope(&reader, &stream).ok()??;
    let over = fold.state().is_over();
    let envelope = fold.envelope(&scope).filter(|_| over)?;
    serde_json::to_string(&envelope).ok()
}

/// The run that is meant, and its ledger.
fn named(
    common: &Common,
    engine: &EngineArguments,
    run: &str,
) -> Result<(super::location::LedgerLocation, StreamId, String), Failure> {
    let place = EngineHandle::ledger_location(common, engine)?;
    let (stream, scope) = find_run(&open_at(&place.ledger)?, run)?;
    Ok((place, stream, scope))
}

/// The path of a step that begins again, or before which something is shared: an item does neither
/// without its step.
pub(super) fn is_whole_step(named: &str, command: &str) -> Result<String, Failure> {
    let name = StepName::parse(named);
    match name.item {
        None => Ok(name.path),
        Some(_) => {
            let words = format!("{name} is an item of a fan-out; name its step");
            Err(Failure::could_not_run(words).hint(format!("{command} {}", name.path)))
        }
    }
}

/// The number of a frame: 41, or the end of `run:ID#41`.
fn number(frame: &str) -> Result<u64, Failure> {
    let digits = frame.rsplit('#').next().unwrap_or_default();
    digits.parse().map_err(|_| {
        let words = format!("{frame:?} is not a frame number");
        Failure::could_not_run(words)
            .hint("such as --at-frame 41; ktsu frames RUN shows the numbers")
    })
}

/// `PATH=VALUE`: JSON where it is JSON, else text.
fn assigned<'a>(given: &'a str, form: &str) -> Result<(&'a str, Value), Failure> {
    let (path, value) = given.split_once('=').ok_or_else(|| {
        Failure::could_not_run(format!("{given:?} is not PATH=VALUE")).hint(form.to_owned())
    })?;
    let parsed = ktsu_ledger::canonical::parse_strict(value.as_bytes());
    Ok((path, parsed.unwrap_or_else(|_| Value::from(value))))
}
