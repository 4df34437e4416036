//! The names by which people refer to a step, or to an item of a fan-out: `triage`, `call/inner` in
//! an inline child, `classify.8` for an item, each with or without `step.` before it.

use ktsu_ledger::event::is_address;

/// The path of a step, or of an item, from the run: below the path of its scope.
pub fn path_in(scope: &str, step: &str) -> String {
    match scope {
        "" => step.to_owned(),
        scope => format!("{scope}/{step}"),
    }
}

/// The id of a run, or of an inline child by the path of its scope.
pub fn scoped_run(run: &str, scope: &str) -> String {
    match scope {
        "" => run.to_owned(),
        scope => format!("{run}/{scope}"),
    }
}

/// The parts that [`scoped_run`] puts together: the run, and the path of the scope.
pub fn split_scope(run: &str) -> (&str, &str) {
    run.split_once('/').unwrap_or((run, ""))
}

/// A step, and the item of it that is meant, if one is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepName {
    /// The step, by its path from the run.
    pub path: String,
    /// The item.
    pub item: Option<u32>,
}

impl StepName {
    /// Reads a name. Ids of steps have no dot, so what follows one is an item where it is a number;
    /// but for the addresses of what responders ask, which have no items.
    pub fn parse(text: &str) -> Self {
        let text = text.strip_prefix("step.").unwrap_or(text);
        let last = text.rsplit('/').next().unwrap_or(text);
        let item = text.rsplit_once('.').filter(|_| !is_address(last));
        let item = item.and_then(|(path, item)| {
            let digits = item.bytes().all(|byte| byte.is_ascii_digit());
            let item = item.parse().ok().filter(|_| digits)?;
            Some((path.to_owned(), item))
        });
        match item {
            Some((path, item)) => Self {
                path,
                item: Some(item),
            },
            None => Self {
                path: text.to_owned(),
                item: None,
            },
        }
    }

    /// The same step within a child: seen from the run.
    #[must_use]
    pub fn within(mut self, scope: &str) -> Self {
        self.path = path_in(scope, &self.path);
        self
    }
}

impl std::fmt::Display for StepName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&crate::lineage::item_name(&self.path, self.item))
    }
}

#[cfg(test)]
mod tests {
    use super::StepName;

    #[test]
    fn steps_and_items_are_distinguished_and_read_back() {
        for (text, path, item, shown) in [
            ("triage", "triage", None, "triage"),
            ("step.triage", "triage", None, "triage"),
            ("read.2", "read", Some(2), "read.2"),
            ("step.call/read.12", "call/read", Some(12), "call/read.12"),
            ("read.+2", "read.+2", None, "read.+2"),
            ("read.", "read.", None, "read."),
            ("read.two", "read.two", None, "read.two"),
            (
                "read.99999999999",
                "read.99999999999",
                None,
                "read.99999999999",
            ),
        ] {
            let name = StepName::parse(text);
            assert_eq!((name.path.as_str(), name.item), (path, item), "{text}");
            assert_eq!(name.to_string(), shown);
        }
        let inner = StepName::parse("read.2").within("call/deep");
        assert_eq!(inner.to_string(), "call/deep/read.2");
    }
}
