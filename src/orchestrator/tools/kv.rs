//! `ktsu/kv`: values that outlive runs, in the streams `kv:…` (decision A3).
//!
//! A namespace belongs to one step of one workflow: successive runs of the workflow share it, but
//! no two steps of a run do, so that data flows between steps through outputs and params only. Its
//! content is a fold over its stream ([`Namespace`]); folds are cached up to a limit and rebuilt on
//! demand.
//!
//! ```text
//! call ─▶ the fold, kept or loaded ─ask▶ read: answered
//!                                       write: made already? ─no▶ frame ─▶ appender ─durable▶ fold
//! ```

mod dedup;
mod ledger;
mod namespace;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use ktsu_ledger::{Hash, StreamId};
use ktsu_projections::run::RunState;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use self::dedup::CallStatus;
use self::ledger::{KvError, NamespaceStreams};
use self::namespace::{CallEffect, MAX_KEY_CHARS, Namespace};
use super::{BuiltinCall, CallResult};
use crate::Shared;
use crate::reports::TaskAddress;

/// The cache limit for all idle namespaces: a few full ones, or some ten thousand small ones.
const KEPT: usize = 64 * 1024 * 1024;

/// Number of attempts of a call that met what it had not read: the frame of another call, whose
/// caller had gone before it was durable.
const TRIES: u32 = 3;

/// The server's state.
#[derive(Debug)]
pub(crate) struct Kv {
    held: parking_lot::Mutex<CachedNamespace>,
    most: usize,
}

/// Namespaces by stream. The outer lock is held briefly; a call locks its namespace until its entry
/// is durable, because the next entry follows from it.
#[derive(Debug, Default)]
struct CachedNamespace {
    spaces: HashMap<StreamId, NamespaceSlot>,
    bytes: usize,
    calls: u64,
}

type Cell = Arc<Mutex<Option<Namespace>>>;

#[derive(Debug)]
struct NamespaceSlot {
    cell: Cell,
    bytes: usize,
    /// The last call that used it.
    used: u64,
}

impl Default for Kv {
    fn default() -> Self {
        Self::keeping(KEPT)
    }
}

/// The tools that it offers.
pub(super) fn tools() -> Value {
    let key = json!({"type": "string", "minLength": 1, "maxLength": MAX_KEY_CHARS});
    let tool = |name: &str, description: &str, properties: Value, required: Value| {
        json!({
            "name": name,
            "description": description,
            "inputSchema": {
                "type": "object",
                "properties": properties,
                "required": required,
                "additionalProperties": false,
            },
        })
    };
    json!([
        tool(
            "kv-get",
            "The value of a key; null if it has none.",
            json!({"key": key}),
            json!(["key"])
        ),
        tool(
            "kv-set",
            "Gives a key a value, which lasts beyond this run.",
            json!({"key": key, "value": {}}),
            json!(["key", "value"])
        ),
        tool(
            "kv-delete",
            "Takes the value of a key away.",
            json!({"key": key}),
            json!(["key"])
        ),
        tool(
            "kv-list",
            "The keys that have values, in order.",
            json!({"prefix": {"type": "string"}}),
            json!([])
        ),
    ])
}

/// The stream of a step's namespace, identified by workflow, scope, step and name.
pub(super) fn namespace(state: &RunState, task: &TaskAddress, name: &str) -> String {
    let workflow = &state.outline().root().plan.name;
    let whole = format!("{workflow}\n{}\n{}\n{name}", task.scope, task.step);
    let hash = Hash::of(whole.as_bytes()).to_string();
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || "._-".contains(c) {
            c
        } else {
            '-'
        }
    };
    let shown: String = task.step.chars().take(32).map(plain).collect();
    let short: String = hash.chars().take(16).collect();
    // A step may begin with an underscore, a name may not.
    format!("{}.{short}", shown.trim_start_matches(['_', '-', '.']))
        .trim_start_matches('.')
        .to_owned()
}

impl Kv {
    fn keeping(most: usize) -> Self {
        Self {
            held: parking_lot::Mutex::default(),
            most,
        }
    }

