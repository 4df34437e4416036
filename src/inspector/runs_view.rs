//! How the list of runs is looked at.

use crate::frame::query;

/// How the list is looked at: the query of its address, as it was given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunsView {
    /// With this text.
    pub text: String,
    /// Of this workflow only.
    pub workflow: String,
    /// With this status only.
    pub status: String,
    /// Started by this principal only.
    pub principal: String,
    /// Accepted at this time or later.
    pub since: String,
    /// Accepted before this time.
    pub until: String,
    /// That cost this much at least, in US dollars.
    pub min_cost: String,
    /// In this condition only.
    pub flag: String,
}

impl RunsView {
    /// The names of its members in the address, with their values.
    fn pairs(&self) -> [(&'static str, &str); 8] {
        [
            ("text", &self.text),
            ("workflow", &self.workflow),
            ("status", &self.status),
            ("principal", &self.principal),
            ("since", &self.since),
            ("until", &self.until),
            ("min_cost", &self.min_cost),
            ("flag", &self.flag),
        ]
    }

    /// The address of the list, from a place in it on.
    pub(crate) fn link(&self, cursor: Option<&str>) -> String {
        let cursor = ("cursor", cursor.unwrap_or_default());
        let pairs: Vec<_> = self.pairs().into_iter().chain([cursor]).collect();
        format!("runs{}", query(&pairs))
    }

    /// True if it asks for something that the first line of the form does not show.
    pub(crate) fn is_narrow(&self) -> bool {
        let rarely = [
            &self.principal,
            &self.since,
            &self.until,
            &self.min_cost,
            &self.flag,
        ];
        rarely.iter().any(|one| !one.is_empty())
    }
}
