//! Runs of every kind: kept as golden ledgers, cut after every frame, played again.

pub(crate) mod agents;
pub(crate) mod reviews;
pub(crate) mod suspensions;
pub(crate) mod tools;
pub(crate) mod worlds;

use ktsu_ledger::appender::Options;
use ktsu_ledger::store::MemoryStore;
use ktsu_ledger::{Backend, Timestamp};
use serde_json::{Value, json};
use std::sync::Arc;

use super::ledgers::Recorded;
use super::sink::{Heard, Reply};
use super::{KitDir, Sink, Within, stopped};

/// What is sent out when the clock stands still.
pub(crate) const MOMENT: u64 = 1_800_000_000_000_000;
/// A secret of the scenarios.
pub(crate) const TOKEN: &str = "golden-token";

type Script = fn(&Heard) -> Reply;

/// A run, and the world around it.
#[derive(Clone)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    workflows: Vec<(String, String)>,
    files: Vec<(String, String)>,
    body: Value,
    pub(crate) script: Script,
    /// The gates in the order in which they open, each once the answer before it is recorded.
    gates: Vec<String>,
    /// Whether the engine is started again before the first gate opens.
    again: bool,
}

/// A run that went to its end.
pub(crate) struct Played {
    pub(crate) recorded: Recorded,
    pub(crate) heard: Vec<Heard>,
    /// The envelopes of the run and of every child, by path.
    pub(crate) envelopes: Vec<(String, Value)>,
}

