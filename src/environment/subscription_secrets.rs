//! The secrets that subscriptions are signed with: where they come from, and what is wrong with them.

use std::collections::BTreeMap;

use ktsu_config::fault::{Fault, FaultCode, Faults};
use ktsu_secret::{MIN_LENGTH, Secret, is_too_short};

use super::Environment;
use super::subscriptions::SubscriptionDeclaration;
use super::variable::value;

/// A subscription whose secret is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedSubscription {
    /// As it is declared.
    pub declared: SubscriptionDeclaration,
    /// The secret that frames are signed with.
    pub secret: Secret,
}

/// Looks up the secrets of all declared subscriptions.
///
/// # Errors
/// Everything that is wrong, at its place in the file.
pub fn resolve(
    environment: Option<&Environment>,
    process: &BTreeMap<String, String>,
) -> Result<Vec<ResolvedSubscription>, Faults> {
    let Some(file) = environment else {
        return Ok(Vec::new());
    };
    let (mut resolved, mut faults) = (Vec::new(), Faults::default());
    for declared in &file.subscriptions {
        match secret(file, declared, process) {
            Ok(secret) => resolved.push(ResolvedSubscription {
                declared: declared.clone(),
                secret,
            }),
            Err(fault) => faults.faults.push(fault.in_file(&file.path)),
        }
    }
    if faults.faults.is_empty() {
        return Ok(resolved);
    }
    faults.sources.insert(file.path.clone(), file.outline());
    faults.sort();
    Err(faults)
}

fn secret(
    file: &Environment,
    declared: &SubscriptionDeclaration,
    process: &BTreeMap<String, String>,
) -> Result<Secret, Fault> {
    let (variable, place) = (&declared.secret.variable, declared.secret.place);
    let what = format!("the secret of {}", declared.name);
    match value(variable, Some(file), process) {
        None => {
            let words = format!("{what}: the variable {variable:?} has no value");
            let fault = Fault::new(FaultCode::NoValue, place, words);
            Err(fault.hint(format!("export {variable}=…")))
        }
        Some(value) if is_too_short(value) => {
            let words = format!("{what} needs at least {MIN_LENGTH} characters");
            let fault = Fault::new(FaultCode::ShortSecret, place, words);
            Err(fault.hint(format!(
                "export {variable}=whsec_$(openssl rand -base64 32)"
            )))
        }
        Some(value) => Ok(Secret::new(value.clone())),
    }
}

/// The value of a variable as a secret, for a subscription that was not declared in the file;
/// nothing if it has none, or one that is too short.
pub fn secret_value(
    environment: Option<&Environment>,
    process: &BTreeMap<String, String>,
    variable: &str,
) -> Option<Secret> {
    let value = value(variable, environment, process)?;
    (!is_too_short(value)).then(|| Secret::new(value.clone()))
}
