//! Fifty people and the deadline at once: there is one decision, and everybody else is told whose.
//!
//! `KTSU_RACES` says how often (24 without it).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::{Desk, PEOPLE, decide, decisions};
use crate::support::client::Answer;

/// From a deadline that nobody beats to one that nobody meets.
const POLICIES: [(&str, &str); 4] = [
    ("never", "on_reject: recover"),
    (
        "late",
        "on_reject: recover, timeout: 150ms, timeout_behavior: reject",
    ),
    (
        "soon",
        "on_reject: recover, timeout: 40ms, timeout_behavior: reject",
    ),
    (
        "now",
        "on_reject: recover, timeout: 1ms, timeout_behavior: reject",
    ),
];

fn races() -> usize {
    let wanted = std::env::var("KTSU_RACES").ok();
    wanted.map_or(24, |wanted| wanted.parse().unwrap())
}

/// What a person is told; by name.
async fn race(desk: &Desk, run: &str) -> BTreeMap<String, (&'static str, Answer)> {
    let start = Arc::new(Barrier::new(PEOPLE));
    let mut deciding = JoinSet::new();
    for number in 0..PEOPLE {
        let name = format!("p{number}");
        let decision = if number % 3 == 0 {
            "rejected"
        } else {
            "approved"
        };
        let (client, start, path) = (desk.who(&name), Arc::clone(&start), decide(run));
        deciding.spawn(async move {
            start.wait().await;
            let body = json!({"decision": decision}).to_string();
            (name, (decision, client.post(&path, body).await))
        });
    }
    deciding.join_all().await.into_iter().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_deciders_and_the_deadline_make_one_decision() {
    let desk = Desk::new(&POLICIES).await;
    let (mut decided, mut expired) = (0, 0);
    for number in 0..races() {
        let (policy, _) = POLICIES[number % POLICIES.len()];
        let olga = desk.who("olga");
        let run = olga
            .invoke(policy, json!({"msg": format!("m{number}")}))
            .await;
        super::seen(&olga, &run, "approval.requested").await;
        let answers = race(&desk, &run).await;
        let envelope = olga.ended(&run).await;
        let frames = decisions(&desk, &run).await;
        let [frame] = frames.as_slice() else {
            panic!("{policy} {run}: {frames:#?}");
        };
        let winners: Vec<_> = answers
            .iter()
            .filter(|(_, (_, answer))| answer.status == 200)
            .collect();
        let won = match winners.as_slice() {
            [(name, (decision, _))] => {
                decided += 1;
                assert_eq!(frame["actor"], format!("principal:{name}"), "{frame:#}");
                assert_eq!(frame["data"]["decision"], *decision);
                Some(((*name).clone(), *decision))
            }
            [] => {
                expired += 1;
                assert_eq!(frame["type"], "approval.expired", "{frame:#}");
                None
            }
            several => panic!("{policy} {run}: {several:#?}"),
        };
        for (name, (_, answer)) in &answers {
            if answer.status != 200 {
                lost(name, answer, won.as_ref());
            }
        }
        let approved = won.is_some_and(|(_, decision)| decision == "approved");
        let asked = desk.server.asked();
        let own = asked
            .iter()
            .filter(|one| one.arguments["what"] == format!("m{number}"));
        assert_eq!(own.count(), usize::from(approved), "{envelope:#}");
    }
    assert!(
        decided >= races() / 4,
        "{decided} decided, {expired} expired"
    );
    assert!(
        expired >= races() / 4,
        "{decided} decided, {expired} expired"
    );
}

/// 409, and who it was; or that the time was over.
fn lost(name: &str, answer: &Answer, won: Option<&(String, &str)>) {
    assert_eq!(answer.status, 409, "{name}: {}", answer.text());
    let problem = answer.json();
    let votes = &problem["approval"]["votes"];
    match won {
        Some((by, decision)) => {
            assert_eq!(problem["code"], "approval_already_decided", "{problem:#}");
            assert_eq!(votes.as_array().map(Vec::len), Some(1), "{problem:#}");
            assert_eq!(votes[0]["by"], *by, "{problem:#}");
            assert_eq!(votes[0]["decision"], *decision, "{problem:#}");
        }
        None => {
            assert_eq!(problem["code"], "approval_expired", "{problem:#}");
            assert_eq!(*votes, Value::Null, "{problem:#}");
        }
    }
}
