//! What holds between a step and the agent it calls: the file, its version and its params.

use std::path::Path;

use ktsu_ledger::event::plan::Variable;
use serde_json::Value;

use super::agent::{self, AgentDraft, Params};
use super::fault::{Fault, FaultCode};
use super::links::inside;
use super::step::{AgentCall, GivenParam};
use super::workflow::Draft;
use crate::workflow::nearest;
use crate::workflow::template::text_of;

/// The path of an agent file, relative to the kit: from the kit's folder, else from that of the
/// workflow.
pub(super) fn resolve(root: &Path, workflow: &str, call: &AgentCall) -> Result<String, Fault> {
    let (file, _) = split(&call.name);
    let absent = |words: String| Fault::new(FaultCode::AgentNotFound, call.place, words);
    if file.starts_with("ktsu/") && !file.ends_with(".yaml") {
        return Err(absent(format!("there is no built-in agent {file:?}"))
            .hint("name a file of this kit: agents/NAME.agent.yaml"));
    }
    let folder = Path::new(workflow).parent().unwrap_or(Path::new(""));
    let candidates = [inside(Path::new(file)), inside(&folder.join(file))];
    let outside = || {
        let words = format!("{file:?} is outside the kit");
        Fault::new(FaultCode::ChildOutsideKit, call.place, words)
    };
    if candidates.iter().all(Option::is_none) {
        return Err(outside());
    }
    let found = candidates
        .into_iter()
        .flatten()
        .find(|path| root.join(path).is_file());
    let Some(path) = found else {
        let fault = absent(format!("there is no agent file {file:?}"));
        return Err(match near(root, file) {
            Some(near) => fault.hint(format!("did you mean {near}?")),
            None => fault.hint("paths start at the kit's folder, then at this file's"),
        });
    };
    if !root
        .join(&path)
        .canonicalize()
        .is_ok_and(|real| real.starts_with(root))
    {
        return Err(outside());
    }
    let parts = path
        .components()
        .map(|part| part.as_os_str().to_string_lossy());
    let path = parts.collect::<Vec<_>>().join("/");
    if !path.ends_with(agent::SUFFIX) {
        let fault = absent(format!("{file:?} is not an agent file"));
        return Err(fault.hint(format!("its name ends with {}", agent::SUFFIX)));
    }
    Ok(path)
}

/// The file and the version of a reference.
fn split(name: &str) -> (&str, Option<&str>) {
    match name.rsplit_once('@') {
        Some((file, version)) => (file, Some(version)),
        None => (name, None),
    }
}

/// A file of the folder `agents` with a similar name.
fn near(root: &Path, file: &str) -> Option<String> {
    let names = super::loader::file_names(&root.join("agents"));
    let paths: Vec<String> = names
        .into_iter()
        .filter(|name| name.ends_with(agent::SUFFIX))
        .map(|name| format!("agents/{name}"))
        .collect();
    let file = file.trim_start_matches("./");
    nearest(file, paths.iter().map(String::as_str)).map(str::to_owned)
}

/// Judges one call.
pub(super) fn check(draft: &Draft, call: &AgentCall, agent: &AgentDraft, faults: &mut Vec<Fault>) {
    version(call, agent, faults);
    match &agent.params {
        Some(params) => {
            required(call, agent, params, faults);
            for given in &call.params {
                declared(given, agent, params, faults);
                secrecy(given, params, &draft.plan.env, faults);
                literal(given, params, faults);
            }
        }
        None => {
            for given in &call.params {
                leaks(given, &draft.plan.env, faults);
            }
        }
    }
    if let Some(place) = call.threshold.filter(|_| !agent.declares_confidence()) {
        let words = format!(
            "the output schema of {:?} has no ktsu_confidence: what is absent counts as 0",
            agent.plan.name
        );
        let fault = Fault::new(FaultCode::ThresholdWithoutConfidence, place, words).warning();
        faults.push(fault.hint("declare ktsu_confidence there, or drop the threshold"));
    }
}

