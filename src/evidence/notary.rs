//! Signs what was appended: a thread that follows the appender and never delays it.
//!
//! ```text
//! appender ──entries, moved──▶ notary: hash ──a run has ended, or a thousand frames──▶
//!     run.head for each run that ended ──durable──▶ checkpoint.signed over all of it ──▶ witness
//! ```
//!
//! While it works, entries wait for it, and one checkpoint covers them all. Beyond a limit, the
//! bodies that wait are dropped, and read from the ledger later; a start continues from the last
//! checkpoint in the same way. If signing fails, runs continue, and what is not signed is not
//! covered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ktsu_ledger::appender::{Commit, OnCommit};
use ktsu_ledger::event::{CheckpointSigned, KeyAdded, OPEN, RunHead, StoreEvent};
use ktsu_ledger::keys::origin_of;
use ktsu_ledger::merkle::{Frontier, Node};
use ktsu_ledger::note::{self, Checkpoint, SigningKey};
use ktsu_ledger::removal::RemovedLeaves;
use ktsu_ledger::store::{Entry, Tail};
use ktsu_ledger::{Cause, StreamId};
use parking_lot::Mutex;

use super::facts;
use super::store_stream::{StoreFact, StoreStream};
use super::witness::Witness;
use ktsu_readers::ReaderPool;

/// Beyond this many bytes waiting, bodies are read from the ledger instead.
const MAX_WAITING_BYTES: usize = 64 * 1024 * 1024;
/// A checkpoint at least this often while there is work.
const MAX_UNSIGNED_FRAMES: u64 = 1_000;
/// The least time between two checkpoints: what ends in between is covered by one.
const MIN_CHECKPOINT_INTERVAL: Duration = Duration::from_millis(100);
/// The time for which it leaves alone what is appended, so that not every append wakes a thread.
const BATCH_INTERVAL: Duration = Duration::from_millis(10);
/// The most heads that one entry holds: far below what a transaction holds.
const MAX_HEADS_PER_ENTRY: usize = 1_000;
/// The number of frames that one look at the ledger reads.
const PAGE: usize = 1_000;

/// A message to the notary.
enum NotaryMessage {
    /// Frames were appended; without their entries where too much waits.
    Appended { frames: u64, entries: Vec<Entry> },
    /// Sign what there is, and end.
    Finish,
}

/// The status of the notary.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NotaryStatus {
    /// The number of frames that the last checkpoint is over.
    pub signed_frames: u64,
    /// The reason why the last attempt to sign failed, if it did.
    pub signing: Option<String>,
    /// The reason why the last attempt to hand a checkpoint over failed, if it did.
    pub witness: Option<String>,
    /// True if there is a witness.
    pub has_witness: bool,
}

/// The [`NotaryStatus`], shared with those who report it.
pub type SharedStatus = Arc<Mutex<NotaryStatus>>;

/// The parts that a notary works with.
pub struct NotaryParts {
    /// The readers for what it was not given.
    pub readers: ReaderPool,
    /// The stream that it writes to.
    pub store: Arc<StoreStream>,
    /// The key that it signs with; or the reason why there is none.
    pub key: Result<SigningKey, String>,
    /// The witness that gets checkpoints beside the ledger.
    pub witness: Option<Witness>,
}

/// The way from the appender to the notary.
pub struct Feed {
    sender: mpsc::Sender<NotaryMessage>,
    receiver: mpsc::Receiver<NotaryMessage>,
    waiting: Arc<AtomicUsize>,
}

impl Default for Feed {
    fn default() -> Self {
        let (sender, receiver) = mpsc::channel();
        Self {
            sender,
            receiver,
            waiting: Arc::default(),
        }
    }
}

impl Feed {
    /// The function that the appender calls: it hands the entries over as they are.
    pub fn on_commit(&self) -> OnCommit {
        let (sender, waiting) = (self.sender.clone(), Arc::clone(&self.waiting));
        Box::new(move |commit: Commit| {
            let mut entries = commit.entries;
            let frames = entries
                .iter()
                .map(|entry| entry.records().len() as u64)
                .sum();
            let bytes: usize = entries.iter().map(Entry::bytes).sum();
            // In which order they are stored only the ledger can tell, perhaps.
            if !commit.is_ordered || waiting.load(Ordering::Relaxed) + bytes > MAX_WAITING_BYTES {
                entries = Vec::new();
            } else {
                waiting.fetch_add(bytes, Ordering::Relaxed);
            }
            // A notary that has ended needs nothing any more.
            let _ = sender.send(NotaryMessage::Appended { frames, entries });
        })
    }
}

