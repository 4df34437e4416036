//! Which of the two transports a URL speaks, detected once.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a URL speaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Streamable HTTP.
    Streamable,
    /// HTTP with server-sent events, as of 2024-11-05; the stream is at this URL.
    Legacy(String),
}

/// What is known of URLs, so that each is probed once in the life of the process.
#[derive(Debug, Default)]
pub(super) struct DialectCache(Mutex<HashMap<String, Dialect>>);

/// URLs come from files, so there are few; what is forgotten is probed again.
const MAX_DIALECTS: usize = 1024;

impl DialectCache {
    fn map(&self) -> MutexGuard<'_, HashMap<String, Dialect>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, url: &str) -> Option<Dialect> {
        self.map().get(url).cloned()
    }

    pub(super) fn learn(&self, url: &str, dialect: Dialect) {
        let mut map = self.map();
        if map.len() >= MAX_DIALECTS {
            map.clear();
        }
        map.insert(url.to_owned(), dialect);
    }

    pub(super) fn forget(&self, url: &str) {
        self.map().remove(url);
    }
}
