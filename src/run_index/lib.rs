//! Index rows of runs, derived from their frames: at a start that finds the index incomplete, and
//! by readers.
//!
//! A run that cannot be read or folded has a row too. Otherwise the index would never be complete,
//! and every start would rebuild all of it.

use ktsu_ledger::branch::{Ancestry, frames};
use ktsu_ledger::event::RunCreated;
use ktsu_ledger::store::{IndexRow, Reader, Store, StoreError, Tail};
use ktsu_ledger::{CanonicalJson, Epoch, Frame, Hash, StreamId};
use ktsu_projections::index::{RunRow, scoped_key};
use ktsu_projections::life::run_end;
use ktsu_projections::run::{RunState, RunStatus};

/// The status of a run whose frames tell nothing.
pub const UNREADABLE: &str = "unreadable";

/// Returns `true` if a row says more than the frames that were read. A row is written with the
/// frame that changes it, so frames are missing then.
pub fn is_ahead(row: &str, frames: &str) -> bool {
    progress_rank(row) > progress_rank(frames)
}

/// A run's row and the end of its frames, as they were before its frames were read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedRun {
    row: IndexRow,
    tail: Option<Tail>,
}

impl ListedRun {
    /// Reads both; nothing where the run has no row that can be read.
    ///
    /// # Errors
    /// [`StoreError`] where the end of its frames cannot be read.
    pub fn read(reader: &dyn Reader, stream: &StreamId) -> Result<Option<Self>, StoreError> {
        let Ok(Some(row)) = reader.row(stream) else {
            return Ok(None);
        };
        let tail = reader.tail(stream)?;
        Ok(Some(Self { row, tail }))
    }

    /// Returns `true` if the row says that the run went further than the frames that were read
    /// since.
    ///
    /// Rows change with frames, and frames are appended while others are read. So the row is held
    /// against the frames only if neither changed meanwhile. The row alone would not do: a run that
    /// waits and goes on comes back to the row it had.
    pub fn is_ahead_of(&self, reader: &dyn Reader, status: &str) -> bool {
        is_ahead(&self.row.status, status)
            && Self::read(reader, &self.row.stream) == Ok(Some(self.clone()))
    }

    /// Returns `true` if frames are missing at the run's end; damage that was not known is
    /// reported.
    pub fn is_cut(&self, reader: &dyn Reader, status: &str) -> bool {
        let stream = &self.row.stream;
        if self.row.status == UNREADABLE {
            return reader.row(stream) == Ok(Some(self.row.clone()));
        }
        let is_cut = self.is_ahead_of(reader, status);
        if is_cut {
            reader.found_damage(&format!("{stream}: frames are missing at its end"));
        }
        is_cut
    }
}

/// Up to this many frames of its own, a run that goes on is folded to see whether it began.
const MAX_FOLDED_FRAMES: u64 = 8;

/// Refuses a stream that has fewer frames than its row in the list of runs knows of. The last frame
/// mostly says as much as the row; only where it does not, all of them are folded.
///
/// # Errors
/// [`StoreError`]; [`StoreError::Damaged`] if frames are missing.
pub fn check_end(reader: &dyn Reader, stream: &StreamId) -> Result<(), StoreError> {
    let Some(listed) = ListedRun::read(reader, stream)? else {
        return Ok(());
    };
    let Some(tail) = listed.tail else {
        // A removal takes frames and row at once: it may have come between the two reads.
        if ListedRun::read(reader, stream)?.is_none() {
            return Ok(());
        }
        let why = format!("{stream}: all its frames are missing");
        reader.found_damage(&why);
        return Err(StoreError::Damaged(why));
    };
    let path = Ancestry::of(reader, stream)?;
    let last = path.read(reader, tail.seq, 1)?;
    let last = last.first().and_then(|record| record.decode_bare().ok());
    let says_as_much = match RunStatus::named(&listed.row.status) {
        Some(RunStatus::Complete | RunStatus::Failed) => {
            last.is_some_and(|last| run_end(&last).is_some())
        }
        // A run that a person ended ends with the end of its last step.
        Some(RunStatus::Cancelled) | None => false,
        Some(_) => tail.seq.saturating_sub(path.forked().unwrap_or(0)) >= MAX_FOLDED_FRAMES,
    };
    if says_as_much {
        return Ok(());
    }
    // Frames that this version does not understand are shown all the same.
    let Ok(state) = RunState::fold(&frames(reader, stream)?) else {
        return Ok(());
    };
    match listed.is_cut(reader, state.status().as_str()) {
        true => {
            let words = format!("{stream}: frames are missing at its end");
            Err(StoreError::Damaged(words))
        }
        false => Ok(()),
    }
}

