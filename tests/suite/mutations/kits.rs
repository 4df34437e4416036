//! The kits that are mutated: those of this repository, and one that uses what they do not.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

/// Files of a kit, and what its root workflows are given.
pub(super) struct Original {
    pub(super) name: &'static str,
    /// By path; all of them are YAML.
    pub(super) files: BTreeMap<String, String>,
    pub(super) inputs: BTreeMap<&'static str, Value>,
}

pub(super) fn all() -> Vec<Original> {
    vec![hello(), intake(), triage(), rich()]
}

impl Original {
    fn shipped(name: &'static str, inputs: &[(&'static str, Value)]) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("kits")
            .join(name);
        let mut files = BTreeMap::new();
        gather(&root, &root, &mut files);
        Self {
            name,
            files,
            inputs: inputs.iter().cloned().collect(),
        }
    }
}

pub(super) fn gather(root: &Path, folder: &Path, files: &mut BTreeMap<String, String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            gather(root, &path, files);
        } else if path.extension().is_some_and(|end| end == "yaml") {
            let name = path
                .strip_prefix(root)
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned();
            files.insert(name, std::fs::read_to_string(&path).unwrap());
        }
    }
}

fn hello() -> Original {
    Original::shipped("hello", &[("hello", json!({"name": "Ada"}))])
}

fn intake() -> Original {
    let tickets = json!([
        {"id": 1, "subject": "down", "status": "open", "priority": "urgent", "customer": {"company": "A"}},
        {"id": 2, "subject": "thanks", "status": "closed", "priority": "low", "customer": {"company": "B"}},
    ]);
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("kits/intake/examples/default.json");
    let mut example: Value = serde_json::from_slice(&std::fs::read(example).unwrap()).unwrap();
    let _ = tickets;
    shorten(&mut example);
    Original::shipped("intake", &[("intake", example)])
}

fn triage() -> Original {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kits/triage/examples");
    let read = |name: &str| -> Value {
        serde_json::from_slice(&std::fs::read(folder.join(name)).unwrap()).unwrap()
    };
    let mut tickets = read("default.json");
    shorten(&mut tickets);
    let inputs = [("triage", tickets), ("ticket", read("ticket.json"))];
    let mut kit = Original::shipped("triage", &inputs);
    // Replies by rules, in the kit itself.
    let gateway = kit.files.get_mut("gateway.yaml").unwrap();
    *gateway = "providers:\n  - name: desk\n    type: scripted\n    config:\n      rules: scripted/triage.yaml\n\
                model_groups:\n  - name: fast\n    models: [desk/gpt-4o-mini]\n    default_temperature: 0\n  \
                - name: careful\n    models: [desk/gpt-4o]\n"
        .to_owned();
    kit
}

