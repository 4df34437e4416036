//! Writing: one statement for a group of entries, fenced by the owner's row.
//!
//! Everything of a group is in one message, so nothing is locked before all of it has arrived. The
//! fence compares the epoch and the head of the ledger: an owner that was overtaken, and a message that
//! comes too late, store nothing. Positions follow from the head, so they are dense.

use std::collections::HashMap;
use std::sync::Arc;

use ktsu_ledger::store::columns::int;
use ktsu_ledger::store::lease::{BootTime, Tenure};
use ktsu_ledger::store::precondition::{check, unnamed_blobs};
use ktsu_ledger::store::{
    AppendRefusal, Entry, Epoch, Holder, IndexRow, Lease, MAX_PAGE, OwnerState, StandIn, StoreError,
};
use ktsu_ledger::{Hash, StreamId};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connection::{Connection, SqlParameter};
use crate::looked::{Looked, View};
use crate::owner_row::owner_row;
use crate::parameters::{group_statement, rows_statement, stand_ins_statement};
use crate::queries::{PostgresQueries, StoredStream};
use crate::statements::{BEGIN, CommitPolicy};
use crate::values::{column, damaged, hashes, limit, number, text, unsigned};

/// How many streams are remembered: some 8 MB.
const MAX_CACHED_TAILS: usize = 65_536;
/// How many frames of a removed stream one statement deletes: some 100 ms.
const REMOVED_AT_ONCE: u64 = 5_000;
/// How many blobs one statement deletes.
const BLOBS_AT_ONCE: usize = 500;
/// What is done when a group is not stored.
const APPENDING: &str = "append to the ledger";
/// What is done when index rows are not put.
const INDEXING: &str = "change the list of runs";
/// What is done when the ownership is not renewed.
const RENEWING: &str = "renew the ownership of the ledger";

/// The end of a ledger that writes.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) ledger: PostgresQueries,
    policy: CommitPolicy,
    /// The state in which the ledger was free, if its owner is to be the next one after that.
    free: Option<OwnerState>,
    /// The epoch that it has acquired.
    epoch: Option<Epoch>,
    /// The URL at which this owner listens.
    url: String,
    /// What a removal renews, which may take longer than a lease.
    tenure: Option<Arc<Tenure>>,
    /// The position of the last frame, as far as it is known.
    head: Option<u64>,
    /// The position up to which the server has acknowledged everything to this owner.
    acknowledged: u64,
    /// What is remembered of streams; all of it is stored.
    tails: HashMap<StreamId, StoredStream>,
}

impl Writer {
    pub(crate) fn new(ledger: PostgresQueries, free: Option<OwnerState>) -> Self {
        Self {
            policy: ledger.commit_policy(),
            ledger,
            free,
            epoch: None,
            url: String::new(),
            tenure: None,
            head: None,
            acknowledged: 0,
            tails: HashMap::new(),
        }
    }

    /// Raises the epoch.
    pub(crate) fn acquire(&mut self) -> Result<Epoch, StoreError> {
        let doing = "become the owner of the ledger";
        let acquired = self.acquire_unless_taken(doing);
        acquired.map_err(|error| match error {
            // Nothing was appended: another attempt finds out.
            StoreError::Unknown(why) => StoreError::Unreachable { doing, why },
            error => error,
        })
    }

    fn acquire_unless_taken(&mut self, doing: &'static str) -> Result<Epoch, StoreError> {
        let free = self.free.take();
        let expected = self.epoch.or(free.as_ref().map(|row| Epoch(row.epoch)));
        let parameters = vec![
            text(&Holder::this().to_string()),
            text(&self.url),
            optional(expected.map(|Epoch(epoch)| epoch)),
            optional(free.as_ref().map(|row| row.head)),
            optional(free.as_ref().map(|row| row.beat)),
        ];
        let connection = self.connection(doing)?;
        let rows = self.change(&connection, doing, self.policy.acquire(), parameters)?;
        let Some(row) = rows.first() else {
            let stored = owner_row(&self.ledger)?.epoch;
            let ours = expected.map_or(0, |Epoch(epoch)| epoch);
            return Err(StoreError::Fenced { ours, stored });
        };
        self.tails.clear();
        let head = unsigned(row, 1)?;
        (self.head, self.acknowledged) = (Some(head), head);
        let epoch = Epoch(unsigned(row, 0)?);
        self.epoch = Some(epoch);
        Ok(epoch)
    }

