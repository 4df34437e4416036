//! Runs that load worlds, as evidence: what somebody writes who has the operator's key, and makes the
//! chain, the numbers of frames and the hash of the world whole again, is found, by both verifiers or
//! by deciding again, but for what no record can show (docs/evidence.md).

use ktsu_evidence::check::{ArchiveVerifyOptions, ClaimVerdict, verify};
use ktsu_ledger::store::SqliteReader;
use ktsu_ledger::{Blob, CanonicalJson, Hash, Record};
use ktsu_projections::RunState;
use serde_json::{Value, json};

use super::book::Book;
use super::forgeries::{claim, judged_by_both};
use super::mutants::{Mutant, arranged, bodies, leaves, others, with};
use super::{Python, put};
use crate::support::campaign;
use crate::support::ledgers::Recorded;
use crate::support::scenarios::worlds::{NAMES, asking, record, waiting};
use crate::support::worlds::TIDES;
use crate::support::{KitDir, Lab, Sink};

/// The verdicts of `world`, the same from both verifiers, and of `replay`, on each of these runs, signed
/// by whoever has the key.
fn found(runs: &[(&str, Recorded)]) -> Vec<(ClaimVerdict, ClaimVerdict)> {
    let ledgers = runs.iter().map(|(told, run)| (*told, vec![run.clone()]));
    let outcomes = judged_by_both(&ledgers.collect::<Vec<_>>());
    let verdicts = outcomes.iter();
    verdicts
        .map(|one| (claim(one, "world"), claim(one, "replay")))
        .collect()
}

/// The run with an end that names the world that its frames make, as far as they make one.
fn with_world_hash(run: &Recorded) -> Recorded {
    let mut bodies = bodies(run);
    let mut records = run.records.iter();
    if records.any(|record| record.decode_bare().is_err()) {
        return run.clone();
    }
    let frames = run.frames();
    let (first, rest) = frames.split_first().unwrap();
    let mut state = RunState::fold([first]).unwrap();
    for (frame, body) in rest.iter().zip(&mut bodies[1..]) {
        let ends = body["data"].get("world").is_some();
        if let Some(responding) = state.responding().filter(|_| ends) {
            body["data"]["world"] = json!(responding.head().hash());
        }
        if state.apply(frame).is_err() {
            break;
        }
    }
    with(run, &bodies)
}

fn data(bodies: &mut [Value], at: usize) -> &mut Value {
    &mut bodies[at]["data"]
}

/// The only frame of a type whose text has these words.
fn frame_of(run: &Recorded, kind: &str, words: &str) -> usize {
    let kind = format!("\"type\":\"{kind}\"");
    let is = |record: &Record| record.body.contains(&kind) && record.body.contains(words);
    let mut found = (0..run.records.len()).filter(|at| is(&run.records[*at]));
    let only = found.next().unwrap_or_else(|| panic!("{kind} {words}"));
    assert_eq!(found.next(), None, "{kind} {words}");
    only
}

#[test]
fn honest_runs_that_load_worlds_are_proven() {
    let runs = NAMES.map(|name| (name, record(name)));
    for (name, run) in &runs {
        assert_eq!(with(run, &bodies(run)).records, run.records, "{name}");
        assert_eq!(with_world_hash(run).records, run.records, "{name}");
    }
    let proven = (ClaimVerdict::Proven, ClaimVerdict::Proven);
    assert_eq!(found(&runs), [proven; 2]);
}

