//! Kits, loaded for a command.

use std::path::Path;
use std::sync::Arc;

use crate::Failure;
use crate::faults::faults_text;
use crate::quoting::quoted;
use ktsu_config::fault::{FaultCode, Faults};
use ktsu_kit::{self as kit, Kit};

/// Loads a kit; if it is not valid, the failure lists every fault.
pub fn load_kit(dir: &Path) -> Result<Arc<Kit>, Failure> {
    if !dir.is_dir() {
        return Err(no_kit(dir));
    }
    let refused = |faults| invalid(&faults, dir);
    kit::load(dir).map(Arc::new).map_err(refused)
}

/// Loads a kit; with `locked`, refuses one that differs from its lock.
pub fn load_kit_as(dir: &Path, locked: bool) -> Result<Arc<Kit>, Failure> {
    let kit = load_kit(dir)?;
    let held = if locked { kit.must_be_locked() } else { Ok(()) };
    held.map_err(|faults| not_locked(&faults, dir))?;
    Ok(kit)
}

/// The failure for a kit that `validate` would refuse.
pub fn invalid(faults: &Faults, dir: &Path) -> Failure {
    let words = faults_text("the kit is not valid", &from_here(faults, dir));
    Failure::could_not_run(words).hint(format!("ktsu validate {}", quoted(dir)))
}

/// Returns `true` if there is no other fault than a missing lock file.
pub fn lacks_lock(faults: &Faults) -> bool {
    let mut all = faults.faults.iter();
    all.all(|fault| fault.code == FaultCode::LockMissing)
}

/// The failure for a kit that has no lock or differs from it.
fn not_locked(faults: &Faults, dir: &Path) -> Failure {
    let (verdict, what) = match lacks_lock(faults) {
        true => ("the kit has no lock file", "write one"),
        false => ("the kit differs from its lock", "update the lock"),
    };
    let hint = format!("to {what}: ktsu lock {}", quoted(dir));
    Failure::could_not_run(faults_text(verdict, &from_here(faults, dir))).hint(hint)
}

/// Faults of a kit with paths from the working directory, which terminals and editors can open.
pub fn from_here(faults: &Faults, dir: &Path) -> Faults {
    if dir == Path::new(".") {
        return faults.clone();
    }
    faults.with_paths(|file| {
        let within = dir.join(file);
        // Environment files have such paths already.
        let is_own = file.is_relative() && !file.as_os_str().is_empty() && !file.starts_with(dir);
        let is_environment = file.to_string_lossy().ends_with(ENVIRONMENT_FILE);
        match is_own && !is_environment && within.exists() {
            true => within,
            false => file.to_owned(),
        }
    })
}

/// The suffix of the names of environment files.
const ENVIRONMENT_FILE: &str = ".env.yaml";

/// There is nothing to read.
pub fn no_kit(dir: &Path) -> Failure {
    let words = format!("{} is not a folder", dir.display());
    Failure::could_not_run(words).hint("a kit is a folder with workflows/, such as kits/hello")
}