    fn renew(&mut self, epoch: Epoch, statement: &str) -> Result<(), StoreError> {
        let connection = self.connection(RENEWING)?;
        let rows = self.change(&connection, RENEWING, statement, vec![number(epoch.0)])?;
        self.must_be_fenced(epoch, &rows)?;
        let head = rows.first().map_or(Ok(0), |row| unsigned(row, 1))?;
        self.must_have_all(head)
    }

    /// See [`ktsu_ledger::Store::append`].
    pub(crate) fn append(
        &mut self,
        epoch: Epoch,
        entries: &[Entry],
    ) -> Result<Vec<Result<u64, AppendRefusal>>, StoreError> {
        // One that removes is several statements, of which some may be stored.
        let is_one = !entries
            .iter()
            .any(|entry| entry.removals().next().is_some());
        let mut appended = self.append_groups(epoch, entries, is_one);
        if is_one && matches!(appended, Err(StoreError::Failed { .. })) {
            // Nothing is stored: perhaps a stream was there that seemed to be new.
            (self.head, self.tails) = (None, HashMap::new());
            appended = self.append_groups(epoch, entries, false);
        }
        if appended.is_err() {
            // What is stored is known only once it is read again.
            (self.head, self.tails) = (None, HashMap::new());
        }
        appended
    }

    fn append_groups(
        &mut self,
        epoch: Epoch,
        entries: &[Entry],
        trusting: bool,
    ) -> Result<Vec<Result<u64, AppendRefusal>>, StoreError> {
        let mut looked = self.look(entries, trusting)?;
        let mut results = Vec::with_capacity(entries.len());
        let mut is_fenced = false;
        for entry in entries {
            let removes = entry.removals().next().is_some();
            if removes && !looked.group.is_empty() {
                self.store(epoch, &mut looked)?;
                is_fenced = true;
            }
            let mut view = View {
                ledger: &self.ledger,
                tails: &self.tails,
                looked: &looked,
            };
            if let Some(refused) = check(entry, &mut view)? {
                results.push(Err(refused));
                continue;
            }
            results.push(Ok(entry.tail().seq));
            self.accept(entry, &mut looked);
            if removes {
                self.remove(epoch, entry, &mut looked)?;
                is_fenced = true;
            }
        }
        if !looked.group.is_empty() || !is_fenced {
            self.store(epoch, &mut looked)?;
        }
        if self.tails.len() + looked.pending.len() > MAX_CACHED_TAILS {
            self.tails.clear();
        }
        self.tails.extend(looked.pending);
        Ok(results)
    }

    /// Finds out, with a question for all, what the checks of the entries need. If it trusts, a stream
    /// is new where an entry begins it: the server refuses the group if it is not.
    fn look(&mut self, entries: &[Entry], trusting: bool) -> Result<Looked, StoreError> {
        let mut looked = Looked::default();
        let mut unknown: Vec<StreamId> = Vec::new();
        for entry in entries {
            let own = entry.stream();
            let causes = entry.foreign_causes().iter().map(|(stream, _)| stream);
            let mut named: Vec<&StreamId> = causes.chain(entry.forked_from()).collect();
            match trusting && entry.expected().is_none() && !self.tails.contains_key(own) {
                true => drop(looked.absent.insert(own.clone())),
                false => named.push(own),
            }
            let new = named.into_iter();
            let new = new.filter(|stream| !self.tails.contains_key(*stream));
            unknown.extend(new.cloned());
        }
        if !unknown.is_empty() {
            unknown.sort_unstable();
            unknown.dedup();
            let found = self.ledger.stream_rows(&unknown)?;
            self.tails.extend(found);
            let absent = unknown.into_iter();
            let absent = absent.filter(|stream| !self.tails.contains_key(stream));
            looked.absent.extend(absent);
        }
        let wanted = entries.iter().flat_map(Entry::wanted_blobs).copied();
        let wanted: Vec<Hash> = wanted.collect();
        if !wanted.is_empty() {
            looked.blobs = self.ledger.known_blobs(&wanted)?;
        }
        let rows = entries.iter().filter_map(Entry::index);
        let keys: Vec<String> = rows.clone().filter_map(|row| row.key.clone()).collect();
        if !keys.is_empty() {
            let streams: Vec<StreamId> = rows.map(|row| row.stream.clone()).collect();
            looked.keys = self.ledger.keys(&streams, &keys)?.into_iter().collect();
        }
        Ok(looked)
    }