/// What a responder asks is an agent's task to every other claim.
#[tokio::test]
async fn a_run_whose_responder_asks_a_model_is_no_forgery_and_what_is_forged_in_one_is_found() {
    let run = asking().play(&Sink::new().await).await.recorded;
    let proven = (ClaimVerdict::Proven, ClaimVerdict::Proven);
    assert_eq!(found(&[("honest", run.clone())]), [proven]);
    let all = bodies(&run);
    let of = |kind: &str| -> Vec<usize> {
        let kinds = (0..).zip(&all).filter(|(_, body)| body["type"] == kind);
        kinds.map(|(at, _)| at).collect()
    };
    let reaction = frame_of(&run, "object.patched", "who is tides");
    let (topic, fired) = (of("object.created")[0], of("responder.fired")[0]);
    let (done, end) = (of("responder.completed"), of("run.completed")[0]);
    // Frames of other replies may stand between them.
    let reply = usize::try_from(all[reaction]["cause"][0].as_u64().unwrap()).unwrap();
    let failed = |all: &mut Vec<Value>, at: usize| {
        let finished = of("agent.finished")[at];
        data(all, finished)["outcome"] = json!({"error": {"code": "x", "message": "it failed"}});
    };
    let swapped = |one: usize, other: usize| {
        let mut order: Vec<usize> = (0..all.len()).collect();
        order.swap(one, other);
        reordered(&run, &order)
    };
    let cases: Vec<(&str, Recorded)> = vec![
        ("a reaction is dropped", without(&run, &[reaction])),
        (
            "a reaction is dropped, and said to be skipped",
            edited(&without(&run, &[reaction]), |all| {
                data(all, done[0] - 1)["skipped"] = json!([{"entry": 0, "reason": "so"}]);
            }),
        ),
        (
            "its model is said to have skipped what was made",
            edited(&run, |all| {
                let skipped = json!([{"entry": 0, "reason": "so"}, {"entry": 1, "reason": "so"}]);
                data(all, done[0])["skipped"] = skipped;
            }),
        ),
        (
            "another topic",
            edited(&run, |all| data(all, reaction)["id"] = json!("Topic-0")),
        ),
        (
            "a reaction names another cause",
            edited(&run, |all| all[reaction]["cause"] = json!([fired])),
        ),
        (
            "a reaction is somebody else's",
            edited(&run, |all| {
                all[reaction]["actor"] = json!("responder:other")
            }),
        ),
        (
            "a reaction is of another entry",
            edited(&run, |all| {
                data(all, reaction)["derived"]["entry"] = json!(1)
            }),
        ),
        (
            "a reaction comes before the reply",
            swapped(reaction, reply),
        ),
        ("a responder is not done", without(&run, &[done[1]])),
        (
            "a responder is done with something else",
            edited(&run, |all| {
                data(all, done[0])["address"] = data(all, done[1])["address"].clone();
            }),
        ),
        (
            "something is made of a reply that failed",
            edited(&run, |all| failed(all, 0)),
        ),
        (
            "a topic is renamed",
            renamed(
                &run,
                all[topic]["data"]["id"].as_str().unwrap(),
                "Topic-0123456789abcdef",
            ),
        ),
        (
            "a model is asked less often than it is",
            edited(&run, |all| {
                data(all, fired)["candidates"][0]["items"] = json!(1);
            }),
        ),
        (
            "a model is asked more often than anybody may",
            edited(&run, |all| {
                data(all, fired)["candidates"][0]["items"] = json!(u32::MAX);
            }),
        ),
        (
            "the end names no world",
            with(&run, &{
                let mut all = all.clone();
                data(&mut all, end).as_object_mut().unwrap().remove("world");
                all
            }),
        ),
        (
            "the end names another world",
            with(&run, &{
                let mut all = all.clone();
                data(&mut all, end)["world"] = json!(format!("sha256:{}", "0".repeat(64)));
                all
            }),
        ),
    ];
    // The independent verifier says the same (`found`).
    for ((told, _), (world, replay)) in cases.iter().zip(found(&cases)) {
        let is_asking = told.starts_with("a model is asked less");
        let expected = [ClaimVerdict::Failed, ClaimVerdict::NotCovered];
        assert!(
            world == expected[0] || is_asking && world == expected[1],
            "{told}: {world:?}"
        );
        assert_eq!(replay, ClaimVerdict::Failed, "{told}");
    }
}

/// Members of a certain length are kept apart, in ledgers of earlier versions keys, too.
/// A complete run of a world without models, and a branch of all its frames that was resumed and got a
/// post.
async fn posted_to_a_branch() -> [Recorded; 2] {
    let kit = KitDir::new(&[("sea", "pipeline: []\n")]).with("worlds/tides.world.yaml", TIDES);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let lab = Lab::on_file(&path, &kit, &[]).await;
    let envelope = lab.client.run("sea", json!({"goal": "tides"})).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    let run = envelope["run_id"].as_str().unwrap();
    let forked = lab.client.post(&format!("/runs/{run}/fork"), "{}").await;
    let branch = forked.json()["branch_id"].as_str().unwrap().to_owned();
    let resumed = lab
        .client
        .post(&format!("/runs/{branch}/resume"), "{}")
        .await;
    assert_eq!(resumed.status, 202, "{}", resumed.text());
    let event = json!({"type": "object.created",
        "data": {"type": "Topic", "id": "t2", "data": {"text": "waves"}}});
    let events = format!("/runs/{branch}/events");
    let posted = lab.client.post(&events, event.to_string()).await;
    assert!(posted.status < 300, "{}", posted.text());
    lab.client.ended(&branch).await;
    lab.close().await;
    let reader = SqliteReader::open(&path).unwrap();
    [run, branch.as_str()].map(|name| Recorded::read(&reader, name))
}

