//! What happened: immutable, hash-chained frames, and the stores that keep them.

pub mod canonical;
pub mod event;

pub use canonical::Json;
