//! The locks that the runs of an archive recorded, compared with their definitions.

use std::collections::BTreeMap;

use ktsu_ledger::event::lock::FORMAT;
use ktsu_ledger::event::{RunCreated, RunEvent};
use ktsu_ledger::{Event, Hash, strict};
use serde_json::Value;

use super::super::archive::PositionedFrame;
use super::reading::EvidenceArchive;
use super::{CheckResult, ClaimFailure, counted, for_one, not_covered, not_covered_at, proven};

/// The verdict of a lock on a run.
enum LockVerdict {
    /// The run had the definition that was locked.
    Locked,
    /// It says nothing, and why.
    Nothing(&'static str),
}

/// The values that a frame keeps as blobs, by the places they were in: hashes, and the bytes that
/// have them.
type DetachedBlobs<'a> = BTreeMap<&'a str, (Hash, Vec<u8>)>;

impl EvidenceArchive {
    /// Checks that every run had the definition that its lock names.
    pub(super) fn lock(&self) -> CheckResult {
        let (mut locked, mut open) = (0, None);
        for placed in self.each() {
            let event = &placed.frame.event;
            let redefines = event.branched().is_some_and(|one| one.digest.is_some());
            let shown = match event {
                Event::Run(RunEvent::Created(created)) => self.locked(&placed, created),
                _ if redefines => Ok(LockVerdict::Nothing(
                    "its definition was changed by a person",
                )),
                _ => continue,
            };
            let frame = placed.frame.id();
            match shown {
                Ok(LockVerdict::Locked) => locked += 1,
                Ok(LockVerdict::Nothing(why)) => drop(open.get_or_insert((frame, why))),
                Err(reason) => return Err(ClaimFailure::at(frame, reason)),
            }
        }
        match (open, locked) {
            (Some((frame, why)), _) => not_covered_at(frame, why),
            (None, 0) => not_covered("there is no run"),
            (None, locked) => {
                let had = for_one(&locked, "its lock names", "their locks name");
                let words = format!("{} had the definition that {had}", counted(locked, "run"));
                proven(words)
            }
        }
    }

    fn locked(
        &self,
        placed: &PositionedFrame,
        created: &RunCreated,
    ) -> Result<LockVerdict, &'static str> {
        if placed.frame.ext.iter().all(|one| one.path != "/lock") {
            return Ok(LockVerdict::Nothing("it records no lock"));
        }
        if placed.frame.ext.iter().any(|one| self.is_large(&one.hash)) {
            return Ok(LockVerdict::Nothing(
                "one of its blobs is larger than what is read at once",
            ));
        }
        let apart = self.apart(placed)?;
        let definition = apart.get("/definition").map(|(hash, _)| hash.to_string());
        if definition.as_ref() != Some(&created.digest) {
            return Err("its definition is not the one it names");
        }
        let lock = apart.get("/lock").and_then(|(_, bytes)| value(bytes));
        let lock = lock.ok_or("its lock cannot be read")?;
        if lock.get("format") != Some(&Value::from(FORMAT)) {
            return Ok(LockVerdict::Nothing(
                "its lock is of a format that this verifier does not know",
            ));
        }
        let path = format!("workflows/{}.workflow.yaml", created.workflow);
        let entries = lock.get("entries").and_then(Value::as_array);
        let found = entries.into_iter().flatten();
        let mut found = found.filter(|entry| text(entry, "path") == Some(&path));
        let said = found
            .next()
            .map(|entry| (text(entry, "kind"), text(entry, "definition")));
        let wanted = (Some("workflow"), Some(created.digest.as_str()));
        match said == Some(wanted) && found.next().is_none() {
            true => Ok(LockVerdict::Locked),
            false => Err("its lock names another definition of the workflow"),
        }
    }

    fn apart<'p>(&self, placed: &'p PositionedFrame) -> Result<DetachedBlobs<'p>, &'static str> {
        let mut apart = BTreeMap::new();
        for external in &placed.frame.ext {
            let bytes = self.blob(&external.hash);
            let bytes = bytes.filter(|bytes| Hash::of(bytes) == external.hash);
            let bytes = bytes.ok_or("one of its blobs is missing or another")?;
            let before = apart.insert(external.path.as_str(), (external.hash, bytes));
            if before.is_some() {
                return Err("two of its blobs are in one place");
            }
        }
        Ok(apart)
    }
}

/// As strictly as frames are read: two verifiers must read one thing.
fn value(bytes: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(bytes).ok()?;
    strict::check_value(text).ok()?;
    serde_json::from_str(text).ok()
}

fn text<'a>(entry: &'a Value, name: &str) -> Option<&'a str> {
    entry.get(name).and_then(Value::as_str)
}