#[tokio::test]
async fn a_post_to_a_branch_that_was_not_resumed_is_found() {
    let [run, branch] = posted_to_a_branch().await;
    let mut all = bodies(&branch);
    assert_eq!(all[1]["type"], "run.resumed");
    let gone = all.remove(1)["seq"].as_u64().unwrap();
    for body in &mut all[1..] {
        body["seq"] = json!(body["seq"].as_u64().unwrap() - 1);
        for cause in body["cause"].as_array_mut().unwrap() {
            let seq = cause.as_u64().unwrap();
            *cause = json!(seq - u64::from(seq >= gone));
        }
    }
    let ledgers = [
        ("honest", vec![run.clone(), branch.clone()]),
        ("not resumed", vec![run, with(&branch, &all)]),
    ];
    let outcomes = judged_by_both(&ledgers);
    let verdicts = outcomes.iter().map(|one| claim(one, "world"));
    let expected = [ClaimVerdict::Proven, ClaimVerdict::Failed];
    assert_eq!(verdicts.collect::<Vec<_>>(), expected, "{outcomes:#?}");
}

#[test]
fn a_key_that_is_kept_apart_is_read_by_both_verifiers() {
    let run = record("worlds");
    let incident = frame_of(&run, "object.created", "open-incident");
    let mut all = bodies(&run);
    let key = data(&mut all, incident)["key"].take().to_string();
    let text = CanonicalJson::parse(key.as_bytes()).unwrap();
    let hash = Hash::of(key.as_bytes());
    all[incident]["ext"] = json!([{"bytes": key.len(), "hash": hash.to_string(), "path": "/key"}]);
    let mut apart = with(&run, &all);
    apart.blobs.push(Blob { hash, text });
    let proven = (ClaimVerdict::Proven, ClaimVerdict::Proven);
    assert_eq!(found(&[("apart", apart)])[0].0, proven.0);
}

