//! Commands that continue an eval, or run a part of it again.

use std::path::Path;

use super::super::engine::{quoted, quoted_text};
use crate::eval_file;

/// What was given for an eval, and has to be given again.
pub(super) struct Again<'a> {
    pub(super) kit: &'a Path,
    pub(super) env: Option<&'a Path>,
    /// ` --ledger FILE`, if one was named.
    pub(super) ledger: &'a str,
}

impl Again<'_> {
    /// ` --kit DIR --env FILE --ledger FILE`, but for what follows from the current folder.
    pub(super) fn options(&self) -> String {
        let kit = match self.kit == Path::new(".") {
            true => String::new(),
            false => format!(" --kit {}", quoted(self.kit)),
        };
        format!("{kit}{}", self.others())
    }

    /// What runs a suite again.
    pub(super) fn run(&self, file: &Path) -> String {
        let whole = |path: &Path| path.canonicalize().ok();
        let found = eval_file::kit_of(file).and_then(|kit| whole(&kit));
        let kit = match found.is_some() && found == whole(self.kit) {
            true => String::new(),
            false => format!(" --kit {}", quoted(self.kit)),
        };
        format!("ktsu eval run {}{kit}{}", quoted(file), self.others())
    }

    fn others(&self) -> String {
        let env = self.env.map(|env| format!(" --env {}", quoted(env)));
        format!("{}{}", env.unwrap_or_default(), self.ledger)
    }
}

/// ` --scenario=NAME`.
pub(super) fn scenario_option(name: &str) -> String {
    format!(" --scenario={}", quoted_text(name))
}
