//! Tests that need the engine, one binary, a module a subject. See `docs/testing.md`.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod support;

#[path = "suite/again.rs"]
mod again;
#[path = "suite/agents/mod.rs"]
mod agents;
#[path = "suite/api/mod.rs"]
mod api;
#[path = "suite/approvals/mod.rs"]
mod approvals;
#[path = "suite/bombs.rs"]
mod bombs;
#[path = "suite/canaries/mod.rs"]
mod canaries;
#[path = "suite/cases.rs"]
mod cases;
#[path = "suite/cli/mod.rs"]
mod cli;
#[path = "suite/crash.rs"]
mod crash;
#[path = "suite/cut.rs"]
mod cut;
#[path = "suite/damaged.rs"]
mod damaged;
#[path = "suite/deliveries/mod.rs"]
mod deliveries;
#[path = "suite/draining.rs"]
mod draining;
#[path = "suite/durability.rs"]
mod durability;
#[path = "suite/effects.rs"]
mod effects;
#[path = "suite/encrypted.rs"]
mod encrypted;
#[path = "suite/events.rs"]
mod events;
#[path = "suite/evidence/mod.rs"]
mod evidence;
#[path = "suite/expensive.rs"]
mod expensive;
#[path = "suite/exports.rs"]
mod exports;
#[path = "suite/failover/mod.rs"]
mod failover;
#[path = "suite/far_away.rs"]
mod far_away;
#[path = "suite/first_turn.rs"]
mod first_turn;
#[path = "suite/fork.rs"]
mod fork;
#[path = "suite/frame_windows.rs"]
mod frame_windows;
#[path = "suite/full_disk.rs"]
mod full_disk;
#[path = "suite/golden.rs"]
mod golden;
#[path = "suite/growing.rs"]
mod growing;
#[path = "suite/invoked.rs"]
mod invoked;
#[path = "suite/locked.rs"]
mod locked;
#[path = "suite/long.rs"]
mod long;
#[path = "suite/mcp/mod.rs"]
mod mcp;
#[path = "suite/mutations/mod.rs"]
mod mutations;
#[path = "suite/origins.rs"]
mod origins;
#[path = "suite/owner.rs"]
mod owner;
#[path = "suite/pins.rs"]
mod pins;
#[path = "suite/recompute.rs"]
mod recompute;
#[path = "suite/recompute_tools.rs"]
mod recompute_tools;
#[path = "suite/reloading.rs"]
mod reloading;
#[path = "suite/removed_meanwhile.rs"]
mod removed_meanwhile;
#[path = "suite/requests.rs"]
mod requests;
#[path = "suite/retention.rs"]
mod retention;
#[path = "suite/reviews/mod.rs"]
mod reviews;
#[path = "suite/rules.rs"]
mod rules;
#[path = "suite/slow.rs"]
mod slow;
#[path = "suite/steer/mod.rs"]
mod steer;
#[path = "suite/suspensions/mod.rs"]
mod suspensions;
#[path = "suite/telemetry.rs"]
mod telemetry;
#[path = "suite/terminal/mod.rs"]
mod terminal;
#[path = "suite/tools/mod.rs"]
mod tools;
#[path = "suite/trace.rs"]
mod trace;
#[path = "suite/traversal/mod.rs"]
mod traversal;
#[path = "suite/worlds/mod.rs"]
mod worlds;
#[path = "suite/write_failure.rs"]
mod write_failure;
