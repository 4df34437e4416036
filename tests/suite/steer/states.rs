//! Every state and every word.

use serde_json::Value;

use super::{STATES, World, kinds};

/// What a paused run does not record.
const STARTS: [&str; 10] = [
    "run.started",
    "step.started",
    "item.started",
    "worker.dispatched",
    "webhook.sent",
    "llm.request",
    "tool.called",
    "approval.requested",
    "review.requested",
    "suspend.requested",
];

/// What the end of a run that was ended by a person may record.
const ENDS: [&str; 5] = [
    "agent.finished",
    "item.failed",
    "run.failed",
    "step.failed",
    "tool.in_doubt",
];

async fn is_ended_in_every_state(word: &str, kind: &str) {
    let mut world = World::new().await;
    let mut ended = Vec::new();
    for (state, _) in STATES {
        let run = world.run_in(state).await;
        let (status, said) = world.say(&run, word).await;
        assert_eq!(
            (status, &said["status"]),
            (200, &"cancelled".into()),
            "{state}: {said}"
        );
        let last = said["last"].as_u64().unwrap();
        let frames = world.frames(&run).await;
        let own = said["seq"].as_u64().unwrap() as usize;
        assert_eq!(frames[own]["type"], kind, "{state}");
        assert_eq!(frames[own]["data"]["by"]["id"], "local", "{state}");
        assert_eq!(frames[own]["data"]["reason"], "a reason", "{state}");
        assert_eq!(frames.last().unwrap()["seq"], last, "{state}");
        let strange: Vec<&str> = kinds(&frames[own + 1..])
            .into_iter()
            .filter(|kind| !ENDS.contains(kind))
            .collect();
        assert_eq!(strange, [""; 0], "{state}");
        ended.push((state, run, last));
    }
    // What was under way is answered now, after the end; then everything is started anew.
    let before = world.effects();
    world.open_the_gate();
    world.restart();
    for (state, run, last) in &ended {
        for again in ["cancel", "terminate", "pause", "resume"] {
            let (status, said) = world.say(run, again).await;
            assert_eq!(status, 409, "{state}: {again}: {said}");
        }
        let frames = world.frames(run).await;
        let told = serde_json::to_string(&frames).unwrap();
        assert!(!told.contains("failed elsewhere"), "{state}: {told}");
        assert_eq!(
            frames.last().unwrap()["seq"],
            *last,
            "{state}: a late answer is recorded"
        );
        let envelope = world.envelope(run).await;
        assert_eq!(envelope["status"], "cancelled", "{state}");
        assert_eq!(
            envelope["error"]["code"],
            kind.trim_start_matches("run."),
            "{state}"
        );
        for step in envelope["steps"].as_array().unwrap() {
            let code = (step["status"].as_str(), step["error"]["code"].as_str());
            let fine = matches!(
                code,
                (Some("failed"), Some("stopped")) | (Some("complete"), None)
            );
            assert!(fine, "{state}: {step:#}");
        }
        assert_eq!(
            step(&envelope, "work")["error"]["code"],
            "stopped",
            "{state}"
        );
        world.replays(run).await;
    }
    assert_eq!(world.effects(), before, "something was asked after the end");
}

#[tokio::test]
async fn a_run_is_cancelled_in_every_state_and_nothing_of_it_continues() {
    is_ended_in_every_state("cancel", "run.cancelled").await;
}

#[tokio::test]
async fn a_run_is_terminated_in_every_state_and_nothing_of_it_continues() {
    is_ended_in_every_state("terminate", "run.terminated").await;
}

