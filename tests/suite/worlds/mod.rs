//! Worlds through the whole engine: crashes, orders, limits, and what somebody outside may try.

mod beside;
mod by_hand;
mod cases;
mod cut;
mod forked;
mod kills;
mod limits;
mod orders;
mod recomputed;
mod waits;

use ktsu_ledger::Frame;
use ktsu_ledger::event::AgentEvent;
use ktsu_ledger::store::MemoryStore;
use ktsu_ledger::{Event, appender::Options};
use ktsu_workflow::replay::{Definitions, replay};
use serde_json::json;

use crate::support::model::KEY;
use crate::support::{KitDir, Sink, Within};

/// An engine on a store of the test, with what kits of worlds need.
async fn engine(kit: &KitDir, store: &MemoryStore, sink: &Sink) -> Within {
    let pairs = [KEY, ("HOOK", sink.url.as_str())];
    Within::new(kit.load(), store.clone(), Options::default(), &pairs, None).await
}

/// The messages of every request whose reply is recorded.
fn answered(frames: &[Frame]) -> Vec<String> {
    let reply = |request: &Frame| {
        frames.iter().any(|frame| {
            matches!(&frame.event, Event::Agent(AgentEvent::Response(reply)) if reply.request == request.seq)
        })
    };
    let asked = frames.iter().filter_map(|frame| match &frame.event {
        Event::Agent(AgentEvent::Request(request)) if reply(frame) => {
            Some(request.messages.to_value().to_string())
        }
        _ => None,
    });
    asked.collect()
}

/// Every decision follows from the inputs again.
fn replays(frames: &[Frame], told: &str) {
    if let Err(diverged) = replay(frames, &mut Definitions::default()) {
        panic!("{told}: {diverged}");
    }
}

/// The goal of every run here.
fn goal() -> serde_json::Value {
    json!({"goal": "the tides"})
}