#[test]
fn responders_that_wait_are_proven_and_forgeries_of_their_timers_found() {
    let run = waiting();
    let proven = (ClaimVerdict::Proven, ClaimVerdict::Proven);
    assert_eq!(found(&[("honest", run.clone())]), [proven]);
    let all = bodies(&run);
    let of = |kind: &str| -> Vec<usize> {
        let kinds = all.iter().map(|body| body["type"].as_str().unwrap());
        let of = (0..).zip(kinds).filter(|(_, one)| *one == kind);
        of.map(|(at, _)| at).collect()
    };
    let (timers, fired, pages) = (
        of("timer.fired"),
        of("responder.fired"),
        of("object.created"),
    );
    let names = timers.iter().map(|at| &all[*at]["data"]["responder"]);
    assert_eq!(
        Vec::from_iter(names),
        ["remind", "page", "note-quiet", "note-quiet"]
    );
    let last = all.len() - 1;
    let every: Vec<usize> = (0..=last).collect();
    // The turn of a timer, one second before it was due.
    let early = |timer: usize| {
        edited(&run, |all| {
            let at = all[timer]["at"].clone();
            let before = at.as_str().unwrap().replace(":00.000000Z", ":59.000000Z");
            let minute: u32 = before[14..16].parse().unwrap();
            let before = format!("{}{:02}{}", &before[..14], minute - 1, &before[16..]);
            for body in all.iter_mut().filter(|body| body["at"] == at) {
                body["at"] = json!(before);
            }
        })
    };
    use FoundBy::{Both, Replay};
    let cases: Vec<(&str, FoundBy, Recorded)> = vec![
        ("a timer fires early", Both, early(timers[0])),
        ("a second timer fires early", Both, early(timers[1])),
        (
            "a timer is dropped, and its verdict kept",
            Both,
            without(&run, &[timers[1]]),
        ),
        (
            "a responder never looks",
            Both,
            without(&run, &[timers[1], fired[3]]),
        ),
        (
            "a timer fires and nobody looks",
            Both,
            without(&run, &[fired[3]]),
        ),
        ("a timer fires twice", Both, {
            let mut order = every.clone();
            order.splice(pages[1] + 1..pages[1] + 1, [timers[0], fired[1], pages[1]]);
            reordered(&run, &order)
        }),
        (
            "a timer is of another responder",
            Both,
            edited(&run, |all| {
                data(all, timers[0])["responder"] = json!("page")
            }),
        ),
        (
            "a timer is of nobody",
            Both,
            edited(&run, |all| {
                let timer = data(all, timers[0]).as_object_mut().unwrap();
                timer.remove("responder");
            }),
        ),
        (
            "a timer has another cause",
            Both,
            edited(&run, |all| all[timers[0]]["cause"] = json!([1])),
        ),
        (
            "a timer is somebody's",
            Both,
            edited(&run, |all| all[timers[0]]["actor"] = json!("principal:eve")),
        ),
        (
            "a responder looks at once",
            Both,
            edited(&run, |all| {
                data(all, fired[0])["candidates"][0] =
                    json!({"responder": "page", "verdict": "false"});
            }),
        ),
        (
            "a responder waits less",
            Both,
            edited(&run, |all| {
                data(all, fired[0])["candidates"][0]["after_ms"] = json!(1);
            }),
        ),
        (
            "a responder waits again",
            Both,
            edited(&run, |all| {
                data(all, fired[1])["candidates"][0] =
                    json!({"after_ms": 600_000, "responder": "remind", "verdict": "postponed"});
            }),
        ),
        (
            "a verdict after a timer is turned to no, and what it made is dropped",
            Replay,
            edited(&without(&run, &[pages[1]]), |all| {
                data(all, fired[1])["candidates"][0] =
                    json!({"responder": "remind", "verdict": "false"});
            }),
        ),
        (
            "a verdict after a timer is turned to yes alone",
            Both,
            edited(&run, |all| {
                data(all, fired[3])["candidates"][0] =
                    json!({"entries": 1, "responder": "page", "verdict": "fired"});
            }),
        ),
    ];
    let runs: Vec<(&str, Recorded)> = cases
        .iter()
        .map(|(told, _, run)| (*told, run.clone()))
        .collect();
    for ((told, by, _), (world, replay)) in cases.iter().zip(found(&runs)) {
        // Deciding again asks nobody who appended an input.
        let decided = *told == "a timer is somebody's" || replay == ClaimVerdict::Failed;
        assert!(decided, "{told}");
        let expected = by == &Both;
        assert_eq!(world == ClaimVerdict::Failed, expected, "{told}: {world:?}");
    }
}

/// Who finds a forgery.
#[derive(Debug, Clone, Copy, PartialEq)]
enum FoundBy {
    /// Both verifiers: the claim `world` fails.
    Both,
    /// ktsu alone, by deciding again.
    Replay,
    /// Nobody: it is another history that hangs together.
    Nobody,
}

/// Changes some frames, and makes everything whole again.
fn edited(run: &Recorded, change: impl FnOnce(&mut Vec<Value>)) -> Recorded {
    let mut bodies = bodies(run);
    change(&mut bodies);
    with_world_hash(&with(run, &bodies))
}

/// The frames without some, or in another order.
fn reordered(run: &Recorded, order: &[usize]) -> Recorded {
    with_world_hash(&arranged(run, order))
}

fn without(run: &Recorded, gone: &[usize]) -> Recorded {
    let kept = (0..run.records.len()).filter(|at| !gone.contains(at));
    reordered(run, &kept.collect::<Vec<_>>())
}

/// Replaces a text wherever it stands in frames of the run.
fn renamed(run: &Recorded, from: &str, to: &str) -> Recorded {
    let bodies = bodies(run);
    let bodies = bodies.iter().map(|body| {
        let text = body.to_string().replace(from, to);
        serde_json::from_str(&text).unwrap()
    });
    with_world_hash(&with(run, &bodies.collect::<Vec<Value>>()))
}

