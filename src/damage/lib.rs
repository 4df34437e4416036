//! Damage of a ledger: searched for before an owner starts, noticed by readers, and remembered. A
//! ledger that is known to be damaged is not written to.
//!
//! ```text
//! start: search ──damaged──▶ refused               a reader ──damaged──▶ Damage ──▶ the owner stops
//!          └─sound─▶ owner                                                 └──▶ a note for the next start
//! ```
//!
//! A search reads every page and every frame, so a start only does it where that is quick: on a
//! small ledger, and on one that an owner found damaged before. Rows of the run index are derived,
//! so wrong ones are rebuilt and do not count as damage.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use ktsu_ledger::canonical::CanonicalJson;
use ktsu_ledger::store::{
    Audit, Cursor, Filter, IndexRow, Inspection, Page, RawBlob, RawFrame, Reader, StoreError, Tail,
    stored_bytes,
};
use ktsu_ledger::verify::{ProblemKind, VerifyOptions, VerifyProblem, VerifyReport, verify};
use ktsu_ledger::{Hash, Record, StreamId};

use ktsu_secret::file::sibling_path;

/// Up to this many bytes, its log included, a ledger is searched whenever it is opened.
pub const MAX_SEARCHED_BYTES: u64 = 8 * 1024 * 1024;

/// A function that is called when damage becomes known.
type DamageHandler = Box<dyn Fn(&str) + Send + Sync>;

/// The damage that is known of a ledger, if any. Cheap to clone.
#[derive(Clone, Default)]
pub struct Damage {
    inner: Arc<DamageState>,
}

#[derive(Default)]
struct DamageState {
    why: OnceLock<String>,
    act: OnceLock<DamageHandler>,
}

impl std::fmt::Debug for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Damage").field(&self.reason()).finish()
    }
}

impl Damage {
    /// The damage that is known, if any.
    pub fn reason(&self) -> Option<&str> {
        self.inner.why.get().map(String::as_str)
    }

    /// Damage was found. The first finding counts.
    pub fn report(&self, why: &str) {
        let mut is_first = false;
        let why = self.inner.why.get_or_init(|| {
            is_first = true;
            why.to_owned()
        });
        if is_first {
            tracing::error!("the ledger is damaged: {why}");
            if let Some(act) = self.inner.act.get() {
                act(why);
            }
        }
    }

    /// Sets the function to call when damage is found: at once, if it was. Set once.
    pub fn on_damage(&self, act: impl Fn(&str) + Send + Sync + 'static) {
        let set = self.inner.act.set(Box::new(act));
        if let (Ok(()), Some(why), Some(act)) = (set, self.reason(), self.inner.act.get()) {
            act(why);
        }
    }

    fn note<T>(&self, read: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(StoreError::Damaged(why)) = &read {
            self.report(why);
        }
        read
    }
}

/// Reads everything once, and gives the first thing that is wrong with what was appended.
///
/// # Errors
/// [`StoreError::Failed`] if the system refused to read or write: what was appended may be sound.
pub fn find_damage(reader: &dyn Reader) -> Result<Option<String>, StoreError> {
    first_damage(&verify(reader, &VerifyOptions::default(), &mut |_| {}))
}

/// The first thing that a report found wrong with what was appended.
///
/// # Errors
/// As [`find_damage`].
pub fn first_damage(report: &VerifyReport) -> Result<Option<String>, StoreError> {
    if let Some(failed) = &report.failed {
        return Err(failed.clone());
    }
    let mut problems = report.problems.iter();
    let found = problems.find(|problem| problem.kind != ProblemKind::Index);
    Ok(found.map(describe_problem))
}

/// A problem, with its place.
pub fn describe_problem(problem: &VerifyProblem) -> String {
    match (&problem.stream, problem.seq) {
        (Some(stream), Some(seq)) => format!("{stream}#{seq}: {}", problem.message),
        (Some(stream), None) => format!("{stream}: {}", problem.message),
        (None, _) => problem.message.clone(),
    }
}

/// Returns `true` if a ledger is searched before anything rests on it.
pub fn is_searched(ledger: &Path) -> bool {
    stored_bytes(ledger) <= MAX_SEARCHED_BYTES || marker(ledger).exists()
}

/// Leaves a note beside a ledger that is too large to be searched at every start. A disk that takes
/// no note loses nothing but time.
pub fn mark(ledger: &Path, why: &str) {
    let written = std::fs::write(marker(ledger), format!("{why}\n"));
    drop(written);
}

/// Takes the note away.
pub fn unmark(ledger: &Path) {
    let removed = std::fs::remove_file(marker(ledger));
    drop(removed);
}

fn marker(ledger: &Path) -> PathBuf {
    sibling_path(ledger, ".damaged")
}

/// A reader that tells [`Damage`] of what it meets.
pub struct DamageReportingReader<R> {
    reader: R,
    damage: Damage,
}

