//! Values of declared variables: the process environment takes precedence over the file, the file
//! over the default.

use std::collections::BTreeMap;
use std::fmt;

use ktsu_ledger::event::plan::Variable;

use super::Environment;
use super::authentication::Principals;
use super::variable::value;
use ktsu_secret::{MIN_LENGTH, Secret, is_too_short};

/// Values of all declared variables.
#[derive(Debug, Clone, Default)]
pub struct VariableValues {
    /// Those that may be shown.
    pub values: BTreeMap<String, String>,
    /// Those that may not.
    pub secrets: BTreeMap<String, Secret>,
    /// Secrets without a value for everybody: each principal has one of its own.
    pub principal_secrets: Vec<String>,
}

/// The variables that have no usable values: a boot error that names all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResolveError {
    /// Declared, with neither value nor default.
    pub missing: Vec<String>,
    /// Secrets shorter than [`MIN_LENGTH`].
    pub short: Vec<String>,
    /// Secrets that some principals have a value of their own for, and who has not.
    pub without: Vec<(String, Vec<String>)>,
    /// Not declared as secrets, and with a value in which a secret stands: runs would record it.
    pub shown: Vec<String>,
    /// The places in the definition, as JSON Pointers, where a secret is written out: runs would record it.
    pub written: Vec<String>,
}

impl ResolveError {
    /// The first variable that is concerned.
    pub fn first(&self) -> Option<&str> {
        let without = self.without.first().map(|(name, _)| name);
        let first = self.missing.first().or(without).or(self.short.first());
        let first = first.or(self.shown.first());
        first.map(String::as_str)
    }

    /// The part of it about some variables.
    pub fn only(&self, which: impl Fn(&String) -> bool) -> Self {
        let some = |names: &[String]| names.iter().filter(|name| which(name)).cloned().collect();
        let without = self.without.iter().filter(|(name, _)| which(name));
        Self {
            missing: some(&self.missing),
            short: some(&self.short),
            without: without.cloned().collect(),
            shown: some(&self.shown),
            written: self.written.clone(),
        }
    }

    fn is_empty(&self) -> bool {
        let Self {
            missing,
            short,
            without,
            shown,
            written,
        } = self;
        let lists = [missing, short, shown, written];
        lists.iter().all(|names| names.is_empty()) && without.is_empty()
    }
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        if !self.missing.is_empty() {
            words.push(format!("no value for {}", self.missing.join(", ")));
        }
        for (name, principals) in &self.without {
            let (principals, has) = match principals.as_slice() {
                [one] => (format!("principal {one}"), "has"),
                some => (format!("principals {}", some.join(", ")), "have"),
            };
            words.push(format!(
                "no value for {name}, and {principals} {has} none of their own"
            ));
        }
        if !self.short.is_empty() {
            let short = self.short.join(", ");
            words.push(format!(
                "secrets need at least {MIN_LENGTH} characters: {short}"
            ));
        }
        if !self.shown.is_empty() {
            let shown = self.shown.join(", ");
            words.push(format!(
                "there is a secret in the value of {shown}: declare it with secret: true"
            ));
        }
        if !self.written.is_empty() {
            let written = self.written.join(", ");
            words.push(format!(
                "a secret is written out in the definition, at {written}, and would be recorded: take it \
                 out there, or give the secret another value"
            ));
        }
        f.write_str(&words.join("; "))
    }
}

impl std::error::Error for ResolveError {}

/// The values of declared variables. Set and empty counts as set.
///
/// # Errors
/// [`ResolveError`].
pub fn resolve(
    environment: Option<&Environment>,
    declared: &[Variable],
    process: &BTreeMap<String, String>,
) -> Result<VariableValues, ResolveError> {
    resolve_for(&Principals::default(), environment, declared, process, &[])
}

/// As [`resolve`], where principals may have values of their own: a secret that each of those who
/// may start runs has needs none for everybody. `common`: secrets that must have one all the same.
///
/// # Errors
/// [`ResolveError`].
pub fn resolve_for(
    principals: &Principals,
    environment: Option<&Environment>,
    declared: &[Variable],
    process: &BTreeMap<String, String>,
    common: &[String],
) -> Result<VariableValues, ResolveError> {
    let (resolved, error) = resolve_each(principals, environment, declared, process, common);
    match error.is_empty() {
        true => Ok(resolved),
        false => Err(error),
    }
}

/// As [`resolve_for`], each variable by itself: the values there are, and why there are no others.
pub fn resolve_each(
    principals: &Principals,
    environment: Option<&Environment>,
    declared: &[Variable],
    process: &BTreeMap<String, String>,
    common: &[String],
) -> (VariableValues, ResolveError) {
    let mut resolved = VariableValues::default();
    let mut error = ResolveError::default();
    for variable in declared {
        let name = &variable.name;
        let value = value(name, environment, process).or(variable.default.as_ref());
        match value {
            None if variable.secret && !common.contains(name) && principals.any_has(name) => {
                let without = principals.invoking_without(name);
                match without.is_empty() {
                    true => resolved.principal_secrets.push(name.clone()),
                    false => error.without.push((name.clone(), without)),
                }
            }
            None => error.missing.push(name.clone()),
            Some(value) if variable.secret && is_too_short(value) => {
                error.short.push(name.clone());
            }
            Some(value) if variable.secret => {
                let secret = Secret::new(value.clone());
                resolved.secrets.insert(name.clone(), secret);
            }
            Some(value) => drop(resolved.values.insert(name.clone(), value.clone())),
        }
    }
    (resolved, error)
}
