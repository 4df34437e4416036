//! The health of the ledger, as `GET /health` reports it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ktsu_ledger::store::LedgerStatus;
use ktsu_ledger::store::lease::LEASE;
use parking_lot::Mutex;

use super::owner_view::{OwnerView, SeenOwner};
use super::startup::{self, Recovered};
use super::{Orchestrator, ReportError, Shared};
use ktsu_damage::Damage;

/// The knowledge of an engine about its ledger from its start on. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct LedgerHealth {
    damage: Damage,
    only_reads: bool,
    /// The owner, as a standby sees it.
    owner: Option<OwnerView>,
    /// What the operator of a ledger on a server has to know, as of the last look.
    status: Arc<Mutex<Option<LedgerStatus>>>,
    /// True as long as an engine that came up on a full disk has not continued.
    waits_for_room: Arc<AtomicBool>,
}

/// The part that an engine has in a ledger.
#[derive(Debug, Clone)]
pub enum LedgerRole {
    /// It appends.
    Owner,
    /// It reads, and becomes the owner once that is gone.
    Standby(OwnerView),
    /// It only reads.
    Reader,
}

impl LedgerRole {
    /// As `/health` has it.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Standby(_) => "standby",
            Self::Reader => "reader",
        }
    }
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
            owner: None,
            status: Arc::default(),
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

    /// Of a standby, which only reads until its turn comes.
    pub fn standby(damage: Damage, owner: OwnerView) -> Self {
        Self {
            owner: Some(owner),
            ..Self::reader(damage)
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

    /// The part that this engine has in the ledger.
    pub fn role(&self) -> LedgerRole {
        let health = &self.shared.health;
        match (&health.owner, health.only_reads) {
            (Some(owner), _) => LedgerRole::Standby(owner.clone()),
            (None, true) => LedgerRole::Reader,
            (None, false) => LedgerRole::Owner,
        }
    }

    /// Notes the state of a ledger on a server.
    pub fn note_ledger_status(&self, status: LedgerStatus) {
        self.shared.telemetry.metrics().note_ledger(&status);
        *self.shared.health.status.lock() = Some(status);
    }

    /// What may lose acknowledged frames of a ledger on a server.
    pub fn ledger_warnings(&self) -> Vec<String> {
        let status = self.shared.health.status.lock();
        status
            .as_ref()
            .map(|status| status.warnings.clone())
            .unwrap_or_default()
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
            let seen = health.owner.as_ref().and_then(OwnerView::latest);
            return match seen.filter(|seen| seen.age > LEASE) {
                None => (LedgerState::ReadOnly, None),
                Some(SeenOwner { age, .. }) => {
                    let why = format!("the ledger has not answered for {} s", age.as_secs());
                    (LedgerState::Stopped, Some(why))
                }
            };
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
