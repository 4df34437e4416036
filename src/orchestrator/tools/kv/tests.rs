use std::sync::atomic::{AtomicU64, Ordering};

use ktsu_ledger::appender::{Appender, AppenderThread, Options};
use ktsu_ledger::event::{KvDeleted, KvEvent};
use ktsu_ledger::frame::Link;
use ktsu_ledger::store::{Entry, MemoryStore, Reader as _, Store as _};
use ktsu_ledger::{Actor, Draft, Event, Timestamp};

use super::super::CallInput;
use super::*;
use crate::MicrosClock;
use ktsu_readers::ReaderPool;

/// A ledger in memory, with two runs that calls can follow from.
struct World {
    store: MemoryStore,
    appender: Appender,
    thread: Option<AppenderThread>,
    readers: ReaderPool,
    clock: MicrosClock,
}

impl World {
    fn new() -> Self {
        let store = MemoryStore::new();
        let lent = store.clone();
        let (appender, thread) =
            Appender::start(Box::new(store.clone()), Options::default()).unwrap();
        let now = AtomicU64::new(1);
        let world = Self {
            store,
            appender,
            thread: Some(thread),
            readers: ReaderPool::new(move || lent.reader()),
            clock: Arc::new(move || Timestamp::from_micros(now.fetch_add(1, Ordering::SeqCst))),
        };
        for name in ["a", "b"] {
            let draft = Draft {
                scope: String::new(),
                actor: Actor::Orchestrator,
                cause: Vec::new(),
                event: Event::Kv(KvEvent::Deleted(KvDeleted {
                    idempotency_key: String::new(),
                    key: String::new(),
                })),
            };
            let link = Link {
                stream: run(name),
                seq: 0,
                prev: Hash::ZERO,
            };
            let sealed = draft.seal(link, (world.clock)()).unwrap();
            let (entry, _) = Entry::from_sealed(vec![sealed]).unwrap();
            world.appender.append(entry).unwrap();
        }
        world
    }

    async fn call(&self, kv: &Kv, name: &str, call: BuiltinCall) -> CallResult {
        let ledger = NamespaceStreams {
            readers: &self.readers,
            appender: &self.appender,
            clock: &self.clock,
        };
        kv.call_in(&ledger, &stream(name), &call).await
    }

    /// How many entries a namespace has.
    fn entries(&self, name: &str) -> u64 {
        let tail = self.store.tail(&stream(name)).unwrap();
        tail.map_or(0, |tail| tail.seq + 1)
    }

    async fn value(&self, kv: &Kv, name: &str, key: &str) -> Value {
        let read = call("a", "read", "kv-get", json!({"key": key}));
        self.call(kv, name, read).await.unwrap()["value"].clone()
    }
}

fn run(name: &str) -> StreamId {
    format!("run:run_{name}").parse().unwrap()
}

fn stream(name: &str) -> StreamId {
    format!("kv:{name}").parse().unwrap()
}

fn call(by: &str, key: &str, tool: &str, arguments: Value) -> BuiltinCall {
    BuiltinCall {
        called: (run(by), 0),
        tool: tool.to_owned(),
        arguments,
        key: key.to_owned(),
        input: CallInput::Kv(String::new()),
    }
}

fn set(by: &str, made_under: &str, key: &str, value: Value) -> BuiltinCall {
    call(
        by,
        made_under,
        "kv-set",
        json!({"key": key, "value": value}),
    )
}

fn is_kept(kv: &Kv, name: &str) -> bool {
    let held = kv.held.lock();
    let slot = held.spaces.get(&stream(name));
    slot.is_some_and(|slot| slot.cell.try_lock().unwrap().is_some())
}

#[tokio::test]
async fn namespaces_that_had_to_make_room_have_lost_nothing() {
    let world = World::new();
    let kv = Kv::keeping(64 * 1024);
    let names: Vec<String> = (0..12).map(|n| format!("n{n}")).collect();
    for round in 0..3 {
        for name in &names {
            let value = json!(format!("{name} {round} {}", "x".repeat(9000)));
            let (under, key) = (format!("{round}"), format!("k{round}"));
            world
                .call(&kv, name, set("a", &under, &key, value))
                .await
                .unwrap();
            assert!(kv.held.lock().bytes <= 64 * 1024);
        }
    }
    let kept = names.iter().filter(|name| is_kept(&kv, name)).count();
    assert!((1..=3).contains(&kept), "{kept}");
    for name in &names {
        for round in 0..3 {
            let value = world.value(&kv, name, &format!("k{round}")).await;
            assert!(
                value
                    .as_str()
                    .unwrap()
                    .starts_with(&format!("{name} {round} "))
            );
            let again = set("a", &format!("{round}"), "other", json!(1));
            world.call(&kv, name, again).await.unwrap();
        }
        assert_eq!(
            world.entries(name),
            3,
            "a call that came again is made once"
        );
    }
    // One that somebody holds is not forgotten: there would be two of it.
    let small = Kv::keeping(0);
    let busy = small.held.lock().cell(&stream("n0"));
    world.value(&small, "n1", "k0").await;
    assert!(small.held.lock().spaces.keys().eq([&stream("n0")]));
    drop(busy);
    world.value(&small, "n0", "k0").await;
    assert!(small.held.lock().spaces.is_empty());
}

