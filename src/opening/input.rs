//! The input of a run: the workflow's name and its params.

use std::path::{Path, PathBuf};

use ktsu_ledger::event::plan::Visibility;
use serde_json::Value;

use crate::Failure;
use crate::files::unreadable;
use ktsu_codes::{ErrorCode, nearest};
use ktsu_kit::Kit;
use ktsu_server::json_words;

/// The workflow to run: the one named, else the kit's default or only root (decision C3).
pub fn workflow_of(kit: &Kit, named: Option<&str>) -> Result<String, Failure> {
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
pub fn input_of(kit: &Kit, workflow: &str, given: Option<&str>) -> Result<String, Failure> {
    match example_of(kit, workflow, given) {
        Some(path) => read(path)
            .and_then(check_input)
            .map_err(|failure| failure.about(&named(kit, path))),
        None => given_input(given),
    }
}

/// The failure of a run, with the example that its params come from, if it is the params that fail.
pub fn about_example(failure: Failure, kit: &Kit, workflow: &str, given: Option<&str>) -> Failure {
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
pub fn given_input(given: Option<&str>) -> Result<String, Failure> {
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
pub fn with_goal(
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

/// The text of a file.
pub fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| unreadable(path, &error))
}
