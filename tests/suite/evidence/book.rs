//! Ledgers written by hand: what an honest operator records, and what one could write instead who
//! has the store, the signing keys and all the time in the world.

use ktsu_evidence::archive::{MANIFEST, Manifest, describe};
use ktsu_evidence::export::{ExportSelection, export};
use ktsu_evidence::tar::{self, Files};
use ktsu_ledger::event::{
    BranchCreated, CheckpointSigned, Effects, KeyAdded, KeyRevoked, Principal, RunEvent, RunHead,
    StoreEvent, StoreOpened,
};
use ktsu_ledger::keys::origin_of;
use ktsu_ledger::merkle::{Frontier, Node};
use ktsu_ledger::note::{self, Checkpoint, SigningKey};
use ktsu_ledger::store::{Audit as _, MemoryStore, Reader, Store};
use ktsu_ledger::{
    Actor, Cause, Draft, Entry, Epoch, Event, Hash, Link, Record, StreamId, Timestamp,
};

use crate::support::ledgers::Recorded;

/// What is written, in order.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// A run, and its head.
    Run(Recorded),
    /// Some records of a run, and a head with this status, if one is to be.
    Part(Recorded, std::ops::Range<usize>, Option<&'static str>),
    /// A branch of a run that was written before, and its head.
    Branch(Recorded, u64),
    /// A checkpoint by the key in force.
    Checkpoint,
    /// A checkpoint that names the key in force and is signed by another.
    Forged,
    /// A checkpoint by the key before the one in force.
    OldKey,
    /// The last checkpoint of another ledger.
    Copied(MemoryStore),
    /// A new key, which the one before vouches for.
    Rotate,
    /// A key counts for nothing any more.
    Revoke(u8),
}

/// A ledger, and the notes that were signed over it.
pub(crate) struct Book {
    pub(crate) store: MemoryStore,
    pub(crate) notes: Vec<String>,
    epoch: Epoch,
    keys: u8,
    origin: String,
}

impl Book {
    /// Acts on a ledger that has a key.
    pub(crate) fn write(acts: &[Act]) -> Self {
        let mut book = Self::open();
        book.rotate();
        book.act(acts);
        book
    }

    /// A run in a ledger without keys: nothing is signed.
    pub(crate) fn unsigned(run: &Recorded) -> Self {
        let mut book = Self::open();
        book.act(&[Act::Run(run.clone())]);
        book
    }

    fn open() -> Self {
        let mut store = MemoryStore::new();
        let epoch = store.acquire().unwrap();
        let mut book = Self {
            store,
            notes: Vec::new(),
            epoch,
            keys: 0,
            origin: String::new(),
        };
        book.fact(
            Vec::new(),
            StoreEvent::Opened(StoreOpened {
                engine: "ktsu 0.1.0".to_owned(),
                epoch: 1,
                pid: 1,
            }),
        );
        let first = book.store.scan_frames(1, 1).unwrap();
        book.origin = origin_of(&Hash::from_bytes(&first[0].hash).unwrap());
        book
    }

    fn act(&mut self, acts: &[Act]) {
        for act in acts {
            match act {
                Act::Run(run) => self.part(run, 0..run.records.len(), Some("complete")),
                Act::Part(run, range, status) => self.part(run, range.clone(), *status),
                Act::Branch(parent, position) => self.branch(parent, *position),
                Act::Checkpoint => self.checkpoint(self.keys, self.keys),
                Act::Forged => self.checkpoint(self.keys, 99),
                Act::OldKey => self.checkpoint(self.keys - 1, self.keys - 1),
                Act::Copied(other) => self.copy_checkpoint(other),
                Act::Rotate => self.rotate(),
                Act::Revoke(number) => self.revoke(*number),
            }
        }
    }

    /// The public key the ledger began with.
    pub(crate) fn first_key(&self) -> note::PublicKey {
        self.key(1)
    }

    /// A public key by its number.
    pub(crate) fn key(&self, number: u8) -> note::PublicKey {
        key(number).public(&self.origin)
    }

