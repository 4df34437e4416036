//! The pure core of the engine, which decides what comes next.
//!
//! Nothing here reads a clock, a file, a socket or the environment. Text is converted to a checked
//! form once ([`expression`], [`template`], [`transform`], [`airlock`], [`params`]), a
//! [`definition`] combines the forms of one plan, and `graph` orders its steps.
//!
//! ```text
//! plan (text) --definition::compile--> Definition --(names)--> values for frames
//! ```

pub mod admit;
pub mod airlock;
pub mod commands;
pub mod current_output;
pub mod defaults;
pub mod definition;
pub mod effects;
pub mod expression;
mod failure_text;
pub mod graph;
pub mod newest_definition;
pub mod next;
mod outcome;
pub mod params;
pub mod permitted;
pub mod recompute;
mod redecide;
pub mod replay;
pub mod reserved;
pub mod respond;
pub mod rules;
pub mod simulate;
pub mod template;
pub mod timers;
pub mod transform;
pub mod turn;
pub mod types;
pub mod world;

pub use effects::effects_due;

#[cfg(test)]
mod agent_tests;
#[cfg(test)]
mod cases;
#[cfg(test)]
mod driven_tests;
#[cfg(test)]
mod plans_tests;
#[cfg(test)]
mod world_ask_tests;
#[cfg(test)]
mod world_random_tests;
#[cfg(test)]
mod world_run_tests;
