//! Resolves an environment: all principals, and the values of all variables. Everything is resolved
//! at the start, so that no run finds a value missing (decision K3).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::{OpenEngineError, Setup, notary};
use ktsu_environment::{
    self as environment, Environment, Principals, ResolveError, VariableValues,
};
use ktsu_evidence::signing_key;
use ktsu_evidence::store_stream::StoreStream;
use ktsu_kit::Kit;
use ktsu_ledger::event::plan::WorkflowPlan;
use ktsu_orchestrator::RetentionParts;
use ktsu_projections::retention::RetentionLimits;
use ktsu_secret::{Redactor, Secret, is_too_short};
use ktsu_workflow::expression::Root;
use ktsu_workflow::template::Template;
use serde_json::Value;

/// The most places that are named where secrets are written out.
const MAX_PLACES: usize = 3;

/// The time that ended runs are kept, and the place where their removal is recorded.
pub(super) fn retention(
    environment: Option<&Environment>,
    store: &Arc<StoreStream>,
) -> RetentionParts {
    let kept = environment.map(|file| file.retention).unwrap_or_default();
    RetentionParts {
        limits: RetentionLimits {
            complete_days: kept.complete_days,
            failed_days: kept.failed_days,
        },
        store: Arc::clone(store),
    }
}

/// The principals, and the values that every root workflow of the kit declares.
pub(super) fn of(
    setup: &Setup,
) -> Result<(Arc<Principals>, BTreeMap<String, VariableValues>), OpenEngineError> {
    let file = setup.environment.as_ref();
    let in_force = setup.read_again.as_ref().or(file);
    let principals =
        Principals::resolve(in_force, &setup.process).map_err(OpenEngineError::Principals)?;
    let mut all = BTreeMap::new();
    for (workflow, resolved) in resolve(&setup.kit, &principals, file, &setup.process) {
        let resolved = resolved.map_err(|error| OpenEngineError::Environment {
            workflow: workflow.clone(),
            error: Box::new(error),
        })?;
        all.insert(workflow, resolved);
    }
    Ok((Arc::new(principals), all))
}

/// The values of each root workflow, or why there are none.
pub fn resolve(
    kit: &Kit,
    principals: &Principals,
    environment: Option<&Environment>,
    process: &BTreeMap<String, String>,
) -> Vec<(String, Result<VariableValues, ResolveError>)> {
    let roots = kit.workflows.iter().filter_map(|(name, workflow)| {
        let root = workflow.definition.root_plan()?;
        let declared = &root.env;
        let common = common(root);
        let resolved =
            environment::resolve_for(principals, environment, declared, process, &common);
        Some((name.clone(), resolved))
    });
    let mut all: Vec<_> = roots.collect();
    keep_secret(kit, &mut all, principals);
    all
}

/// Refuses plain variables and definitions that contain any secret of this engine: runs record both as they are.
fn keep_secret(
    kit: &Kit,
    all: &mut [(String, Result<VariableValues, ResolveError>)],
    principals: &Principals,
) {
    let found = all
        .iter()
        .filter_map(|(_, resolved)| resolved.as_ref().ok());
    let shared = found.flat_map(|resolved| resolved.secrets.values());
    let redactor = Redactor::new(shared.chain(principals.secrets()));
    for (workflow, resolved) in all {
        let found = resolved.as_ref().ok();
        if let Some(error) = found.and_then(|values| shown(kit, workflow, values, &redactor)) {
            *resolved = Err(error);
        }
    }
}

/// Refuses plain variables and definitions that contain one of these secrets; see [`keep_secret`].
///
/// # Errors
/// [`OpenEngineError::Environment`], for the first workflow that has one.
pub fn shows_none_of(
    kit: &Kit,
    all: &BTreeMap<String, VariableValues>,
    secrets: &[Secret],
) -> Result<(), OpenEngineError> {
    let redactor = Redactor::new(secrets);
    for (workflow, resolved) in all {
        if let Some(error) = shown(kit, workflow, resolved, &redactor) {
            return Err(OpenEngineError::Environment {
                workflow: workflow.clone(),
                error: Box::new(error),
            });
        }
    }
    Ok(())
}

/// The first workflow of a kit whose definition contains one of these secrets, with the places.
pub(super) fn defined_with<'a>(
    kit: &Kit,
    secrets: impl IntoIterator<Item = &'a Secret>,
) -> Option<(String, Vec<String>)> {
    let redactor = Redactor::new(secrets);
    let mut workflows = kit.workflows.iter();
    workflows.find_map(|(name, workflow)| {
        let written = written(&workflow.definition.json.to_value(), &redactor);
        (!written.is_empty()).then(|| (name.clone(), written))
    })
}