#[tokio::test]
async fn a_namespace_takes_so_many_bytes_and_a_refusal_costs_nothing() {
    let world = World::new();
    let kv = Kv::default();
    let large = json!("x".repeat(64 * 1024 - 2));
    let mut refused = None;
    for n in 0..300 {
        let (under, key) = (format!("{n}"), format!("k{n:03}"));
        let given = world.call(&kv, "full", set("a", &under, &key, large.clone()));
        if let Err(words) = given.await {
            refused = Some((n, words));
            break;
        }
    }
    let (fits, words) = refused.unwrap();
    assert_eq!(fits, 255, "{words}");
    assert!(words.contains("more than 16777216 bytes"), "{words}");
    assert!(
        is_kept(&kv, "full"),
        "a refusal is no reason to read it all again"
    );
    let entries = world.entries("full");
    for (under, key, value, words) in [
        ("long", "k000", json!("x".repeat(64 * 1024)), "65536 bytes"),
        ("empty", "", json!(1), "1 to 256 characters"),
        ("full", "k", large.clone(), "16777216 bytes"),
    ] {
        let given = world.call(&kv, "full", set("a", under, key, value)).await;
        assert!(given.unwrap_err().contains(words));
        assert!(is_kept(&kv, "full"));
    }
    assert_eq!(world.entries("full"), entries);
    // What there is can still be replaced, and makes room when it goes.
    let same = set("a", "same", "k000", large.clone());
    world.call(&kv, "full", same).await.unwrap();
    let gone = call("a", "gone", "kv-delete", json!({"key": "k001"}));
    world.call(&kv, "full", gone).await.unwrap();
    let last = set("a", "last", "k999", large);
    world.call(&kv, "full", last).await.unwrap();
    // All of it comes back, page by page.
    let fresh = Kv::default();
    let list = call("a", "read", "kv-list", json!({"prefix": "k"}));
    let listed = world.call(&fresh, "full", list).await.unwrap();
    assert_eq!(listed["keys"].as_array().unwrap().len(), 255);
    let list = call("a", "read", "kv-list", json!({"prefix": "k99"}));
    let listed = world.call(&fresh, "full", list).await.unwrap();
    assert_eq!(listed, json!({"keys": ["k999"], "more": false}));
}

#[tokio::test]
async fn a_call_that_comes_again_long_after_is_made_once() {
    let world = World::new();
    let kv = Kv::default();
    let first = || set("a", "first", "k", json!(1));
    world.call(&kv, "n", first()).await.unwrap();
    // More than are remembered, by another run.
    for n in 0..4200 {
        let other = set("b", &format!("b{n}"), "other", json!(n));
        world.call(&kv, "n", other).await.unwrap();
    }
    let gone = call("b", "gone", "kv-delete", json!({"key": "k"}));
    world.call(&kv, "n", gone).await.unwrap();
    let entries = world.entries("n");
    for kv in [&kv, &Kv::default()] {
        for _ in 0..2 {
            assert_eq!(
                world.call(kv, "n", first()).await,
                Ok(json!({"key": "k", "set": true}))
            );
        }
        assert_eq!(world.value(kv, "n", "k").await, Value::Null);
    }
    assert_eq!(world.entries("n"), entries);
    // Another call of the same run is another one.
    let second = set("a", "second", "k", json!(2));
    world.call(&kv, "n", second).await.unwrap();
    assert_eq!(world.value(&kv, "n", "k").await, 2);
}

#[tokio::test]
async fn a_call_whose_caller_went_away_is_found_by_the_next() {
    let world = World::new();
    let (kv, other) = (Kv::default(), Kv::default());
    assert_eq!(world.value(&kv, "n", "k").await, Value::Null);
    let made = || set("a", "one", "k", json!(1));
    world.call(&other, "n", made()).await.unwrap();
    // This fold has not seen that entry; the ledger says so, and it is read again.
    world.call(&kv, "n", made()).await.unwrap();
    assert_eq!(world.entries("n"), 1);
    world
        .call(&kv, "n", set("a", "two", "l", json!(2)))
        .await
        .unwrap();
    assert_eq!(world.value(&kv, "n", "k").await, 1);
    assert_eq!(world.entries("n"), 2);
}

#[tokio::test]
async fn what_fails_in_the_ledger_is_described_in_words_of_ours() {
    let mut world = World::new();
    let kv = Kv::default();
    world
        .call(&kv, "n", set("a", "one", "k", json!(1)))
        .await
        .unwrap();
    world.thread.take().unwrap().shutdown().unwrap();
    let given = world.call(&kv, "n", set("a", "two", "k", json!(2))).await;
    assert_eq!(given.unwrap_err(), "the values cannot be reached just now");
    assert!(!is_kept(&kv, "n"), "nobody knows how it ended");
    let broken = ReaderPool::new(|| {
        Err(ktsu_ledger::store::StoreError::Failed {
            doing: "open the ledger",
            why: "SQLITE_CANTOPEN".to_owned(),
        })
    });
    world.readers = broken;
    let read = call("a", "read", "kv-get", json!({"key": "k"}));
    let given = world.call(&kv, "n", read).await;
    assert_eq!(given.unwrap_err(), "the values cannot be reached just now");
}
