//! The text of an object or a relation in what the hash of a world is of.

use std::sync::OnceLock;

use ktsu_ledger::jcs;
use serde_json::Value;

/// The text of an entry in what is hashed, made once: a world has a hash whenever its run completes,
/// and most of it is what it was then.
#[derive(Debug, Clone, Default)]
pub(super) struct HashedText(OnceLock<Box<str>>);

/// It follows from the entry.
impl PartialEq for HashedText {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for HashedText {}

impl HashedText {
    pub(super) fn of(&self, id: &str, content: impl FnOnce() -> Value) -> &str {
        self.0.get_or_init(|| {
            let id = jcs::text(&Value::from(id));
            format!("{id}:{}", jcs::text(&content())).into()
        })
    }
}
