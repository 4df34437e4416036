//! A namespace: the fold of its stream, its size limits, and the evaluation of calls.

use std::collections::BTreeMap;
use std::ops::Bound;

use ktsu_ledger::event::{KvDeleted, KvEvent, KvSet};
use ktsu_ledger::{CanonicalJson, Cause, Event, Frame, Hash};
use serde_json::{Value, json};

use super::super::BuiltinCall;
use super::dedup::RecentCalls;

/// The most characters of a key.
pub(super) const MAX_KEY_CHARS: usize = 256;
/// The most bytes of a value, as canonical JSON.
const MAX_VALUE_BYTES: usize = 64 * 1024;
/// The most keys of a namespace.
const MAX_KEYS: usize = 10_000;
/// The most bytes of all keys and values of a namespace.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// The most keys of one list.
const MAX_LISTED_KEYS: usize = 1000;

/// The size of an empty namespace.
pub(super) const NAMESPACE_BYTES: usize = 4096;
/// The size of an entry without its key and its value.
const ENTRY_BYTES: usize = 128;

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Namespace {
    values: BTreeMap<String, CanonicalJson>,
    /// Of keys and values.
    bytes: usize,
    /// The calls that changed it.
    pub(super) seen: RecentCalls,
    /// The number of the next frame.
    pub(super) next: u64,
    /// The hash of the last one.
    pub(super) head: Option<Hash>,
}

/// The effect of a call.
pub(super) enum CallEffect {
    /// This, which is known.
    Known(Value),
    /// A frame to append, and the response once it is durable.
    Change(KvEvent, Value),
}

impl Namespace {
    /// Takes the next frame of the stream.
    pub(super) fn apply(&mut self, frame: &Frame) {
        self.next = frame.seq + 1;
        self.head = Some(frame.hash);
        let Event::Kv(event) = &frame.event else {
            return;
        };
        let (key, value, made) = match event {
            KvEvent::Set(set) => (&set.key, Some(&set.value), &set.idempotency_key),
            KvEvent::Deleted(gone) => (&gone.key, None, &gone.idempotency_key),
        };
        self.bytes = self.bytes_with(key, value);
        match value {
            Some(value) => drop(self.values.insert(key.clone(), value.clone())),
            None => drop(self.values.remove(key)),
        }
        for cause in &frame.cause {
            if let Cause::There(run, _) = cause {
                self.seen.put(run, made);
            }
        }
    }

    /// The approximate number of bytes that it takes in memory.
    pub(super) fn bytes(&self) -> usize {
        NAMESPACE_BYTES + self.bytes + self.values.len() * ENTRY_BYTES + self.seen.bytes()
    }

    /// Evaluates a call without changing anything.
    pub(super) fn evaluate(&self, call: &BuiltinCall) -> Result<CallEffect, String> {
        let key = call.arguments["key"].as_str().unwrap_or_default();
        let listing = call.tool == "kv-list";
        if !listing && (key.is_empty() || key.chars().count() > MAX_KEY_CHARS) {
            return Err(format!("key is a text of 1 to {MAX_KEY_CHARS} characters"));
        }
        let (idempotency_key, key) = (call.key.clone(), key.to_owned());
        Ok(match call.tool.as_str() {
            "kv-get" => {
                let value = self.values.get(&key).map(CanonicalJson::to_value);
                CallEffect::Known(json!({"key": key, "value": value}))
            }
            "kv-list" => {
                let prefix = call.arguments["prefix"].as_str().unwrap_or_default();
                CallEffect::Known(self.list(prefix))
            }
            "kv-set" => {
                let value = call.arguments.get("value").ok_or("value is missing")?;
                let value =
                    CanonicalJson::from_value(value).map_err(|_| "value is nested too deeply")?;
                let given = json!({"key": key, "set": true});
                let set = KvSet {
                    idempotency_key,
                    key,
                    value,
                };
                CallEffect::Change(KvEvent::Set(set), given)
            }
            "kv-delete" => {
                let given = json!({"deleted": true, "key": key});
                let deleted = KvDeleted {
                    idempotency_key,
                    key,
                };
                CallEffect::Change(KvEvent::Deleted(deleted), given)
            }
            other => return Err(format!("there is no tool {other:?}")),
        })
    }

    /// Checks that an event fits the size limits. One that frees space is always allowed.
    pub(super) fn admit(&self, event: &KvEvent) -> Result<(), String> {
        let KvEvent::Set(set) = event else {
            return Ok(());
        };
        if set.value.as_str().len() > MAX_VALUE_BYTES {
            return Err(format!("value has more than {MAX_VALUE_BYTES} bytes"));
        }
        let known = self.values.contains_key(&set.key);
        if !known && self.values.len() >= MAX_KEYS {
            return Err(format!(
                "the namespace has {MAX_KEYS} keys, and takes no more: delete some first"
            ));
        }
        let then = self.bytes_with(&set.key, Some(&set.value));
        if then > MAX_BYTES && then > self.bytes {
            return Err(format!(
                "the namespace would have more than {MAX_BYTES} bytes: delete some keys first"
            ));
        }
        Ok(())
    }

    /// The bytes of all keys and values, were this the value of that key.
    fn bytes_with(&self, key: &str, value: Option<&CanonicalJson>) -> usize {
        let size = |value: &CanonicalJson| key.len() + value.as_str().len();
        self.bytes - self.values.get(key).map_or(0, size) + value.map_or(0, size)
    }

    fn list(&self, prefix: &str) -> Value {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let from = self.values.range::<str, _>(from);
        let mut keys = from
            .map(|(key, _)| key)
            .take_while(|key| key.starts_with(prefix));
        let listed: Vec<&String> = keys.by_ref().take(MAX_LISTED_KEYS).collect();
        json!({"keys": listed, "more": keys.next().is_some()})
    }
}
