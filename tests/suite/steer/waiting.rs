//! Runs that have not begun, or wait for a start with what they need: a word reaches them all the same,
//! also once the engine was started anew.

use ktsu::assemble::LedgerPlace;
use ktsu_ledger::store::{SqliteReader, SqliteStore};
use serde_json::{Value, json};

use super::{GATE, World, kinds};
use crate::support::ledgers::Recorded;
use crate::support::model::KEY;
use crate::support::{Client, KitDir, Lab};

/// A kit that has nothing to do with the runs.
fn foreign() -> KitDir {
    KitDir::new(&[("other", "pipeline: []\n")])
}

async fn say(client: &Client, run: &str, word: &str) -> (u16, Value) {
    let body = json!({"reason": "a reason"}).to_string();
    let answer = client.post(&format!("/runs/{run}/{word}"), body).await;
    (answer.status, answer.json())
}

async fn status(client: &Client, run: &str) -> Value {
    let path = format!("/runs/{run}");
    client.get(&path).await.json()["run"]["status"].clone()
}

impl World {
    /// The engine is killed, with this run where it stands.
    async fn left_in(&mut self, state: &str) -> String {
        let run = self.run_in(state).await;
        self.engine.take().unwrap().kill();
        run
    }

    fn ledger(&self) -> LedgerPlace {
        LedgerPlace::File(self.ledger.path().join("ledger.db"))
    }

    /// An engine of another kit on the same ledger.
    async fn elsewhere(&self, kit: &KitDir) -> Lab {
        Lab::on(self.ledger(), kit.load(), &[], None).await
    }

    /// Whether a run is ended by a person and nothing was asked on its behalf.
    async fn is_ended(&mut self, run: &str, effects: usize) {
        self.start();
        let envelope = self.envelope(run).await;
        assert_eq!(envelope["status"], "cancelled", "{envelope:#}");
        for word in ["cancel", "terminate", "pause", "resume"] {
            assert_eq!(self.say(run, word).await.0, 409, "{word}");
        }
        self.replays(run).await;
        assert_eq!(self.effects(), effects, "something was asked after the end");
    }
}

#[tokio::test]
async fn a_run_that_has_not_begun_is_steered_before_anything_of_it_begins() {
    for (word, after) in [
        ("cancel", "cancelled"),
        ("terminate", "cancelled"),
        ("pause", "waiting"),
    ] {
        let mut world = World::new().await;
        let run = world.left_in("webhook").await;
        // As it is on the disk where the first frame alone was written.
        let path = world.ledger.path().join("ledger.db");
        let recorded = Recorded::read(&SqliteReader::open(&path).unwrap(), &run).cut(1);
        world.ledger = tempfile::tempdir().unwrap();
        let path = world.ledger.path().join("ledger.db");
        recorded.put(&mut SqliteStore::open(&path).unwrap());
        let effects = world.effects();
        let lab = Lab::idle(
            world.ledger(),
            &world.kit,
            &[KEY, ("HOOK", &world.sink.url)],
        )
        .await;
        assert_eq!(status(&lab.client, &run).await, "pending");
        let (code, said) = say(&lab.client, &run, word).await;
        assert_eq!(
            (code, &said["status"]),
            (200, &json!(after)),
            "{word}: {said}"
        );
        let (again, said) = say(&lab.client, &run, word).await;
        assert_eq!(again, 409, "{word}: {said}");
        lab.close().await;
        if word != "pause" {
            world.is_ended(&run, effects).await;
            continue;
        }
        world.start();
        let frames = world.frames(&run).await;
        let begun: Vec<&str> = kinds(&frames).into_iter().skip(2).collect();
        assert!(
            begun.iter().all(|kind| *kind == "run.continued"),
            "{begun:?}"
        );
        assert_eq!(world.effects(), effects, "nothing began");
        assert_eq!(world.say(&run, "resume").await.0, 202);
        world.open_the_gate();
        let envelope = world.client().ended(&run).await;
        assert_eq!(envelope["status"], "complete", "{envelope:#}");
        world.replays(&run).await;
    }
}

#[tokio::test]
async fn a_run_whose_model_group_is_not_at_hand_is_steered_and_never_fails_for_the_lack() {
    for word in ["cancel", "terminate", "pause"] {
        let mut world = World::new().await;
        let run = world.left_in("model").await;
        world.open_the_gate();
        let effects = world.effects();
        let kit = foreign();
        let lab = world.elsewhere(&kit).await;
        assert_eq!(status(&lab.client, &run).await, "running");
        let overlay = json!({"step": "after", "field": "result", "value": 1, "reason": "r"});
        let path = format!("/runs/{run}/overlay");
        let refused = lab.client.post(&path, overlay.to_string()).await;
        assert_eq!(
            refused.json()["code"],
            "runtime_unconfigured",
            "{}",
            refused.text()
        );
        let (code, said) = say(&lab.client, &run, word).await;
        assert_eq!(code, 200, "{word}: {said}");
        if word == "pause" {
            // The task that took the word is there; what it needs is not.
            let (code, said) = say(&lab.client, &run, "resume").await;
            assert_eq!(
                (code, &said["code"]),
                (503, &json!("runtime_unconfigured")),
                "{said}"
            );
            assert_eq!(status(&lab.client, &run).await, "waiting");
        }
        lab.close().await;
        if word != "pause" {
            world.is_ended(&run, effects).await;
            continue;
        }
        // Neither the next start with another kit nor that with its own lets it go on.
        world.elsewhere(&kit).await.close().await;
        world.start();
        assert_eq!(world.envelope(&run).await["status"], "waiting");
        assert_eq!(world.effects(), effects, "it went on while it was paused");
        assert_eq!(world.say(&run, "resume").await.0, 202);
        let envelope = world.client().ended(&run).await;
        assert_eq!(envelope["status"], "complete", "{envelope:#}");
        world.replays(&run).await;
    }
}

#[tokio::test]
async fn a_run_whose_secret_is_not_at_hand_is_steered_and_sends_nothing_without_it() {
    for word in ["cancel", "terminate", "pause"] {
        let mut world = World::new().await;
        let run = world.left_in("secret").await;
        let effects = world.effects();
        let kit = foreign();
        let lab = world.elsewhere(&kit).await;
        assert_eq!(status(&lab.client, &run).await, "running");
        let (code, said) = say(&lab.client, &run, word).await;
        assert_eq!(code, 200, "{word}: {said}");
        if word == "pause" {
            // It may go on, and waits for the secret as it did before.
            assert_eq!(say(&lab.client, &run, "resume").await.0, 202);
            assert_eq!(status(&lab.client, &run).await, "running");
            assert_eq!(say(&lab.client, &run, "pause").await.0, 200);
        }
        lab.close().await;
        assert_eq!(
            world.effects(),
            effects,
            "{word}: it was sent without its secret"
        );
        if word != "pause" {
            world.is_ended(&run, effects).await;
            continue;
        }
        world.start();
        assert_eq!(world.envelope(&run).await["status"], "waiting");
        assert_eq!(world.effects(), effects, "it was sent while it was paused");
        world.sink.open(GATE);
        assert_eq!(world.say(&run, "resume").await.0, 202);
        let envelope = world.client().ended(&run).await;
        assert_eq!(envelope["status"], "complete", "{envelope:#}");
        let heard = world.sink.heard();
        assert_eq!(heard.len(), 2);
        assert_eq!(heard[1].id, heard[0].id, "it is the same delivery");
        assert_eq!(heard[1].json()["key"], KEY.1);
        world.replays(&run).await;
    }
}
