//! A row of the tree of a run.

use super::output::{BAD, DIM, painted, symbols};
use super::text;

/// A row: the tree lines, the name, and the columns.
#[derive(Default)]
pub(super) struct StepRow {
    /// The indentation of the name, as lines of the tree.
    pub(super) lines: String,
    pub(super) mark: String,
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) start: String,
    pub(super) time: String,
    pub(super) cost: String,
    pub(super) note: String,
    pub(super) wrong: bool,
}

impl StepRow {
    /// Its columns.
    pub(super) fn cells(&self) -> Vec<String> {
        let (lines, mark, name) = (&self.lines, &self.mark, &self.name);
        let note = text::line(&self.note);
        let style = if self.wrong { BAD } else { DIM };
        vec![
            format!("{}{mark} {name}", painted(DIM, lines)),
            self.kind.clone(),
            self.start.clone(),
            self.time.clone(),
            self.cost.clone(),
            painted(style, &note),
        ]
    }
}

/// The tree lines before a name, and those before its children.
pub(super) fn branch(lines: &str, last: bool) -> (String, String) {
    let (here, below) = symbols().branch(last);
    (format!("{lines}{here}"), format!("{lines}{below}"))
}
