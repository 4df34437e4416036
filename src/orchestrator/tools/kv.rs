//! `ktsu/kv`: values that last between runs, in the streams `kv:…` (decision A3).
//!
//! A namespace belongs to one step of one workflow: runs of that workflow share it one after
//! another, and no two steps of a run do, so that what flows between steps flows through outputs and
//! params alone. What stands there is a fold over its stream.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use ktsu_ledger::branch::frames;
use ktsu_ledger::event::{KvDeleted, KvEvent, KvSet};
use ktsu_ledger::frame::Link;
use ktsu_ledger::store::Entry;
use ktsu_ledger::{Actor, Cause, Draft, Event, Frame, Hash, Json, StreamId};
use ktsu_projections::run::RunState;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::{Given, OwnCall};
use crate::orchestrator::Shared;
use crate::orchestrator::reports::Addressed;

/// The most characters of a key.
const MAX_KEY: usize = 256;
/// The most bytes of a value, as canonical JSON.
const MAX_VALUE: usize = 64 * 1024;
/// The most keys of a namespace.
const MAX_KEYS: usize = 10_000;
/// The most keys of one list.
const MAX_LIST: usize = 1000;

/// What is kept.
#[derive(Debug, Default)]
pub(in crate::orchestrator) struct Kv {
    /// By stream. Held while an entry is on its way: the next one follows from it.
    spaces: Mutex<HashMap<StreamId, Arc<Mutex<Option<Space>>>>>,
}

/// A namespace as its stream has it.
#[derive(Debug, Clone, Default)]
struct Space {
    values: BTreeMap<String, Json>,
    /// Idempotency keys of what is recorded.
    seen: BTreeSet<String>,
    next: u64,
    head: Option<Hash>,
}

/// What it offers.
pub(super) fn tools() -> Value {
    let key = json!({"type": "string", "minLength": 1, "maxLength": MAX_KEY});
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

/// The stream of a step's namespace: told apart by workflow, scope, step and the name it gives.
pub(super) fn namespace(state: &RunState, task: &Addressed, name: &str) -> String {
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
    /// Makes a call, which is recorded in its run and under way.
    pub(super) async fn call(
        &self,
        shared: &Arc<Shared>,
        namespace: &str,
        call: &OwnCall,
    ) -> Given {
        let stream: StreamId = format!("kv:{namespace}")
            .parse()
            .map_err(|_| "the namespace has no name".to_owned())?;
        let held = {
            let mut spaces = self.spaces.lock().await;
            Arc::clone(spaces.entry(stream.clone()).or_default())
        };
        let mut held = held.lock().await;
        let mut space = match held.take() {
            Some(space) => space,
            None => load(shared, &stream).await?,
        };
        let given = self.answer(shared, &stream, &mut space, call).await;
        // After an append of unknown outcome the ledger has stopped, or it is read again.
        if given.is_ok() || !matches!(call.tool.as_str(), "kv-set" | "kv-delete") {
            *held = Some(space);
        }
        given
    }

    async fn answer(
        &self,
        shared: &Arc<Shared>,
        stream: &StreamId,
        space: &mut Space,
        call: &OwnCall,
    ) -> Given {
        let key = call.arguments["key"].as_str().unwrap_or_default();
        let listing = call.tool == "kv-list";
        if !listing && (key.is_empty() || key.chars().count() > MAX_KEY) {
            return Err(format!("key is a text of 1 to {MAX_KEY} characters"));
        }
        match call.tool.as_str() {
            "kv-get" => Ok(json!({"key": key, "value": space.values.get(key).map(Json::to_value)})),
            "kv-list" => Ok(space.list(call.arguments["prefix"].as_str().unwrap_or_default())),
            "kv-set" => {
                let value = call.arguments.get("value").ok_or("value is missing")?;
                let value = Json::from_value(value).map_err(|_| "value is nested too deeply")?;
                if value.as_str().len() > MAX_VALUE {
                    return Err(format!("value has more than {MAX_VALUE} bytes"));
                }
                if !space.values.contains_key(key) && space.values.len() >= MAX_KEYS {
                    return Err(format!(
                        "the namespace has {MAX_KEYS} keys, and takes no more"
                    ));
                }
                let event = KvEvent::Set(KvSet {
                    idempotency_key: call.key.clone(),
                    key: key.to_owned(),
                    value,
                });
                record(shared, stream, space, call, event).await?;
                Ok(json!({"key": key, "set": true}))
            }
            "kv-delete" => {
                let event = KvEvent::Deleted(KvDeleted {
                    idempotency_key: call.key.clone(),
                    key: key.to_owned(),
                });
                record(shared, stream, space, call, event).await?;
                Ok(json!({"deleted": true, "key": key}))
            }
            other => Err(format!("there is no tool {other:?}")),
        }
    }
}

impl Space {
    fn take(&mut self, frame: &Frame) {
        self.next = frame.seq + 1;
        self.head = Some(frame.hash);
        if let Event::Kv(event) = &frame.event {
            match event {
                KvEvent::Set(set) => {
                    self.seen.insert(set.idempotency_key.clone());
                    self.values.insert(set.key.clone(), set.value.clone());
                }
                KvEvent::Deleted(deleted) => {
                    self.seen.insert(deleted.idempotency_key.clone());
                    self.values.remove(&deleted.key);
                }
            }
        }
    }

    fn list(&self, prefix: &str) -> Value {
        let keys = self.values.keys().filter(|key| key.starts_with(prefix));
        let listed: Vec<&String> = keys.clone().take(MAX_LIST).collect();
        let more = keys.count() > listed.len();
        json!({"keys": listed, "more": more})
    }
}

async fn load(shared: &Arc<Shared>, stream: &StreamId) -> Result<Space, String> {
    let stream = stream.clone();
    let read = shared
        .readers
        .with(move |reader| frames(reader, &stream))
        .await;
    let mut space = Space::default();
    for frame in read.map_err(|error| error.to_string())? {
        space.take(&frame);
    }
    Ok(space)
}

/// Appends a fact, unless this call has made it already, and waits until it is durable.
async fn record(
    shared: &Arc<Shared>,
    stream: &StreamId,
    space: &mut Space,
    call: &OwnCall,
    event: KvEvent,
) -> Result<(), String> {
    if space.seen.contains(&call.key) {
        return Ok(());
    }
    let (run, called) = &call.called;
    let draft = Draft {
        scope: String::new(),
        actor: Actor::Orchestrator,
        cause: vec![Cause::There(run.clone(), *called)],
        event: Event::Kv(event),
    };
    let link = Link {
        stream: stream.clone(),
        seq: space.next,
        prev: space.head.unwrap_or(Hash::ZERO),
    };
    let sealed = draft.seal(link, (shared.clock)());
    let sealed = sealed.map_err(|error| error.to_string())?;
    let frame = sealed.frame.clone();
    let (entry, _) = Entry::from_sealed(vec![sealed]).map_err(|error| error.to_string())?;
    let (tell, told) = tokio::sync::oneshot::channel();
    shared.appender.submit(
        entry,
        Box::new(move |outcome| {
            // Whoever asked may be gone; it is recorded all the same.
            let _ = tell.send(outcome.map(drop).map_err(|error| error.to_string()));
        }),
    );
    told.await
        .map_err(|_| "the ledger has stopped".to_owned())??;
    space.take(&frame);
    Ok(())
}