#[test]
fn what_is_forged_in_a_world_is_found_though_everything_is_made_whole_again() {
    let run = record("worlds");
    let of = |kind: &str, words: &str| frame_of(&run, kind, words);
    let disk = of("object.created", "disk of payments");
    let hurt = of("object.patched", "\"cause\":[17]");
    let incident = of("object.created", "open-incident");
    let check_id = bodies(&run)[disk]["data"]["id"].clone();
    let about = of(
        "relation.created",
        "\"cause\":[13],\"at\":\"2027-01-15T08:00:00.000000Z\",\"data\":{\"data\":{},\"derived\":{\"entry\":1",
    );
    let verdicts = of("responder.fired", "\"cause\":[13]");
    let quiet = of("responder.fired", "\"cause\":[14]");
    let raised = of("budget.raised", "");
    let end = of("run.completed", "");
    let loaded = of("kit.loaded", "");
    let closed = of("object.patched", "closed");
    let note = of("note", "");
    let twin = of("relation.created", "\"absent\"");
    let page = of("x.incidents.page", "");
    let rejected = of("output.rejected", "");
    let failed = of("responder.failed", "");
    let removed = of("relation.removed", "\"responder:close-incident\"");
    let last = run.records.len() - 1;
    let swapped = |one: usize, other: usize| {
        let mut order: Vec<usize> = (0..=last).collect();
        order.swap(one, other);
        reordered(&run, &order)
    };
    let by = |who: &str| json!({"auth": "token", "id": who});
    use FoundBy::{Both, Nobody, Replay};
    let cases: Vec<(&str, FoundBy, Recorded)> = vec![
        (
            "an object that a responder made has other data",
            Replay,
            edited(&run, |all| {
                data(all, disk)["data"]["what"] = json!("nothing")
            }),
        ),
        (
            "an object has data that its type does not allow",
            Both,
            edited(&run, |all| data(all, incident)["data"]["state"] = json!(1)),
        ),
        (
            "a patch sets what its type does not allow",
            Both,
            edited(&run, |all| {
                data(all, hurt)["patch"]["state"] = json!("gone")
            }),
        ),
        (
            "what is posted is of a type that nobody declares",
            Both,
            edited(&run, |all| data(all, twin)["type"] = json!("Twins")),
        ),
        ("an object is dropped", Both, without(&run, &[disk])),
        ("a patch is dropped", Both, without(&run, &[hurt])),
        (
            "what makes an object once is dropped, with what is about it",
            Both,
            without(&run, &[incident]),
        ),
        (
            "a relation is removed no more",
            Both,
            without(&run, &[removed]),
        ),
        ("an object is added to the outputs of a responder", Both, {
            let mut order: Vec<usize> = (0..=last).collect();
            order.insert(disk + 1, disk);
            reordered(&run, &order)
        }),
        (
            "an object that patches another one that is not there",
            Both,
            edited(&run, |all| {
                data(all, closed)["id"] = json!("Incident-0000000000000000")
            }),
        ),
        (
            "an object is renamed wherever it is named",
            Both,
            renamed(&run, check_id.as_str().unwrap(), "Check-0123456789abcdef"),
        ),
        (
            "a relation is renamed",
            Both,
            renamed(&run, "part_of-8a3968ae527caf69", "part_of-0123456789abcdef"),
        ),
        (
            "a relation that has an id of its own is renamed",
            Replay,
            edited(&run, |all| data(all, about)["id"] = json!("about it")),
        ),
        (
            "outputs are in another order",
            Both,
            swapped(disk, disk + 1),
        ),
        (
            "verdicts come before their trigger",
            Both,
            swapped(verdicts, verdicts - 1),
        ),
        (
            "an object is said to be of another responder",
            Both,
            edited(&run, |all| {
                all[disk]["actor"] = json!("responder:see-step");
                data(all, disk)["derived"]["responder"] = json!("see-step");
            }),
        ),
        (
            "an object is said to be made by another responder than its actor",
            Both,
            edited(&run, |all| all[disk]["actor"] = json!("responder:see-step")),
        ),
        (
            "an output is of another entry",
            Both,
            edited(&run, |all| data(all, disk)["derived"]["entry"] = json!(1)),
        ),
        (
            "an output names another cause",
            Both,
            edited(&run, |all| all[hurt]["cause"] = json!([hurt - 1])),
        ),
        (
            "an output names a second cause",
            Both,
            edited(&run, |all| all[hurt]["cause"] = json!([17, 3])),
        ),
        (
            "a post has no person",
            Both,
            edited(&run, |all| {
                drop(data(all, closed).as_object_mut().unwrap().remove("by"))
            }),
        ),
        (
            "a post has a person and no number",
            Both,
            edited(&run, |all| {
                drop(data(all, closed).as_object_mut().unwrap().remove("post"))
            }),
        ),
        (
            "what a responder made is said to be posted",
            Both,
            edited(&run, |all| {
                data(all, hurt)["by"] = by("ann");
                data(all, hurt)["post"] = json!({"digest": "0", "n": 9});
                data(all, hurt).as_object_mut().unwrap().remove("derived");
                all[hurt]["actor"] = json!("principal:ann");
            }),
        ),
        (
            "a post names another person than its actor",
            Both,
            edited(&run, |all| data(all, closed)["by"] = by("eve")),
        ),
        (
            "one event of a post has another digest",
            Both,
            edited(&run, |all| data(all, page)["post"]["digest"] = json!("0")),
        ),
        (
            "one event of a post is of another person",
            Both,
            edited(&run, |all| {
                data(all, page)["by"] = by("eve");
                all[page]["actor"] = json!("principal:eve");
            }),
        ),
        (
            "a post is counted otherwise",
            Both,
            edited(&run, |all| {
                for at in [note, page] {
                    data(all, at)["post"]["n"] = json!(7);
                }
            }),
        ),
        (
            "a guard's verdict is turned to no, and what it made is dropped",
            Replay,
            {
                let made: Vec<usize> = (0..=last)
                    .filter(|at| {
                        let record = &run.records[*at].body;
                        record.contains("\"cause\":[17]") && record.contains("hurts")
                    })
                    .collect();
                let fired = made[0];
                let mut order: Vec<usize> = (0..=last).collect();
                order.retain(|at| !made[1..].contains(at));
                let turned = arranged(&run, &order);
                edited(&turned, |all| {
                    data(all, fired)["candidates"][0] =
                        json!({"responder": "hurts", "verdict": "false"});
                })
            },
        ),
        (
            "a guard's verdict is turned to no alone",
            Both,
            edited(&run, |all| {
                data(all, verdicts)["candidates"][0] =
                    json!({"responder": "open-incident", "verdict": "false"});
            }),
        ),
        (
            "a guard's verdict is turned to yes alone",
            Both,
            edited(&run, |all| {
                data(all, quiet)["candidates"][1]["verdict"] = json!("fired");
                data(all, quiet)["candidates"][1]["entries"] = json!(2);
            }),
        ),
        (
            "the reason of a verdict is another",
            Replay,
            edited(&run, |all| {
                data(all, verdicts)["candidates"][2]["reason"] = json!("so")
            }),
        ),
        (
            "a candidate is left out",
            Both,
            edited(&run, |all| {
                let candidates = data(all, verdicts)["candidates"].as_array_mut().unwrap();
                candidates.remove(2);
            }),
        ),
        ("a rejection is dropped", Replay, without(&run, &[rejected])),
        ("a failure is dropped", Both, without(&run, &[failed])),
        (
            "a responder fails otherwise than with what was rejected",
            Both,
            edited(&run, |all| {
                data(all, failed)["code"] = json!("unknown_object")
            }),
        ),
        ("a kit is not loaded", Both, without(&run, &[loaded])),
        (
            "another world is loaded",
            Both,
            edited(&run, |all| {
                data(all, loaded)["worlds"][0]["version"] = json!("2.0.0")
            }),
        ),
        ("a raised budget is dropped", Both, without(&run, &[raised])),
        (
            "a budget is raised by nobody",
            Both,
            edited(&run, |all| all[raised]["actor"] = json!("orchestrator")),
        ),
        (
            "a budget is raised by another person than it says",
            Both,
            edited(&run, |all| all[raised]["actor"] = json!("principal:eve")),
        ),
        (
            "the world at the end is another",
            Both,
            with(&run, &{
                let mut all = bodies(&run);
                let hash = data(&mut all, end)["world"].as_str().unwrap().to_owned();
                let turned = if hash.ends_with('0') { '1' } else { '0' };
                let hash = format!("{}{turned}", &hash[..hash.len() - 1]);
                data(&mut all, end)["world"] = json!(hash);
                all
            }),
        ),
        (
            "the end names no world",
            Both,
            with(&run, &{
                let mut all = bodies(&run);
                data(&mut all, end).as_object_mut().unwrap().remove("world");
                all
            }),
        ),
        (
            "a post is of somebody else altogether",
            Nobody,
            edited(&run, |all| {
                for at in [note, page] {
                    data(all, at)["by"] = by("eve");
                    all[at]["actor"] = json!("principal:eve");
                }
            }),
        ),
        (
            "all events of a post have another digest",
            Nobody,
            edited(&run, |all| {
                for at in [note, page] {
                    data(all, at)["post"]["digest"] = json!("0");
                }
            }),
        ),
        (
            "somebody is said to have raised the budget higher, for another reason",
            Nobody,
            edited(&run, |all| {
                data(all, raised)["max_events"] = json!(70);
                data(all, raised)["reason"] = json!("so");
                data(all, raised)["by"] = by("eve");
                all[raised]["actor"] = json!("principal:eve");
            }),
        ),
    ];
    let by: Vec<FoundBy> = cases.iter().map(|(_, by, _)| *by).collect();
    let forged: Vec<_> = cases
        .into_iter()
        .map(|(told, _, run)| (told, run))
        .collect();
    for (((told, forged), by), verdicts) in forged.iter().zip(by).zip(found(&forged)) {
        assert_ne!(forged.records, run.records, "{told}");
        let (world, replay) = verdicts;
        let right = match by {
            FoundBy::Both => world == ClaimVerdict::Failed,
            FoundBy::Replay => verdicts == (ClaimVerdict::Proven, ClaimVerdict::Failed),
            FoundBy::Nobody => verdicts == (ClaimVerdict::Proven, ClaimVerdict::Proven),
        };
        assert!(right, "{told}: {by:?}, world {world:?}, replay {replay:?}");
    }
}

