//! The steps that a graph draws: those of a run, and those of a definition.

use ktsu_history::skeleton::{FoldedItems, StepSpan};

use crate::graph_words::{all_of, in_words, is_plain, last_part, lines_of};
use crate::status::{class, sign};

/// A step as a graph draws it.
pub(crate) trait GraphStep: Sized {
    /// Its path from the run or the workflow.
    fn path(&self) -> &str;
    /// The steps beside it that it waits for, by id.
    fn needs(&self) -> &[String];
    /// What is written in its box.
    fn lines(&self) -> Vec<String>;
    /// All about it in words.
    fn words(&self) -> String;
    /// The class of its box.
    fn class(&self) -> &'static str;
    /// The sign in its box.
    fn sign(&self) -> &'static str;
    /// True if it is the first to be summed up where there is too much.
    fn is_plain(&self) -> bool;
    /// True if lines to it are whole.
    fn has_begun(&self) -> bool;
    /// Its items.
    fn items(&self) -> &[Self];
    /// The items that are left out.
    fn folded(&self) -> Option<FoldedItems>;
    /// The workflows inside it, by name, with their steps.
    fn children(&self) -> impl Iterator<Item = (String, &[Self])>;
    /// What is written in a box that sums up so many, of which so many are plain.
    fn sum(count: u64, plain: u64) -> Vec<String>;

    /// Returns `true` if it has items, shown or left out.
    fn has_items(&self) -> bool {
        !self.items().is_empty() || self.folded().is_some_and(|folded| folded.count > 0)
    }
}

/// The id of a step in its scope.
pub(crate) fn id_of<S: GraphStep>(step: &S) -> &str {
    last_part(step.path())
}

impl GraphStep for StepSpan {
    fn path(&self) -> &str {
        &self.path
    }

    fn needs(&self) -> &[String] {
        &self.needs
    }

    fn lines(&self) -> Vec<String> {
        lines_of(self)
    }

    fn words(&self) -> String {
        in_words(self)
    }

    fn class(&self) -> &'static str {
        class(self.status.as_str())
    }

    fn sign(&self) -> &'static str {
        sign(self.status.as_str())
    }

    fn is_plain(&self) -> bool {
        is_plain(self)
    }

    fn has_begun(&self) -> bool {
        self.frame.is_some()
    }

    fn items(&self) -> &[Self] {
        &self.items
    }

    fn folded(&self) -> Option<FoldedItems> {
        self.folded
    }

    fn children(&self) -> impl Iterator<Item = (String, &[Self])> {
        let children = self.children.iter();
        children.map(|child| {
            let name = format!("{} {}", child.workflow, child.version);
            (name, child.steps.as_slice())
        })
    }

    fn sum(count: u64, plain: u64) -> Vec<String> {
        vec![format!("{count} more"), all_of(count, plain)]
    }
}
