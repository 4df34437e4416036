//! A kit while it is being read: its files and the drafts made from them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::agent::AgentDraft;
use super::builtin;
use super::checked::CheckedAlone;
use super::parallel;
use super::read::KitReader;
use super::server::ServerDraft;
use super::workflow::WorkflowDraft;
use super::world::WorldDraft;
use ktsu_config::fault::{Fault, FaultCode, Faults};
use ktsu_config::yaml::{self, SourceSpan};

#[derive(Default)]
pub(super) struct Loader {
    pub(super) root: PathBuf,
    pub(super) faults: Faults,
    /// By path relative to the kit; nothing where a file is broken.
    pub(super) drafts: BTreeMap<String, Option<WorkflowDraft>>,
    /// The trees of the files, for what is checked once all of them are read.
    pub(super) nodes: BTreeMap<String, yaml::YamlNode>,
    /// Workflows whose types were checked as they were read; their trees are gone.
    pub(super) checked: BTreeMap<String, CheckedAlone>,
    /// (parent, position of the step) to the path of the child.
    pub(super) children: BTreeMap<(String, usize), String>,
    /// (parent, position of the step, name) to the path of what its agent may invoke.
    pub(super) invoked: BTreeMap<(String, usize, String), String>,
    /// By path relative to the kit; nothing where a file is broken.
    pub(super) agents: BTreeMap<String, Option<AgentDraft>>,
    /// (workflow, position of the step) to the path of the agent.
    pub(super) calls: BTreeMap<(String, usize), String>,
    /// By path relative to the kit, or `servers.yaml#NAME`; nothing where it is broken.
    pub(super) servers: BTreeMap<String, Option<ServerDraft>>,
    /// (agent, position among its servers) to the key of the server.
    pub(super) uses: BTreeMap<(String, usize), String>,
    /// By path relative to the kit; nothing where a file is broken.
    pub(super) worlds: BTreeMap<String, Option<WorldDraft>>,
    /// (world, position of the responder, edges first) to the path of the workflow it runs.
    pub(super) runs: BTreeMap<(String, usize), String>,
    /// (agent, param): a param that must be secret and is not marked, which is told.
    pub(super) unmarked: BTreeSet<(String, String)>,
}

impl Loader {
    pub(super) fn fault(&mut self, file: &str, fault: Fault) {
        self.faults.add(fault.in_file(Path::new(file)));
    }

    /// The paths of the workflows, and for each the positions of those that it calls.
    pub(super) fn call_graph(&self) -> (Vec<&String>, Vec<Vec<usize>>) {
        let paths: Vec<&String> = self.drafts.keys().collect();
        let place = |path: &String| paths.binary_search(&path).unwrap_or(usize::MAX);
        let mut calls = vec![Vec::new(); paths.len()];
        let own = self
            .children
            .iter()
            .map(|((parent, _), child)| (parent, child));
        let invoked = self.invoked.iter();
        let invoked = invoked.map(|((parent, ..), child)| (parent, child));
        for (parent, child) in own.chain(invoked) {
            if let Some(called) = calls.get_mut(place(parent)) {
                called.push(place(child));
            }
        }
        (paths, calls)
    }

    /// Reads a file of the kit, or one that comes with ktsu; `None` if it is broken.
    pub(super) fn read<T>(
        &mut self,
        path: &str,
        read: impl FnOnce(&mut KitReader<'_>, &yaml::YamlNode) -> Option<T>,
    ) -> Option<T> {
        let read = FileRead::new(&self.root, path, read);
        self.take(path, read)
    }

    /// As [`Loader::read`], of some files at once. Faults are those of one file after another.
    pub(super) fn read_all<T: Send>(
        &mut self,
        paths: &[String],
        read: impl Fn(&mut KitReader<'_>, &yaml::YamlNode) -> Option<T> + Sync,
    ) -> Vec<Option<T>> {
        let read = parallel::map(paths, |path| FileRead::new(&self.root, path, &read));
        let taken = paths.iter().zip(read);
        taken.map(|(path, read)| self.take(path, read)).collect()
    }

    pub(super) fn take<T>(&mut self, path: &str, read: FileRead<T>) -> Option<T> {
        read.faults
            .into_iter()
            .for_each(|fault| self.faults.add(fault));
        let sources = &mut self.faults.sources;
        sources.extend(read.text.map(|text| (PathBuf::from(path), text)));
        self.nodes
            .extend(read.node.map(|node| (path.to_owned(), node)));
        read.made
    }

    /// The text of a file of the kit, kept for reports.
    pub(super) fn text(&mut self, path: &str) -> Option<String> {
        match text(&self.root, path) {
            Ok(text) => {
                let sources = &mut self.faults.sources;
                sources.insert(PathBuf::from(path), text.clone());
                Some(text)
            }
            Err(fault) => {
                self.fault(path, fault);
                None
            }
        }
    }

    pub(super) fn node(&mut self, path: &str, text: &str) -> Option<yaml::YamlNode> {
        match yaml::parse(text) {
            Ok(node) => Some(node),
            Err(fault) => {
                self.fault(path, *fault);
                None
            }
        }
    }
}

/// A file of the kit, or one that comes with ktsu, and what was made of it.
pub(super) struct FileRead<T> {
    /// Kept for reports.
    pub(super) text: Option<String>,
    pub(super) node: Option<yaml::YamlNode>,
    faults: Vec<Fault>,
    pub(super) made: Option<T>,
}

impl<T> FileRead<T> {
    pub(super) fn new(
        root: &Path,
        path: &str,
        read: impl FnOnce(&mut KitReader<'_>, &yaml::YamlNode) -> Option<T>,
    ) -> Self {
        let shown = Path::new(path);
        let mut file = Self {
            text: None,
            node: None,
            faults: Vec::new(),
            made: None,
        };
        let text = match builtin::text(path) {
            Some(text) => Ok(text.to_owned()),
            None => text(root, path),
        };
        let parsed = text.and_then(|text| {
            let text = file.text.insert(text);
            let node = yaml::parse(text).map_err(|fault| *fault)?;
            Ok((text.as_str(), file.node.insert(node)))
        });
        match parsed {
            Ok((text, node)) => {
                let mut reader = KitReader::new(shown, text);
                file.made = read(&mut reader, node);
                file.faults = reader.into_faults();
            }
            Err(fault) => file.faults.push(fault.in_file(shown)),
        }
        file
    }
}

/// The text of a file below the root of the kit.
fn text(root: &Path, path: &str) -> Result<String, Fault> {
    let full = root.join(path);
    let refuse = |code, words: &str| Err(Fault::new(code, SourceSpan::default(), words));
    match (full.canonicalize(), std::fs::metadata(&full)) {
        (Ok(real), _) if !real.starts_with(root) => refuse(
            FaultCode::ChildOutsideKit,
            "the file is a link that leads out of the kit",
        ),
        (Ok(_), Ok(about)) if about.len() > yaml::MAX_FILE => {
            refuse(FaultCode::FileTooLarge, "the file is larger than 1 MiB")
        }
        (Ok(_), Ok(about)) if about.is_file() => match std::fs::read_to_string(&full) {
            Ok(text) => Ok(text),
            Err(_) => refuse(FaultCode::FileUnreadable, "the file is not readable text"),
        },
        (Ok(_) | Err(_), _) => refuse(FaultCode::FileUnreadable, "the file cannot be read"),
    }
}
