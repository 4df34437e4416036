//! The one of the two transports that a URL speaks, detected once.

use std::collections::HashMap;

use parking_lot::Mutex;

/// The transport that a URL speaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Streamable HTTP.
    Streamable,
    /// HTTP with server-sent events, as of 2024-11-05; the stream is at this URL.
    Legacy(String),
}

/// The known transports of URLs, so that each is probed once in the life of the process.
#[derive(Debug, Default)]
pub(super) struct DialectCache(Mutex<HashMap<String, Dialect>>);

/// URLs come from files, so there are few; what is forgotten is probed again.
const MAX_DIALECTS: usize = 1024;

impl DialectCache {
    pub(super) fn get(&self, url: &str) -> Option<Dialect> {
        self.0.lock().get(url).cloned()
    }

    pub(super) fn learn(&self, url: &str, dialect: Dialect) {
        let mut map = self.0.lock();
        if map.len() >= MAX_DIALECTS {
            map.clear();
        }
        map.insert(url.to_owned(), dialect);
    }

    pub(super) fn forget(&self, url: &str) {
        self.0.lock().remove(url);
    }
}
