//! The input of a run: the workflow's name and its params.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use ktsu_ledger::event::Effects;
use ktsu_ledger::event::plan::Visibility;
use serde_json::Value;

use super::Failure;
use super::files::unreadable;
use ktsu_codes::{ErrorCode, nearest};
use ktsu_kit::Kit;
use ktsu_server::body::MAX_BODY;
use ktsu_server::json_words;

/// Whether webhooks and messages are sent, as arguments have it.
pub(super) fn effects_words() -> impl TypedValueParser<Value = Effects> {
    PossibleValuesParser::new(["execute", "suppress"]).map(|word| match word.as_str() {
        "suppress" => Effects::Suppress,
        _ => Effects::Execute,
    })
}

/// The workflow to run: the one named, else the kit's default or only root (decision C3).
pub(super) fn workflow_of(kit: &Kit, named: Option<&str>) -> Result<String, Failure> {
    let is_root = |name: &&String| kit.workflows[*name].visibility == Visibility::Root;
    let roots: Vec<&str> = kit
        .workflows
        .keys()
        .filter(is_root)
        .map(String::as_str)
        .collect();
    let Some(name) = named else {
        return kit.default_root().map(str::to_owned).ok_or_else(|| {
            let names = roots.join(", ");
            Failure::could_not_run(format!("kit {} has several workflows: {names}", kit.name))
                .hint("name one: ktsu run KIT WORKFLOW")
        });
    };
    match kit.workflows.get(name) {
        Some(one) if one.visibility == Visibility::Root => Ok(name.to_owned()),
        Some(_) => Err(Failure::could_not_run(format!(
            "{name} is a sub-workflow: it runs inside other workflows only"
        ))
        .hint(format!("workflows to run: {}", roots.join(", ")))),
        None => {
            let words = format!("kit {} has no workflow {name}", kit.name);
            let hint = match nearest(name, roots.iter().copied()) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("workflows: {}", roots.join(", ")),
            };
            Err(Failure::could_not_run(words).hint(hint))
        }
    }
}

/// The params as JSON: those given, else the kit's default example if the workflow is the one a
/// plain `ktsu run KIT` runs, else none.
pub(super) fn input_of(kit: &Kit, workflow: &str, given: Option<&str>) -> Result<String, Failure> {
    match example_of(kit, workflow, given) {
        Some(path) => read(path)
            .and_then(check_input)
            .map_err(|failure| failure.about(&named(kit, path))),
        None => given_input(given),
    }
}

/// The failure of a run, with the example that its params come from, if it is the params that fail.
pub(super) fn about_example(
    failure: Failure,
    kit: &Kit,
    workflow: &str,
    given: Option<&str>,
) -> Failure {
    match (failure.problem(), example_of(kit, workflow, given)) {
        (Some(ErrorCode::InvalidParams), Some(path)) => {
            let name = named(kit, path);
            let hint = format!("change {name}, or pass other params: --input JSON");
            failure.about(&name).or_hint(|| Some(hint))
        }
        (_, _) => failure,
    }
}

/// The kit's default example, if it is what a run gets its params from.
fn example_of<'k>(kit: &'k Kit, workflow: &str, given: Option<&str>) -> Option<&'k PathBuf> {
    let is_meant = given.is_none() && kit.default_root() == Some(workflow);
    kit.examples.get("default").filter(|_| is_meant)
}

/// A file of a kit, as seen from its folder.
fn named(kit: &Kit, path: &Path) -> String {
    let inside = path.strip_prefix(&kit.root).unwrap_or(path);
    inside.display().to_string()
}

/// The params as JSON: those given, else none.
pub(super) fn given_input(given: Option<&str>) -> Result<String, Failure> {
    match given.map(|given| (given, given.strip_prefix('@'))) {
        Some((_, Some(path))) => read(Path::new(path)).and_then(check_input),
        Some((text, None)) => check_input(text.to_owned()).map_err(|failure| {
            if Path::new(text).is_file() {
                failure.hint(format!("for a file: --input @{text}"))
            } else {
                failure.hint("--input '{\"name\": \"value\"}', or --input @FILE")
            }
        }),
        None => Ok("{}".to_owned()),
    }
}

/// The params with a goal, if the workflow takes one.
pub(super) fn with_goal(
    kit: &Kit,
    workflow: &str,
    input: String,
    goal: Option<&str>,
) -> Result<String, Failure> {
    let Some(goal) = goal else { return Ok(input) };
    let root = kit
        .workflows
        .get(workflow)
        .and_then(|one| one.definition.root());
    let schema = root.and_then(|root| root.plan.params.as_ref());
    let takes = schema.is_some_and(|schema| schema.pointer("/properties/goal").is_some());
    if !takes {
        let words = format!("workflow {workflow} has no param `goal`");
        return Err(Failure::could_not_run(words).hint("pass its params with --input"));
    }
    let mut value: Value = serde_json::from_str(&input).unwrap_or_default();
    match value.as_object_mut() {
        Some(members) => {
            members.insert("goal".to_owned(), Value::from(goal));
            Ok(value.to_string())
        }
        None => Err(Failure::could_not_run("the input is not a JSON object")),
    }
}

/// JSON that is given as such, in a file (`@FILE`), or on stdin (`-`). `what` is it, in words, before "not
/// JSON"; `command` the one that takes it, and how it does.
pub(super) fn given_json(
    given: &str,
    what: &str,
    (command, form): (&str, &str),
) -> Result<Value, Failure> {
    let text = match given.strip_prefix('@') {
        _ if given == "-" => {
            let mut bytes = Vec::new();
            std::io::stdin()
                .take(MAX_BODY as u64 + 1)
                .read_to_end(&mut bytes)?;
            if bytes.len() > MAX_BODY {
                let words = format!("{what} more than {MAX_BODY} bytes");
                return Err(Failure::could_not_run(words));
            }
            String::from_utf8(bytes)
                .map_err(|_| Failure::could_not_run(format!("{what} not UTF-8")))?
        }
        Some(path) => read(Path::new(path))?,
        None => given.to_owned(),
    };
    let parsed = ktsu_ledger::canonical::parse_strict(text.as_bytes());
    parsed.map_err(|error| {
        let why = json_words::of_refused(&error);
        let failure = Failure::could_not_run(format!("{what} not JSON: {why}"));
        match Path::new(given).is_file() {
            true => failure.hint(format!("for a file: {command} @{given}")),
            false => failure.hint(form),
        }
    })
}

fn check_input(text: String) -> Result<String, Failure> {
    let text = if text.trim().is_empty() {
        "{}".to_owned()
    } else {
        text
    };
    match ktsu_ledger::canonical::parse_strict(text.as_bytes()) {
        Ok(Value::Object(_)) => Ok(text),
        Ok(_) => Err(Failure::could_not_run("the input is not a JSON object")),
        Err(error) => Err(Failure::could_not_run(format!(
            "the input is not JSON: {}",
            json_words::of_refused(&error)
        ))),
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| unreadable(path, &error))
}
