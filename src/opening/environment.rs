//! Environment files, and the environment of the process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::Failure;
use crate::faults::invalid_file;
use ktsu_environment::Environment;

/// The environment file that is used: the one named, else the nearest `environments/local.env.yaml`,
/// by its way from the working directory where it is below that.
pub fn environment_file(named: Option<&Path>, kit: &Path) -> Option<PathBuf> {
    if let Some(path) = named {
        return Some(path.to_owned());
    }
    let found = Environment::find(kit)?;
    let here = Path::new(".").canonicalize().ok();
    let short = here.and_then(|here| Some(found.strip_prefix(here).ok()?.to_owned()));
    Some(short.unwrap_or(found))
}

/// The environment file: the one named, else the nearest `environments/local.env.yaml`.
pub fn load_environment(named: Option<&Path>, kit: &Path) -> Result<Option<Environment>, Failure> {
    let Some(path) = environment_file(named, kit) else {
        return Ok(None);
    };
    must_be_file(&path)?;
    let loaded = Environment::load(&path).map(Some);
    loaded.map_err(|faults| invalid_file("the environment file is not valid", &faults))
}

/// An environment file that is not there is no verdict on it.
pub fn must_be_file(path: &Path) -> Result<(), Failure> {
    if path.is_file() {
        return Ok(());
    }
    let words = format!("no environment file at {}", path.display());
    Err(Failure::could_not_run(words)
        .hint("name one: --env FILE, such as environments/local.env.yaml"))
}

/// The process environment, without values that are not UTF-8.
pub fn process_environment() -> BTreeMap<String, String> {
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os().filter_map(text).collect()
}