/// The progress of a run with a status, as a rank; one that is no status says nothing.
fn progress_rank(status: &str) -> u8 {
    match RunStatus::named(status) {
        Some(RunStatus::Complete | RunStatus::Failed | RunStatus::Cancelled) => 3,
        Some(RunStatus::Running) => 2,
        Some(RunStatus::Pending) => 1,
        Some(RunStatus::Waiting) | None => 0,
    }
}

/// The row of a run as it stands.
pub fn row(state: &RunState) -> IndexRow {
    let row = RunRow::from_state(state);
    IndexRow {
        stream: state.stream().clone(),
        workflow: row.workflow.clone(),
        status: row.status.clone(),
        open: !state.is_over() && !state.is_parked(),
        created_us: row.created_at.as_micros(),
        key: RunRow::idempotency_key(state),
        row: row.to_json(),
    }
}

/// Members that rows of earlier versions do not have.
const LATER_MEMBERS: [&str; 2] = ["cost_micro_usd", "principal"];

/// Returns `true` if a row says what the frames of its run say. One of an earlier version may say less.
pub fn agrees(row: &IndexRow, expected: &IndexRow) -> bool {
    if row == expected {
        return true;
    }
    let (mut said, wanted) = (row.row.to_value(), expected.row.to_value());
    for name in LATER_MEMBERS {
        if let (Some(members), Some(value)) = (said.as_object_mut(), wanted.get(name)) {
            members.entry(name).or_insert_with(|| value.clone());
        }
    }
    let completed = CanonicalJson::from_value(&said);
    completed.is_ok_and(|completed| {
        let completed = IndexRow {
            row: completed,
            ..row.clone()
        };
        completed == *expected
    })
}

/// A row made from the frames of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DerivedRow {
    /// The row.
    pub row: IndexRow,
    /// The reason why the run cannot be read, if so.
    pub fault: Option<UnreadableRun>,
}

/// The reason why a run cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableRun {
    /// In words.
    pub why: String,
    /// True if the ledger is damaged. Frames that are what was appended may still say something
    /// that this version does not understand.
    pub is_damage: bool,
}

/// Makes the row of a run.
///
/// # Errors
/// [`StoreError`] where the system failed, which says nothing about the run.
pub fn derive_row(reader: &dyn Reader, stream: &StreamId) -> Result<DerivedRow, StoreError> {
    let (why, is_damage) = match frames(reader, stream) {
        Ok(frames) => match RunState::fold(&frames) {
            Ok(state) => {
                return Ok(DerivedRow {
                    row: row(&state),
                    fault: None,
                });
            }
            Err(error) => (error.to_string(), false),
        },
        Err(StoreError::Damaged(why)) => (why, true),
        Err(other) => return Err(other),
    };
    Ok(DerivedRow {
        row: unreadable_row(reader, stream),
        fault: Some(UnreadableRun { why, is_damage }),
    })
}

/// The runs after a stream, a page at a time; the stream to go on after, while there is one.
///
/// # Errors
/// [`StoreError`].
pub fn runs_after(
    reader: &dyn Reader,
    after: Option<&StreamId>,
) -> Result<(Vec<StreamId>, Option<StreamId>), StoreError> {
    let page = reader.streams(after, PAGE)?;
    let last = page.last().cloned();
    let runs = page.into_iter().filter(is_run);
    Ok((runs.collect(), last))
}

/// The streams of all evals, in the order of their names, which is that of their beginnings.
///
/// # Errors
/// [`StoreError`].
pub fn evals(reader: &dyn Reader) -> Result<Vec<StreamId>, StoreError> {
    // No id of an eval comes before this one.
    let mut after = "eval:0".parse::<StreamId>().ok();
    let mut found = Vec::new();
    loop {
        let page = reader.streams(after.as_ref(), PAGE)?;
        let evals = page.iter().take_while(|stream| stream.is_eval());
        let evals: Vec<StreamId> = evals.cloned().collect();
        let is_last = evals.is_empty() || evals.len() < page.len();
        after = evals.last().cloned();
        found.extend(evals);
        if is_last {
            return Ok(found);
        }
    }
}

/// The kinds of stream that are runs, or go like one.
const RUN_KINDS: [&str; 3] = ["run", "branch", "recompute"];

