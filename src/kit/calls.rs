//! Checks between a step and the agent it calls: the file, its version and its params.

use std::path::Path;

use ktsu_ledger::event::plan::{Variable, Visibility};
use ktsu_ledger::id::is_name;
use serde_json::Value;

use super::agent::AgentDraft;
use super::builtin;
use super::narrowing::{self, StepCommands};
use super::reference;
use super::schemas::{Params, missing_params, undeclared_param};
use super::step::{AgentArgument, AgentCall};
use super::workflow::WorkflowDraft;
use ktsu_config::fault::{Fault, FaultCode};
use ktsu_workflow::rules::DecisionRules;
use ktsu_workflow::template::text_of;

/// The path of the agent that a step names: a file of the kit, or an agent of this program.
pub(super) fn resolve(root: &Path, workflow: &str, call: &AgentCall) -> Result<String, Fault> {
    if builtin::is_builtin(&call.name) {
        return builtin::resolve(&call.name, call.place);
    }
    reference::resolve(root, workflow, &call.reference())
}

/// Checks one call.
pub(super) fn check(
    draft: &WorkflowDraft,
    call: &AgentCall,
    agent: &AgentDraft,
    is_reported: &dyn Fn(&str) -> bool,
    faults: &mut Vec<Fault>,
) {
    let version = &agent.plan.version;
    let reference = call.reference();
    faults.extend(reference::version(
        &reference,
        version,
        agent.has_version,
        "the step",
    ));
    match &agent.params {
        Some(params) => {
            let what = format!("the agent {:?}", agent.plan.name);
            let is_given = |name: &str| call.params.iter().any(|given| given.name == name);
            let required = params.schema.required();
            missing_params(&what, required, is_given, call.params_place, faults);
            for given in &call.params {
                let (schema, name) = (&params.schema, &given.name);
                faults.extend(undeclared_param(&what, schema, name, given.place));
                secrecy(given, params, draft, is_reported, faults);
                literal(given, params, faults);
                fixed_source(call, given, faults);
            }
        }
        None => {
            for given in &call.params {
                leaks(given, &draft.plan.env, faults);
            }
        }
    }
    if let Some(step) = &call.commands {
        faults.extend(narrowing::check(step, &agent.plan));
    }
    let suspends = agent.plan.commands.as_ref();
    let suspends = suspends.is_some_and(|all| all.suspend.is_some());
    let forbids = call.commands.as_ref();
    if let Some(place) = call.resume
        && forbids.is_some_and(StepCommands::forbids_suspend)
    {
        let words = "this step cannot be suspended: its commands say suspend: false";
        let fault = Fault::new(FaultCode::MisplacedKey, place, words);
        faults.push(fault.hint("drop resume, or suspend: false"));
    }
    if let Some(place) = call.resume.filter(|_| !suspends) {
        let name = &agent.plan.name;
        let words = format!("the agent {name:?} does not declare that it suspends its step");
        let fault = Fault::new(FaultCode::MisplacedKey, place, words);
        faults.push(fault.hint("add `commands: {suspend: true}` to the agent, or drop resume"));
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

/// Checks what is written out before any run. A param declared as text takes numbers and booleans
/// as text (decision T6).
fn literal(given: &AgentArgument, params: &Params, faults: &mut Vec<Fault>) {
    let Some((value, place)) = &given.literal else {
        return;
    };
    let is_text = params.schema.type_of(&given.name) == Some("string");
    let value = match value {
        Value::Number(_) | Value::Bool(_) if is_text => {
            Value::String(text_of(value, DecisionRules::NEWEST))
        }
        _ => value.clone(),
    };
    for violation in params.schema.check_one(&given.name, value) {
        let words = format!("{} does not fit: {}", given.name, violation.message);
        faults.push(Fault::new(FaultCode::BadValue, *place, words));
    }
}

/// Warns where a parser of untrusted text is given a word of the file to look at: who writes one
/// meant the name of a param.
fn fixed_source(call: &AgentCall, given: &AgentArgument, faults: &mut Vec<Fault>) {
    let Some((value, place)) = &given.literal else {
        return;
    };
    if !builtin::is_builtin(&call.name) || given.name != builtin::SOURCE {
        return;
    }
    let words = format!("the text to look at is always {value}");
    let fault = Fault::new(FaultCode::LiteralSource, *place, words).warning();
    let name = value.as_str().filter(|text| is_name(text));
    let name = name.unwrap_or("NAME");
    faults.push(fault.hint(format!("\"{{{{ params.{name} }}}}\"")));
}

/// A secret goes into a param that is marked as one, and nothing else does. Where the agent's own
/// file lacks the mark, it is told there.
fn secrecy(
    given: &AgentArgument,
    params: &Params,
    draft: &WorkflowDraft,
    is_reported: &dyn Fn(&str) -> bool,
    faults: &mut Vec<Fault>,
) {
    let env = &draft.plan.env;
    if !params.secrets.contains(&given.name) {
        if !is_reported(&given.name) {
            leaks(given, env, faults);
        }
        return;
    }
    let is_secret = |name: &String| env.iter().any(|one| one.secret && one.name == *name);
    let pure = !given.mixed && given.variables.iter().all(is_secret);
    if pure && secret_of(given, env).is_some() {
        return;
    }
    let alone = given.alone.as_ref();
    let declared = alone.and_then(|name| Some((name, *draft.variables.get(name)?)));
    if let Some((name, place)) = declared {
        let words = format!(
            "the workflow variable {name:?} goes into the secret agent param {:?} and is not \
             marked as secret",
            given.name
        );
        let fault = Fault::new(FaultCode::LiteralSecret, place, words);
        faults.push(fault.hint(format!("- {{name: {name}, secret: true}}")));
        return;
    }
    let words = format!(
        "the secret agent param {:?} gets {}",
        given.name,
        match secret_of(given, env) {
            Some(_) => "more than secret variables",
            None => "no secret variable",
        }
    );
    let fault = Fault::new(FaultCode::LiteralSecret, given.place, words).hiding(given.value);
    faults.push(match draft.plan.visibility {
        Visibility::Root => fault.hint("\"{{ env.NAME }}\", with NAME declared as a secret"),
        Visibility::SubWorkflow => {
            fault.hint("no secret reaches a sub-workflow: call this agent from a root workflow")
        }
    });
}

/// A secret in a param that is not marked as one could reach a prompt.
fn leaks(given: &AgentArgument, env: &[Variable], faults: &mut Vec<Fault>) {
    let Some(variable) = secret_of(given, env) else {
        return;
    };
    let words = format!(
        "the secret {variable:?} goes into the agent param {:?}, which the agent does not mark as secret",
        given.name
    );
    let fault = Fault::new(FaultCode::SecretNotAllowed, given.place, words);
    faults.push(fault.hint(format!(
        "in the agent file: params.schema.properties.{}.secret: true",
        given.name
    )));
}

fn secret_of<'e>(given: &AgentArgument, env: &'e [Variable]) -> Option<&'e str> {
    let secret = env
        .iter()
        .find(|one| one.secret && given.variables.contains(&one.name));
    secret.map(|one| one.name.as_str())
}
