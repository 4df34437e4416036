//! Ledgers with several streams, forks, causes and blobs, made from a seed.

#![allow(dead_code, clippy::unwrap_used, clippy::indexing_slicing)]

use ktsu_ledger::branch::Ancestry;
use ktsu_ledger::event::{BranchCreated, RunEvent};
use ktsu_ledger::store::{Entry, MemoryStore};
use ktsu_ledger::{Actor, Cause, Draft, Event, Hash, Reader, Store, StreamId};

use crate::support::{caused, completed, created, ended, entry, opened, payload, row, run};

/// The epoch that the frames of every history are from.
pub(crate) const EPOCH: u64 = 3;

/// A ledger, and the entries that it was appended in.
pub(crate) struct History {
    pub(crate) store: MemoryStore,
    pub(crate) entries: Vec<Entry>,
    streams: Vec<StreamId>,
    chance: u64,
}

impl History {
    /// A ledger of so many entries.
    pub(crate) fn new(seed: u64, entries: usize) -> Self {
        let mut history = Self {
            store: MemoryStore::new(),
            entries: Vec::new(),
            streams: Vec::new(),
            chance: seed.wrapping_add(1),
        };
        history.append(entry(&StreamId::store(), None, vec![opened(EPOCH)]));
        while history.entries.len() < entries {
            match history.below(6) {
                0 => history.begin_run(),
                1 if !history.streams.is_empty() => history.fork(),
                _ if history.streams.is_empty() => history.begin_run(),
                _ => history.go_on(),
            }
        }
        history
    }

    /// A number below a limit.
    fn below(&mut self, limit: u64) -> u64 {
        self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005);
        self.chance = self.chance.wrapping_add(1_442_695_040_888_963_407);
        (self.chance >> 33) % limit
    }

    fn any_stream(&mut self) -> StreamId {
        let at = self.below(self.streams.len() as u64);
        self.streams[at as usize].clone()
    }

    pub(crate) fn append(&mut self, entry: Entry) {
        let epoch = self.store.acquire().unwrap();
        let answer = self.store.append(epoch, std::slice::from_ref(&entry));
        answer.unwrap().remove(0).unwrap();
        self.entries.push(entry);
    }

    fn begin_run(&mut self) {
        let stream = run(&format!("r{}", self.streams.len()));
        let workflow = ["triage", "report"][self.below(2) as usize];
        let mut row = row(&stream, workflow, "running", self.below(4));
        row.key = (self.below(2) == 0).then(|| format!("key of {stream}"));
        let begun = entry(&stream, None, vec![created(workflow)]);
        self.append(begun.with_index(row).unwrap());
        self.streams.push(stream);
    }

    fn fork(&mut self) {
        let parent = self.any_stream();
        let name = format!("branch_{}", self.streams.len());
        let stream = StreamId::run(&name).unwrap();
        let last = self.store.tail(&parent).unwrap().unwrap().seq;
        let shared = self.below(last + 1);
        let path = Ancestry::of(&self.store, &parent).unwrap();
        let found = path.read(&self.store, shared, 1).unwrap().remove(0);
        let draft = branched(&name, parent.name(), shared + 1);
        let forked = entry(&stream, Some((shared, found.hash)), vec![draft]);
        let row = row(&stream, "triage", "running", self.below(4));
        self.append(forked.with_index(row).unwrap());
        self.streams.push(stream);
    }

    fn go_on(&mut self) {
        let stream = self.any_stream();
        let other = self.any_stream();
        let last = self.store.tail(&other).unwrap().unwrap().seq;
        let mut drafts = Vec::new();
        for _ in 0..=self.below(3) {
            let bytes = [20, 20, 40_000, 70_000][self.below(4) as usize];
            drafts.push(completed("s", payload(bytes, self.below(5))));
        }
        if self.below(2) == 0 && other != stream {
            drafts.push(caused(ended(), vec![Cause::There(other, last)]));
        }
        let after = self.store.tail(&stream).unwrap();
        let after: Option<(u64, Hash)> = after.map(|tail| (tail.seq, tail.hash));
        let more = entry(&stream, after, drafts);
        let before = self.store.row(&stream).unwrap().unwrap();
        let mut row = row(&stream, &before.workflow, "complete", before.created_us);
        row.key = before.key;
        self.append(more.with_index(row).unwrap());
    }
}

fn branched(name: &str, parent: &str, fork_position: u64) -> Draft {
    let text = r#"{"branch_id":"x","by":{"auth":"none","id":"local"},"effects":"suppress",
        "engine":"ktsu","fork_position":1,"parent_run_id":"x","reason":"","rules":2}"#;
    let branch: BranchCreated = serde_json::from_str(text).unwrap();
    Draft {
        scope: String::new(),
        actor: Actor::Orchestrator,
        cause: Vec::new(),
        event: Event::Run(RunEvent::Branched(Box::new(BranchCreated {
            branch_id: name.to_owned(),
            parent_run_id: parent.to_owned(),
            fork_position,
            ..branch
        }))),
    }
}