    /// Takes an entry into the group.
    fn accept(&self, entry: &Entry, looked: &mut Looked) {
        let known = looked.pending.get(entry.stream());
        let known = known.or_else(|| self.tails.get(entry.stream()));
        // A new stream gets the position of its first frame, once that is known.
        let id = known.map_or(0, |known| known.id);
        let row = StoredStream {
            id,
            tail: Some(entry.tail()),
        };
        looked.pending.insert(entry.stream().clone(), row);
        if let Some(row) = entry.index() {
            match &row.key {
                Some(key) => drop(looked.keys.insert(row.stream.clone(), key.clone())),
                None => drop(looked.keys.remove(&row.stream)),
            }
        }
        looked.group.push(entry.clone());
    }

    /// Stores the group.
    fn store(&mut self, epoch: Epoch, looked: &mut Looked) -> Result<(), StoreError> {
        let connection = self.connection(APPENDING)?;
        self.store_on(&connection, epoch, looked)?;
        self.note_acknowledged();
        Ok(())
    }

    /// Notes that the server has acknowledged everything up to the head.
    fn note_acknowledged(&mut self) {
        self.acknowledged = self.head.unwrap_or(self.acknowledged);
    }

    fn store_on(
        &mut self,
        connection: &Connection,
        epoch: Epoch,
        looked: &mut Looked,
    ) -> Result<(), StoreError> {
        let head = self.current_head()?;
        let group = std::mem::take(&mut looked.group);
        let statement = group_statement(self.policy, epoch, head, &group, &mut looked.pending);
        let (text, parameters) = (statement.text, statement.parameters);
        let rows = self.change(connection, APPENDING, text, parameters)?;
        self.must_be_fenced(epoch, &rows)?;
        self.head = Some(head + statement.frames);
        let brought = group.iter().flat_map(Entry::blobs);
        looked.blobs.extend(brought.map(|blob| blob.hash));
        Ok(())
    }

    /// Deletes streams in the transaction that stores the frames that say so.
    fn remove(
        &mut self,
        epoch: Epoch,
        entry: &Entry,
        looked: &mut Looked,
    ) -> Result<(), StoreError> {
        let head = self.current_head()?;
        let mut deletions = Vec::new();
        for (seq, removed, removal) in entry.removals() {
            let mut view = View {
                ledger: &self.ledger,
                tails: &self.tails,
                looked,
            };
            let missing = || damaged(&format!("{} does not exist", removed.stream));
            deletions.push(Deletion {
                stream: removed.stream.clone(),
                id: view.stored(&removed.stream)?.ok_or_else(missing)?.id,
                frames: removed.frames,
                blobs: unnamed_blobs(removal, &mut view)?,
                authority: head + 1 + seq.saturating_sub(entry.first()),
            });
        }
        let connection = self.ledger.another();
        let connection = connection.map_err(|error| error.writing(APPENDING))?;
        let begun = connection.run(BEGIN);
        begun.map_err(|error| error.writing(APPENDING))?;
        // Where it fails, its transaction ends with its connection, and nothing of it is acknowledged.
        for deletion in &deletions {
            self.delete(&connection, epoch, deletion)?;
        }
        // Only now does it hold the owner's row, for as long as other groups do.
        self.store_on(&connection, epoch, looked)?;
        self.change(&connection, APPENDING, "COMMIT", Vec::new())?;
        self.note_acknowledged();
        for Deletion {
            stream, id, blobs, ..
        } in deletions
        {
            looked.blobs.retain(|hash| !blobs.contains(hash));
            looked.keys.remove(&stream);
            looked
                .pending
                .insert(stream, StoredStream { id, tail: None });
        }
        Ok(())
    }

