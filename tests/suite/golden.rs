//! Golden ledgers: runs of every kind as they were recorded once (`tests/golden/README.md`).
//!
//! What was written must be readable for ever, and what was decided must follow from its inputs
//! for as long as the rules are the same.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};

use ktsu_ledger::event::{Role, RunEvent};
use ktsu_ledger::store::{MemoryStore, Reader};
use ktsu_ledger::verify::{self, verify};
use ktsu_ledger::{Event, Frame, FrameError, Hash, Record};
use ktsu_projections::RunState;
use ktsu_projections::envelope::EnvelopeFold;
use ktsu_projections::run::RunStatus;
use ktsu_workflow::replay::{Definitions, ReplayError, replay};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::support::ledgers::Recorded;
use crate::support::scenarios::{self, TOKEN};
use crate::support::{Sink, campaign};

/// What the manifest pins of a golden ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pinned {
    frames: usize,
    head: String,
    rules: u32,
    status: String,
}

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn manifest() -> BTreeMap<String, Pinned> {
    let text = std::fs::read_to_string(folder().join("manifest.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

pub(crate) fn goldens() -> Vec<(String, Recorded)> {
    let names = manifest().into_keys();
    let goldens: Vec<_> = names
        .map(|name| (name.clone(), Recorded::load(&folder().join(name))))
        .collect();
    assert!(goldens.len() >= 18, "{} goldens", goldens.len());
    goldens
}

fn rules(frames: &[Frame]) -> u32 {
    let first = &frames[0].event;
    match (first, first.created()) {
        (Event::Run(RunEvent::Branched(branch)), _) => branch.rules,
        (_, Some(created)) => created.rules,
        (other, None) => panic!("the first frame is {}", other.kind()),
    }
}

pub(crate) fn pinned(recorded: &Recorded) -> Pinned {
    let frames = recorded.frames();
    Pinned {
        frames: frames.len(),
        head: recorded.head().to_string(),
        rules: rules(&frames),
        status: RunState::fold(&frames)
            .unwrap()
            .status()
            .as_str()
            .to_owned(),
    }
}

/// The rules that the goldens of most scenarios, and those of worlds, were recorded under last. What a
/// later version of the rules added has a golden of its own.
const RECORDED: (u32, u32) = (2, 3);

/// Records the goldens that are missing. One that is there is never written again: a ledger of an
/// earlier version is what the tests below are for.
#[tokio::test]
#[ignore = "writes tests/golden"]
async fn record_what_is_missing() {
    let mut manifest = match std::fs::read_to_string(folder().join("manifest.json")) {
        Ok(text) => serde_json::from_str(&text).unwrap(),
        Err(_) => BTreeMap::new(),
    };
    for scenario in scenarios::all() {
        let name = format!("v{}-{}", RECORDED.0, scenario.name);
        if manifest.contains_key(&name) {
            continue;
        }
        let played = scenario.play(&Sink::new().await).await;
        played.recorded.save(&folder().join(&name));
        manifest.insert(name, pinned(&played.recorded));
    }
    for acting in scenarios::tools::all() {
        let name = format!("v{}-{}", RECORDED.0, acting.name);
        if manifest.contains_key(&name) {
            continue;
        }
        let recorded = acting.record().await;
        recorded.save(&folder().join(&name));
        manifest.insert(name, pinned(&recorded));
    }
    for world in scenarios::worlds::NAMES {
        let name = format!("v{}-{world}", RECORDED.1);
        if manifest.contains_key(&name) {
            continue;
        }
        let recorded = scenarios::worlds::record(world);
        recorded.save(&folder().join(&name));
        manifest.insert(name, pinned(&recorded));
    }
    let asking = scenarios::worlds::asking();
    let name = format!("v{}-{}", RECORDED.1, asking.name);
    if let Entry::Vacant(missing) = manifest.entry(name) {
        let played = asking.play(&Sink::new().await).await;
        played.recorded.save(&folder().join(missing.key()));
        missing.insert(pinned(&played.recorded));
    }
    if let Entry::Vacant(missing) = manifest.entry("v4-worlds-publish".to_owned()) {
        let recorded = scenarios::worlds::record("worlds-publish");
        recorded.save(&folder().join(missing.key()));
        missing.insert(pinned(&recorded));
    }
    if let Entry::Vacant(missing) = manifest.entry("v5-agent-invoke".to_owned()) {
        let recorded = super::invoked::recorded().await;
        recorded.save(&folder().join(missing.key()));
        missing.insert(pinned(&recorded));
    }
    if let Entry::Vacant(missing) = manifest.entry("v6-agent-emits".to_owned()) {
        let recorded = super::invoked::recorded_emits().await;
        recorded.save(&folder().join(missing.key()));
        missing.insert(pinned(&recorded));
    }
    if let Entry::Vacant(missing) = manifest.entry("v6-agent-items".to_owned()) {
        let recorded = super::invoked::recorded_items().await;
        recorded.save(&folder().join(missing.key()));
        missing.insert(pinned(&recorded));
    }
    for decision in ["approved", "rejected"] {
        if let Entry::Vacant(missing) = manifest.entry(format!("v7-agent-review-{decision}")) {
            let recorded = super::reviews::recorded(decision).await;
            recorded.save(&folder().join(missing.key()));
            missing.insert(pinned(&recorded));
        }
    }
    for how in ["resumed", "late"] {
        if let Entry::Vacant(missing) = manifest.entry(format!("v7-agent-suspend-{how}")) {
            let recorded = super::suspensions::recorded(how).await;
            recorded.save(&folder().join(missing.key()));
            missing.insert(pinned(&recorded));
        }
    }
    if let Entry::Vacant(missing) = manifest.entry("v7-agent-resumed-to-another".to_owned()) {
        let recorded = super::suspensions::resume_steps::recorded().await;
        recorded.save(&folder().join(missing.key()));
        missing.insert(pinned(&recorded));
    }
    if let Entry::Vacant(missing) = manifest.entry("v7-without-effects".to_owned()) {
        let recorded = super::evidence::effects::recorded_without().await;
        recorded.save(&folder().join(missing.key()));
        missing.insert(pinned(&recorded));
    }
    for (name, reviewed) in scenarios::reviews::Reviewed::goldens() {
        if let Entry::Vacant(missing) = manifest.entry(format!("v7-review-{name}")) {
            let recorded = reviewed.record().await;
            recorded.save(&folder().join(missing.key()));
            missing.insert(pinned(&recorded));
        }
    }
    let text = serde_json::to_string_pretty(&manifest).unwrap() + "\n";
    std::fs::write(folder().join("manifest.json"), text).unwrap();
}

#[test]
fn every_golden_ledger_is_the_one_that_was_recorded() {
    let manifest = manifest();
    for (name, golden) in goldens() {
        assert_eq!(pinned(&golden), manifest[&name], "{name}");
    }
    let mut folders: Vec<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .filter(|name| name != "exports")
        .collect();
    folders.sort();
    assert_eq!(folders, manifest.into_keys().collect::<Vec<_>>());
}

/// The chain, in its own words: nothing of the ledger crate is asked but the hash function.
#[test]
fn every_golden_ledger_chains() {
    for (name, golden) in goldens() {
        let mut prev = "0".repeat(64);
        for (seq, record) in golden.records.iter().enumerate() {
            assert_eq!(
                Hash::of(record.body.as_bytes()),
                record.hash,
                "{name}#{seq}"
            );
            let body: Value = serde_json::from_str(&record.body).unwrap();
            assert_eq!(body["v"], 1, "{name}#{seq}");
            assert_eq!(body["seq"], json!(seq), "{name}#{seq}");
            assert_eq!(body["prev"], json!(prev), "{name}#{seq}");
            prev = record.hash.to_string();
            for external in body["ext"].as_array().unwrap() {
                let hash: Hash = external["hash"].as_str().unwrap().parse().unwrap();
                assert!(
                    golden.blobs.iter().any(|blob| blob.hash == hash),
                    "{name}#{seq}"
                );
            }
        }
    }
}

/// However the rules and the types change, a recorded ledger is stored, verified, folded, shown.
#[test]
fn every_golden_ledger_stays_readable() {
    for (name, golden) in goldens() {
        let mut store = MemoryStore::new();
        golden.put(&mut store);
        let report = verify(&store, &verify::VerifyOptions::default(), &mut |_| {});
        assert_eq!(report.problems, [], "{name}");
        assert_eq!(report.frames, golden.records.len() as u64);
        let tail = store.tail(&golden.stream).unwrap().unwrap();
        assert_eq!(tail.hash, golden.head());
        let frames = golden.frames();
        assert!(frames.iter().all(|frame| frame.event.is_known()), "{name}");
        let fold = EnvelopeFold::of(&frames).unwrap();
        let envelope = serde_json::to_value(fold.envelope("").unwrap()).unwrap();
        assert_eq!(
            envelope["status"],
            json!(manifest()[&name].status),
            "{name}"
        );
        assert!(matches!(
            fold.state().status(),
            RunStatus::Complete | RunStatus::Failed
        ));
    }
}

#[test]
fn every_golden_ledger_follows_from_its_inputs_byte_for_byte() {
    let mut replayed = BTreeMap::new();
    for (name, golden) in goldens() {
        let frames = golden.frames();
        let state = replay(&frames, &mut Definitions::default());
        let state = state.unwrap_or_else(|diverged| panic!("{name}: {diverged}"));
        assert_eq!(state.next_seq(), frames.len() as u64, "{name}");
        *replayed.entry(rules(&frames)).or_insert(0) += 1;
    }
    for rules in 1..=RECORDED.0 {
        assert!(replayed[&rules] >= 40, "rules {rules}: {replayed:?}");
    }
}

/// Between them the goldens show every type of frame a run can have, and what each was made for.
#[test]
fn the_goldens_cover_what_can_happen() {
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    let mut text = String::new();
    let streams = super::exports::streams();
    for (_, golden) in goldens().into_iter().chain(streams) {
        for frame in golden.frames() {
            *kinds.entry(frame.event.kind().to_owned()).or_default() += 1;
        }
        text.extend(golden.records.iter().map(|record| record.body.as_str()));
        text.extend(golden.blobs.iter().map(|blob| blob.text.as_str()));
    }
    for kind in Event::KINDS {
        // A clock that jumps back, facts about the ledger and what agents keep between runs are no
        // part of an undisturbed run.
        let of_the_ledger = [
            "store.",
            "signing_key.",
            "checkpoint.",
            "run.head",
            "run.removed",
            "hold.",
            "kv.",
            "subscription.",
            // These are in an export.
            "eval.",
            "scenario.",
            "check.",
            "delivery.",
        ];
        let elsewhere =
            of_the_ledger.iter().any(|group| kind.starts_with(group)) || *kind == "clock.jumped";
        assert!(
            elsewhere || kinds.contains_key(*kind),
            "no golden has {kind}"
        );
    }
    for word in [
        r#""reason":"condition_false""#,
        r#""code":"stopped""#,
        r#""reason":"run_failed""#,
        r#""why":"bound""#,
        r#""timer":"retry""#,
        r#""timer":"run_timeout""#,
        r#""scope":"a/b""#,
        r#""webhooks":"suppress""#,
        r#""code":"schema_violation""#,
        "[REDACTED]",
        r#""reason":"restart""#,
        r#""purpose":"repair""#,
        r#""purpose":"reflect""#,
        r#""code":"output_invalid""#,
        r#""code":"max_failures_exceeded""#,
        r#""code":"injection_attempt""#,
        r#""code":"budget_exceeded""#,
        r#""verdict":"fail_run""#,
        r#""again":"#,
        r#""is_error":true"#,
        r#""not_sent":"rejected""#,
        r#""not_sent":"unknown_tool""#,
        r#""not_sent":"invalid_arguments""#,
        r#""structured":"#,
        r#""decision":"happened""#,
        r#""decision":"rejected""#,
        r#""quorum":2"#,
        r#""code":"approval_rejected""#,
        r#""code":"approval_timed_out""#,
        r#""code":"tool_in_doubt""#,
        r#""code":"review_rejected""#,
        r#""code":"review_timed_out""#,
        r#""code":"suspend_timed_out""#,
        r#""path":"/data/text""#,
        r#""resume_step":"read""#,
        r#""overlay":{"verdict":"no"}"#,
        r#""code":"budget_exhausted""#,
        r#""reasons":["max_events=5"]"#,
        r#""verdict":"failed""#,
        r#""why":"idle""#,
        r#""world":"sha256:"#,
    ] {
        assert!(text.contains(word), "no golden has {word}");
    }
    assert!(!text.contains(TOKEN), "a golden holds a secret");
}

/// The formulas of `docs/ledger-format.md`, in their own words.
#[test]
fn hashes_of_requests_and_replies_are_those_of_the_page() {
    let canonical = |value: &Value| {
        ktsu_ledger::CanonicalJson::from_value(value)
            .unwrap()
            .to_string()
    };
    let (mut with_tools, mut with_calls, mut named) = (0, 0, 0);
    for (name, golden) in goldens() {
        let mut told: BTreeMap<u64, String> = BTreeMap::new();
        let mut digests: BTreeMap<u64, Value> = BTreeMap::new();
        for frame in golden.frames() {
            let (seq, data) = (frame.seq, frame.event.data());
            let at = format!("{name}#{seq}");
            match frame.event.kind() {
                "llm.request" => {
                    let mut whole = json!({
                        "group": data["group"],
                        "max_tokens": data["max_tokens"],
                        "messages": data["messages"],
                    });
                    if let Some(tools) = data.get("tools") {
                        whole["tools"] = tools.clone();
                        with_tools += 1;
                    }
                    if let Some(base) = data.get("base") {
                        whole["base"] = digests[&base.as_u64().unwrap()].clone();
                    }
                    for message in whole["messages"].as_array_mut().unwrap() {
                        if let Some(frame) = message.get("frame") {
                            let digest = &told[&frame.as_u64().unwrap()];
                            *message = json!({"digest": digest, "role": message["role"]});
                            named += 1;
                        }
                    }
                    assert_eq!(data["digest"], sha256(&canonical(&whole)), "{at}");
                    digests.insert(seq, data["digest"].clone());
                }
                // It has the hash of the reply that it repeats.
                "llm.response" if data.get("repeats").is_some() => {
                    let repeated = data["repeats"].as_u64().unwrap();
                    assert_eq!(data["output_hash"], *told[&repeated], "{at}");
                    told.insert(seq, told[&repeated].clone());
                }
                "llm.response" => {
                    let request = data["request"].as_u64().unwrap();
                    assert_eq!(data["input_hash"], digests[&request], "{at}");
                    let whole = match data.get("tool_calls") {
                        None => data["content"].clone(),
                        Some(calls) => {
                            with_calls += 1;
                            json!({"content": data["content"], "tool_calls": calls})
                        }
                    };
                    let hash = sha256(&canonical(&whole));
                    assert_eq!(data["output_hash"], hash, "{at}");
                    told.insert(seq, hash);
                }
                "tool.returned" => {
                    let is_error = data["is_error"].as_bool().unwrap_or(false);
                    let whole = json!({
                        "content": data["content"],
                        "is_error": is_error,
                        "structured": data["structured"],
                    });
                    let hash = Hash::of(canonical(&whole).as_bytes());
                    told.insert(seq, hash.to_string());
                }
                _ => {}
            }
        }
    }
    assert!(
        with_tools > 10 && with_calls > 10 && named > 20,
        "{with_tools} {with_calls} {named}"
    );
}

fn sha256(text: &str) -> String {
    use sha2::Digest as _;
    let digest = sha2::Sha256::digest(text.as_bytes());
    let digits = digest.iter().map(|byte| format!("{byte:02x}"));
    format!("sha256:{}", digits.collect::<String>())
}

/// Whoever alters a decision and makes the chain whole again is found by replay.
#[test]
fn every_altered_decision_is_caught_by_replay_though_the_chain_is_whole() {
    let goldens = goldens();
    let (mut tried, mut decisions) = (0, 0);
    std::thread::scope(|scope| {
        let halves = goldens.chunks(goldens.len().div_ceil(4)).map(|some| {
            scope.spawn(move || {
                let counts = some
                    .iter()
                    .map(|(name, golden)| alter_each(name, golden, 0));
                counts.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
            })
        });
        for half in halves.collect::<Vec<_>>() {
            let counts = half.join().unwrap();
            tried += counts.0;
            decisions += counts.1;
        }
    });
    assert!(
        decisions > 500 && tried > decisions,
        "{tried} alterations of {decisions} decisions"
    );
}

/// Alters every decision from a frame on, in every way; how often, and how many decisions.
pub(crate) fn alter_each(name: &str, golden: &Recorded, from: usize) -> (usize, usize) {
    let frames = golden.frames();
    let mut definitions = Definitions::default();
    let (mut tried, mut decisions) = (0, 0);
    for (at, frame) in frames.iter().enumerate().skip(from) {
        if frame.event.role() != Role::Decision {
            continue;
        }
        decisions += 1;
        let mut altered = alterations(golden, at);
        assert!(!altered.is_empty(), "{name}#{at} cannot be altered");
        // A part of the ways, each time another one.
        let ways = altered.len();
        altered.rotate_left(at % ways);
        altered.truncate(match frames.len() > 200 {
            true => 1,
            false => campaign(2, ways),
        });
        for (what, record) in altered {
            tried += 1;
            let changed = relinked(golden, &frames, at, record);
            caught(
                &mut definitions,
                &changed,
                at,
                &format!("{name}#{at}: {what}"),
            );
        }
    }
    (tried, decisions)
}

fn caught(definitions: &mut Definitions, frames: &[Frame], at: usize, told: &str) {
    match replay(frames, definitions) {
        Ok(_) => panic!("{told} was not noticed"),
        Err(ReplayError::Diverged(diverged)) => {
            assert!(diverged.seq <= at as u64, "{told}: {diverged}");
        }
        Err(other) => panic!("{told}: {other}"),
    }
}

/// Every small change of a frame that still reads as a frame of its type.
fn alterations(golden: &Recorded, at: usize) -> Vec<(String, Record)> {
    let body: Value = serde_json::from_str(&golden.records[at].body).unwrap();
    let mut bodies = Vec::new();
    let mut places = Vec::new();
    leaves(&body["data"], String::new(), &mut places);
    for place in places {
        let mut changed = body.clone();
        let leaf = changed["data"].pointer_mut(&place).unwrap();
        *leaf = match leaf {
            Value::Bool(flag) => json!(!*flag),
            Value::Number(number) => json!(number.as_f64().unwrap() as i64 + 1),
            Value::String(text) => json!(format!("{text}0")),
            _ => json!("was null"),
        };
        bodies.push((format!("data{place}"), changed));
    }
    let mut changed = body.clone();
    changed["cause"] = json!([]);
    bodies.push(("cause".to_owned(), changed));
    let mut changed = body.clone();
    changed["at"] = json!("2027-01-15T08:00:00.000001Z");
    bodies.push(("at".to_owned(), changed));
    let mut changed = body.clone();
    changed["actor"] = json!("runtime");
    bodies.push(("actor".to_owned(), changed));
    bodies
        .into_iter()
        .filter(|(_, changed)| *changed != body)
        .filter_map(|(what, changed)| {
            let record = written(at as u64, &changed);
            decode(golden, &record).ok().map(|_| (what, record))
        })
        .collect()
}

fn leaves(value: &Value, at: String, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let name = name.replace('~', "~0").replace('/', "~1");
                leaves(member, format!("{at}/{name}"), found);
            }
        }
        Value::Array(items) => {
            for (number, item) in items.iter().enumerate() {
                leaves(item, format!("{at}/{number}"), found);
            }
        }
        _ => found.push(at),
    }
}