/// A notary at work; whoever holds this ends it.
pub struct Notary {
    sender: mpsc::Sender<NotaryMessage>,
    thread: Mutex<Option<JoinHandle<()>>>,
    shown: SharedStatus,
    /// Dropped when it may begin.
    hold: Mutex<Option<mpsc::Sender<()>>>,
    /// Set where it is to end without having begun.
    leaves: Arc<AtomicBool>,
}

impl Notary {
    /// Starts one over a ledger that had `size` frames when its appender started. It waits for
    /// [`Notary::begin`].
    ///
    /// # Errors
    /// What the system says.
    pub fn start(feed: Feed, parts: NotaryParts, size: u64) -> std::io::Result<Self> {
        let shown = SharedStatus::default();
        let sender = feed.sender.clone();
        let (hold, held) = mpsc::channel();
        let work = NotaryWorker {
            appended: size,
            tree: Frontier::default(),
            origin: String::new(),
            ended: BTreeMap::new(),
            closed: BTreeMap::new(),
            uncovered: false,
            due: false,
            finish: false,
            broken: false,
            last: None,
            heads_seq: None,
            own: None,
            shown: Arc::clone(&shown),
            feed,
            parts,
        };
        work.show(|status, parts| status.has_witness = parts.witness.is_some());
        let thread = std::thread::Builder::new().name("notary".to_owned());
        let leaves = Arc::new(AtomicBool::new(false));
        let left = Arc::clone(&leaves);
        let thread = thread.spawn(move || {
            // Nothing is ever sent: this ends when the other end is dropped.
            let _ = held.recv();
            if !left.load(Ordering::SeqCst) {
                work.run();
            }
        })?;
        Ok(Self {
            sender,
            thread: Mutex::new(Some(thread)),
            shown,
            hold: Mutex::new(Some(hold)),
            leaves,
        })
    }

    /// Lets the notary begin. Its backlog may be the whole ledger, and a start that resumes
    /// unfinished runs needs the processors more.
    pub fn begin(&self) {
        *self.hold.lock() = None;
    }

    /// The status of the notary.
    pub fn status(&self) -> SharedStatus {
        Arc::clone(&self.shown)
    }

    /// Signs what is not signed yet, and ends. Blocks.
    pub fn finish(&self) {
        self.begin();
        let _ = self.sender.send(NotaryMessage::Finish);
        if let Some(thread) = &*self.thread.lock() {
            thread.thread().unpark();
        }
        self.join();
    }

    /// Ends it. If it has not begun, nothing is signed. Blocks.
    pub fn abandon(&self) {
        self.leaves.store(true, Ordering::SeqCst);
        self.finish();
    }

