//! Keys and ids that follow from what was derived, never from numbers of frames (decision F6): a
//! reply that comes later renames nothing.
//!
//! A key is the SHA-256, in 64 hexadecimal digits, of the RFC 8785 text of a list:
//!
//! | of | list |
//! |---|---|
//! | an output | `[key of the trigger, responder, item or null, entry]` |
//! | what the goal makes | `["goal", entry]` |
//! | a posted event | `["post", n, place in the post]` |
//! | a reply, or the output of a workflow | `["reply", address]` |
//! | a completed step, an overlay | `["step", scope, step, ordinal]` |
//! | an object with a key | `["key", type, key]`, whatever triggered it |
//!
//! The id of an object is its type, `-` and the first 16 digits of the key of its frame; that of a
//! relation is its type, `-` and 16 digits of `["relation", type, from, to]`.

use std::fmt;
use std::sync::Arc;

use ktsu_ledger::jcs;
use serde_json::{Value, json};

/// The key of a trigger, wherever in the stream it is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TriggerKey(Arc<str>);

/// The name of the actor of what the goal of a run becomes.
pub const GOAL_ACTOR: &str = "goal";

/// Number of digits of an id.
const ID_DIGITS: usize = 16;

impl TriggerKey {
    fn of(parts: &Value) -> Self {
        let digest = jcs::digest(parts);
        Self(digest.strip_prefix("sha256:").unwrap_or(&digest).into())
    }

    /// An output of the goal of a run.
    pub fn goal(entry: u32) -> Self {
        Self::of(&json!(["goal", entry]))
    }

    /// An event of a post.
    pub fn post(n: u64, place: u32) -> Self {
        Self::of(&json!(["post", n, place]))
    }

    /// The end of what a responder asked or ran.
    pub fn reply(address: &str) -> Self {
        Self::of(&json!(["reply", address]))
    }

    /// The completion or the overlay of a step, counted in a run.
    pub fn step(scope: &str, step: &str, ordinal: u64) -> Self {
        Self::of(&json!(["step", scope, step, ordinal]))
    }

    /// An object of which there is one for each key.
    pub fn keyed(kind: &str, key: &str) -> Self {
        Self::of(&json!(["key", kind, key]))
    }

    /// An output of this trigger.
    #[must_use]
    pub fn output(&self, responder: &str, item: Option<u32>, entry: u32) -> Self {
        Self::of(&json!([&*self.0, responder, item, entry]))
    }

    /// The id of an object that is made with this key.
    pub fn object_id(&self, kind: &str) -> String {
        format!("{kind}-{}", self.short())
    }

    /// The address of what a responder asks or runs for this trigger: `@NAME.KEY`.
    pub fn address(&self, responder: &str, item: Option<u32>) -> String {
        format!("@{responder}.{}", self.output(responder, item, 0).short())
    }

    /// The digits that stand in ids.
    pub fn short(&self) -> &str {
        self.0.get(..ID_DIGITS).unwrap_or(&self.0)
    }

    /// All digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The id of a relation that is identified by its type and its ends.
pub fn relation_id(kind: &str, from: &str, to: &str) -> String {
    TriggerKey::of(&json!(["relation", kind, from, to])).object_id(kind)
}

impl fmt::Debug for TriggerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.short())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Persisted: ids of recorded runs are made like this.
    #[test]
    fn keys_and_ids_are_what_they_have_always_been() {
        let company = TriggerKey::goal(0);
        assert_eq!(company.as_str().len(), 64);
        assert_eq!(
            company.object_id("Company"),
            format!("Company-{}", company.short())
        );
        let claim = company.output("claim-of-company", None, 0);
        assert_ne!(claim, company.output("claim-of-company", Some(0), 0));
        let list = json!([company.as_str(), "claim-of-company", null, 0]);
        assert_eq!(jcs::digest(&list), format!("sha256:{}", claim.as_str()));
        assert_eq!(
            claim.address("write-claim", None),
            format!(
                "@write-claim.{}",
                claim.output("write-claim", None, 0).short()
            )
        );
        assert_eq!(relation_id("a", "b", "c"), relation_id("a", "b", "c"));
        assert_ne!(relation_id("a", "b", "c"), relation_id("a", "c", "b"));
    }
}