    pub(crate) fn export(&self, wanted: &ExportSelection) -> Vec<u8> {
        export(&self.store, wanted).unwrap().bytes
    }

    pub(crate) fn export_all(&self) -> Vec<u8> {
        self.export(&ExportSelection {
            all: true,
            ..ExportSelection::default()
        })
    }

    fn append(&mut self, entry: Entry) {
        for outcome in self.store.append(self.epoch, &[entry]).unwrap() {
            outcome.unwrap();
        }
    }

    fn seal(
        &mut self,
        stream: StreamId,
        link: (u64, Hash),
        cause: Vec<Cause>,
        event: Event,
        at: Timestamp,
    ) {
        let draft = Draft {
            scope: String::new(),
            actor: Actor::Orchestrator,
            cause,
            event,
        };
        let (seq, prev) = link;
        let sealed = draft.seal(Link { stream, seq, prev }, at).unwrap();
        self.append(Entry::from_sealed(vec![sealed]).unwrap().0);
    }

    fn fact(&mut self, cause: Vec<Cause>, event: StoreEvent) {
        let tail = self.store.tail(&StreamId::store()).unwrap();
        let link = tail.map_or((0, Hash::ZERO), |tail| (tail.seq + 1, tail.hash));
        let at = Timestamp::from_micros(7);
        self.seal(StreamId::store(), link, cause, Event::Store(event), at);
    }

    fn copy_checkpoint(&mut self, other: &MemoryStore) {
        let facts = other.read(&StreamId::store(), 0, 100).unwrap();
        let last = facts.last().unwrap().decode_bare().unwrap();
        match last.event {
            Event::Store(event @ StoreEvent::CheckpointSigned(_)) => self.fact(Vec::new(), event),
            other => panic!("{other:?}"),
        }
    }

    fn part(
        &mut self,
        run: &Recorded,
        range: std::ops::Range<usize>,
        status: Option<&'static str>,
    ) {
        let records = run.records[range].to_vec();
        if !records.is_empty() {
            let entry = Entry::from_records(&run.stream, records, run.blobs.clone());
            self.append(entry.unwrap());
        }
        if let Some(status) = status {
            self.head(&run.stream, status);
        }
    }

    fn branch(&mut self, parent: &Recorded, position: u64) {
        let stream: StreamId = format!("branch:branch_of_{}", parent.stream.name())
            .parse()
            .unwrap();
        let last = &parent.records[usize::try_from(position).unwrap() - 1];
        let created = BranchCreated {
            branch_id: stream.name().to_owned(),
            by: Principal {
                auth: "none".to_owned(),
                id: "local".to_owned(),
            },
            definition: None,
            digest: None,
            effects: Effects::Suppress,
            engine: "ktsu 0.1.0".to_owned(),
            env: None,
            fork_position: position,
            limits: None,
            params: None,
            parent_run_id: parent.stream.name().to_owned(),
            reason: None,
            references: Vec::new(),
            restarts: false,
            rules: 1,
            version: None,
            workflow: None,
        };
        let event = Event::Run(RunEvent::Branched(Box::new(created)));
        let at = last.decode_bare().unwrap().at;
        self.seal(stream.clone(), (position, last.hash), Vec::new(), event, at);
        self.head(&stream, "complete");
    }

    fn head(&mut self, stream: &StreamId, status: &str) {
        let tail = self.store.tail(stream).unwrap().unwrap();
        let head = RunHead {
            frames: tail.seq + 1,
            hash: tail.hash,
            status: status.to_owned(),
            stream: stream.clone(),
        };
        let cause = Cause::There(stream.clone(), tail.seq);
        self.fact(vec![cause], StoreEvent::RunHead(head));
    }