    fn join(&self) {
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

struct NotaryWorker {
    feed: Feed,
    parts: NotaryParts,
    shown: SharedStatus,
    /// The number of frames of the ledger, as far as the appender has reported.
    appended: u64,
    tree: Frontier,
    origin: String,
    /// Runs that ended since the last heads, or go on behind one: where they end, and how.
    ended: BTreeMap<StreamId, (Tail, String)>,
    /// The runs whose last head says that they ended, and how: frames behind it need another, or
    /// they could be cut off again without a trace.
    closed: BTreeMap<StreamId, String>,
    /// True if there are frames that no checkpoint covers, beside the last checkpoint's own.
    uncovered: bool,
    due: bool,
    finish: bool,
    /// True if a frame was missed: nothing is signed any more until the next start.
    broken: bool,
    last: Option<Instant>,
    /// The last number of the `store` stream that was hashed.
    heads_seq: Option<u64>,
    /// The number of our last checkpoint.
    own: Option<u64>,
}

impl NotaryWorker {
    fn run(mut self) {
        if let Err(why) = self.begin() {
            self.failed(&why);
            self.broken = true;
        }
        while !self.finish {
            if !self.wait() {
                return;
            }
            let recent = |last: Instant| last.elapsed() < MIN_CHECKPOINT_INTERVAL;
            let early = self.last.is_some_and(recent);
            let due = self.due && !early || self.finish && self.uncovered;
            if due
                && !self.broken
                && let Err(why) = self.sign()
            {
                self.failed(&why);
            }
            if !self.finish {
                // Ended early by whoever ends the notary.
                std::thread::park_timeout(BATCH_INTERVAL);
            }
        }
        if let Some(witness) = &mut self.parts.witness {
            let outcome = witness.finish();
            self.witnessed(outcome);
        }
    }

    /// Goes on from the last checkpoint.
    fn begin(&mut self) -> Result<(), String> {
        let key = self.parts.key.as_ref().map_err(Clone::clone)?;
        let facts = self.parts.readers.with_blocking(facts::read);
        let facts = facts.map_err(|error| error.to_string())?;
        facts.keys.origin().clone_into(&mut self.origin);
        let public = key.public(&self.origin);
        let in_force = facts.keys.in_force().map(|known| known.key.clone());
        if let Some((seq, last)) = facts.last {
            let tree = Frontier::resume(last.size, last.frontier);
            let tree = tree.filter(|tree| tree.root() == last.root);
            self.tree = tree.ok_or("the last checkpoint is damaged: see `ktsu verify`")?;
            self.own = Some(seq);
        }
        let heads = facts.heads;
        self.closed = facts.closed;
        self.catch_up(self.appended)?;
        self.ended
            .retain(|stream, (tail, _)| heads.get(stream) != Some(&(tail.seq + 1)));
        self.due = !self.ended.is_empty();
        if self.origin.is_empty() {
            // The first frame is on its way.
            while self.origin.is_empty() && self.wait() && !self.finish {}
        }
        let known = in_force.is_some_and(|key| key.bytes == public.bytes);
        match known || self.origin.is_empty() {
            true => Ok(()),
            false => self.introduce(),
        }
    }

    /// Makes a key known that nobody vouches for: the first one, or one that was put in place of
    /// another without `ktsu evidence key rotate`.
    fn introduce(&mut self) -> Result<(), String> {
        let key = self.parts.key.as_ref().map_err(Clone::clone)?;
        let public = key.public(&self.origin);
        let note = key.sign(&self.origin, &note::key_added(&self.origin, &public));
        let added = KeyAdded {
            id: public.id_text(),
            note,
            public_key: public.to_base64(),
            signed_by: public.to_base64(),
        };
        let added = vec![(Vec::new(), StoreEvent::KeyAdded(added))];
        self.parts.store.append(added).map(|_| ())
    }

    /// Takes one message and all that wait behind it; false if nobody will send any more.
    fn wait(&mut self) -> bool {
        let pause = self.pause().unwrap_or(Duration::MAX);
        let mut next = match self.feed.receiver.recv_timeout(pause) {
            Ok(message) => Some(message),
            Err(mpsc::RecvTimeoutError::Timeout) => None,
            Err(mpsc::RecvTimeoutError::Disconnected) => return false,
        };
        while let Some(message) = next {
            self.take(message);
            next = self.feed.receiver.try_recv().ok();
        }
        if let Some(witness) = &mut self.parts.witness
            && let Some(outcome) = witness.retry()
        {
            self.witnessed(outcome);
        }
        true
    }

    /// The longest time to wait: until a checkpoint may be made, or a witness asked again.
    fn pause(&self) -> Option<Duration> {
        let retry = self.parts.witness.as_ref().and_then(Witness::pause);
        let due = self.due.then(|| {
            let since = self.last.map(|last| last.elapsed());
            since.map_or(Duration::ZERO, |since| {
                MIN_CHECKPOINT_INTERVAL.saturating_sub(since)
            })
        });
        match (retry, due) {
            (Some(retry), Some(due)) => Some(retry.min(due)),
            (retry, due) => retry.or(due),
        }
    }

    fn take(&mut self, message: NotaryMessage) {
        let (frames, entries) = match message {
            NotaryMessage::Finish => return self.finish = true,
            NotaryMessage::Appended { frames, entries } => (frames, entries),
        };
        let before = self.appended;
        self.appended += frames;
        let bytes = entries.iter().map(Entry::bytes).sum();
        self.feed.waiting.fetch_sub(bytes, Ordering::Relaxed);
        if self.broken {
            return;
        }
        if entries.is_empty() || self.tree.size() < before {
            if let Err(why) = self.catch_up(self.appended) {
                self.failed(&why);
                self.broken = true;
            }
        } else if self.tree.size() == before {
            for entry in &entries {
                self.absorb(entry);
            }
        }
    }

    fn absorb(&mut self, entry: &Entry) {
        if self.origin.is_empty()
            && let Some(first) = entry.records().first()
        {
            self.origin = origin_of(&first.hash);
        }
        let before = self.tree.size();
        for record in entry.records() {
            self.tree.push(Node::leaf(record.body.as_bytes()));
        }
        let tail = entry.tail();
        if *entry.stream() == StreamId::store() {
            self.heads_seq = Some(tail.seq);
            self.uncovered |= self.own != Some(tail.seq);
            return;
        }
        self.uncovered = true;
        self.due |= before / MAX_UNSIGNED_FRAMES < self.tree.size() / MAX_UNSIGNED_FRAMES;
        let row = entry.index().map(|row| (row.open, row.status.as_str()));
        self.due |= row.is_some_and(|(open, _)| !open);
        let waiting = self.ended.get(entry.stream()).map(|(_, status)| status);
        match head_of(self.closed.get(entry.stream()), waiting, row) {
            Some(status) => drop(self.ended.insert(entry.stream().clone(), (tail, status))),
            None => drop(self.ended.remove(entry.stream())),
        }
    }

    /// Reads from the ledger what was not handed over.
    fn catch_up(&mut self, to: u64) -> Result<(), String> {
        let from = self.tree.size();
        let (tree, seen) = (&mut self.tree, &mut BTreeSet::<String>::new());
        let (heads_seq, own, closed) = (&mut self.heads_seq, self.own, &self.closed);
        let mut uncovered = false;
        let read = self.parts.readers.with_blocking(|reader| {
            let mut removed = RemovedLeaves::of(reader)?;
            'pages: while tree.size() < to {
                let left = usize::try_from(to - tree.size()).unwrap_or(PAGE).min(PAGE);
                let page = reader.scan_frames(tree.size() + 1, left)?;
                if page.is_empty() {
                    break;
                }
                for frame in page {
                    let gap = tree.size() + 1..frame.position.min(to + 1);
                    let is_known = removed.each(gap, &mut |leaf| tree.push(leaf))?;
                    if !is_known || frame.position > to {
                        break 'pages;
                    }
                    tree.push(Node::leaf(&frame.body));
                    let seq = frame.seq.unwrap_or_default();
                    match frame.stream.as_deref() {
                        Some("store") => {
                            *heads_seq = Some(seq);
                            uncovered |= own != Some(seq);
                        }
                        Some(name) => drop(seen.insert(name.to_owned())),
                        None => {}
                    }
                }
            }
            let mut ended = Vec::new();
            for name in seen.iter() {
                let Ok(stream) = name.parse::<StreamId>() else {
                    continue;
                };
                let status = match reader.row(&stream)? {
                    Some(row) if !row.open => row.status,
                    Some(_) if closed.contains_key(&stream) => OPEN.to_owned(),
                    Some(_) | None => continue,
                };
                if let Some(tail) = reader.tail(&stream)? {
                    ended.push((stream, (tail, status)));
                }
            }
            Ok::<_, ktsu_ledger::StoreError>(ended)
        });
        let ended = read.map_err(|error| error.to_string())?;
        self.uncovered |= uncovered || !seen.is_empty();
        self.due |= !ended.is_empty()
            || from / MAX_UNSIGNED_FRAMES < self.tree.size() / MAX_UNSIGNED_FRAMES;
        self.ended.extend(ended);
        match self.tree.size() >= to {
            true => Ok(()),
            false => Err("a frame of the ledger is missing: see `ktsu verify`".to_owned()),
        }
    }

    /// Heads first, and once they are hashed, too, the checkpoint over everything.
    fn sign(&mut self) -> Result<(), String> {
        while !self.ended.is_empty() {
            let mut facts: Vec<StoreFact> = Vec::new();
            while facts.len() < MAX_HEADS_PER_ENTRY
                && let Some((stream, (tail, status))) = self.ended.pop_first()
            {
                let cause = Cause::There(stream.clone(), tail.seq);
                match status.as_str() {
                    OPEN => self.closed.remove(&stream),
                    _ => self.closed.insert(stream.clone(), status.clone()),
                };
                let head = RunHead {
                    frames: tail.seq + 1,
                    hash: tail.hash,
                    status,
                    stream,
                };
                facts.push((vec![cause], StoreEvent::RunHead(head)));
            }
            let seq = self.parts.store.append(facts)?;
            while !self.broken && self.heads_seq.is_none_or(|hashed| hashed < seq) {
                let message = self.feed.receiver.recv();
                self.take(message.map_err(|error| error.to_string())?);
            }
        }
        if self.broken {
            return Err("a frame was missed".to_owned());
        }
        let key = self.parts.key.as_ref().map_err(Clone::clone)?;
        let checkpoint = Checkpoint {
            origin: self.origin.clone(),
            size: self.tree.size(),
            root: self.tree.root(),
        };
        let note = key.sign(&self.origin, &checkpoint.text());
        let signed = CheckpointSigned {
            frontier: self.tree.peaks().to_vec(),
            key: key.public(&self.origin).id_text(),
            note: note.clone(),
            origin: checkpoint.origin,
            root: checkpoint.root,
            size: checkpoint.size,
        };
        self.due = !self.ended.is_empty();
        self.uncovered = false;
        let signed = StoreEvent::CheckpointSigned(signed);
        self.own = Some(self.parts.store.append(vec![(Vec::new(), signed)])?);
        self.last = Some(Instant::now());
        self.show(|status, _| {
            status.signed_frames = checkpoint.size;
            status.signing = None;
        });
        if let Some(witness) = &mut self.parts.witness {
            let outcome = witness.submit(note);
            self.witnessed(outcome);
        }
        Ok(())
    }

    fn failed(&mut self, why: &str) {
        self.due = false;
        tracing::warn!(%why, "cannot sign frames; runs continue");
        self.show(|status, _| status.signing = Some(why.to_owned()));
    }

    fn witnessed(&self, outcome: Result<(), String>) {
        if let Err(why) = &outcome {
            tracing::warn!(%why, "the witness did not accept a checkpoint; retrying");
        }
        self.show(|status, _| status.witness = outcome.err());
    }

    fn show(&self, change: impl FnOnce(&mut NotaryStatus, &NotaryParts)) {
        change(&mut self.shown.lock(), &self.parts);
    }
}

/// The status that the next head of a stream names, if there is to be one: after the end that was
/// headed last, the one that waits for its head, and the row (open, status), which is there where
/// it has changed.
fn head_of(
    closed: Option<&String>,
    waiting: Option<&String>,
    row: Option<(bool, &str)>,
) -> Option<String> {
    match row {
        Some((false, status)) => Some(status.to_owned()),
        Some((true, _)) => closed.map(|_| OPEN.to_owned()),
        None => waiting.or(closed).cloned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_behind_a_head_get_another_head_and_frames_of_a_first_attempt_get_none() {
        let (failed, open) = ("failed".to_owned(), OPEN.to_owned());
        let (row, going) = (Some((false, "complete")), Some((true, "running")));
        for (closed, waiting, row, expected) in [
            (None, None, going, None),
            (None, None, None, None),
            (None, None, row, Some("complete")),
            // It ended and went on before a head was written.
            (None, Some(&failed), going, None),
            (Some(&failed), None, going, Some(OPEN)),
            (Some(&failed), Some(&open), None, Some(OPEN)),
            (Some(&failed), Some(&open), row, Some("complete")),
            // Something was said after its end.
            (Some(&failed), None, None, Some("failed")),
        ] {
            let found = head_of(closed, waiting, row);
            assert_eq!(found.as_deref(), expected, "{closed:?} {waiting:?} {row:?}");
        }
    }
}
