//! The values and limits that a run is started with, and the principal that starts it.

use serde::{Deserialize, Serialize};

/// The value of an environment variable, as far as a ledger may know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EnvValue {
    /// A secret: only its name is recorded.
    Secret,
    /// An ordinary value.
    Value(String),
}

/// The most that one turn may append. A turn that reaches a limit continues as `run.continued`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of frame bodies.
    pub turn_bytes: u64,
    /// Frames.
    pub turn_frames: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            turn_bytes: 64 * 1024,
            turn_frames: 256,
        }
    }
}

/// A person or an API client that acted, and how that is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Principal {
    /// `none` without authentication, because no principals are configured or the request came from
    /// within the process (decision H5); `token` for a principal that sent its token.
    pub auth: String,
    /// The name.
    pub id: String,
}