    /// Makes a call, which is recorded in its run and under way.
    pub(super) async fn call(
        &self,
        shared: &Arc<Shared>,
        namespace: &str,
        call: &BuiltinCall,
    ) -> CallResult {
        let ledger = NamespaceStreams {
            readers: &shared.readers,
            appender: &shared.appender,
            clock: &shared.clock,
        };
        let stream: StreamId = format!("kv:{namespace}")
            .parse()
            .map_err(|_| "the namespace has no name".to_owned())?;
        self.call_in(&ledger, &stream, call).await
    }

    async fn call_in(
        &self,
        ledger: &NamespaceStreams<'_>,
        stream: &StreamId,
        call: &BuiltinCall,
    ) -> CallResult {
        let cell = self.held.lock().cell(stream);
        let mut held = cell.lock().await;
        let mut given = Err(KvError::Behind);
        for _ in 0..TRIES {
            given = answered(ledger, stream, &mut held, call).await;
            if !matches!(given, Err(KvError::Behind)) {
                break;
            }
        }
        let bytes = held
            .as_ref()
            .map_or(namespace::NAMESPACE_BYTES, Namespace::bytes);
        drop(held);
        drop(cell);
        self.held.lock().settle(stream, bytes, self.most);
        given.map_err(KvError::message)
    }
}

/// Executes a call. The fold leaves the cache while it is ahead of the ledger, so that it is
/// reloaded after an append of unknown outcome or if the caller is gone.
async fn answered(
    ledger: &NamespaceStreams<'_>,
    stream: &StreamId,
    held: &mut Option<Namespace>,
    call: &BuiltinCall,
) -> Result<Value, KvError> {
    let mut space = match held.take() {
        Some(space) => space,
        None => ledger.load(stream).await?,
    };
    let given = made(ledger, stream, &mut space, call).await;
    if matches!(given, Ok(_) | Err(KvError::Words(_))) {
        *held = Some(space);
    }
    given
}

async fn made(
    ledger: &NamespaceStreams<'_>,
    stream: &StreamId,
    space: &mut Namespace,
    call: &BuiltinCall,
) -> Result<Value, KvError> {
    let (event, given) = match space.evaluate(call).map_err(KvError::Words)? {
        CallEffect::Known(value) => return Ok(value),
        CallEffect::Change(event, given) => (event, given),
    };
    let run = &call.called.0;
    let earlier = match space.seen.status(run, &call.key) {
        CallStatus::Made => return Ok(given),
        CallStatus::New => None,
        CallStatus::Forgotten => Some(ledger.keys_of(stream, run).await?),
    };
    if let Some(keys) = earlier {
        let made = keys.contains(&dedup::digest(&call.key));
        space.seen.remember(run, keys);
        if made {
            return Ok(given);
        }
    }
    space.admit(&event).map_err(KvError::Words)?;
    let frame = ledger.append(stream, space, call, event).await?;
    space.apply(&frame);
    Ok(given)
}

impl CachedNamespace {
    fn cell(&mut self, stream: &StreamId) -> Cell {
        if let Some(slot) = self.spaces.get(stream) {
            return Arc::clone(&slot.cell);
        }
        let slot = NamespaceSlot {
            cell: Cell::default(),
            bytes: namespace::NAMESPACE_BYTES,
            used: self.calls,
        };
        let cell = Arc::clone(&slot.cell);
        self.bytes += slot.bytes;
        self.spaces.insert(stream.clone(), slot);
        cell
    }

    /// Records the size of a namespace, and evicts the least recently used ones until the rest
    /// fits.
    fn settle(&mut self, stream: &StreamId, bytes: usize, most: usize) {
        self.calls += 1;
        if let Some(slot) = self.spaces.get_mut(stream) {
            self.bytes = self.bytes - slot.bytes + bytes;
            slot.bytes = bytes;
            slot.used = self.calls;
        }
        while self.bytes > most {
            let Some(stream) = self.idlest() else { break };
            let gone = self.spaces.remove(&stream);
            self.bytes -= gone.map_or(0, |slot| slot.bytes);
        }
    }

    /// The least recently used namespace that is not in use: two folds of one stream would diverge.
    /// No new use can begin meanwhile, because cells are handed out under the same lock.
    fn idlest(&self) -> Option<StreamId> {
        let idle = self.spaces.iter();
        let idle = idle.filter(|(_, slot)| Arc::strong_count(&slot.cell) == 1);
        let oldest = idle.min_by_key(|(_, slot)| slot.used)?;
        Some(oldest.0.clone())
    }
}
