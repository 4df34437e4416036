//! The orchestrators of a runtime: the owner of a ledger and its standbys, and the order in which a
//! message tries them.

use ktsu_peer as peer;
use parking_lot::Mutex;

/// Orchestrators in other processes.
pub struct RemoteOrchestrators {
    /// `http://127.0.0.1:5050`.
    urls: Vec<String>,
    /// The token that heartbeats show. Reports show nothing but the token of their URL: the host of
    /// that URL gets no other.
    pub(super) token: Option<String>,
    /// The one that answered 200 last.
    chosen: Mutex<Option<usize>>,
}

/// A URL to send a message to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Destination {
    /// The URL.
    pub(super) url: String,
    /// The orchestrator among those that are configured.
    index: Option<usize>,
    /// The dispatch came from a URL that is not configured: this one may not know the task.
    is_guess: bool,
    /// There are others to try.
    is_one_of_several: bool,
}

impl Destination {
    /// The only one.
    pub(super) fn only(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            index: None,
            is_guess: false,
            is_one_of_several: false,
        }
    }

    /// Returns `true` if the same message may be accepted at another time, or by another
    /// orchestrator, after an answer with this status.
    pub(super) fn is_passing(&self, status: u16) -> bool {
        match status {
            408 | 429 | 500.. => true,
            // It refers to the owner.
            307 | 308 | 421 => self.is_one_of_several,
            401 | 404 => self.is_guess,
            _ => false,
        }
    }
}

impl RemoteOrchestrators {
    /// The token is that of heartbeats.
    pub(super) fn new(urls: Vec<String>, token: Option<String>) -> Self {
        let url = |url: String| url.trim_end_matches('/').to_owned();
        Self {
            urls: urls.into_iter().map(url).collect(),
            token,
            chosen: Mutex::default(),
        }
    }

    /// The URLs for a heartbeat.
    pub(super) fn for_heartbeat(&self) -> Vec<Destination> {
        let destination = |index: usize| {
            Some(Destination {
                url: format!("{}/heartbeat", self.urls.get(index)?),
                index: Some(index),
                is_guess: false,
                is_one_of_several: self.urls.len() > 1,
            })
        };
        let order = order(None, *self.chosen.lock(), self.urls.len());
        order.into_iter().filter_map(destination).collect()
    }

    /// The URLs for a message to a URL of a dispatch: that URL, and the same path at the others. A
    /// single orchestrator is no other: it has its tasks at the URLs that it gives.
    pub(super) fn for_url(&self, url: &str) -> Vec<Destination> {
        let Ok((origin, path)) = peer::split(url) else {
            return vec![Destination::only(url)];
        };
        if self.urls.len() < 2 {
            return vec![Destination::only(url)];
        }
        let known = self.urls.iter();
        let origins: Vec<String> = known.map(|known| origin_of(known)).collect();
        let own = origins.iter().position(|known| *known == origin);
        let own_of_stranger = Destination {
            is_one_of_several: true,
            ..Destination::only(url)
        };
        let stranger = own.is_none().then_some(own_of_stranger);
        let destination = |index: usize| {
            Some(Destination {
                url: format!("{}{path}", origins.get(index)?),
                index: Some(index),
                is_guess: own.is_none(),
                is_one_of_several: true,
            })
        };
        let order = order(own, *self.chosen.lock(), self.urls.len());
        let others = order.into_iter().filter_map(destination);
        stranger.into_iter().chain(others).collect()
    }

    /// An orchestrator answered 200.
    pub(super) fn answered(&self, destination: &Destination) {
        if destination.index.is_some() {
            *self.chosen.lock() = destination.index;
        }
    }
}

fn origin_of(url: &str) -> String {
    match peer::split(url) {
        Ok((origin, _)) => origin,
        Err(_) => url.to_owned(),
    }
}

/// The order of so many orchestrators: the one that answered last, the one of the dispatch, and the
/// others in turn.
fn order(own: Option<usize>, chosen: Option<usize>, count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = Vec::new();
    for index in chosen.into_iter().chain(own).chain(0..count) {
        if !order.contains(&index) {
            order.push(index);
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "http://127.0.0.1:1";
    const B: &str = "http://127.0.0.1:2/";

    fn two() -> RemoteOrchestrators {
        RemoteOrchestrators::new(vec![A.to_owned(), B.to_owned()], None)
    }

    fn urls(destinations: &[Destination]) -> Vec<&str> {
        let urls = destinations.iter().map(|one| one.url.as_str());
        urls.collect()
    }

    #[test]
    fn a_report_goes_to_the_url_of_its_dispatch_first() {
        let to = two().for_url("http://127.0.0.1:2/runs/r/report?token=t");
        let expected = [
            "http://127.0.0.1:2/runs/r/report?token=t",
            "http://127.0.0.1:1/runs/r/report?token=t",
        ];
        assert_eq!(urls(&to), expected);
    }

    #[test]
    fn the_orchestrator_that_answered_is_first_from_then_on() {
        let two = two();
        let to = two.for_url("http://127.0.0.1:1/x");
        two.answered(&to[1]);
        let next = two.for_url("http://127.0.0.1:1/y");
        let expected = ["http://127.0.0.1:2/y", "http://127.0.0.1:1/y"];
        assert_eq!(urls(&next), expected);
        let beats = two.for_heartbeat();
        let expected = [
            "http://127.0.0.1:2/heartbeat",
            "http://127.0.0.1:1/heartbeat",
        ];
        assert_eq!(urls(&beats), expected);
    }

    #[test]
    fn a_url_of_another_host_is_first_and_what_answers_there_is_not_remembered() {
        let two = two();
        let to = two.for_url("http://other:9/x");
        assert_eq!(urls(&to)[0], "http://other:9/x");
        assert_eq!(to.len(), 3);
        two.answered(&to[0]);
        assert_eq!(*two.chosen.lock(), None);
    }

    #[test]
    fn a_single_orchestrator_gets_only_what_is_at_its_urls() {
        let one = RemoteOrchestrators::new(vec![A.to_owned()], None);
        let to = one.for_url("http://other:9/x");
        assert_eq!(to, [Destination::only("http://other:9/x")]);
        for (status, passing) in [(503, true), (429, true), (307, false), (401, false)] {
            assert_eq!(to[0].is_passing(status), passing, "{status}");
        }
    }

    #[test]
    fn an_orchestrator_that_is_not_the_owner_refuses_nothing() {
        let to = two().for_url("http://127.0.0.1:1/x");
        for status in [500, 503, 307, 308, 421] {
            assert!(to.iter().all(|one| one.is_passing(status)), "{status}");
        }
        for status in [400, 401, 404, 409, 413, 422] {
            assert!(!to.iter().any(|one| one.is_passing(status)), "{status}");
        }
    }

    #[test]
    fn an_orchestrator_that_does_not_know_the_task_of_a_stranger_refuses_nothing() {
        let to = two().for_url("http://other:9/x");
        for status in [401, 404] {
            let passing: Vec<bool> = to.iter().map(|one| one.is_passing(status)).collect();
            assert_eq!(passing, [false, true, true], "{status}");
        }
    }
}
