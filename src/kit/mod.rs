//! Kits: folders of workflow and agent files, read and judged as a whole (decisions C3, K1).
//!
//! ```text
//! files --yaml--> nodes with places --workflow, step, agent--> drafts --links, calls--> definitions
//! ```
//!
//! Every fault of the whole kit is gathered, not the first one; a kit that loads is sound, so that
//! no run can meet what could have been known before.

mod agent;
mod calls;
mod edges;
pub mod fault;
mod groups;
mod links;
mod loader;
mod prompt;
pub(crate) mod read;
pub mod render;
mod step;
mod text;
mod tools;
mod transform;
pub mod tree;
mod webhook;
pub(crate) mod workflow;
pub mod yaml;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ktsu_ledger::event::plan::Visibility;

use crate::workflow::definition::Definition;
use fault::{Fault, FaultCode, Faults};
use loader::Loader;
use yaml::Place;

/// A kit that is sound.
#[derive(Debug)]
pub struct Kit {
    /// The folder, without symbolic links.
    pub root: PathBuf,
    /// From `kit.yaml`, or the name of the folder.
    pub name: String,
    /// From `kit.yaml`.
    pub default_workflow: Option<String>,
    /// By the name they are invoked under, sub-workflows too.
    pub workflows: BTreeMap<String, KitWorkflow>,
    /// What does not hinder a run.
    pub warnings: Faults,
    /// `examples/NAME.json` by name.
    pub examples: BTreeMap<String, PathBuf>,
}

impl Kit {
    /// A kit of nothing: for an engine that starts no run.
    pub fn empty() -> Self {
        Self {
            root: PathBuf::new(),
            name: String::new(),
            default_workflow: None,
            workflows: BTreeMap::new(),
            warnings: Faults::default(),
            examples: BTreeMap::new(),
        }
    }
}

/// One workflow of a kit.
#[derive(Debug, Clone)]
pub struct KitWorkflow {
    /// Relative to the kit, with forward slashes.
    pub path: String,
    /// The workflow and everything it reaches.
    pub definition: Arc<Definition>,
    /// Whether it can be invoked from outside.
    pub visibility: Visibility,
    /// The agents it reaches that name tool servers, by path. Tools are not built yet, so such a
    /// workflow must not start.
    pub needs_tools: Vec<String>,
}

impl Kit {
    /// The workflow that runs when none is named: the default, or the only root (decision C3).
    pub fn default_root(&self) -> Option<&str> {
        if let Some(name) = &self.default_workflow {
            return Some(name);
        }
        let mut roots = self
            .workflows
            .iter()
            .filter(|(_, one)| one.visibility == Visibility::Root);
        let (name, _) = roots.next()?;
        roots.next().is_none().then_some(name)
    }
}

/// Reads a kit, or says everything that is wrong with it.
pub fn load(dir: &Path) -> Result<Kit, Faults> {
    let mut loader = Loader::default();
    match dir.canonicalize() {
        Ok(root) if root.is_dir() => loader.root = root,
        Ok(_) | Err(_) => {
            let words = format!("{} is not a folder", dir.display());
            loader.faults.add(Fault::new(
                FaultCode::FileUnreadable,
                Place::default(),
                words,
            ));
            return Err(loader.faults);
        }
    }
    let settings = loader.settings();
    let top = loader.top_level();
    for path in &top {
        loader.read_workflow(path);
    }
    loader.follow_children();
    loader.read_agents();
    loader.check_default(settings.default.as_ref());
    links::check(&mut loader);
    loader.check_gateway();
    groups::check(&mut loader);
    loader.finish(settings, &top)
}

#[cfg(test)]
mod tests;
