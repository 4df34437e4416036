//! The value of a variable.

use std::collections::BTreeMap;

use super::Environment;

/// The value of a variable, from the process environment or else from the file.
pub(super) fn value<'a>(
    name: &str,
    environment: Option<&'a Environment>,
    process: &'a BTreeMap<String, String>,
) -> Option<&'a String> {
    let file = || environment.and_then(|environment| environment.variables.get(name));
    process.get(name).or_else(file)
}
