//! Tests that need the engine, one binary, a module a subject. See `docs/testing.md`.

mod support;

#[path = "suite/api/mod.rs"]
mod api;
#[path = "suite/cases.rs"]
mod cases;
#[path = "suite/cli/mod.rs"]
mod cli;