impl<R: Reader> DamageReportingReader<R> {
    /// A reader around another one.
    pub fn new(reader: R, damage: Damage) -> Self {
        Self { reader, damage }
    }
}

impl<R: Reader> Reader for DamageReportingReader<R> {
    fn read(&self, stream: &StreamId, from: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.damage.note(self.reader.read(stream, from, limit))
    }

    fn tail(&self, stream: &StreamId) -> Result<Option<Tail>, StoreError> {
        self.damage.note(self.reader.tail(stream))
    }

    fn streams(&self, after: Option<&StreamId>, limit: usize) -> Result<Vec<StreamId>, StoreError> {
        self.damage.note(self.reader.streams(after, limit))
    }

    fn blob_get(&self, hash: &Hash) -> Result<Option<CanonicalJson>, StoreError> {
        self.damage.note(self.reader.blob_get(hash))
    }

    fn list(
        &self,
        filter: &Filter,
        cursor: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.damage.note(self.reader.list(filter, cursor, limit))
    }

    fn row(&self, stream: &StreamId) -> Result<Option<IndexRow>, StoreError> {
        self.damage.note(self.reader.row(stream))
    }

    fn by_key(&self, key: &str) -> Result<Option<IndexRow>, StoreError> {
        self.damage.note(self.reader.by_key(key))
    }

    fn found_damage(&self, why: &str) {
        self.damage.report(why);
    }

    fn audit(&self) -> Option<&dyn Audit> {
        self.reader.audit().map(|_| self as &dyn Audit)
    }
}

impl<R: Reader> DamageReportingReader<R> {
    fn inner(&self) -> &dyn Reader {
        &self.reader
    }
}

impl<R: Reader> Audit for DamageReportingReader<R> {
    fn is_indexed(&self, kind: &str) -> Result<bool, StoreError> {
        self.damage.note(self.inner().is_indexed(kind))
    }

    fn wrong_rows(&self) -> Result<Vec<(String, String)>, StoreError> {
        self.damage.note(self.inner().wrong_rows())
    }

    fn scan_frames(&self, from: u64, limit: usize) -> Result<Vec<RawFrame>, StoreError> {
        self.damage.note(self.inner().scan_frames(from, limit))
    }

    fn scan_blobs(&self, from: u64, limit: usize) -> Result<Vec<RawBlob>, StoreError> {
        self.damage.note(self.inner().scan_blobs(from, limit))
    }

    fn positions(
        &self,
        stream: &StreamId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<(u64, u64)>, StoreError> {
        let found = self.inner().auditor();
        let found = found.and_then(|audit| audit.positions(stream, from, limit));
        self.damage.note(found)
    }

    fn removals(&self, from: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        let found = self.inner().auditor();
        self.damage
            .note(found.and_then(|audit| audit.removals(from, limit)))
    }

    fn removal(&self, stream: &StreamId) -> Result<Option<Record>, StoreError> {
        let found = self.inner().auditor();
        self.damage
            .note(found.and_then(|audit| audit.removal(stream)))
    }

    fn inspect(&self) -> Inspection {
        self.reader.audit().map(Audit::inspect).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn the_first_finding_counts_and_is_acted_on_once() {
        for known_before in [true, false] {
            let damage = Damage::default();
            let acted = Arc::new(Mutex::new(Vec::new()));
            let heard = Arc::clone(&acted);
            let act = move |why: &str| heard.lock().unwrap().push(why.to_owned());
            if known_before {
                damage.report("first");
                damage.on_damage(act);
            } else {
                damage.on_damage(act);
                assert_eq!(damage.reason(), None);
                damage.report("first");
            }
            damage.report("second");
            assert_eq!(damage.reason(), Some("first"));
            assert_eq!(*acted.lock().unwrap(), ["first"]);
        }
    }

    #[test]
    fn a_ledger_is_searched_while_it_is_small_or_after_an_owner_found_it_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db");
        let file = std::fs::File::create(&path).unwrap();
        assert!(is_searched(&path));
        file.set_len(MAX_SEARCHED_BYTES + 1).unwrap();
        assert!(!is_searched(&path));
        mark(&path, "a frame is not what was appended");
        assert!(is_searched(&path));
        unmark(&path);
        assert!(!is_searched(&path));
    }

    #[test]
    fn what_the_system_refused_to_read_is_not_damage() {
        let failed = StoreError::Failed {
            doing: "read the ledger",
            why: "reading its files failed".to_owned(),
        };
        let problem = |kind| VerifyProblem {
            kind,
            message: "the blobs cannot be read".to_owned(),
            seq: None,
            stream: None,
        };
        let mut report = VerifyReport {
            problems: vec![problem(ProblemKind::Index), problem(ProblemKind::Blob)],
            ..VerifyReport::default()
        };
        let damaged = Some("the blobs cannot be read".to_owned());
        assert_eq!(first_damage(&report), Ok(damaged));
        report.failed = Some(failed.clone());
        assert_eq!(first_damage(&report), Err(failed));
    }
}
