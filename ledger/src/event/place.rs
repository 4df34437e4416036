//! The place of a value in a frame, and where a decision about the world comes from.

use serde::{Deserialize, Serialize};

/// A place in an earlier frame of the same stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reference {
    /// The frame.
    pub frame: u64,
    /// JSON pointer into its `data`.
    pub path: String,
}

/// The origin of a decision about the world. With the key of its trigger (the frame's cause) it is
/// what an id is made of, so that ids depend on no frame number (decision F6).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Derivation {
    /// Position in `emit` or `then`; among what the goal of a run becomes, of all of its worlds.
    pub entry: u32,
    /// Position in `for_each`, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
    /// The responder. Absent: the goal of a run made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub responder: Option<String>,
}