    fn rotate(&mut self) {
        self.keys += 1;
        let by = key(self.keys.saturating_sub(1).max(1));
        let public = key(self.keys).public(&self.origin);
        self.fact(
            Vec::new(),
            StoreEvent::KeyAdded(KeyAdded {
                id: public.id_text(),
                note: by.sign(&self.origin, &note::key_added(&self.origin, &public)),
                public_key: public.to_base64(),
                signed_by: by.public(&self.origin).to_base64(),
            }),
        );
    }

    fn revoke(&mut self, number: u8) {
        let (public, by) = (self.key(number), key(self.keys));
        let text = note::key_revoked(&self.origin, &public);
        let revoked = KeyRevoked {
            id: public.id_text(),
            note: by.sign(&self.origin, &text),
            public_key: public.to_base64(),
            reason: "lost".to_owned(),
            signed_by: by.public(&self.origin).to_base64(),
        };
        self.fact(Vec::new(), StoreEvent::KeyRevoked(revoked));
    }

    /// A checkpoint that names one key and bears the signature of perhaps another.
    fn checkpoint(&mut self, named: u8, signing: u8) {
        let mut tree = Frontier::default();
        let mut from = 1;
        loop {
            let page = self.store.scan_frames(from, 1000).unwrap();
            let Some(last) = page.last() else { break };
            from = last.position + 1;
            page.iter()
                .for_each(|frame| tree.push(Node::leaf(&frame.body)));
        }
        let checkpoint = Checkpoint {
            origin: self.origin.clone(),
            size: tree.size(),
            root: tree.root(),
        };
        let mut note = key(signing).sign(&self.origin, &checkpoint.text());
        if named != signing {
            note = with_id(&note, key(named).public(&self.origin).id());
        }
        self.notes.push(note.clone());
        self.fact(
            Vec::new(),
            StoreEvent::CheckpointSigned(CheckpointSigned {
                frontier: tree.peaks().to_vec(),
                key: key(named).public(&self.origin).id_text(),
                note,
                origin: checkpoint.origin,
                root: checkpoint.root,
                size: checkpoint.size,
            }),
        );
    }
}

fn key(number: u8) -> SigningKey {
    SigningKey::from_seed(&[number; 32])
}

/// A note whose signature says it is by another key.
fn with_id(note: &str, id: [u8; 4]) -> String {
    use base64::Engine as _;
    let base64 = base64::engine::general_purpose::STANDARD;
    let (before, signature) = note.trim_end().rsplit_once(' ').unwrap();
    let mut line = base64.decode(signature).unwrap();
    line[..4].copy_from_slice(&id);
    format!("{before} {}\n", base64.encode(line))
}

/// A run or a branch with other bytes and a chain that fits them.
pub(crate) fn rechained(run: &Recorded, change: impl Fn(usize, String) -> String) -> Recorded {
    let mut run = run.clone();
    let first = serde_json::from_str::<serde_json::Value>(&run.records[0].body).unwrap();
    let mut prev: Hash = first["prev"].as_str().unwrap().parse().unwrap();
    for (place, record) in run.records.iter_mut().enumerate() {
        let at = record.body.rfind(r#""prev":"#).unwrap();
        let body = change(place, record.body[..at].to_owned());
        let body = format!(r#"{body}"prev":"{prev}"}}"#);
        prev = Hash::of(body.as_bytes());
        *record = Record {
            seq: record.seq,
            hash: prev,
            body,
        };
    }
    run
}

/// An archive whose manifest fits files that were changed.
pub(crate) fn repacked(archive: &[u8], change: impl FnOnce(&mut Files)) -> Vec<u8> {
    let mut files = tar::read(archive).unwrap();
    change(&mut files);
    let mut manifest: Manifest = serde_json::from_slice(&files[MANIFEST]).unwrap();
    manifest.files = files
        .iter()
        .filter(|(name, _)| *name != MANIFEST)
        .map(|(name, file)| (name.clone(), describe(name, file)))
        .collect();
    let text = serde_json::to_vec_pretty(&manifest).unwrap();
    files.insert(MANIFEST.to_owned(), text);
    tar::write(&files).unwrap()
}