#[test]
fn a_budget_that_is_not_used_up_does_not_end_a_run() {
    let run = record("worlds-exhausted");
    let exhausted = frame_of(&run, "budget.exhausted", "");
    let last = frame_of(&run, "object.created", "payments one two");
    let dropped = without(&run, &[last]);
    let cases: [(&str, Recorded); 6] = [
        ("one event is dropped", dropped),
        (
            "another limit",
            edited(&run, |all| {
                data(all, exhausted)["reasons"] = json!(["max_events=4"])
            }),
        ),
        (
            "one more reason",
            edited(&run, |all| {
                data(all, exhausted)["reasons"] = json!(["max_events=5", "max_recursion_depth=4"]);
            }),
        ),
        (
            "no reason",
            edited(&run, |all| data(all, exhausted)["reasons"] = json!([])),
        ),
        (
            "fewer triggers are dropped",
            edited(&run, |all| {
                data(all, exhausted)["dropped"]["triggers"] = json!(0)
            }),
        ),
        (
            "somebody else ends it",
            edited(&run, |all| all[exhausted]["actor"] = json!("principal:ann")),
        ),
    ];
    for ((told, _), (world, _)) in cases.iter().zip(found(&cases)) {
        assert_eq!(world, ClaimVerdict::Failed, "{told}");
    }
}

