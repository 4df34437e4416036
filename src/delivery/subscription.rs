//! The state of a subscription by its frames: the receiver of frames, and those that could not be
//! delivered.

use std::collections::{BTreeMap, BTreeSet};

use ktsu_ledger::event::{DeliveryDead, DeliveryEvent, Principal, SubscriptionAdded};
use ktsu_ledger::{Event, Frame, Hash, StreamId, Timestamp};

use super::retry::DeliveryRetry;

/// The most frames that may be dead at once. A subscription with as many gets nothing more until
/// they are redriven; what comes meanwhile waits in the ledger.
pub const MAX_DEAD: usize = 1_000;

/// A frame that could not be delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// The record of it.
    pub letter: DeliveryDead,
    /// The time at which it was recorded.
    pub at: Timestamp,
}

/// The fold over the stream `subscription:ID`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SubscriptionState {
    /// As it was added last.
    pub added: Option<SubscriptionAdded>,
    /// The position of the last frame before it began.
    pub from: u64,
    /// True if it was removed since.
    pub is_removed: bool,
    /// Frames that could not be delivered, by position.
    pub dead: BTreeMap<u64, DeadLetter>,
    /// Those of them that are to be sent again.
    pub redriven: BTreeSet<u64>,
}

impl SubscriptionState {
    /// Takes the next frame of the stream; frames of other kinds mean nothing here.
    pub fn apply(&mut self, frame: &Frame) {
        let Event::Delivery(event) = &frame.event else {
            return;
        };
        match event {
            DeliveryEvent::Added(added) => {
                if self.added.is_none() {
                    self.from = added.from;
                }
                self.added = Some(added.clone());
                self.is_removed = false;
            }
            DeliveryEvent::Removed(_) => self.is_removed = true,
            DeliveryEvent::Dead(dead) => {
                self.redriven.remove(&dead.position);
                let letter = DeadLetter {
                    letter: dead.clone(),
                    at: frame.at,
                };
                self.dead.insert(dead.position, letter);
            }
            DeliveryEvent::Redriven(_) => self.redriven.extend(self.dead.keys()),
            DeliveryEvent::Settled(settled) => {
                for position in &settled.positions {
                    self.dead.remove(position);
                    self.redriven.remove(position);
                }
            }
            DeliveryEvent::Advanced(_) => {}
        }
    }

    /// Returns `true` if frames are to be sent, as far as the ledger knows.
    pub fn is_active(&self) -> bool {
        self.added.is_some() && !self.is_removed
    }

    /// The principal who added it; none where a file declares it.
    pub fn added_by(&self) -> Option<&Principal> {
        self.added.as_ref()?.by.as_ref()
    }

    /// The number of attempts at a frame, and the pauses between them.
    pub fn retry(&self) -> DeliveryRetry {
        let added = self.added.as_ref();
        added.map_or_else(DeliveryRetry::default, |added| DeliveryRetry {
            attempts: added.attempts,
            backoff_ms: added.backoff_ms,
        })
    }

    /// The positions that are dead and not being sent again.
    pub fn resting(&self) -> impl Iterator<Item = u64> {
        let positions = self.dead.keys().copied();
        positions.filter(|position| !self.redriven.contains(position))
    }
}