fn version(call: &AgentCall, agent: &AgentDraft, faults: &mut Vec<Fault>) {
    let (_, Some(wanted)) = split(&call.name) else {
        return;
    };
    let Ok(parsed) = semver::Version::parse(wanted) else {
        let words = format!("{wanted:?} is not a semantic version");
        faults.push(Fault::new(FaultCode::BadVersion, call.place, words));
        return;
    };
    let found = &agent.plan.version;
    if semver::Version::parse(found).is_ok_and(|found| found == parsed) {
        return;
    }
    let words = if agent.has_version {
        format!("the step wants version {wanted}, the agent file is {found}")
    } else {
        format!("the step wants version {wanted}, the agent file has none")
    };
    let fault = Fault::new(FaultCode::VersionMismatch, call.place, words);
    faults.push(fault.hint(format!("write @{found}, or change the version of the file")));
}

fn required(call: &AgentCall, agent: &AgentDraft, params: &Params, faults: &mut Vec<Fault>) {
    for name in params.schema.required() {
        if !call.params.iter().any(|given| given.name == name) {
            let words = format!(
                "the agent {:?} requires the param {name:?}",
                agent.plan.name
            );
            let fault = Fault::new(FaultCode::MissingParam, call.params_place, words);
            faults.push(fault.hint(format!("add to params: {name}: …")));
        }
    }
}

fn declared(given: &GivenParam, agent: &AgentDraft, params: &Params, faults: &mut Vec<Fault>) {
    let known: Vec<&str> = params.schema.properties().collect();
    if known.contains(&given.name.as_str()) {
        return;
    }
    let (agent, name) = (&agent.plan.name, &given.name);
    let fault = if params.schema.is_closed() {
        let words = format!("the agent {agent:?} takes no param {name:?}");
        Fault::new(FaultCode::UnknownParam, given.place, words)
    } else {
        let words = format!("the agent {agent:?} does not declare the param {name:?}");
        Fault::new(FaultCode::UndeclaredParam, given.place, words).warning()
    };
    faults.push(match nearest(name, known.iter().copied()) {
        Some(near) => fault.hint(format!("did you mean {near}?")),
        None => fault,
    });
}

/// What is written out is judged before any run. A param declared as text takes numbers and
/// booleans as text (decision T6).
fn literal(given: &GivenParam, params: &Params, faults: &mut Vec<Fault>) {
    let Some((value, place)) = &given.literal else {
        return;
    };
    let is_text = params.schema.type_of(&given.name) == Some("string");
    let value = match value {
        Value::Number(_) | Value::Bool(_) if is_text => Value::String(text_of(value)),
        Value::Null
        | Value::Number(_)
        | Value::Bool(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => value.clone(),
    };
    for violation in params.schema.check_one(&given.name, value) {
        let words = format!("{} does not fit: {}", given.name, violation.message);
        faults.push(Fault::new(FaultCode::BadValue, *place, words));
    }
}

/// A secret goes into a param that is marked as one, and nothing else does.
fn secrecy(given: &GivenParam, params: &Params, env: &[Variable], faults: &mut Vec<Fault>) {
    if !params.secrets.contains(&given.name) {
        leaks(given, env, faults);
        return;
    }
    if secret_of(given, env).is_none() {
        let words = format!("the secret param {:?} gets no secret variable", given.name);
        let fault = Fault::new(FaultCode::LiteralSecret, given.place, words);
        faults.push(fault.hint("\"{{ env.NAME }}\", with NAME declared as a secret"));
    }
}

/// A secret in a param that is not marked as one could reach a prompt.
fn leaks(given: &GivenParam, env: &[Variable], faults: &mut Vec<Fault>) {
    let Some(variable) = secret_of(given, env) else {
        return;
    };
    let words = format!(
        "the secret {variable:?} goes into the param {:?}, which the agent does not mark as secret",
        given.name
    );
    let fault = Fault::new(FaultCode::SecretNotAllowed, given.place, words);
    faults.push(fault.hint(format!(
        "in the agent file: params.schema.properties.{}.secret: true",
        given.name
    )));
}

fn secret_of<'e>(given: &GivenParam, env: &'e [Variable]) -> Option<&'e str> {
    let secret = env
        .iter()
        .find(|one| one.secret && given.variables.contains(&one.name));
    secret.map(|one| one.name.as_str())
}
