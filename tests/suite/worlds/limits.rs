//! What worlds may use up, on the real binary.

use serde_json::{Value, json};

use crate::support::KitDir;
use crate::support::process::Process;

/// What a run may add to the peak of its process, in KiB. This is not a release build.
const MOST_KIB: u64 = 160 * 1024;

/// An engine in a process of its own.
struct Engine {
    process: Process,
    _kit: KitDir,
    _dir: tempfile::TempDir,
}

impl Engine {
    fn start(world: &str) -> Self {
        let head = "kind: world\nname: w\nversion: 1.0.0\n";
        let kit = KitDir::new(&[("nothing", "visibility: sub-workflow\npipeline: []\n")])
            .with("worlds/w.world.yaml", &format!("{head}{world}"));
        let dir = tempfile::tempdir().unwrap();
        let process = Process::start(kit.dir.path(), &dir.path().join("ledger.db"), &[]);
        Self {
            process,
            _kit: kit,
            _dir: dir,
        }
    }

    /// A run to its end, and its frames.
    async fn run(&self, body: Value) -> (Value, Vec<Value>) {
        let client = self.process.client();
        let envelope = client.run("w", body).await;
        let frames = client.frames(envelope["run_id"].as_str().unwrap()).await;
        (envelope, frames)
    }

    /// The peak of its memory so far, in KiB.
    fn peak_kib(&self) -> u64 {
        let path = format!("/proc/{}/status", self.process.pid);
        let status = std::fs::read_to_string(path).unwrap();
        let mut lines = status.lines();
        let line = lines.find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

fn of_type<'f>(frames: &'f [Value], kind: &str) -> Vec<&'f Value> {
    let found = frames.iter().filter(|frame| frame["type"] == kind);
    found.collect()
}

/// How deep each object is: 0 without a trigger, otherwise 1 more than that of its trigger.
fn depths(frames: &[Value]) -> Vec<u64> {
    let mut depths = std::collections::BTreeMap::new();
    for frame in of_type(frames, "object.created") {
        let cause = frame["cause"][0].as_u64().unwrap_or_default();
        let depth = depths.get(&cause).map_or(0, |depth| depth + 1);
        depths.insert(frame["seq"].as_u64().unwrap(), depth);
    }
    depths.into_values().collect()
}

fn endless(budget: &str) -> String {
    format!(
        "goal: [{{object: {{type: Ping, data: {{n: 0}}}}}}]\nobjects: {{Ping: {{}}}}\nbudget: {budget}
responders:
  - {{name: again, \"on\": object.created, type: Ping, emit: [{{object: {{type: Ping, data: {{n: 1}}}}}}]}}\n"
    )
}

#[tokio::test]
async fn a_kit_that_sets_itself_off_ends_with_one_exhaustion_that_names_every_reason() {
    for (budget, events, reasons) in [
        ("{max_events: 5}", 5, json!(["max_events=5"])),
        (
            "{max_recursion_depth: 2}",
            3,
            json!(["max_recursion_depth=2"]),
        ),
        (
            "{max_events: 3, max_recursion_depth: 2}",
            3,
            json!(["max_events=3", "max_recursion_depth=2"]),
        ),
    ] {
        let engine = Engine::start(&endless(budget));
        let (envelope, frames) = engine.run(json!({"goal": "again"})).await;
        assert_eq!(envelope["status"], "failed", "{budget}: {envelope:#}");
        assert_eq!(envelope["error"]["code"], "budget_exhausted");
        // `max_events` world frames, and the one that says that there may be no more.
        assert_eq!(of_type(&frames, "object.created").len(), events, "{budget}");
        let exhausted = of_type(&frames, "budget.exhausted");
        assert_eq!(exhausted.len(), 1, "{budget}");
        assert_eq!(exhausted[0]["data"]["reasons"], reasons);
        assert_eq!(exhausted[0]["data"]["event_count"], events);
        let expected: Vec<u64> = (0..events as u64).collect();
        assert_eq!(depths(&frames), expected, "{budget}");
        let last = frames.last().unwrap();
        assert_eq!(last["type"], "run.failed");
        engine.process.stop();
    }
}

/// A firing of `items` items, a thousand of which the file names, each with 256 entries.
fn many(work: &str, entries: usize) -> String {
    let entry = "{object: {type: Ping, data: {n: '{{ item }}'}}}";
    let entries = vec![entry; entries].join(", ");
    format!(
        "params: {{schema: {{type: object, properties: {{list: {{type: array}}}}}}}}
goal: [{{object: {{type: Start, data: {{text: '{{{{ goal }}}}'}}}}}}]
objects: {{Start: {{}}, Ping: {{}}}}
budget: {{max_events: 2000}}
responders:
  - name: many
    \"on\": object.created
    type: Start
    for_each: {{from: params.list}}
    {}\n",
        work.replace("ENTRIES", &entries)
    )
}

#[tokio::test]
async fn a_firing_that_wants_a_million_outputs_stays_small() {
    let engine = Engine::start(&many("emit: [ENTRIES]", 256));
    let list: Vec<u32> = (0..4000).collect();
    let (small, _) = engine.run(json!({"goal": "x", "list": [1]})).await;
    assert_eq!(small["status"], "complete", "{small:#}");
    let before = engine.peak_kib();
    let (envelope, frames) = engine.run(json!({"goal": "x", "list": list})).await;
    assert_eq!(envelope["error"]["code"], "budget_exhausted");
    assert_eq!(of_type(&frames, "object.created").len(), 2000);
    let exhausted = of_type(&frames, "budget.exhausted");
    assert_eq!(exhausted.len(), 1);
    let dropped = &exhausted[0]["data"]["dropped"];
    assert_eq!(dropped["outputs"], 4000 * 256 - 1999);
    let grown = engine.peak_kib() - before;
    eprintln!("a million outputs: {grown} KiB");
    assert!(grown < MOST_KIB, "{grown} KiB");
    engine.process.stop();
}

/// As many as a body can name.
#[tokio::test]
async fn a_firing_that_wants_to_ask_half_a_million_questions_stays_small() {
    let asks = "ask: {model: nobody, messages: [{role: user, content: hi}]}\n    then: [ENTRIES]";
    let runs = "run: {workflow: workflows/nothing.workflow.yaml}\n    then: [ENTRIES]";
    for work in [asks, runs] {
        let engine = Engine::start(&many(work, 1));
        let (small, _) = engine.run(json!({"goal": "x", "list": []})).await;
        assert_eq!(small["status"], "complete", "{small:#}");
        let before = engine.peak_kib();
        let list = vec![1; 500_000];
        let (envelope, frames) = engine.run(json!({"goal": "x", "list": list})).await;
        eprintln!("{} {:?}", envelope["status"], envelope["error"]);
        eprintln!(
            "{} frames, {} KiB",
            frames.len(),
            engine.peak_kib() - before
        );
        let grown = engine.peak_kib() - before;
        assert!(grown < MOST_KIB, "{grown} KiB");
        engine.process.stop();
    }
}
