//! Kits: folders of workflow, agent and server files, read and checked as a whole (decisions C3,
//! K1).
//!
//! ```text
//! files --yaml--> nodes with places --workflow, step, agent, server--> drafts --links, calls, servers--> definitions
//! ```
//!
//! All faults of the kit are collected, not only the first; a kit that loads is sound, so that no
//! run fails because of something that could have been known before.

mod agent;
pub mod allowlist;
mod approval;
pub mod approval_checks;
pub mod builtin;
mod calls;
mod checked;
mod definitions;
mod dependencies;
mod env_isolation;
mod files;
mod groups;
mod kit;
mod links;
mod load;
mod loader;
pub mod lock;
mod narrowing;
mod parallel;
pub mod person_waits;
mod prompt;
pub(crate) mod read;
mod reference;
mod resume_checks;
mod resume_step;
mod review;
mod schemas;
mod secret_flow;
pub mod server;
mod server_registry;
pub mod servers;
pub mod shape;
mod step;
mod suspend;
mod text;
mod tools;
mod transform;
pub mod tree;
mod types;
mod webhook;
pub(crate) mod workflow;
mod workflow_source;
mod world;

use std::path::Path;

use ktsu_config::fault::{Fault, FaultCode, Faults};
use ktsu_config::yaml::SourceSpan;

pub use files::{CENTRAL, FileKind, GATEWAY, KitFile, file_names};
pub use kit::{Kit, KitWorkflow};
use loader::Loader;
pub use workflow_source::{ExampleText, WorkflowSource};

/// Reads a kit and holds it against its lock, or says everything that is wrong with either.
pub fn load(dir: &Path) -> Result<Kit, Faults> {
    read(dir, lock::read)
}

/// Reads a kit whatever its lock says: to lock it anew.
pub fn load_unlocked(dir: &Path) -> Result<Kit, Faults> {
    read(dir, |_| None)
}

fn read(
    dir: &Path,
    lock: impl FnOnce(&mut Loader) -> Option<lock::LocatedLock>,
) -> Result<Kit, Faults> {
    let mut loader = Loader::default();
    match dir.canonicalize() {
        Ok(root) if root.is_dir() => loader.root = root,
        Ok(_) | Err(_) => {
            let words = format!("{} is not a folder", dir.display());
            loader.faults.add(Fault::new(
                FaultCode::FileUnreadable,
                SourceSpan::default(),
                words,
            ));
            return Err(loader.faults);
        }
    }
    let settings = loader.settings();
    let top = loader.top_level();
    loader.read_workflows(&top);
    loader.read_worlds();
    loader.follow_children();
    loader.read_agents();
    loader.read_servers();
    loader.check_default(settings.default.as_ref());
    servers::check(&mut loader);
    links::check(&mut loader);
    world::check(&mut loader);
    types::check(&mut loader);
    loader.check_gateway();
    groups::check(&mut loader);
    approval_checks::check(&mut loader);
    resume_checks::check(&mut loader);
    let lock = lock(&mut loader);
    let mut kit = loader.finish(settings, &top)?;
    if let Some(lock) = lock {
        lock::check_against_lock(&mut kit, lock);
    }
    Ok(kit)
}

#[cfg(test)]
mod tests;
