//! The health of the ledger, as `GET /health` reports it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::startup::{self, Recovered};
use super::{Orchestrator, ReportError, Shared};
use ktsu_damage::Damage;

/// The knowledge of an engine about its ledger from its start on. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct LedgerHealth {
    damage: Damage,
    only_reads: bool,
    /// True as long as an engine that came up on a full disk has not continued.
    waits_for_room: Arc<AtomicBool>,
}

/// The state of a ledger. The first that holds, from the worst on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LedgerState {
    /// The stored data differs from what was appended.
    Damaged,
    /// Nothing is taken any more, because something failed.
    Stopped,
    /// Started on a full disk: nothing is written until there is space.
    Full,
    /// Little space is left: no new runs start.
    Low,
    /// Served read-only.
    ReadOnly,
    /// All is well.
    Ok,
}

impl LedgerState {
    /// As `/health` has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Damaged => "damaged",
            Self::Stopped => "stopped",
            Self::Full => "full",
            Self::Low => "low_on_space",
            Self::ReadOnly => "read_only",
            Self::Ok => "ok",
        }
    }

    /// Returns `true` if no action is needed.
    pub const fn is_healthy(self) -> bool {
        matches!(self, Self::ReadOnly | Self::Ok)
    }
}

impl LedgerHealth {
    /// Of an owner.
    pub fn owner(damage: Damage, full: bool) -> Self {
        Self {
            damage,
            only_reads: false,
            waits_for_room: Arc::new(AtomicBool::new(full)),
        }
    }

    /// Of an engine that only reads.
    pub fn reader(damage: Damage) -> Self {
        Self {
            only_reads: true,
            ..Self::owner(damage, false)
        }
    }

    /// Returns `true` if all writes wait for disk space.
    pub(super) fn waits_for_disk_space(&self) -> bool {
        self.waits_for_room.load(Ordering::SeqCst)
    }
}

impl Orchestrator {
    /// Returns `true` if runs may be active without a task here: those of another owner, or
    /// deferred ones.
    pub fn is_observer(&self) -> bool {
        let health = &self.shared.health;
        health.only_reads || health.waits_for_disk_space()
    }

    /// Checks that this engine takes messages of runtimes: one that only reads does not.
    ///
    /// # Errors
    /// [`ReportError::Unavailable`]: the owner of the ledger takes them.
    pub fn takes_reports(&self) -> Result<(), ReportError> {
        match self.shared.health.only_reads {
            false => Ok(()),
            true => {
                let why = self.shared.appender.failed();
                Err(ReportError::Unavailable(why.unwrap_or_default()))
            }
        }
    }

    /// The state of the ledger, with a reason if there is one.
    pub fn ledger_state(&self) -> (LedgerState, Option<String>) {
        let Shared {
            appender, health, ..
        } = self.shared.as_ref();
        if let Some(why) = health.damage.reason() {
            return (LedgerState::Damaged, Some(why.to_owned()));
        }
        if health.only_reads {
            return (LedgerState::ReadOnly, None);
        }
        match appender.failed() {
            Some(why) => (LedgerState::Stopped, Some(why)),
            None if health.waits_for_disk_space() => (LedgerState::Full, None),
            None if appender.low_on_disk() => (LedgerState::Low, None),
            None => (LedgerState::Ok, None),
        }
    }

    /// Continues after a start on a full disk: resumes unfinished runs, if wanted.
    ///
    /// # Errors
    /// Why the ledger cannot be read.
    pub async fn resume_after_disk_full(
        &self,
        resume_unfinished: bool,
    ) -> Result<Recovered, String> {
        let health = &self.shared.health;
        health.waits_for_room.store(false, Ordering::SeqCst);
        match resume_unfinished {
            true => startup::resume_all(&self.shared).await,
            false => Ok(Recovered::default()),
        }
    }
}