#[tokio::test]
async fn a_run_is_paused_in_every_state_starts_nothing_over_a_restart_and_continues_when_resumed() {
    let mut world = World::new().await;
    let mut paused = Vec::new();
    for (state, _) in STATES {
        let run = world.run_in(state).await;
        let (status, said) = world.say(&run, "pause").await;
        assert_eq!(
            (status, &said["status"]),
            (200, &"waiting".into()),
            "{state}: {said}"
        );
        let (again, why) = world.say(&run, "pause").await;
        assert_eq!(again, 409, "{state}: {why}");
        paused.push((state, run, said["seq"].as_u64().unwrap()));
    }
    // Calls under way end, and what they gave is recorded.
    world.open_the_gate();
    for (state, run, _) in &paused {
        let answer = match *state {
            "model" | "child" | "budget" => Some(("llm.response", 1)),
            "reflect" | "fan_out" => Some(("llm.response", 2)),
            "tool" => Some(("tool.returned", 1)),
            "webhook" => Some(("webhook.delivered", 1)),
            _ => None,
        };
        if let Some((kind, count)) = answer {
            world.seen(run, kind, count).await;
        }
    }
    world.restart();
    for (state, run, pause) in &paused {
        let envelope = world.envelope(run).await;
        assert_eq!(envelope["status"], "waiting", "{state}");
        let frames = world.frames(run).await;
        let after = kinds(&frames[*pause as usize + 1..]);
        let started = after.iter().find(|kind| STARTS.contains(*kind));
        assert_eq!(started, None, "{state}: {after:?}");
    }
    for (state, run, _) in &paused {
        let (status, said) = world.say(run, "resume").await;
        assert_eq!(status, 202, "{state}: {said}");
        match *state {
            "doubt" | "approval" | "review" | "suspension" => {
                let envelope = world.envelope(run).await;
                assert_eq!(envelope["status"], "waiting", "{state}");
                assert_eq!(
                    step(&envelope, "work")["status"],
                    "pending_approval",
                    "{state}"
                );
                assert_eq!(world.say(run, "cancel").await.0, 200, "{state}");
            }
            "backoff" => {
                let envelope = world.client().ended(run).await;
                assert_eq!(envelope["status"], "failed", "{state}");
                assert_eq!(
                    world
                        .sink
                        .heard()
                        .iter()
                        .filter(|one| one.path == "/fails")
                        .count(),
                    3
                );
            }
            _ => {
                let envelope = world.client().ended(run).await;
                assert_eq!(envelope["status"], "complete", "{state}: {envelope:#}");
            }
        }
        let frames = world.frames(run).await;
        let resumed = frames
            .iter()
            .find(|frame| frame["type"] == "run.resumed")
            .unwrap();
        assert!(resumed["data"]["paused_ms"].is_u64(), "{state}: {resumed}");
        world.replays(run).await;
    }
}

#[tokio::test]
async fn a_run_is_steered_in_every_state_in_which_a_new_start_finds_it() {
    let mut world = World::new().await;
    let mut runs = Vec::new();
    for word in ["cancel", "terminate", "pause"] {
        for (state, _) in STATES {
            runs.push((word, state, world.run_in(state).await));
        }
    }
    world.restart();
    for (word, state, run) in &runs {
        let (code, said) = world.say(run, word).await;
        let after = match *word {
            "pause" => "waiting",
            _ => "cancelled",
        };
        assert_eq!(
            (code, &said["status"]),
            (200, &after.into()),
            "{word} {state}: {said}"
        );
        let view = world.client().get(&format!("/runs/{run}")).await.json();
        let (member, other) = match *word {
            "pause" => ("paused", "cancelled"),
            _ => ("cancelled", "paused"),
        };
        let told = &view["run"][member];
        assert_eq!(told["by"], "local", "{word} {state}: {view:#}");
        assert_eq!(told["reason"], "a reason", "{word} {state}");
        assert!(told["at"].is_string(), "{word} {state}");
        assert_eq!(view["run"][other], Value::Null, "{word} {state}");
    }
    let list = world.client().get("/runs?limit=100").await.json();
    for (word, state, run) in &runs {
        let rows = list["runs"].as_array().unwrap();
        let row = rows.iter().find(|row| row["run_id"] == run.as_str());
        let paused = row.unwrap()["paused_at"].is_string();
        assert_eq!(paused, *word == "pause", "{word} {state}: {row:?}");
    }
    world.open_the_gate();
    for (word, state, run) in &runs {
        if *word == "pause" {
            assert_eq!(world.say(run, "resume").await.0, 202, "{state}");
            let view = world.client().get(&format!("/runs/{run}")).await.json();
            assert_eq!(view["run"]["paused"], Value::Null, "{state}");
            match *state {
                "doubt" | "approval" | "review" | "suspension" => {
                    assert_eq!(world.say(run, "cancel").await.0, 200, "{state}");
                }
                _ => drop(world.client().ended(run).await),
            }
        }
        let envelope = world.envelope(run).await;
        let expected = match (*word, *state) {
            ("pause", "backoff") => "failed",
            ("pause", "doubt" | "approval" | "review" | "suspension")
            | ("cancel" | "terminate", _) => "cancelled",
            _ => "complete",
        };
        assert_eq!(envelope["status"], expected, "{word} {state}: {envelope:#}");
        world.replays(run).await;
    }
}

fn step<'a>(envelope: &'a Value, id: &str) -> &'a Value {
    let steps = envelope["steps"].as_array().unwrap();
    steps.iter().find(|step| step["id"] == id).unwrap()
}