/// The id of a delivery: the same for every attempt at a frame, also after a crash.
pub fn delivery_id(subscription: &StreamId, run: &StreamId, seq: u64) -> String {
    let digest = Hash::of(format!("{subscription}\n{run}#{seq}").as_bytes()).to_string();
    format!("msg_{}", digest.get(..32).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ktsu_ledger::event::{
        DeliveryAdvanced, DeliveryRedriven, DeliverySettled, SubscriptionRemoved,
    };
    use ktsu_ledger::{Actor, CanonicalJson, Draft, Link};

    fn by() -> Principal {
        Principal {
            auth: "none".to_owned(),
            id: "local".to_owned(),
        }
    }

    fn added(from: u64) -> DeliveryEvent {
        DeliveryEvent::Added(SubscriptionAdded {
            attempts: 3,
            backoff_ms: 5,
            by: Some(by()),
            from,
            pattern: "*".to_owned(),
            secret: "{{ env.X }}".to_owned(),
            topics: None,
            url: "https://example.com".to_owned(),
        })
    }

    fn dead(position: u64) -> DeliveryEvent {
        DeliveryEvent::Dead(DeliveryDead {
            attempts: 3,
            code: "webhook_status".to_owned(),
            delivery_id: "msg_x".to_owned(),
            position,
            seq: 1,
            status: Some(500),
            stream: StreamId::run("run_a").unwrap(),
        })
    }

    fn redriven() -> DeliveryEvent {
        DeliveryEvent::Redriven(DeliveryRedriven { by: by(), count: 1 })
    }

    fn settled(positions: &[u64]) -> DeliveryEvent {
        let positions = positions.to_vec();
        DeliveryEvent::Settled(DeliverySettled { positions })
    }

    fn state(events: &[DeliveryEvent]) -> SubscriptionState {
        let mut state = SubscriptionState::default();
        for (seq, event) in events.iter().enumerate() {
            let draft = Draft {
                scope: String::new(),
                actor: Actor::Orchestrator,
                cause: Vec::new(),
                event: Event::Delivery(event.clone()),
            };
            let link = Link {
                stream: "subscription:s".parse().unwrap(),
                seq: seq as u64,
                prev: Hash::ZERO,
            };
            let sealed = draft
                .seal(link, Timestamp::from_micros(seq as u64))
                .unwrap();
            state.apply(&sealed.frame);
        }
        state
    }

    #[test]
    fn a_change_of_the_address_does_not_move_where_it_began() {
        let state = state(&[added(7), added(90)]);
        assert_eq!((state.from, state.is_active()), (7, true));
        assert_eq!(state.added_by().unwrap().id, "local");
    }

    #[test]
    fn a_dead_frame_is_dead_until_it_is_redriven_and_delivered() {
        let begun = [added(0), dead(3), dead(5)];
        let resting = |more: &[DeliveryEvent]| {
            let state = state(&[&begun[..], more].concat());
            let dead: Vec<u64> = state.dead.keys().copied().collect();
            (dead, state.resting().collect::<Vec<_>>())
        };
        assert_eq!(resting(&[]), (vec![3, 5], vec![3, 5]));
        assert_eq!(resting(&[redriven()]), (vec![3, 5], vec![]));
        assert_eq!(resting(&[redriven(), settled(&[3])]), (vec![5], vec![]));
        assert_eq!(
            resting(&[redriven(), settled(&[3]), dead(5)]),
            (vec![5], vec![5])
        );
        assert_eq!(resting(&[redriven(), dead(9)]), (vec![3, 5, 9], vec![9]));
        assert_eq!(resting(&[redriven(), settled(&[3, 5])]), (vec![], vec![]));
    }

    #[test]
    fn what_was_removed_is_not_active_until_it_is_added_again() {
        let removed = DeliveryEvent::Removed(SubscriptionRemoved { by: by() });
        let advanced = DeliveryEvent::Advanced(DeliveryAdvanced { position: 4 });
        assert!(!state(&[]).is_active());
        assert!(!state(&[added(1), removed.clone(), advanced]).is_active());
        assert!(state(&[added(1), removed, added(2)]).is_active());
    }

    #[test]
    fn other_frames_mean_nothing() {
        let mut state = state(&[added(1)]);
        let before = state.clone();
        let draft = Draft {
            scope: String::new(),
            actor: Actor::Orchestrator,
            cause: Vec::new(),
            event: Event::Foreign {
                kind: "x.y".to_owned(),
                data: CanonicalJson::null(),
            },
        };
        let link = Link {
            stream: "subscription:s".parse().unwrap(),
            seq: 1,
            prev: Hash::ZERO,
        };
        state.apply(&draft.seal(link, Timestamp::from_micros(1)).unwrap().frame);
        assert_eq!(state, before);
    }

    #[test]
    fn a_delivery_id_differs_by_subscription_and_frame_alone() {
        let of = |subscription: &str, run: &str, seq: u64| {
            let subscription = format!("subscription:{subscription}").parse().unwrap();
            delivery_id(&subscription, &StreamId::run(run).unwrap(), seq)
        };
        let one = of("a", "run_1", 2);
        assert_eq!(one, of("a", "run_1", 2));
        assert_eq!(one.len(), 36);
        for other in [
            of("b", "run_1", 2),
            of("a", "run_2", 2),
            of("a", "run_1", 3),
        ] {
            assert_ne!(one, other);
        }
    }
}
