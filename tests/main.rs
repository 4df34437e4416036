//! Tests that need the engine, one binary, a module a subject. See `docs/testing.md`.

mod support;

#[path = "suite/api/mod.rs"]
mod api;
<<<<<<< HEAD
//CASES
//CASESMOD
#[path = "suite/cli/mod.rs"]
mod cli;
=======
#[path = "suite/cases.rs"]
mod cases;
>>>>>>> main