    /// Deletes a stream, in parts: the ownership is renewed between two of them, on a connection of its own.
    fn delete(
        &mut self,
        connection: &Connection,
        epoch: Epoch,
        deletion: &Deletion,
    ) -> Result<(), StoreError> {
        let stream = &deletion.stream;
        let id = || (Box::new(deletion.id) as Box<_>, Type::INT8);
        let statement = "WITH recorded AS (
               INSERT INTO removals (stream, frames, authority) VALUES ($1, $2, $3))
             DELETE FROM index_rows WHERE stream = $4";
        let record = vec![
            id(),
            number(deletion.frames),
            number(deletion.authority),
            text(stream.as_str()),
        ];
        self.change(connection, APPENDING, statement, record)?;
        let mut deleted = 0;
        let mut part = |writer: &mut Self, from: u64| {
            let statement = "WITH gone AS (
                   DELETE FROM frames WHERE stream = $1 AND seq >= $2 AND seq < $3 RETURNING 1)
                 SELECT count(*) FROM gone";
            let parameters = vec![id(), number(from), number(from + REMOVED_AT_ONCE)];
            let rows = writer.change(connection, APPENDING, statement, parameters)?;
            deleted += rows.first().map_or(Ok(0), |row| unsigned(row, 0))?;
            writer.renew_in_between(epoch)
        };
        for from in (0..deletion.frames).step_by(REMOVED_AT_ONCE as usize) {
            part(self, from)?;
        }
        for blobs in deletion.blobs.chunks(BLOBS_AT_ONCE) {
            let statement = "DELETE FROM blobs WHERE hash = ANY ($1)";
            self.change(connection, APPENDING, statement, vec![hashes(blobs)])?;
            self.renew_in_between(epoch)?;
        }
        match deleted == deletion.frames {
            true => Ok(()),
            false => Err(StoreError::Damaged(format!(
                "{stream} has {deleted} frames, not {}",
                deletion.frames
            ))),
        }
    }

    /// Renews the ownership in the middle of an append.
    fn renew_in_between(&mut self, epoch: Epoch) -> Result<(), StoreError> {
        let sent = BootTime::now();
        self.beat(epoch)?;
        if let Some(tenure) = &self.tenure {
            tenure.renew(sent);
        }
        Ok(())
    }

    /// Deletes every index row.
    pub(crate) fn clear_index(&mut self, epoch: Epoch) -> Result<(), StoreError> {
        loop {
            let connection = self.connection(INDEXING)?;
            let parameters = vec![number(epoch.0), limit(MAX_PAGE)];
            let rows = self.change(&connection, INDEXING, self.policy.clear(), parameters)?;
            self.must_be_fenced(epoch, &rows)?;
            let found: i64 = rows.first().map_or(Ok(0), |row| column(row, 2))?;
            if found == 0 {
                return Ok(());
            }
        }
    }

    /// Puts index rows.
    pub(crate) fn put_rows(&mut self, epoch: Epoch, rows: &[IndexRow]) -> Result<(), StoreError> {
        let keys: Vec<String> = rows.iter().filter_map(|row| row.key.clone()).collect();
        let streams: Vec<StreamId> = rows.iter().map(|row| row.stream.clone()).collect();
        let mut keys: HashMap<StreamId, String> =
            self.ledger.keys(&streams, &keys)?.into_iter().collect();
        let mut owners: HashMap<String, StreamId> = keys
            .iter()
            .map(|(stream, key)| (key.clone(), stream.clone()))
            .collect();
        for row in rows {
            let owner = row.key.as_ref().and_then(|key| owners.get(key));
            if owner.is_some_and(|owner| *owner != row.stream) {
                return Err(StoreError::KeyTwice(row.stream.clone()));
            }
            if let Some(before) = keys.remove(&row.stream) {
                owners.remove(&before);
            }
            if let Some(key) = &row.key {
                keys.insert(row.stream.clone(), key.clone());
                owners.insert(key.clone(), row.stream.clone());
            }
        }
        let head = self.current_head()?;
        let last: HashMap<&StreamId, &IndexRow> =
            rows.iter().map(|row| (&row.stream, row)).collect();
        let statement = rows_statement(self.policy, epoch, head, last.into_values());
        let (text, parameters) = (statement.text, statement.parameters);
        let connection = self.connection(INDEXING)?;
        let answered = self.change(&connection, INDEXING, text, parameters)?;
        self.must_be_fenced(epoch, &answered)
    }

    /// Puts stand-ins.
    pub(crate) fn put_stand_ins(&mut self, epoch: Epoch, of: &[StandIn]) -> Result<(), StoreError> {
        let mut names: Vec<StreamId> = of.iter().map(|one| one.stream.clone()).collect();
        names.sort_unstable();
        names.dedup();
        let known = self.ledger.stream_rows(&names)?.into_iter();
        let ids = known.map(|(stream, row)| (stream, row.id)).collect();
        let head = self.current_head()?;
        let statement = stand_ins_statement(self.policy, epoch, head, of, ids);
        (self.head, self.tails) = (None, HashMap::new());
        let (text, parameters) = (statement.text, statement.parameters);
        let connection = self.connection(APPENDING)?;
        let rows = self.change(&connection, APPENDING, text, parameters)?;
        self.must_be_fenced(epoch, &rows)
    }

    fn current_head(&mut self) -> Result<u64, StoreError> {
        if let Some(head) = self.head {
            return Ok(head);
        }
        let head = owner_row(&self.ledger)?.head;
        self.must_have_all(head)?;
        self.head = Some(head);
        Ok(head)
    }

    /// Checks that a server has what it has acknowledged: another one may have taken its place.
    fn must_have_all(&self, head: u64) -> Result<(), StoreError> {
        let acknowledged = self.acknowledged;
        match head < acknowledged {
            true => Err(damaged(&format!(
                "it ends at position {head}, and the server had acknowledged {acknowledged}: \
                 another server has taken its place"
            ))),
            false => Ok(()),
        }
    }

    /// The error of an owner whose fence did not hold: another one has come, or a message of its own
    /// was stored late.
    fn overtaken(&mut self, Epoch(ours): Epoch) -> StoreError {
        self.head = None;
        match owner_row(&self.ledger).map(|row| row.epoch) {
            Ok(stored) if stored == ours => {
                StoreError::Unknown("an earlier message came late".to_owned())
            }
            Ok(stored) => StoreError::Fenced { ours, stored },
            Err(error) => error,
        }
    }

    /// Checks that the fence of a statement held.
    fn must_be_fenced(&mut self, epoch: Epoch, rows: &[Row]) -> Result<(), StoreError> {
        let fenced: i64 = rows.first().map_or(Ok(0), |row| column(row, 0))?;
        match fenced {
            0 => Err(self.overtaken(epoch)),
            _ => Ok(()),
        }
    }

    fn connection(&self, doing: &'static str) -> Result<Arc<Connection>, StoreError> {
        let connection = self.ledger.connection();
        connection.map_err(|error| error.writing(doing))
    }

    /// Runs a statement that changes something. After an error the next one gets a new connection.
    fn change(
        &self,
        connection: &Connection,
        doing: &'static str,
        statement: impl Into<String>,
        parameters: Vec<SqlParameter>,
    ) -> Result<Vec<Row>, StoreError> {
        // A warning of an earlier statement, or of the connection's start, is about something else.
        connection.take_warning();
        match connection.query(statement, parameters) {
            Ok(_) if connection.take_warning() => Err(not_replicated()),
            Ok(rows) => Ok(rows),
            Err(error) => {
                self.ledger.disconnect();
                Err(error.writing(doing))
            }
        }
    }
}

impl Lease for Writer {
    fn set_url(&mut self, url: &str) {
        url.clone_into(&mut self.url);
    }

    fn set_tenure(&mut self, tenure: Arc<Tenure>) {
        self.tenure = Some(tenure);
    }

    fn beat(&mut self, epoch: Epoch) -> Result<(), StoreError> {
        self.renew(epoch, &self.policy.beat())
    }

    fn release(&mut self, epoch: Epoch) -> Result<(), StoreError> {
        self.renew(epoch, &self.policy.release())
    }
}

/// A stream that is to be deleted.
#[derive(Debug)]
struct Deletion {
    stream: StreamId,
    /// Its number.
    id: i64,
    frames: u64,
    /// Those that only it names.
    blobs: Vec<Hash>,
    /// The position of the frame that records it.
    authority: u64,
}

/// A number that may be absent.
fn optional(value: Option<u64>) -> SqlParameter {
    (Box::new(value.map(int)), Type::INT8)
}

/// The server has stored something, and did not wait for its standby.
fn not_replicated() -> StoreError {
    StoreError::Unknown("the server did not wait for its standby".to_owned())
}