/// Returns `true` if a stream is a run, a branch or a recompute.
pub fn is_run(stream: &StreamId) -> bool {
    stream.is_run()
}

/// The kinds of stream that lists show unless asked for others.
pub fn listed_kinds() -> Vec<String> {
    vec!["run".to_owned(), "branch".to_owned()]
}

/// Returns `true` if every run, branch and recompute has its row.
///
/// # Errors
/// [`StoreError`].
pub fn is_index_complete(reader: &dyn Reader) -> Result<bool, StoreError> {
    for kind in RUN_KINDS {
        if !reader.is_indexed(kind)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The number of streams that are looked at at a time.
const PAGE: usize = 256;

/// Puts rows. Where two runs claim one key, which only a damaged ledger has, the first keeps it.
///
/// # Errors
/// [`StoreError`].
pub fn put_rows(store: &mut dyn Store, epoch: Epoch, rows: &[IndexRow]) -> Result<(), StoreError> {
    match store.put_rows(epoch, rows) {
        Err(StoreError::KeyTwice(_)) => {}
        other => return other,
    }
    for row in rows {
        match store.put_rows(epoch, std::slice::from_ref(row)) {
            Err(StoreError::KeyTwice(_)) => {
                let mut without = row.clone();
                without.key = None;
                store.put_rows(epoch, &[without])?;
            }
            other => other?,
        }
    }
    Ok(())
}

/// The row of a run that cannot be read: what the first frame still says, if that much can be read.
/// The key above all: a repeated request must not start a second run.
pub fn unreadable_row(reader: &dyn Reader, stream: &StreamId) -> IndexRow {
    let first = reader.read(stream, 0, 1).unwrap_or_default();
    let first: Option<Frame> = first
        .first()
        .filter(|record| Hash::of(record.body.as_bytes()) == record.hash)
        .and_then(|record| record.decode_bare().ok());
    let created: Option<&RunCreated> = first.as_ref().and_then(|frame| frame.event.created());
    let at = first.as_ref().map(|frame| frame.at).unwrap_or_default();
    let said = |text: Option<&String>| text.cloned().unwrap_or_default();
    let row = RunRow {
        approvals: 0,
        cost_micro_usd: None,
        created_at: at,
        ended_at: None,
        error: None,
        fork_position: None,
        paused_at: None,
        parent_run_id: None,
        idempotency_digest: created.and_then(|created| created.idempotency_digest.clone()),
        principal: created.map(|created| created.principal.id.clone()),
        run_id: stream.name().to_owned(),
        status: UNREADABLE.to_owned(),
        version: said(created.map(|created| &created.version)),
        workflow: said(created.map(|created| &created.workflow)),
    };
    IndexRow {
        stream: stream.clone(),
        workflow: row.workflow.clone(),
        status: row.status.clone(),
        open: false,
        created_us: at.as_micros(),
        key: created.and_then(|created| {
            let key = created.idempotency_key.as_ref()?;
            Some(scoped_key(&created.principal.id, &created.workflow, key))
        }),
        row: row.to_json(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn row(members: &Value) -> IndexRow {
        IndexRow {
            stream: "run:run_1".parse().unwrap(),
            workflow: "w".to_owned(),
            status: "complete".to_owned(),
            open: false,
            created_us: 7,
            key: None,
            row: CanonicalJson::from_value(members).unwrap(),
        }
    }

    #[test]
    fn a_row_of_an_earlier_version_may_say_less_and_nothing_else() {
        let whole = row(&json!({"run_id": "run_1", "principal": "ada", "cost_micro_usd": 5}));
        for (members, expected) in [
            (
                json!({"run_id": "run_1", "principal": "ada", "cost_micro_usd": 5}),
                true,
            ),
            (json!({"run_id": "run_1"}), true),
            (json!({"run_id": "run_1", "principal": "ada"}), true),
            (json!({"run_id": "run_1", "principal": "eve"}), false),
            (json!({"run_id": "run_1", "cost_micro_usd": 6}), false),
            (json!({"run_id": "run_2"}), false),
            (json!({"principal": "ada", "cost_micro_usd": 5}), false),
        ] {
            assert_eq!(agrees(&row(&members), &whole), expected, "{members}");
        }
        let other = IndexRow {
            status: "failed".to_owned(),
            ..row(&json!({"run_id": "run_1"}))
        };
        assert!(!agrees(&other, &whole));
    }
}