/// The plain variables whose value contains a secret, and the places of the definition that do, if there are any.
fn shown(
    kit: &Kit,
    workflow: &str,
    resolved: &VariableValues,
    redactor: &Redactor,
) -> Option<ResolveError> {
    if redactor.is_empty() {
        return None;
    }
    let values = resolved.values.iter();
    let shown = values.filter(|(_, value)| redactor.finds(value));
    let shown: Vec<String> = shown.map(|(name, _)| name.clone()).collect();
    let definition = kit.workflows.get(workflow).map(|one| &one.definition.json);
    let written = definition.map_or_else(Vec::new, |json| written(&json.to_value(), redactor));
    (!shown.is_empty() || !written.is_empty()).then(|| ResolveError {
        shown,
        written,
        ..ResolveError::default()
    })
}

/// The places of a definition, as JSON Pointers, whose texts or numbers contain a secret. The names of its members
/// are mostly those of the format.
fn written(definition: &Value, redactor: &Redactor) -> Vec<String> {
    let mut found = Vec::new();
    // Most definitions have none: then no place is put together.
    if is_written(definition, redactor) {
        places(definition, "", redactor, &mut found);
    }
    let left_out = found.len().saturating_sub(MAX_PLACES);
    if left_out > 0 {
        found.truncate(MAX_PLACES);
        found.push(format!("{left_out} more places"));
    }
    found
}

/// Where in a value, which is at this place, texts or numbers contain a secret.
fn places(value: &Value, place: &str, redactor: &Redactor, found: &mut Vec<String>) {
    match value {
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                places(item, &format!("{place}/{at}"), redactor, found);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                let name = name.replace('~', "~0").replace('/', "~1");
                places(member, &format!("{place}/{name}"), redactor, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            if is_written(value, redactor) {
                found.push(place.to_owned());
            }
        }
    }
}

/// Returns `true` if a text or a number in a value contains a secret.
fn is_written(value: &Value, redactor: &Redactor) -> bool {
    match value {
        Value::Array(items) => items.iter().any(|item| is_written(item, redactor)),
        Value::Object(members) => members.values().any(|member| is_written(member, redactor)),
        Value::String(text) => redactor.finds_even_escaped(text),
        Value::Number(number) => redactor.finds(&number.to_string()),
        Value::Null | Value::Bool(_) => false,
    }
}

/// The variables that need a common value: the secret for callers of the workflow is the same for
/// all.
fn common(root: &WorkflowPlan) -> Vec<String> {
    let auth = root.invoke.as_ref();
    let template = auth.and_then(|auth| Template::text(&auth.secret).ok());
    let roots = template.as_ref().map(Template::roots);
    let names = roots.into_iter().flatten().filter_map(|root| match root {
        Root::Env(name) => Some(name.clone()),
        Root::Params
        | Root::Step(_)
        | Root::Item
        | Root::ItemIndex
        | Root::Resume
        | Root::Name(_) => None,
    });
    names.collect()
}

/// Puts the signing key that the environment file names into a process environment, unless there is
/// one already.
///
/// # Errors
/// [`OpenEngineError::Other`] if the file holds no key.
pub fn put_signing_key(
    environment: Option<&Environment>,
    process: &mut BTreeMap<String, String>,
) -> Result<(), OpenEngineError> {
    let path = environment.and_then(|file| file.evidence.signing_key.as_deref());
    let Some(path) = path else {
        return Ok(());
    };
    let given = process.get(signing_key::VARIABLE);
    if given.is_some_and(|key| !key.is_empty()) {
        return Ok(());
    }
    process.insert(signing_key::VARIABLE.to_owned(), read_key(path)?);
    Ok(())
}

/// The signing key of a process environment, as a secret; none if there is none.
pub fn given_signing_key(process: &BTreeMap<String, String>) -> Option<Secret> {
    let key = process.get(signing_key::VARIABLE);
    let key = key.filter(|key| !is_too_short(key));
    key.map(|key| Secret::new(key.as_str()))
}

/// A key from a file: as text, or as the 32 bytes of a key file next to a ledger.
fn read_key(path: &Path) -> Result<String, OpenEngineError> {
    let failed = |words: String| {
        let path = path.display();
        OpenEngineError::Other(format!("evidence.signing_key: {path} {words}"))
    };
    let text = signing_key::text_of(path);
    text.map_err(|error| failed(error.to_string()))
}

/// The reasons why a start with this environment would refuse its `evidence`, in words.
pub fn mismatch(environment: &Environment, process: &BTreeMap<String, String>) -> Vec<String> {
    let witness = notary::place(Some(environment), process).map(|_| ());
    let key = put_signing_key(Some(environment), &mut process.clone());
    let refused = [witness, key].into_iter().filter_map(Result::err);
    refused.map(|refused| refused.to_string()).collect()
}