/// What nothing else in the record depends on: whoever writes all of it anew writes what they like.
const BEYOND: [&str; 16] = [
    "posted /data/by/auth",
    // What was posted is what people say; another text makes another history where nothing follows.
    "posted /data/data/",
    "posted /data/patch/",
    "posted /data/source_id",
    "posted /data/target_id",
    "posted /data/id",
    // So is how often and in which order they say it within a post, whose digest nothing shows.
    "posted twice",
    "posted taken out",
    "posted moved",
    "posted /data/post/digest",
    // The last events of a post may as well be a post of their own.
    "posted /data/post/n: 3 to 4",
    "budget.raised /data/by/auth",
    "budget.raised /data/reason",
    "budget.raised /data/max_events",
    "budget.raised moved",
    "budget.raised twice",
];

fn is_world(body: &Value) -> bool {
    let kind = body["type"].as_str().unwrap();
    let groups = [
        "object.",
        "relation.",
        "responder.",
        "x.",
        "budget.",
        "output.",
        "kit.",
        "note",
        "timer.",
    ];
    groups.iter().any(|group| kind.starts_with(group))
}

/// Every frame about a world, changed in every way that a machine can think of.
fn mutants(name: &str, run: &Recorded) -> Vec<Mutant> {
    let all = bodies(run);
    let every: Vec<usize> = (0..all.len()).collect();
    let mut found = Vec::new();
    let mut add = |told: String, run: Recorded| {
        let run = with_world_hash(&run);
        found.push(Mutant { told, run });
    };
    for (at, body) in all.iter().enumerate().filter(|(_, body)| is_world(body)) {
        let kind = body["type"].as_str().unwrap();
        let posted = match body["data"].get("post") {
            Some(_) => " posted",
            None => "",
        };
        let told = |what: &str| format!("{name} {at} {kind}{posted} {what}");
        let mut places = Vec::new();
        leaves(&body["data"], "/data".to_owned(), &mut places);
        leaves(&body["cause"], "/cause".to_owned(), &mut places);
        places.extend(["/actor", "/scope"].map(str::to_owned));
        for place in &places {
            // A member whose name needs escapes is one of a person's data.
            let Some(old) = body.pointer(place) else {
                continue;
            };
            let member = place.rsplit('/').next().unwrap();
            for new in others(old, member, &all) {
                // No ledger takes a cause that is not an earlier frame.
                let earlier = new.as_u64().is_some_and(|cause| cause < at as u64);
                if place.starts_with("/cause") && !earlier {
                    continue;
                }
                let what = told(&format!("{place}: {old} to {new}"));
                let mut bodies = all.clone();
                *bodies[at].pointer_mut(place).unwrap() = new;
                add(what, with(run, &bodies));
            }
        }
        for member in ["by", "derived", "post", "key", "patch"] {
            if body["data"].get(member).is_some() {
                let mut bodies = all.clone();
                bodies[at]["data"].as_object_mut().unwrap().remove(member);
                add(told(&format!("without {member}")), with(run, &bodies));
            }
        }
        let gone: Vec<usize> = every.iter().copied().filter(|one| *one != at).collect();
        add(told("taken out"), arranged(run, &gone));
        let mut twice = every.clone();
        twice.insert(at, at);
        add(told("twice"), arranged(run, &twice));
        for to in at + 1..(at + 4).min(all.len() - 1) {
            let mut order = gone.clone();
            order.insert(to, at);
            add(told(&format!("moved behind {to}")), arranged(run, &order));
        }
    }
    found
}

