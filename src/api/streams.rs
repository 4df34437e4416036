//! The bounds on streams of events that are open at once. A stream keeps its connection for as long
//! as its client likes, so there is a bound for all of them, which leaves connections to requests,
//! and one for each principal, which leaves streams to others.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use ktsu_codes::ErrorCode;
use ktsu_server::ProblemDetails;

/// The bounds of one server, and what is open. Clones share what is open; without bounds by default,
/// as for requests that take no connection.
#[derive(Debug, Clone, Default)]
pub struct StreamLimits(Option<Arc<StreamCounts>>);

#[derive(Debug)]
struct StreamCounts {
    most: usize,
    most_each: usize,
    /// Held for a few lines.
    open: Mutex<OpenStreams>,
}

#[derive(Debug, Default)]
struct OpenStreams {
    all: usize,
    of: BTreeMap<String, usize>,
}

/// A stream that is open, for as long as this exists.
#[derive(Debug)]
pub(crate) struct OpenStream {
    counts: Option<Arc<StreamCounts>>,
    principal: Option<String>,
}

impl StreamLimits {
    /// For a server with so many connections: streams take at most two thirds of them, and those of
    /// one principal a quarter. One stream is always possible.
    pub fn of_connections(connections: usize) -> Self {
        Self(Some(Arc::new(StreamCounts {
            most: (connections - connections.div_ceil(3)).max(1),
            most_each: (connections / 4).max(1),
            open: Mutex::default(),
        })))
    }

    /// Opens a stream, which counts against its principal if one is named.
    ///
    /// # Errors
    /// [`ErrorCode::TooManyStreams`].
    pub(crate) fn open(&self, principal: Option<String>) -> Result<OpenStream, ProblemDetails> {
        if let Some(counts) = &self.0 {
            counts.open(principal.as_deref())?;
        }
        let counts = self.0.clone();
        Ok(OpenStream { counts, principal })
    }
}

impl StreamCounts {
    fn open(&self, principal: Option<&str>) -> Result<(), ProblemDetails> {
        let mut open = self.open.lock();
        let own = principal.and_then(|name| open.of.get(name));
        if own.is_some_and(|own| *own >= self.most_each) {
            let name = principal.unwrap_or_default();
            let most = self.most_each;
            let words = format!("{name} has {most} streams of events open, and may have no more");
            return Err(refusal(words).with_hint(
                "close one; one stream takes several types of frames: \
                 GET /events?pattern=run.*,step.failed",
            ));
        }
        if open.all >= self.most {
            let most = self.most;
            let words = format!("{most} streams of events are open, and there may be no more");
            return Err(refusal(words).with_hint(
                "try again later, or read pages: GET /runs/{id}/frames?from=N; limits.connections \
                 of the environment file allows more",
            ));
        }
        open.all += 1;
        if let Some(name) = principal {
            *open.of.entry(name.to_owned()).or_default() += 1;
        }
        Ok(())
    }

    fn close(&self, principal: Option<&str>) {
        let mut open = self.open.lock();
        open.all = open.all.saturating_sub(1);
        let Some(name) = principal else { return };
        if let Some(own) = open.of.get_mut(name) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                open.of.remove(name);
            }
        }
    }
}

fn refusal(words: String) -> ProblemDetails {
    ProblemDetails::new(ErrorCode::TooManyStreams, words)
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        if let Some(counts) = &self.counts {
            counts.close(self.principal.as_deref());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_of_the_connections_is_left_to_requests_whatever_their_number() {
        for connections in 2..=100 {
            let counts = StreamLimits::of_connections(connections).0.unwrap();
            assert!(counts.most * 3 <= connections * 2, "{connections}");
            assert!(counts.most_each >= 1);
        }
        let counts = StreamLimits::of_connections(2048).0.unwrap();
        assert_eq!((counts.most, counts.most_each), (1365, 512));
    }

    #[test]
    fn a_principal_has_a_bound_of_its_own_and_what_is_closed_counts_no_longer() {
        let counts = StreamLimits::of_connections(12).0.unwrap();
        let open = |name: &str| counts.open(Some(name));
        for _ in 0..3 {
            assert_eq!(open("ada"), Ok(()));
        }
        assert!(open("ada").unwrap_err().detail.contains("ada has 3"));
        for name in ["bob", "bob", "bob", "cleo", "cleo"] {
            assert_eq!(open(name), Ok(()));
        }
        assert!(open("cleo").unwrap_err().detail.starts_with("8 streams"));
        assert!(counts.open(None).is_err());
        counts.close(Some("ada"));
        assert_eq!(open("ada"), Ok(()));
    }
}
