//! What the page of a workflow of a kit shows, and the addresses of its views.

use std::collections::BTreeMap;

use ktsu_ledger::event::plan::{Plan, WorkflowPlan};

use crate::frame::{PagePlace, SignedIn, query, segment};
use crate::kit::ShownWorkflow;
use crate::kit_faults::ShownCheck;

/// Params for trying a workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownExample {
    /// Its file, relative to the kit.
    pub file: String,
    /// The size of the file, in bytes.
    pub bytes: usize,
    /// Its text, as far as it was read; none if it is not shown or cannot be read.
    pub text: Option<String>,
}

/// A workflow of a kit.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkflowPage<'k> {
    /// The principal that looks at it.
    pub by: SignedIn,
    /// The workflow, as the list has it.
    pub shown: ShownWorkflow<'k>,
    /// Its definition.
    pub plan: &'k Plan,
    /// Its plan.
    pub workflow: &'k WorkflowPlan,
    /// Its file, relative to the kit.
    pub path: &'k str,
    /// The line of each step in it, by id.
    pub lines: BTreeMap<String, usize>,
    /// BLAKE3 of its definition.
    pub digest: &'k str,
    /// The names of the workflows that have a page, by the keys that the plan has for them.
    pub linked: BTreeMap<String, String>,
    /// Params for trying it.
    pub examples: Vec<ShownExample>,
    /// The last check of the files, if they are watched.
    pub check: Option<ShownCheck>,
    /// The reason why prompts and inputs are not shown.
    pub closed: Option<String>,
    /// The step that is selected.
    pub step: Option<String>,
    /// The value that is shown whole; empty for none.
    pub all: String,
}

pub(crate) const PLACE: PagePlace = PagePlace::BELOW;

impl WorkflowPage<'_> {
    /// The address of the page with a step selected; with none for an empty id.
    pub(crate) fn select(&self, id: &str) -> String {
        self.address(&[("step", id)])
    }

    /// The address of the page of another workflow.
    pub(crate) fn other(&self, name: &str) -> String {
        PLACE.link(&format!("kit/{}", segment(name)))
    }

    /// The address of the page with a value of a step whole; none if it is.
    pub(crate) fn all_of(&self, step: &str, name: &str) -> Option<String> {
        let is_all = self.all == name;
        (!is_all).then(|| self.address(&[("step", step), ("all", name)]))
    }

    pub(crate) fn address(&self, pairs: &[(&str, &str)]) -> String {
        format!("{}{}", self.other(self.shown.name), query(pairs))
    }
}