/// What deciding again accepts is another history: of inputs, which nothing else contradicts.
#[tokio::test]
async fn whatever_a_machine_changes_about_a_world_is_found_and_both_verifiers_say_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (mut outcomes, mut archives, mut missed, mut by_world) = (vec![], vec![], vec![], 0);
    let mut runs = Vec::from(NAMES.map(|name| (name, record(name))));
    runs.push(("waits", waiting()));
    let asking = asking().play(&Sink::new().await).await;
    runs.push(("asks", asking.recorded));
    for (name, run) in runs {
        for mutant in mutants(name, &run).into_iter().step_by(campaign(7, 1)) {
            // What is no frame is found as such.
            let mut records = mutant.run.records.iter();
            if records.any(|record| record.decode_bare().is_err()) {
                continue;
            }
            let bytes = Book::unsigned(&mutant.run).export_all();
            let outcome = verify(&bytes, &ArchiveVerifyOptions::default()).unwrap();
            by_world += usize::from(claim(&outcome, "world") == ClaimVerdict::Failed);
            let beyond = BEYOND.iter().any(|words| mutant.told.contains(words));
            if outcome.is_sound() && !beyond {
                missed.push(mutant.told.clone());
            }
            archives.push(put(folder.path(), &outcomes.len().to_string(), &bytes));
            outcomes.push((mutant.told, outcome));
        }
    }
    assert!(
        by_world * 2 > outcomes.len(),
        "{by_world} of {}",
        outcomes.len()
    );
    if let Some(python) = Python::find() {
        for ((told, outcome), said) in outcomes.iter().zip(python.verify(&archives, &[])) {
            python.agrees(&outcome.claims, &said, told);
        }
    }
    assert_eq!(missed, Vec::<String>::new());
}
