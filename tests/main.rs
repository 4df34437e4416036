//! Tests that need the engine, one binary, a module a subject. See `docs/testing.md`.

#![allow(clippy::unwrap_used)]

mod support;

#[path = "suite/api/mod.rs"]
mod api;
#[path = "suite/cases.rs"]
mod cases;