/// A body with its members in the order of the format.
pub(crate) fn written(seq: u64, body: &Value) -> Record {
    let order = [
        "v", "stream", "seq", "type", "scope", "actor", "cause", "at", "data", "ext", "prev",
    ];
    let members = order.map(|name| format!("\"{name}\":{}", body[name]));
    let body = format!("{{{}}}", members.join(","));
    Record {
        seq,
        hash: Hash::of(body.as_bytes()),
        body,
    }
}

fn decode(golden: &Recorded, record: &Record) -> Result<Frame, FrameError> {
    record.decode(&mut |hash| {
        let found = golden.blobs.iter().find(|blob| blob.hash == *hash);
        Ok(found.map(|blob| blob.text.clone()))
    })
}

/// The run with one frame in another's place, and every later frame linked to it again.
fn relinked(golden: &Recorded, frames: &[Frame], at: usize, record: Record) -> Vec<Frame> {
    let mut changed = frames[..at].to_vec();
    let mut prev = record.hash;
    changed.push(decode(golden, &record).unwrap());
    for (frame, record) in frames.iter().zip(&golden.records).skip(at + 1) {
        let old = format!("\"prev\":\"{}\"}}", frame.prev);
        let open = record.body.strip_suffix(&old).unwrap();
        let body = format!("{open}\"prev\":\"{prev}\"}}");
        let hash = Hash::of(body.as_bytes());
        changed.push(Frame {
            prev,
            hash,
            ..frame.clone()
        });
        prev = hash;
    }
    changed
}
