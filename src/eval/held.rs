//! The part of the record of an eval that is held in memory.

use ktsu_ledger::event::ScenarioStarted;
use ktsu_ledger::frame::External;

/// The part of an eval that is held. What is left out may be megabytes of each of thousands of
/// runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// All of it.
    Everything,
    /// All but the contents of folders and services.
    WithoutContents,
    /// The verdicts: neither contents, nor the results that verdicts follow from.
    Verdicts,
}

impl Held {
    /// Returns `true` if a member of a frame that is kept as a blob is something else than
    /// contents.
    pub fn is_no_content(external: &External) -> bool {
        !["/services", "/workspace"].contains(&external.path.as_str())
    }

    /// The part that is held of the beginning of a checked run.
    pub(crate) fn of_started(self, started: &ScenarioStarted) -> ScenarioStarted {
        match self {
            Self::Everything => started.clone(),
            Self::WithoutContents | Self::Verdicts => ScenarioStarted {
                abandoned: started.abandoned.clone(),
                run: started.run.clone(),
                services: None,
                workspace: None,
                ..*started
            },
        }
    }
}