impl Scenario {
    fn new(name: &str, workflow: &str) -> Self {
        Self {
            name: name.to_owned(),
            workflows: vec![("root".to_owned(), workflow.to_owned())],
            files: Vec::new(),
            body: json!({}),
            script: |_| Reply::Now(200, r#"{"received":true}"#.to_owned()),
            gates: Vec::new(),
            again: false,
        }
    }

    fn file(mut self, path: &str, text: &str) -> Self {
        self.files.push((path.to_owned(), text.to_owned()));
        self
    }

    fn started_again(mut self) -> Self {
        self.again = true;
        self
    }

    fn with(mut self, name: &str, workflow: &str) -> Self {
        self.workflows.push((name.to_owned(), workflow.to_owned()));
        self
    }

    fn body(mut self, body: Value) -> Self {
        self.body = body;
        self
    }

    fn script(mut self, script: Script) -> Self {
        self.script = script;
        self
    }

    fn gates(mut self, gates: &[&str]) -> Self {
        self.gates = gates.iter().map(|gate| (*gate).to_owned()).collect();
        self
    }

    pub(crate) fn kit(&self) -> KitDir {
        let workflows = self.workflows.iter();
        let workflows: Vec<_> = workflows.map(|(a, b)| (a.as_str(), b.as_str())).collect();
        let kit = KitDir::new(&workflows);
        let files = self.files.iter();
        files.fold(kit, |kit, (path, text)| kit.with(path, text))
    }

    /// Plays it to its end, with a clock that stands still.
    pub(crate) async fn play(&self, sink: &Sink) -> Played {
        self.play_over(sink, &MemoryStore::new()).await
    }

    /// The same on any store. Where it is started again it is the same one.
    pub(crate) async fn play_over(
        &self,
        sink: &Sink,
        store: &(impl Backend + Clone + 'static),
    ) -> Played {
        sink.follow(self.script);
        let backend = || -> Arc<dyn Backend> { Arc::new(store.clone()) };
        let clock = stopped(Timestamp::from_micros(MOMENT));
        let pairs = [("SINK", sink.url.as_str()), ("TOKEN", TOKEN)];
        let folder = self.kit();
        let kit = folder.load();
        let options = Options::default();
        let mut within =
            Within::over(Arc::clone(&kit), backend(), options, &pairs, Some(clock)).await;
        let run = within.client.invoke("root", self.body.clone()).await;
        let mut events = within.client.events(&run, None).await;
        for (number, gate) in self.gates.iter().enumerate() {
            let told = format!("gated {gate}");
            let at = |one: &Heard| {
                one.path == format!("/{gate}") || String::from_utf8_lossy(&one.body).contains(&told)
            };
            sink.until(|heard| heard.iter().any(at)).await;
            if self.again && number == 0 {
                let clock = stopped(Timestamp::from_micros(MOMENT));
                let kit = Arc::clone(&kit);
                drop(within);
                within =
                    Within::over(kit, backend(), Options::default(), &pairs, Some(clock)).await;
                events = within.client.events(&run, None).await;
                while events
                    .next()
                    .await
                    .is_some_and(|event| !event.data.contains("worker.lost"))
                {}
            }
            sink.open(gate);
            answer_recorded(&mut events).await;
        }
        events.drain().await;
        let recorded = Recorded::read(store.reader().unwrap().as_ref(), &run);
        let envelopes = envelopes(&within.client, &recorded).await;
        Played {
            recorded,
            heard: sink.heard(),
            envelopes,
        }
    }
}

/// Waits for the next frame that says how a webhook or a model answered.
pub(crate) async fn answer_recorded(events: &mut super::client::Events) {
    loop {
        let event = events.next().await.expect("the run ended before an answer");
        let frame: Value = serde_json::from_str(&event.data).unwrap();
        if matches!(
            frame["type"].as_str(),
            Some("webhook.delivered" | "webhook.failed" | "llm.response")
        ) {
            return;
        }
    }
}

/// The envelopes of a run and of every child in it.
pub(crate) async fn envelopes(client: &super::Client, recorded: &Recorded) -> Vec<(String, Value)> {
    let frames = recorded.frames();
    let mut scopes: Vec<String> = frames.iter().map(|frame| frame.scope.clone()).collect();
    scopes.sort();
    scopes.dedup();
    let mut envelopes = Vec::new();
    for scope in scopes {
        let slash = if scope.is_empty() { "" } else { "/" };
        let path = format!("/runs/{}{slash}{scope}/envelope", recorded.stream.name());
        let answer = client.get(&path).await;
        assert_eq!(answer.status, 200, "{path}");
        envelopes.push((scope, super::ledgers::timeless(answer.json())));
    }
    envelopes
}

/// Answers by path: `/status/500`, `/gate-a` waits for the gate of its name, `/never` waits.
fn by_path(heard: &Heard) -> Reply {
    let path = heard.path.trim_start_matches('/');
    match path.split_once('/') {
        Some(("status", status)) => {
            Reply::Now(status.parse().unwrap(), r#"{"why":"told to"}"#.to_owned())
        }
        _ if path == "never" => Reply::Never,
        _ if path.starts_with("bad-") => Reply::When(path.to_owned(), 500),
        _ => Reply::When(path.to_owned(), 200),
    }
}

/// All of them.
pub(crate) fn all() -> Vec<Scenario> {
    let mut all = vec![
        transforms(),
        conditions(),
        failure(),
        dead(),
        children("execute"),
        children("suppress"),
        handed_down(),
        failing_child(),
        violation(),
        timeout(),
        secrets(),
        bound_by_frames(),
        bound_by_bytes(),
    ];
    for order in ["abc", "acb", "bac", "bca", "cab", "cba"] {
        all.push(concurrent(order));
    }
    all.extend(agents::all());
    all
}

fn transforms() -> Scenario {
    Scenario::new(
        "transforms",
        r#"
params:
  schema: {type: object, properties: {rows: {type: array, default: []}, top: {type: integer, default: 2}}}
pipeline:
  - {id: all, transform: {inputs: [{from: params.rows}], ops: [{filter: {expr: keep}}, {deduplicate: {field: id}}]}}
  - {id: order, transform: {inputs: [{from: step.all.result}], ops: [{sort: {field: rank, order: desc}}]}}
  - {id: names, transform: {inputs: [{from: step.order.result}], ops: [{map: {expr: name}}, {deduplicate: {field: "@"}}]}}
  - {id: tags, transform: {inputs: [{from: step.order.result}], ops: [{map: {expr: tags}}, {flatten: {}}, {merge: [step.names.result]}]}}
output:
  map:
    first: "{{ step.order.result[0].name }}"
    text: "{{ length(step.order.result) }} of {{ length(params.rows) }}, top {{ params.top }}"
    tags: "{{ step.tags.result }}"
"#,
    )
    .body(json!({"rows": [
        {"id": 1, "keep": true, "rank": 2, "name": "Ada", "tags": ["a", "b"]},
        {"id": 2, "keep": false, "rank": 9, "name": "Bob", "tags": []},
        {"id": 3, "keep": true, "rank": null, "name": "Cem", "tags": ["c"]},
        {"id": 1, "keep": true, "rank": 5, "name": "Dia", "tags": ["d"]},
        {"id": 4, "keep": true, "rank": 7, "name": "Ada", "tags": [["e"]]},
    ]}))
}

fn conditions() -> Scenario {
    Scenario::new(
        "conditions",
        r#"
env: [{name: SINK}]
params: {schema: {type: object, properties: {go: {default: false}}}}
pipeline:
  - {id: no, condition: "params.go", webhook: {url: "{{ env.SINK }}/status/200"}}
  - {id: broken, condition: "length(params.go)", transform: {inputs: [], ops: []}}
  - {id: yes, depends_on: [no], condition: "step.no.skipped", webhook: {url: "{{ env.SINK }}/status/200", body: {no: "{{ step.no }}"}}}
"#,
    )
    .script(by_path)
}

fn failure() -> Scenario {
    Scenario::new(
        "failure",
        r#"
env: [{name: SINK}]
pipeline:
  - {id: a, webhook: {url: "{{ env.SINK }}/bad-a"}}
  - {id: b, depends_on: [a], webhook: {url: "{{ env.SINK }}/b"}}
  - {id: fine, webhook: {url: "{{ env.SINK }}/fine"}}
  - {id: slow, webhook: {url: "{{ env.SINK }}/never"}}
"#,
    )
    .script(by_path)
    .gates(&["fine", "bad-a"])
}

fn dead() -> Scenario {
    Scenario::new(
        "dead",
        r#"
env: [{name: SINK}]
pipeline:
  - id: call
    webhook: {url: "{{ env.SINK }}/status/503", body: {n: 1}, retry: {attempts: 3, backoff: 5ms, on: [server_error]}}
  - {id: after, depends_on: [call], transform: {inputs: [], ops: []}}
"#,
    )
    .script(by_path)
}

fn children(parents_half: &str) -> Scenario {
    let root = format!(
        r#"
env: [{{name: SINK}}]
pipeline:
  - {{id: before, transform: {{inputs: [], ops: []}}}}
  - {{id: a, depends_on: [before], workflow: ./middle.workflow.yaml, webhooks: {parents_half}, params: {{sink: "{{{{ env.SINK }}}}", n: 12345678}}}}
  - {{id: after, webhook: {{url: "{{{{ env.SINK }}}}/status/200", body: {{a: "{{{{ step.a }}}}"}}}}}}
output: {{map: {{leaf: "{{{{ step.a.leaf }}}}"}}}}
"#
    );
    Scenario::new(&format!("children-{parents_half}"), &root)
        .with(
            "middle",
            r#"
visibility: sub-workflow
webhooks: execute
params: {schema: {type: object, required: [sink, n], properties: {sink: {type: string}, n: {type: integer}, text: {type: string, default: d}}}}
pipeline:
  - {id: b, workflow: ./leaf.workflow.yaml, webhooks: execute, params: {sink: "{{ params.sink }}", text: "n={{ params.n }} {{ params.text }}"}}
  - {id: c, depends_on: [b], workflow: ./leaf.workflow.yaml, params: {sink: "{{ params.sink }}", text: quiet}}
output: {map: {leaf: "{{ step.b }}", quiet: "{{ step.c }}"}}
"#,
        )
        .with(
            "leaf",
            r#"
visibility: sub-workflow
webhooks: execute
params: {schema: {type: object, required: [sink, text], properties: {sink: {type: string}, text: {type: string}}}}
pipeline:
  - {id: call, webhook: {url: "{{ params.sink }}/status/200", body: {text: "{{ params.text }}"}}}
"#,
        )
        .script(by_path)
}

/// Values deep inside params, through two children, and an output that is kept as a blob.
fn handed_down() -> Scenario {
    let rows: Vec<Value> = (0..1200)
        .map(|n| json!({"id": n, "text": format!("row {n} of those that are handed down")}))
        .collect();
    Scenario::new(
        "handed-down",
        r#"
params: {schema: {type: object, required: [rows], properties: {rows: {type: array}, n: {type: integer, default: 7}}}}
pipeline:
  - {id: all, transform: {inputs: [{from: params.rows}], ops: [{sort: {field: id, order: desc}}]}}
  - {id: a, workflow: ./middle.workflow.yaml, params: {in: {list: ["{{ step.all.result }}", "n={{ params.n }}"], c: 1}}}
output: {map: {last: "{{ step.a.last }}", text: "{{ step.a.text }}"}}
"#,
    )
    .with(
        "middle",
        r#"
visibility: sub-workflow
params: {schema: {type: object, required: [in], properties: {in: {type: object}}}}
pipeline:
  - {id: b, workflow: ./leaf.workflow.yaml, params: {deep: {er: "{{ params.in.list[0] }}"}, text: "{{ params.in.list[1] }}"}}
output: {map: {last: "{{ step.b.last }}", text: "{{ step.b.text }}"}}
"#,
    )
    .with(
        "leaf",
        r#"
visibility: sub-workflow
params: {schema: {type: object, required: [deep, text], properties: {deep: {type: object}, text: {type: string}}}}
pipeline:
  - {id: ids, transform: {inputs: [{from: params.deep.er}], ops: [{map: {expr: id}}]}}
output: {map: {last: "{{ step.ids.result[-1] }}", text: "{{ params.text }}"}}
"#,
    )
    .body(json!({ "rows": rows }))
}

fn failing_child() -> Scenario {
    Scenario::new(
        "failing-child",
        r#"
env: [{name: SINK}]
pipeline:
  - {id: a, workflow: ./middle.workflow.yaml, webhooks: execute, params: {sink: "{{ env.SINK }}"}}
  - {id: other, workflow: ./middle.workflow.yaml, webhooks: execute, params: {sink: "{{ env.SINK }}", path: never}}
  - {id: after, depends_on: [a], transform: {inputs: [], ops: []}}
"#,
    )
    .with(
        "middle",
        r#"
visibility: sub-workflow
webhooks: execute
params: {schema: {type: object, required: [sink], properties: {sink: {type: string}, path: {type: string, default: bad-leaf}}}}
pipeline:
  - {id: call, webhook: {url: "{{ params.sink }}/{{ params.path }}"}}
  - {id: rest, depends_on: [call], transform: {inputs: [], ops: []}}
"#,
    )
    .script(by_path)
    .gates(&["bad-leaf"])
}

fn violation() -> Scenario {
    Scenario::new(
        "violation",
        r#"
params: {schema: {type: object, properties: {n: {default: text}}}}
pipeline:
  - id: fits
    transform: {inputs: [{from: params}], ops: [{map: {expr: n}}]}
    output: {schema: {type: array}}
  - id: differs
    transform: {inputs: [{from: step.fits.result}], ops: [{map: {expr: "{n: @}"}}]}
    output: {schema: {type: array, items: {type: object, required: [n, m], properties: {n: {type: integer}}}}}
  - {id: after, depends_on: [differs], transform: {inputs: [], ops: []}}
"#,
    )
}

fn timeout() -> Scenario {
    Scenario::new(
        "timeout",
        r#"
env: [{name: SINK}]
model_policy: {timeout_s: 0.1}
pipeline:
  - {id: call, webhook: {url: "{{ env.SINK }}/never"}}
  - {id: after, depends_on: [call], transform: {inputs: [], ops: []}}
"#,
    )
    .script(by_path)
}

fn secrets() -> Scenario {
    Scenario::new(
        "secrets",
        r#"
env: [{name: SINK}, {name: TOKEN, secret: true}]
params: {schema: {type: object, properties: {note: {type: string, default: none}}}}
pipeline:
  - {id: call, webhook: {url: "{{ env.SINK }}/call?token={{ env.TOKEN }}", body: {token: "{{ env.TOKEN }}", text: "Bearer {{ env.TOKEN }}", note: "{{ params.note }}"}}}
"#,
    )
    .body(json!({"note": format!("not {TOKEN}")}))
    .script(|heard| Reply::Now(200, String::from_utf8_lossy(&heard.body).into_owned()))
}

fn bound_by_frames() -> Scenario {
    let mut steps = String::from("pipeline:\n");
    for n in 0..300 {
        steps.push_str(&format!(
            "  - {{id: s{n}, transform: {{inputs: [], ops: []}}}}\n"
        ));
    }
    Scenario::new("bound-by-frames", &steps)
}

fn bound_by_bytes() -> Scenario {
    let mut steps = String::from(
        "params: {schema: {type: object, properties: {text: {type: string}}}}\npipeline:\n",
    );
    for n in 0..9 {
        let ops = format!("[{{map: {{expr: \"join('{n}', [@, @])\"}}}}]");
        let line = format!(
            "  - {{id: s{n}, transform: {{inputs: [{{from: params.text}}], ops: {ops}}}}}\n"
        );
        steps.push_str(&line);
    }
    Scenario::new("bound-by-bytes", &steps).body(json!({"text": "abcdefgh".repeat(700)}))
}

fn concurrent(order: &str) -> Scenario {
    let gates: Vec<String> = order.chars().map(|gate| gate.to_string()).collect();
    let gates: Vec<&str> = gates.iter().map(String::as_str).collect();
    Scenario::new(
        &format!("concurrent-{order}"),
        r#"
env: [{name: SINK}]
pipeline:
  - {id: a, webhook: {url: "{{ env.SINK }}/a"}}
  - {id: b, webhook: {url: "{{ env.SINK }}/b"}}
  - {id: c, webhook: {url: "{{ env.SINK }}/c"}}
  - {id: ab, transform: {inputs: [{from: step.a}, {from: step.b}], ops: []}}
  - {id: abc, transform: {inputs: [{from: step.ab.result}, {from: step.c}], ops: []}}
output: {map: {all: "{{ step.abc.result }}"}}
"#,
    )
    .script(by_path)
    .gates(&gates)
}
