//! A kit while it is being read: its files and the drafts made from them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::agent::AgentDraft;
use super::builtin;
use super::read::KitReader;
use super::server::ServerDraft;
use super::workflow::WorkflowDraft;
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
    /// (parent, position of the step) to the path of the child.
    pub(super) children: BTreeMap<(String, usize), String>,
    /// By path relative to the kit; nothing where a file is broken.
    pub(super) agents: BTreeMap<String, Option<AgentDraft>>,
    /// (workflow, position of the step) to the path of the agent.
    pub(super) calls: BTreeMap<(String, usize), String>,
    /// By path relative to the kit, or `servers.yaml#NAME`; nothing where it is broken.
    pub(super) servers: BTreeMap<String, Option<ServerDraft>>,
    /// (agent, position among its servers) to the key of the server.
    pub(super) uses: BTreeMap<(String, usize), String>,
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
        for ((parent, _), child) in &self.children {
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
        let text = self.kit_or_builtin_text(path)?;
        let node = self.node(path, &text)?;
        let mut reader = KitReader::new(Path::new(path), &text);
        let made = read(&mut reader, &node);
        self.faults.faults.append(&mut reader.faults);
        self.nodes.insert(path.to_owned(), node);
        made
    }

    /// The text of a file of the kit, kept for reports.
    pub(super) fn text(&mut self, path: &str) -> Option<String> {
        let full = self.root.join(path);
        let refuse = |code, words: &str| Err(Fault::new(code, SourceSpan::default(), words));
        let read = match (full.canonicalize(), std::fs::metadata(&full)) {
            (Ok(real), _) if !real.starts_with(&self.root) => refuse(
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
        };
        match read {
            Ok(text) => {
                self.faults
                    .sources
                    .insert(PathBuf::from(path), text.clone());
                Some(text)
            }
            Err(fault) => {
                self.fault(path, fault);
                None
            }
        }
    }

    /// The text of a file of the kit, or of one that comes with ktsu.
    pub(super) fn kit_or_builtin_text(&mut self, path: &str) -> Option<String> {
        match builtin::text(path) {
            Some(text) => {
                let sources = &mut self.faults.sources;
                sources.insert(PathBuf::from(path), text.to_owned());
                Some(text.to_owned())
            }
            None => self.text(path),
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