/// A few rows say as much as many.
fn shorten(value: &mut Value) {
    match value {
        Value::Array(rows) => {
            rows.truncate(4);
            rows.iter_mut().for_each(shorten);
        }
        Value::Object(members) => members.values_mut().for_each(shorten),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn rich() -> Original {
    let files = [
        ("kit.yaml", "name: rich\nversion: 1.0.0\ndefault: main\n"),
        ("workflows/main.workflow.yaml", MAIN),
        ("workflows/child.workflow.yaml", CHILD),
        ("workflows/leaf.workflow.yaml", LEAF),
        ("agents/judge.agent.yaml", JUDGE),
        ("agents/plain.agent.yaml", PLAIN),
        ("gateway.yaml", GATEWAY),
        ("replies.yaml", REPLIES),
    ];
    let rows = json!([{"n": 3, "tag": "a", "in": [1, 2]}, {"n": 1, "tag": "b", "in": []}, {"n": 2, "tag": "a"}]);
    Original {
        name: "rich",
        files: files
            .map(|(path, text)| (path.to_owned(), text.trim_start().to_owned()))
            .into(),
        inputs: BTreeMap::from([("main", json!({"rows": rows, "n": 2}))]),
    }
}

const MAIN: &str = r#"
kind: workflow
name: main
version: 1.2.0
env:
  - name: SINK
  - name: TOKEN
    secret: true
  - name: MODE
    default: quick
params:
  schema:
    type: object
    required: [rows]
    properties:
      rows:
        type: array
        maxItems: 10
        items:
          type: object
          required: [n]
          properties:
            n: {type: integer}
            tag: {type: string, default: none}
      n: {type: integer, minimum: 0, default: 1}
      title:
        type: string
        default: some rows
model_policy:
  cost_budget_usd: 1.5
  timeout_s: 20
  group_map:
    std: other
pipeline:
  - id: tidy
    transform:
      inputs:
        - from: params.rows
      ops:
        - filter: {expr: "n > `0`"}
        - sort: {field: n, order: desc}
        - deduplicate: {field: tag}
        - map: {expr: "{n: n, tag: tag}"}
    output:
      schema:
        type: array
        items: {type: object, required: [n]}
  - id: flat
    transform:
      inputs: [{from: "params.rows[*].in"}]
      ops:
        - flatten: {}
  - id: both
    transform:
      inputs: [tidy, {from: step.flat.result}]
      ops:
        - merge: [tidy, flat]
  - id: ask
    agent: agents/judge.agent.yaml@1.0.0
    model: {group: std, max_tokens: 200}
    confidence_threshold: 0.3
    condition: "length(step.tidy.result) > `0`"
    params:
      title: "{{ params.title }} ({{ params.n }})"
      rows: "{{ step.tidy.result }}"
      key: "{{ env.TOKEN }}"
  - id: each
    agent: agents/plain.agent.yaml
    for_each:
      from: step.tidy.result
      concurrency: 2
      max_items: 5
      max_failures: 1
    params:
      text: "{{ item.tag }} {{ item_index }}"
  - id: tell
    depends_on: [each]
    webhook:
      url: "{{ env.SINK }}/rows/{{ params.n }}"
      method: PUT
      timeout_s: 5
      body:
        token: "{{ env.TOKEN }}"
        mode: "{{ env.MODE }}"
        first: "{{ step.each.results[0].answer }}"
        verdict: "{{ step.ask.answer }}"
      retry: {attempts: 2, backoff: 1s, on: [unreachable]}
  - id: child
    workflow: ./child.workflow.yaml
    webhooks: execute
    params:
      sink: "{{ env.SINK }}"
      rows: "{{ step.tidy.result }}"
      verdict: "{{ ask.answer }}"
output:
  map:
    rows: "{{ step.tidy.result }}"
    said: "{{ step.ask.answer }} and {{ step.child.text }}"
    told: "{{ step.tell.status_code }}"
  schema:
    type: object
    required: [rows]
"#;

const CHILD: &str = r#"
kind: workflow
name: child
version: 0.3.0
visibility: sub-workflow
webhooks: execute
params:
  schema:
    type: object
    required: [sink, rows]
    properties:
      sink: {type: string}
      rows: {type: array}
      verdict: {type: [string, "null"], default: none}
pipeline:
  - id: page
    webhook:
      url: "{{ params.sink }}/page"
      body: {count: "{{ length(params.rows) }}"}
  - id: leaf
    workflow: ./leaf.workflow.yaml
    depends_on: [page]
    input:
      text: "{{ params.verdict }}"
output:
  map:
    text: "{{ step.leaf.text }}"
    sent: "{{ step.page.sent }}"
"#;

const LEAF: &str = r#"
kind: workflow
name: leaf
version: 0.1.0
visibility: sub-workflow
params:
  schema:
    type: object
    properties:
      text: {type: [string, "null"], default: ""}
pipeline:
  - id: say
    agent: agents/plain.agent.yaml
    params: {text: "leaf {{ params.text }}"}
output:
  map: {text: "{{ step.say.answer }}"}
"#;

const JUDGE: &str = r#"
name: judge
version: 1.0.0
model: std
max_turns: 3
params:
  schema:
    type: object
    required: [title, rows, key]
    additionalProperties: false
    properties:
      title: {type: string}
      rows: {type: array}
      key: {type: string, secret: true}
prompt:
  system: You judge rows.
  user: |
    {{ params.title }}
    {{ params.rows }}
  reflect: "Look at {{ params.title }} again."
output:
  schema:
    type: object
    required: [answer]
    properties:
      answer: {type: string}
      ktsu_confidence: {type: number}
      ktsu_flags: {type: array, items: {type: string}}
"#;

const PLAIN: &str = r#"
name: plain
version: 2.0.1
model: other
params:
  schema: {type: object, required: [text], properties: {text: {type: string}}}
prompt:
  system: You say back.
  user: "{{ params.text }}"
output:
  schema: {type: object, required: [answer], properties: {answer: {type: string}}}
"#;

const GATEWAY: &str = r#"
providers:
  - name: fake
    type: scripted
    config:
      rules: replies.yaml
model_groups:
  - name: std
    models: [fake/one]
    default_temperature: 0.1
  - name: other
    strategy: round_robin
    models: [fake/two, fake/three]
    pricing:
      - {model: two, input_per_million_usd: 1, output_per_million_usd: 2}
"#;

const REPLIES: &str = r#"
values:
  asked:
    from: any
    pattern: '(?s)\A(.*)\z'
rules:
  - when: {user: 'some rows'}
    reply: {answer: fine, ktsu_confidence: 0.9, ktsu_flags: [seen]}
default:
  reply: {answer: "said {{ asked | first 20 }}"}
"#;
