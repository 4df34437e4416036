//! Replies of models that a run repeats instead of asking again, as evidence: none can be swapped, made
//! up or taken from another branch by somebody who has the operator's key and makes the chain whole
//! again. What no record can show is in docs/evidence.md.

use ktsu_evidence::check::{ArchiveVerifyOptions, ClaimVerdict, verify};
use ktsu_ledger::store::SqliteReader;
use ktsu_ledger::{CanonicalJson, Hash};
use ktsu_workflow::admit::report::sha256;
use serde_json::{Value, json};

use super::book::Book;
use super::forgeries::{claim, judged_by_both};
use super::mutants::{bodies, leaves, others, with};
use super::{Python, put};
use crate::golden::goldens;
use crate::support::ledgers::Recorded;
use crate::support::model::{self, KEY, Model, Said};
use crate::support::{KitDir, Lab};

/// `c` repeats what `b` was told; `d` and `f`, what `a` was; `e` asks behind them.
const LINE: &str = r#"
model_policy: {cache: true}
params: {schema: {type: object, required: [msg], properties: {msg: {type: string}}}}
pipeline:
  - {id: a, agent: ./agents/echo.agent.yaml, params: {msg: "one"}}
  - {id: b, depends_on: [a], agent: ./agents/echo.agent.yaml, params: {msg: "{{ params.msg }}"}}
  - {id: c, depends_on: [b], agent: ./agents/echo.agent.yaml, params: {msg: "{{ params.msg }}"}}
  - {id: d, depends_on: [c], agent: ./agents/echo.agent.yaml, params: {msg: "one"}}
  - {id: e, depends_on: [d], agent: ./agents/echo.agent.yaml, params: {msg: "last"}}
  - {id: f, depends_on: [e], agent: ./agents/echo.agent.yaml, params: {msg: "one"}}
"#;

/// About the topic of a goal a model is asked three questions, the last two of which are the same.
const SEA: &str = r#"
kind: world
name: sea
version: 1.0.0
goal: [{object: {type: Topic, data: {text: "{{ goal }}"}}}]
objects: {Topic: {}, Remark: {}}
responders:
  - name: remark-on
    "on": object.created
    type: Topic
    for_each: {items: [what, who, who]}
    concurrency: 1
    ask:
      model: std
      temperature: 0.3
      messages: [{role: user, content: "{{ item }} is {{ object.data.text }}"}]
    then:
      - object: {type: Remark, data: {text: "{{ reply.text }}"}}
"#;

