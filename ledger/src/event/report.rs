//! The report that an event of an agent arrived in.

use serde::{Deserialize, Serialize};

/// The report a frame came with (decision W2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename = "Report")]
pub struct ReportReference {
    /// BLAKE3 of its bytes.
    pub digest: String,
    /// Counted from 1 in an attempt; 0 for a `complete`, and for a dispatch that was refused.
    pub n: u32,
}
