//! The gateways of a runtime, and the order in which a call tries them.

use std::time::Duration;

use ktsu_peer::Peer;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The time for which a gateway that did not answer is tried last.
const AWAY_TIME: Duration = Duration::from_secs(5);

/// Gateways in other processes, or one behind its routes.
pub(super) struct Gateways {
    peers: Vec<Peer>,
    /// Until when each is tried last.
    away: Mutex<Vec<Option<Instant>>>,
}

impl Gateways {
    pub(super) fn new(peers: Vec<Peer>) -> Self {
        let away = Mutex::new(vec![None; peers.len()]);
        Self { peers, away }
    }

    /// Returns `true` if none of them is in this process.
    pub(super) fn are_remote(&self) -> bool {
        let is_remote = |peer: &Peer| matches!(peer, Peer::Remote(_));
        self.peers.iter().all(is_remote)
    }

    /// The gateways for a call, the first to be tried first.
    pub(super) fn for_call(&self, key: &str) -> Vec<(usize, Peer)> {
        let now = Instant::now();
        let is_away = |until: &Option<Instant>| until.is_some_and(|until| now < until);
        let away: Vec<bool> = self.away.lock().iter().map(is_away).collect();
        let order = order(key, &away).into_iter();
        let peer = |index: usize| Some((index, self.peers.get(index)?.clone()));
        order.filter_map(peer).collect()
    }

    /// A gateway answered.
    pub(super) fn answered(&self, index: usize) {
        self.set(index, None);
    }

    /// A gateway did not answer, or is about to stop.
    pub(super) fn is_away(&self, index: usize) {
        self.set(index, Some(Instant::now() + AWAY_TIME));
    }

    fn set(&self, index: usize, until: Option<Instant>) {
        if let Some(away) = self.away.lock().get_mut(index) {
            *away = until;
        }
    }
}

/// The order in which a call tries so many gateways: from the one that its key picks onward, so that
/// a repeated call meets the gateway that has answered it; those that are away come last.
fn order(key: &str, away: &[bool]) -> Vec<usize> {
    let mut number = [0; 8];
    let hash = blake3::hash(key.as_bytes());
    number.copy_from_slice(hash.as_bytes().split_at(8).0);
    let count = away.len().max(1);
    let first = usize::try_from(u64::from_be_bytes(number) % count as u64).unwrap_or_default();
    let ring = (0..away.len()).map(|step| (first + step) % count);
    let mut order: Vec<usize> = ring.collect();
    order.sort_by_key(|index| away.get(*index).copied().unwrap_or_default());
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(count: u16) -> Gateways {
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let peers = (1..=count).map(|port| Peer::remote(url(port), None));
        Gateways::new(peers.collect())
    }

    fn first(gateways: &Gateways, key: &str) -> usize {
        gateways.for_call(key)[0].0
    }

    #[test]
    fn a_key_always_picks_the_same_gateway_and_keys_spread_over_all() {
        let mut picked = [0; 3];
        for number in 0..300 {
            let key = format!("run_{number}/step");
            let chosen = order(&key, &[false; 3]);
            assert_eq!(chosen, order(&key, &[false; 3]));
            picked[chosen[0]] += 1;
            let mut all = chosen.clone();
            all.sort_unstable();
            assert_eq!(all, [0, 1, 2], "each is tried once");
        }
        assert!(picked.iter().all(|times| *times > 60), "{picked:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_gateway_that_did_not_answer_is_last_for_some_seconds() {
        let gateways = of(2);
        let picked = first(&gateways, "key");
        gateways.is_away(picked);
        assert_eq!(first(&gateways, "key"), 1 - picked);
        assert_eq!(gateways.for_call("key").len(), 2, "it is not left out");
        tokio::time::advance(AWAY_TIME).await;
        assert_eq!(first(&gateways, "key"), picked);
        gateways.is_away(picked);
        gateways.answered(picked);
        assert_eq!(first(&gateways, "key"), picked);
    }

    #[test]
    fn without_gateways_there_is_none_to_try() {
        assert_eq!(order("key", &[]), [0_usize; 0]);
    }
}