/// A run of [`LINE`], and two branches of it that were told different things by a model that was asked
/// the same.
async fn line() -> [Recorded; 3] {
    let asked = std::sync::atomic::AtomicUsize::new(0);
    let model = Model::scripted(move |call| {
        let number = asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Said::answer(&format!("{} {number}", call.user()))
    });
    let model = model.await;
    let kit = model::kit(&model, &[("line", LINE)]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let lab = Lab::on_file(&path, &kit, &[KEY]).await;
    let envelope = lab.client.run("line", json!({"msg": "two"})).await;
    let run = envelope["run_id"].as_str().unwrap().to_owned();
    let mut names = vec![run.clone()];
    for _ in 0..2 {
        let body = json!({"before": "b", "set": {"params.msg": "three"}});
        let path = format!("/runs/{run}/fork");
        let made = lab.client.post(&path, body.to_string()).await;
        let branch = made.json()["branch_id"].as_str().unwrap().to_owned();
        let path = format!("/runs/{branch}/resume");
        assert_eq!(lab.client.post(&path, "{}").await.status, 202);
        let ended = lab.client.ended(&branch).await;
        assert_eq!(ended["status"], "complete", "{ended:#}");
        names.push(branch);
    }
    assert_eq!(model.calls().len(), 3 + 2 + 2);
    lab.close().await;
    let reader = SqliteReader::open(&path).unwrap();
    let recorded = names.iter().map(|name| Recorded::read(&reader, name));
    recorded.collect::<Vec<_>>().try_into().unwrap()
}

/// A run of [`SEA`].
async fn sea() -> Recorded {
    let model = Model::echo().await;
    let kit = KitDir::new(&[("sea", "pipeline: []\n")])
        .with("worlds/sea.world.yaml", SEA)
        .with("gateway.yaml", &model::gateway(&model.url));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let lab = Lab::on_file(&path, &kit, &[KEY]).await;
    let envelope = lab.client.run("sea", json!({"goal": "the tide"})).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    assert_eq!(model.users(), ["what is the tide", "who is the tide"]);
    lab.close().await;
    let run = envelope["run_id"].as_str().unwrap();
    Recorded::read(&SqliteReader::open(&path).unwrap(), run)
}

/// Who finds a forgery.
#[derive(Debug, Clone, Copy, PartialEq)]
enum FoundBy {
    /// Both verifiers: the claim `tools` fails.
    Both,
    /// ktsu alone, by deciding again.
    Replay,
    /// Nobody: it is another history that hangs together.
    Nobody,
}
use FoundBy::{Both, Nobody, Replay};

/// The frames of a run, by type and by step, or by the question of a responder in order.
struct Frames {
    all: Vec<Value>,
}

impl Frames {
    fn of(run: &Recorded) -> Self {
        Self { all: bodies(run) }
    }

    fn at(&self, kind: &str, step: &str) -> usize {
        let is = |body: &Value| body["type"] == kind && body["data"]["step"] == step;
        let mut found = (0..self.all.len()).filter(|at| is(&self.all[*at]));
        let only = found.next().unwrap_or_else(|| panic!("{kind} {step}"));
        assert_eq!(found.next(), None, "{kind} {step}");
        only
    }

    fn seq(&self, kind: &str, step: &str) -> u64 {
        self.all[self.at(kind, step)]["seq"].as_u64().unwrap()
    }

    /// What was said to a step by a model.
    fn reply(&self, step: &str) -> &Value {
        &self.all[self.at("llm.response", step)]["data"]
    }
}

/// The run with another reply to a step.
fn replied(run: &Recorded, step: &str, change: impl FnOnce(&mut Value)) -> Recorded {
    let mut frames = Frames::of(run);
    let at = frames.at("llm.response", step);
    change(&mut frames.all[at]["data"]);
    with(run, &frames.all)
}

/// The run with other frames.
fn edited(run: &Recorded, change: impl FnOnce(&mut Frames)) -> Recorded {
    let mut frames = Frames::of(run);
    change(&mut frames);
    with(run, &frames.all)
}

/// The digest that a text has as the reply of a model.
fn said(text: &str) -> Value {
    json!(sha256(&CanonicalJson::string(text)))
}

/// Makes a reply one that repeats another, as far as it says itself.
fn repeat(reply: &mut Value, seq: u64, other: &Value) {
    reply["repeats"] = json!(seq);
    for member in ["output_hash", "model", "provider"] {
        reply[member] = other[member].clone();
    }
}

/// Makes the reply that a step repeats one that its runtime got from a model.
fn called(frames: &mut Frames, step: &str, text: &str) {
    let digest = Hash::of(step.as_bytes()).to_string();
    let at = frames.at("llm.response", step);
    frames.all[at]["actor"] = json!("runtime");
    let reply = frames.all[at]["data"].as_object_mut().unwrap();
    reply.retain(|name, _| !["cached", "repeats", "saved"].contains(&name.as_str()));
    for (member, value) in [
        ("content", json!(text)),
        ("cost_micro_usd", json!(270)),
        ("duration_ms", json!(7)),
        ("report", json!({"digest": digest, "n": 2})),
        ("tokens_in", json!(1000)),
        ("tokens_out", json!(200)),
    ] {
        reply.insert(member.to_owned(), value);
    }
    let end = frames.at("agent.finished", step);
    frames.all[end]["data"]["report"]["n"] = json!(3);
}

/// Checks who finds what was done to runs, each with those that it shares frames with.
fn check(cases: Vec<(&'static str, FoundBy, Vec<Recorded>)>) {
    let ledgers = cases.iter().map(|(told, _, runs)| (*told, runs.clone()));
    let outcomes = judged_by_both(&ledgers.collect::<Vec<_>>());
    for ((told, by, _), outcome) in cases.iter().zip(&outcomes) {
        let found = match (claim(outcome, "tools"), claim(outcome, "replay")) {
            (ClaimVerdict::Failed, _) => Both,
            (_, ClaimVerdict::Failed) => Replay,
            (ClaimVerdict::Proven, ClaimVerdict::Proven) => Nobody,
            other => panic!("{told}: {other:?}: {outcome:?}"),
        };
        assert_eq!(found, *by, "{told}: {outcome:?}");
    }
}

#[tokio::test]
async fn runs_that_repeat_replies_are_proven_with_their_branches() {
    let [run, one, two] = line().await;
    let sea = sea().await;
    for (at, repeated) in ["c", "d", "f"].into_iter().zip(["b", "a", "a"]) {
        let frames = Frames::of(&run);
        assert_eq!(
            frames.reply(at)["repeats"],
            frames.seq("llm.response", repeated)
        );
    }
    let outcomes = judged_by_both(&[
        ("a run and its branches", vec![run, one, two]),
        ("a world", vec![sea]),
    ]);
    for outcome in &outcomes {
        for name in ["tools", "approvals", "replay", "world"] {
            let verdict = claim(outcome, name);
            assert_eq!(verdict, ClaimVerdict::Proven, "{name}: {outcome:?}");
        }
    }
    // What a responder is told is some text.
    let outputs = outcomes.iter().map(|outcome| claim(outcome, "outputs"));
    let expected = [ClaimVerdict::Proven, ClaimVerdict::NotCovered];
    assert_eq!(outputs.collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn no_reply_that_is_repeated_can_be_swapped() {
    let [run, one, two] = line().await;
    let honest = Frames::of(&run);
    let seq = |kind: &str, step: &str| honest.seq(kind, step);
    let reply = |step: &str| honest.reply(step);
    let (a, b, e) = (
        seq("llm.response", "a"),
        seq("llm.response", "b"),
        seq("llm.response", "e"),
    );
    let alone = |told, by, run: Recorded| (told, by, vec![run]);
    let to_c = |told, change: &dyn Fn(&mut Value)| (told, Both, vec![replied(&run, "c", change)]);
    let mut cases = vec![
        to_c("it names a request", &|one| {
            one["repeats"] = json!(seq("llm.request", "b"));
        }),
        to_c("it names the frame before the reply", &|one| {
            one["repeats"] = json!(b - 1);
        }),
        to_c("it names another reply", &|one| one["repeats"] = json!(a)),
        to_c("it repeats another reply", &|one| {
            repeat(one, a, reply("a"));
        }),
        to_c("it repeats a later reply", &|one| {
            repeat(one, e, reply("e"));
        }),
        to_c("it repeats itself", &|one| {
            one["repeats"] = json!(seq("llm.response", "c"));
        }),
        alone(
            "it repeats a reply that is repeated itself",
            Both,
            replied(&run, "f", |one| {
                one["repeats"] = json!(seq("llm.response", "d"));
            }),
        ),
        to_c("it repeats nothing", &|one| {
            one.as_object_mut().unwrap().remove("repeats");
        }),
        to_c("it says something else", &|one| {
            one["content"] = json!("two and more");
            one["output_hash"] = said("two and more");
        }),
        to_c("it says the same once more", &|one| {
            one["content"] = reply("b")["content"].clone();
        }),
        to_c("it has the digest of another text", &|one| {
            one["output_hash"] = reply("a")["output_hash"].clone();
        }),
        to_c("it asks for a tool", &|one| {
            let call = json!([{"arguments": {}, "id": "1", "name": "drop"}]);
            one["tool_calls"] = call;
        }),
        to_c("it is an error", &|one| {
            one["error"] = json!({"code": "provider_error", "message": "no", "retryable": false});
        }),
        to_c("it has cost something", &|one| {
            one["cost_micro_usd"] = json!(1);
        }),
        to_c("it has used tokens", &|one| one["tokens_out"] = json!(1)),
        to_c("it has taken time", &|one| one["duration_ms"] = json!(1)),
        to_c("it was tried", &|one| {
            one["attempts"] = json!([{"duration_ms": 1, "model": "fake/x", "status": "ok",
                "usage": {"cost_micro_usd": 0, "tokens_in": 0, "tokens_out": 0}}]);
        }),
        to_c("it has a price", &|one| one["prices"] = json!("today")),
        to_c("it has saved more", &|one| {
            one["saved"]["cost_micro_usd"] = json!(271);
        }),
        to_c("it has saved nothing", &|one| {
            one.as_object_mut().unwrap().remove("saved");
        }),
        to_c("it was not repeated", &|one| {
            one.as_object_mut().unwrap().remove("cached");
        }),
        to_c("it is of another model", &|one| one["model"] = json!("m")),
        to_c("it is of another provider", &|one| {
            one["provider"] = json!("p");
        }),
        to_c("it is the reply to another request's digest", &|one| {
            one["input_hash"] = reply("a")["input_hash"].clone();
        }),
        to_c("it answers another request", &|one| {
            one["request"] = json!(seq("llm.request", "b"));
        }),
    ];
    let of_request = |told, change: &dyn Fn(&mut Value)| {
        let at = honest.at("llm.request", "c");
        let run = edited(&run, |frames| change(&mut frames.all[at]["data"]));
        (told, Both, vec![run])
    };
    cases.extend([
        of_request("its request takes no part", &|one| {
            one.as_object_mut().unwrap().remove("routing");
        }),
        of_request("its request is routed otherwise", &|one| {
            one["routing"] = said("otherwise");
        }),
        of_request("its request has another purpose", &|one| {
            one["purpose"] = json!("repair");
        }),
        alone(
            "its request asks something else",
            Both,
            edited(&run, |frames| {
                let at = frames.at("llm.request", "c");
                let asked = &mut frames.all[at]["data"];
                asked["max_tokens"] = json!(asked["max_tokens"].as_u64().unwrap() + 1);
                let whole = json!({"group": asked["group"], "max_tokens": asked["max_tokens"],
                    "messages": asked["messages"]});
                let digest = json!(sha256(&CanonicalJson::from_value(&whole).unwrap()));
                asked["digest"] = digest.clone();
                let at = frames.at("llm.response", "c");
                frames.all[at]["data"]["input_hash"] = digest;
            }),
        ),
        alone(
            "it is said by the runtime",
            Both,
            edited(&run, |frames| {
                let at = frames.at("llm.response", "c");
                frames.all[at]["actor"] = json!("runtime");
            }),
        ),
        alone(
            "a reply of a model is said to repeat another",
            Both,
            replied(&run, "e", |one| repeat(one, a, reply("a"))),
        ),
        alone(
            "a model is said to have been called for it",
            Replay,
            edited(&run, |frames| {
                let text = reply("b")["content"].as_str().unwrap();
                called(frames, "c", text);
            }),
        ),
        alone(
            "a model is said to have been called for a request that takes no part",
            Nobody,
            edited(&run, |frames| {
                let text = reply("b")["content"].as_str().unwrap();
                called(frames, "c", text);
                let at = frames.at("llm.request", "c");
                let asked = frames.all[at]["data"].as_object_mut().unwrap();
                asked.remove("routing");
            }),
        ),
        alone(
            "every request is said to have been routed otherwise",
            Nobody,
            edited(&run, |frames| {
                let asked = frames
                    .all
                    .iter_mut()
                    .filter(|one| one["type"] == "llm.request");
                asked.for_each(|one| one["data"]["routing"] = said("otherwise"));
            }),
        ),
    ]);
    // Two branches that were asked the same have replies of their own.
    let sibling = Frames::of(&two).reply("b").clone();
    let of_branch = |told, branch| (told, Both, vec![run.clone(), branch, two.clone()]);
    cases.extend([
        of_branch(
            "a branch repeats what its sibling was told",
            replied(&one, "c", |one| {
                one["output_hash"] = sibling["output_hash"].clone();
            }),
        ),
        of_branch(
            "a branch was told nothing, and repeats what its sibling was told",
            replied(&one, "b", |one| {
                let members = one.as_object_mut().unwrap();
                members.retain(|name, _| name != "content" && name != "report");
                one["cached"] = json!(true);
                repeat(one, b, &sibling);
            }),
        ),
        of_branch(
            "a branch repeats what its run was told behind the fork",
            replied(&one, "c", |one| repeat(one, b, reply("b"))),
        ),
        of_branch(
            "a branch repeats another reply of those that it shares",
            replied(&one, "c", |one| repeat(one, a, reply("a"))),
        ),
    ]);
    check(cases);
}

#[tokio::test]
async fn no_reply_that_a_responder_repeats_can_be_swapped() {
    let run = sea().await;
    let kind = |at: &usize| bodies(&run)[*at]["type"] == "llm.response";
    let replies: Vec<usize> = (0..run.records.len()).filter(kind).collect();
    let [what, who, again] = replies[..] else {
        panic!("{replies:?}")
    };
    let honest = bodies(&run);
    assert_eq!(honest[again]["data"]["repeats"], json!(who));
    let bent = |change: &dyn Fn(&mut Value)| {
        let mut all = bodies(&run);
        change(&mut all[again]["data"]);
        vec![with(&run, &all)]
    };
    check(vec![
        (
            "it repeats the answer to another question",
            Both,
            bent(&|one| repeat(one, what as u64, &honest[what]["data"])),
        ),
        (
            "it says something else",
            Both,
            bent(&|one| {
                one["content"] = json!("nobody");
                one["output_hash"] = said("nobody");
            }),
        ),
        (
            "it has cost something",
            Both,
            bent(&|one| one["cost_micro_usd"] = json!(1)),
        ),
    ]);
}

/// Every member of the replies that the golden run repeats, changed in every way that a machine can
/// think of.
#[test]
fn whatever_a_machine_changes_about_a_repeated_reply_is_found_and_both_verifiers_say_the_same() {
    let mut all = goldens().into_iter();
    let (_, run) = all.find(|(name, _)| name == "v2-agent-cached").unwrap();
    let honest = bodies(&run);
    let folder = tempfile::tempdir().unwrap();
    let (mut outcomes, mut archives) = (Vec::new(), Vec::new());
    let repeated = |body: &&Value| body["data"].get("repeats").is_some();
    for body in honest.iter().filter(repeated) {
        let at = usize::try_from(body["seq"].as_u64().unwrap()).unwrap();
        let mut places = Vec::new();
        leaves(&body["data"], "/data".to_owned(), &mut places);
        places.extend(["/actor", "/scope"].map(str::to_owned));
        for place in &places {
            let old = body.pointer(place).unwrap();
            let member = place.rsplit('/').next().unwrap();
            for new in others(old, member, &honest) {
                let told = format!("{at} {place}: {old} to {new}");
                let mut bodies = honest.clone();
                *bodies[at].pointer_mut(place).unwrap() = new;
                let mutant = with(&run, &bodies);
                // What is no frame is found as such.
                if mutant.records[at].decode_bare().is_err() {
                    continue;
                }
                let bytes = Book::unsigned(&mutant).export_all();
                let outcome = verify(&bytes, &ArchiveVerifyOptions::default()).unwrap();
                let tools = claim(&outcome, "tools");
                assert_eq!(tools, ClaimVerdict::Failed, "{told}: {outcome:?}");
                archives.push(put(folder.path(), &outcomes.len().to_string(), &bytes));
                outcomes.push((told, outcome));
            }
        }
    }
    assert!(outcomes.len() > 100, "{}", outcomes.len());
    if let Some(python) = Python::find() {
        for ((told, outcome), said) in outcomes.iter().zip(python.verify(&archives, &[])) {
            python.agrees(&outcome.claims, &said, told);
        }
    }
}
