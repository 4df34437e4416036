//! The JSON Schemas in `docs/schemas/` say of a file what its reader says.

use std::collections::BTreeSet;
use std::path::Path;

use jsonschema::Validator;
use ktsu_config::fault::Severity;
use ktsu_config::yaml;
use ktsu_environment::Environment;
use ktsu_kit as kit;
use serde_json::{Value, json};

use super::Desk;
use crate::support::campaign;

/// A kit that uses every key there is; `{}` stands for what a later test puts there.
const FILES: [(&str, &str, &str); 10] = [
    (
        "kit",
        "kit.yaml",
        "{default: w, description: d, name: everything, version: 1.0.0}",
    ),
    (
        "workflow",
        "workflows/w.workflow.yaml",
        r#"
kind: workflow
name: w
version: 1.0.0
description: d
visibility: root
webhooks: execute
env:
  - {name: TOKEN, secret: true, description: d}
  - {name: URL, default: "http://127.0.0.1:9"}
params: {schema: {type: object, properties: {list: {type: array, default: []}}}}
invoke: {auth: {header: X-Key, scheme: raw, secret: "{{ env.TOKEN }}"}}
output: {map: {got: "{{ step.shape.result }}"}, schema: {type: object}}
model_policy: {cache: true, cost_budget_usd: 1.5, unpriced: allow, timeout_s: 60, force_group: fast, group_map: {slow: fast}}
pipeline:
  - id: ask
    description: d
    summary: "{{ params.list }}"
    agent: agents/a.agent.yaml
    condition: params.list
    confidence_threshold: 0.5
    depends_on: [shape]
    for_each: {from: params.list, concurrency: 2, max_items: 5, max_failures: -1}
    may_invoke: {sub: {workflow: sub.workflow.yaml, concurrency: 2, max_items: 3, webhooks: execute}, other: sub.workflow.yaml}
    model: {group: fast, max_tokens: 100}
    output: {schema: {type: object}}
    params: {text: "{{ item }}", key: "{{ env.TOKEN }}"}
  - id: wait
    agent: agents/a.agent.yaml
    params: {text: "{{ resume.data.text }}"}
    may_invoke: {sub: sub.workflow.yaml}
    resume: {on_timeout: fail, roles: [operator], schema: {type: object}, timeout: 2h}
    commands:
      emit: [order.seen]
      review: {not_by_proposer: true, quorum: 3, roles: [operator], timeout: 1h, timeout_behavior: fail}
      suspend: true
  - id: shape
    transform:
      inputs: [{from: params.list}, params.list]
      ops:
        - merge: [other]
        - filter: {expr: "@"}
        - map: {expr: "@"}
        - sort: {field: "@", order: desc}
        - flatten: {}
        - deduplicate: {field: "@"}
  - id: other
    transform: {}
  - id: tell
    on: approval
    webhook: {url: "{{ env.URL }}/x", method: PUT, timeout_s: 5, secret: "{{ env.TOKEN }}"}
  - id: send
    retry: {attempts: 3, backoff: 1s, on: [timeout]}
    webhook: {url: "{{ env.URL }}/x", body: {a: [1]}}
  - id: again
    webhook: {url: "https://example.com", retry: {attempts: 2, backoff: 500ms, on: [unreachable]}}
  - {id: call, workflow: sub.workflow.yaml, params: {x: 1}, webhooks: execute}
  - {id: more, workflow: sub.workflow.yaml, input: {x: 1}}
"#,
    ),
    (
        "agent",
        "agents/a.agent.yaml",
        r#"
name: a
version: 1.0.0
description: d
model: fast
max_turns: 5
commands:
  emit: [claim.verified, "order.*"]
  invoke: [sub]
  review: {not_by_proposer: true, quorum: 2, roles: [approver, operator], timeout: 2h, timeout_behavior: reject}
  suspend: {on_timeout: fail, roles: [operator], timeout: 2h}
params:
  schema:
    type: object
    properties: {text: {default: x}, key: {type: string, secret: true}}
prompt: {system: s, user: "{{ params.text }}", reflect: again}
servers:
  - name: crm
    path: ../servers/crm.server.yaml
    params: {key: "{{ params.key }}"}
    access:
      allowlist:
        - read-*
        - name: delete-a
          require_approval: {on_reject: recover, timeout: 5m, timeout_behavior: reject, quorum: 2, not_by_proposer: true}
  - {name: mail}
output: {schema: {type: object, properties: {ktsu_confidence: {type: number}}}}
"#,
    ),
    (
        "server",
        "servers/crm.server.yaml",
        r#"
kind: tool-server
name: crm
version: 1.0.0
description: d
url: http://127.0.0.1:9/mcp
stateful: true
timeout: 1m30s
auth: {header: X-Key, scheme: raw, secret: "{{ params.key }}"}
params: {key: {secret: true, description: d}, region: {default: eu}}
access: {allowlist: ["*", {name: delete-a, require_approval: {on_reject: fail, timeout: 1m, timeout_behavior: fail, quorum: 2, not_by_proposer: false}}]}
"#,
    ),
    (
        "servers",
        "servers.yaml",
        "{kind: servers, servers: [{name: mail, version: 1.0.0, url: \"https://example.com\"}]}",
    ),
    (
        "environment",
        "x.env.yaml",
        r#"
name: x
variables: {ADA: some token}
providers: [{name: desk, type: scripted, config: {rules: rules.yaml}}]
principals:
  - {name: ada, token: {env: ADA}, roles: [operator], secrets: {KEY: "{{ env.K }}", OTHER: {env: O}}}
listen: {orchestrator: "0.0.0.0:5050", runtime: "127.0.0.1:5051", gateway: "[::1]:5052"}
tls: {certificate: own.pem, key: own.key, authority: ca.pem, clients: true}
servers: {crm: {url: "https://example.com"}}
state: {driver: sqlite, dsn: x.db}
receiver: {variable: URL}
egress: {allow: [desk.internal]}
limits: {active_runs: 5, connections: 5, body_bytes: 2048, trace_work: 5000}
retention: {complete_days: 5, failed_days: 5}
evidence: {witness: "file:x", signing_key: x.key}
subscriptions:
  - {name: one, pattern: [run.completed, object.*], url: "https://example.com/x", secret: {env: ADA}, attempts: 5, backoff: 2s}
  - {name: two, pattern: "*", url: "http://127.0.0.1:9", secret: "{{ env.ADA }}"}
  - {name: three, topics: [claim.*], url: "http://127.0.0.1:9", secret: "{{ env.ADA }}"}
mcp: {decide: true}
"#,
    ),
    (
        "lock",
        "ktsu.lock.yaml",
        r#"
format: 1
prices: {version: x, digest: abababababababababababababababababababababababababababababababab}
entries:
  - kind: server
    path: servers/crm.server.yaml
    version: 1.0.0
    digest: abababababababababababababababababababababababababababababababab
    tools: {read: cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd}
  - kind: workflow
    path: workflows/w.workflow.yaml
    version: 1.0.0
    digest: abababababababababababababababababababababababababababababababab
    definition: abababababababababababababababababababababababababababababababab
"#,
    ),
    (
        "gateway",
        "gateway.yaml",
        r#"
env: [{name: KEY, secret: false, default: "some key", description: d}]
providers:
  - name: real
    type: openai
    config: {base_url: "https://example.com/v1", api_key: "{{ env.KEY }}", timeout_s: 5, max_tokens_as: max_completion_tokens}
    rate_limit: {requests_per_minute: 60, concurrent: 4}
  - name: other
    type: anthropic
    config: {base_url: "https://example.com", api_key: "{{ env.KEY }}", timeout_s: 5}
  - {name: desk, type: scripted, config: {rules: rules.yaml}}
model_groups:
  - name: fast
    models: [real/m, desk/m]
    default_temperature: 0.5
    strategy: fallback
    deadline: 2m
    retry: {attempts: 2, backoff: 500ms, on: [rate_limited]}
    pricing:
      - {model: m, input_per_million_usd: 1, output_per_million_usd: 2, cached_input_per_million_usd: 0.5}
"#,
    ),
    (
        "rules",
        "rules.yaml",
        r#"
values:
  word: {from: user, pattern: '\w+', json: false}
  kind: {from: word, cases: [{match: a, value: 1}], otherwise: 2}
rules:
  - name: n
    description: d
    when: {user: [a, b]}
    unless: {word: c}
    times: 2
    delay_ms: {fixed: 1, per_character: 0.5}
    usage: {tokens_in: 1, tokens_out: 2}
    reply: {answer: "{{ word }}"}
  - {text: plain, delay_ms: 3}
  - {when: {turn: 2, tools: [read, 1]}, tool_calls: [{name: read, id: one, arguments: {a: "{{ turn }}"}}]}
  - {error: {status: 503, message: m, retryable: true, times: 1, usage: {tokens_in: 1, tokens_out: 2}}, text: then}
  - {error: {code: provider_error}}
default: {reply: {}, delay_ms: 0, usage: {tokens_in: 1}}
"#,
    ),
    (
        "world",
        "worlds/x.world.yaml",
        r#"
kind: world
name: x
version: 1.0.0
description: d
budget: {max_events: 10, max_llm_cost_usd: 1.5, max_wall_seconds: 60, max_recursion_depth: 5}
env: [{name: ZONE, default: eu, description: d, secret: false}]
params: {schema: {type: object}}
goal:
  - object: {type: Claim, data: {text: "{{ goal }}"}}
    as: first
    key: "{{ goal }}"
    if_exists: patch
  - relation: {type: about, from: "{{ first.id }}", to: "{{ first.id }}", id: one, data: {a: 1}}
  - patch: {id: a, data: {text: b}}
  - remove: {relation: c}
objects:
  Claim: {description: d, label: text, schema: {type: object}}
relations:
  about: {description: d, from: Claim, to: [Claim], schema: {type: object}}
edges:
  - name: edge
    description: d
    type: about
    after: 1s
    concurrency: 2
    on_error: continue
    when: source
    with: {near: {object: "{{ target.id }}"}}
    for_each: {items: [a, "{{ near.id }}"]}
    ask:
      model: fast
      max_tokens: 10
      temperature: 0.5
      messages: [{role: user, content: "{{ item }}"}]
      output: {schema: {type: object}}
    then:
      - object: {type: Claim, data: {text: "{{ reply.text }}"}}
        as: made
        key: "{{ relation.id }}"
        if_exists: keep
        when: reply.output
      - relation: {type: about, from: "{{ made.id }}", to: "{{ source.id }}", id: two, data: {b: 1}}
      - patch: {id: "{{ made.id }}", data: {c: 1}}
      - remove: {relation: "{{ relation.id }}"}
    publish: {topic: t, payload: {a: "{{ reply.text }}"}}
  - {name: edge-emits, type: about, when: source, emit: [{object: {type: Claim, data: {a: 1}}, as: a, key: k, if_exists: keep}, {relation: {type: about, from: a, to: b, id: c, data: {d: 1}}}, {patch: {id: a, data: {a: 1}}}, {remove: {relation: a}}]}
  - {name: edge-runs, type: about, when: source, for_each: {from: source.data.list}, with: {a: {objects: Claim, where: {a: b, c: {in: "{{ [source.id] }}"}}, without: {objects: Claim, where: {d: "{{ item.id }}", e: {in: []}}}}, b: {first: Claim}, c: {count: Claim}}, run: {workflow: workflows/sub.workflow.yaml, params: {x: 1}, webhooks: execute}}
responders:
  - name: asks
    description: d
    on: [object.patched, x.everything.event]
    type: [Claim]
    changed: [text]
    after: 1s
    concurrency: 2
    on_error: fail
    when: object
    with: {near: {object: "{{ object.id }}"}}
    for_each: {items: [a]}
    ask:
      model: fast
      max_tokens: 10
      temperature: 0.5
      messages: [{role: system, content: a}]
      output: {schema: {type: object}}
    then:
      - object: {type: Claim, data: {text: "{{ reply.text }}"}}
        as: made
        key: "{{ near.id }}"
        if_exists: keep
        when: reply.output
      - relation: {type: about, from: "{{ made.id }}", to: "{{ near.id }}", id: two, data: {b: 1}}
      - patch: {id: "{{ made.id }}", data: {c: 1}}
      - remove: {relation: a}
    publish: {topic: t, payload: {a: "{{ reply.text }}"}}
  - {name: emits, on: object.created, type: Claim, when: object, emit: [{object: {type: Claim, data: {a: 1}}, as: a, key: k, if_exists: keep}, {relation: {type: about, from: a, to: b, id: c, data: {d: 1}}}, {patch: {id: a, data: {a: 1}}}, {remove: {relation: a}}]}
  - {name: runs, on: object.created, type: Claim, when: object, for_each: {from: object.data.list}, with: {a: {objects: Claim, where: {a: b, c: {in: [a]}}, without: {objects: Claim, where: {d: "{{ item.id }}", e: {in: []}}}}, b: {first: Claim}, c: {count: Claim}}, run: {workflow: workflows/sub.workflow.yaml, params: {x: 1}, webhooks: execute}}
"#,
    ),
];

/// What the files above need beside themselves.
const OTHERS: [(&str, &str); 1] = [(
    "workflows/sub.workflow.yaml",
    "{kind: workflow, name: sub, version: 1.0.0, visibility: sub-workflow, webhooks: execute, \
         pipeline: []}",
)];

/// Keys that the files above leave out: what is not to be used, second names, and a file too many.
const UNUSED: [&str; 6] = [
    "/cached_input_per_million",
    "/ledger",
    "/output/from",
    "/input_per_million",
    "/output_per_million",
    "/replies_from",
];

struct Book {
    dir: tempfile::TempDir,
}

impl Book {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let book = Self { dir };
        let files = FILES.iter().map(|(_, path, text)| (*path, *text));
        for (path, text) in files.chain(OTHERS) {
            book.put(path, text);
        }
        book
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Everything the reader of a kind of file finds.
    fn faults(&self, kind: &str) -> Vec<(String, String)> {
        let found = match kind {
            "gateway" | "rules" => {
                let path = self.dir.path().join("gateway.yaml");
                ktsu_gateway::Config::load(&path, None).err()
            }
            "environment" => Environment::load(&self.dir.path().join("x.env.yaml")).err(),
            _ => kit::load(self.dir.path()).err(),
        };
        let found = found.map(|faults| faults.faults).into_iter().flatten();
        found
            .filter(|one| one.severity == Severity::Error)
            .map(|one| (one.code.text().to_owned(), one.message))
            .collect()
    }
}

fn schema(kind: &str) -> Value {
    Desk::new().ktsu(&["schema", kind]).is(0).json()
}

fn validator(schema: &Value) -> Validator {
    jsonschema::options().build(schema).unwrap()
}

#[track_caller]
fn accepts(schema: &Value, value: &Value, what: &str) {
    let validator = validator(schema);
    let found = validator.iter_errors(value).map(|one| one.to_string());
    assert_eq!(found.collect::<Vec<_>>(), Vec::<String>::new(), "{what}");
}

fn value(text: &str) -> Value {
    yaml::parse(text).unwrap().to_value()
}

#[test]
fn the_schemas_in_the_documents_are_those_of_the_program() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/schemas");
    for (kind, _, _) in FILES {
        let path = folder.join(format!("{kind}.schema.json"));
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        let kept: Value = serde_json::from_str(&kept).unwrap_or_default();
        assert!(
            kept == schema(kind),
            "ktsu schema {kind} > docs/schemas/{kind}.schema.json"
        );
    }
}

#[test]
fn a_kit_that_uses_every_key_is_sound_to_reader_and_schema() {
    for (kind, _, text) in FILES {
        assert_eq!(Book::new().faults(kind), [], "{kind}");
        let (schema, value) = (schema(kind), value(text));
        accepts(&schema, &value, kind);
        let (mut known, mut used) = (BTreeSet::new(), BTreeSet::new());
        properties(&schema, "", &mut known);
        keys(&schema, &value, "", &mut used);
        // The default of a rules file has the keys of a rule.
        known.retain(|path| !path.starts_with("/default/"));
        // An entry of servers.yaml is a server.
        known.retain(|path| kind != "servers" || path.matches('/').count() == 1);
        known.retain(|path| !UNUSED.iter().any(|key| path.ends_with(key)));
        let unused: Vec<_> = known.difference(&used).collect();
        assert!(unused.is_empty(), "{kind}: {unused:?}");
    }
}

/// The files that ktsu comes with.
#[test]
fn shipped_files_pass_their_schemas() {
    let kits = Path::new(env!("CARGO_MANIFEST_DIR")).join("kits");
    let mut seen = BTreeSet::new();
    let mut folders = vec![kits];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let kind = match name.as_str() {
                _ if path.is_dir() => {
                    folders.push(path);
                    continue;
                }
                "kit.yaml" => "kit",
                "gateway.yaml" => "gateway",
                "servers.yaml" => "servers",
                _ if name.ends_with(".env.yaml") => "environment",
                _ if name.ends_with(".agent.yaml") => "agent",
                _ if name.ends_with(".server.yaml") => "server",
                _ if name.ends_with(".workflow.yaml") => "workflow",
                _ if name.ends_with(".world.yaml") => "world",
                _ if path.parent().is_some_and(|dir| dir.ends_with("scripted")) => "rules",
                _ => continue,
            };
            let value = value(&std::fs::read_to_string(&path).unwrap());
            accepts(&schema(kind), &value, &path.display().to_string());
            seen.insert(kind);
        }
    }
    assert!(seen.len() >= 5, "{seen:?}");
}

/// Every place of every file is changed in every way that a shape can tell: what a schema refuses
/// its reader refuses, and what a reader refuses for its shape the schema refuses.
#[test]
fn readers_and_schemas_refuse_the_same_shapes() {
    const SHAPE: [&str; 6] = [
        "misplaced-key",
        "missing-key",
        "no-primitive",
        "two-primitives",
        "unknown-key",
        "wrong-type",
    ];
    /// What is more than a schema can ask: whether an error counts its times, whether a name is one
    /// of a value further up, whether a timeout is one, whether another file declares something.
    const BEYOND: [&str; 4] = [
        "without \"times\"",
        "in the conditions",
        "an approval with a timeout",
        "does not declare that",
    ];
    let book = Book::new();
    let (mut tried, stride) = (0, campaign(7, 1));
    for (kind, path, text) in FILES {
        let (schema, sound) = (schema(kind), value(text));
        let validator = validator(&schema);
        let mut places = Vec::new();
        pointers(&schema, &sound, String::new(), &mut places);
        for place in places {
            for changed in changes(&sound, &place) {
                tried += 1;
                if tried % stride != 0 {
                    continue;
                }
                book.put(path, &changed.to_string());
                let (faults, passes) = (book.faults(kind), validator.is_valid(&changed));
                let of_shape = faults.iter().any(|(code, words)| {
                    SHAPE.contains(&code.as_str())
                        && !BEYOND.iter().any(|beyond| words.contains(beyond))
                });
                let at = changed.pointer(&place);
                assert!(
                    passes || !faults.is_empty(),
                    "{kind}{place}: only the schema refuses {at:?}"
                );
                assert!(
                    !passes || !of_shape,
                    "{kind}{place}: {faults:?}, and the schema accepts {at:?}"
                );
            }
        }
        book.put(path, text);
    }
    assert!(tried > 1_000, "{tried}");
}

/// A value in place of the one at a pointer; and for a map, one key more and each key less.
fn changes(sound: &Value, place: &str) -> Vec<Value> {
    let mut out = Vec::new();
    let mut put = |new: Value| {
        let mut changed = sound.clone();
        *changed.pointer_mut(place).unwrap() = new;
        out.push(changed);
    };
    for other in [
        json!("!!"),
        json!(""),
        json!("a/b"),
        json!(-7.5),
        json!(1e18),
        json!(true),
    ] {
        put(other);
    }
    for other in [json!(["!!"]), json!({"no_such_key": 1})] {
        put(other);
    }
    if let Some(Value::Object(members)) = sound.pointer(place) {
        let mut more = members.clone();
        more.insert("no_such_key".to_owned(), json!(1));
        put(Value::Object(more));
        for key in members.keys() {
            let mut less = members.clone();
            less.remove(key);
            put(Value::Object(less));
        }
    }
    out
}

/// What a schema says of the values under it, alternatives included.
fn alternatives(schema: &Value) -> Vec<&Value> {
    match schema["anyOf"].as_array() {
        Some(any) if schema.get("properties").is_none() => any.iter().collect(),
        Some(_) | None => vec![schema],
    }
}

/// The schema of a member of a value.
fn below<'s>(schema: &'s Value, key: &str) -> Option<&'s Value> {
    alternatives(schema).into_iter().find_map(|one| {
        let open = Some(&one["additionalProperties"]).filter(|open| open.is_object());
        one["properties"].get(key).or(open)
    })
}

/// The pointers of everything in a value that its schema knows of.
fn pointers(schema: &Value, value: &Value, at: String, out: &mut Vec<String>) {
    let mut next = |key: String, schema: Option<&Value>, value: &Value| {
        let schema = schema.filter(|schema| {
            schema
                .get("type")
                .or(schema.get("anyOf"))
                .or(schema.get("enum"))
                .is_some()
        });
        if let Some(schema) = schema {
            pointers(schema, value, format!("{at}/{key}"), out);
        }
    };
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                next(key.clone(), below(schema, key), member);
            }
        }
        Value::Array(items) => {
            for (place, item) in items.iter().enumerate() {
                next(place.to_string(), items_of(schema), item);
            }
        }
        _ => {}
    }
    out.push(at);
}

fn items_of(schema: &Value) -> Option<&Value> {
    let mut found = alternatives(schema).into_iter();
    found.find_map(|one| one.get("items"))
}

/// The paths of all properties that a schema has, lists left out.
fn properties(schema: &Value, at: &str, out: &mut BTreeSet<String>) {
    for one in alternatives(schema) {
        for (key, member) in one["properties"].as_object().into_iter().flatten() {
            let path = format!("{at}/{key}");
            properties(member, &path, out);
            out.insert(path);
        }
        for inner in [one.get("items"), one.get("additionalProperties")]
            .into_iter()
            .flatten()
        {
            properties(inner, at, out);
        }
    }
}

/// The paths, of those, that a value has.
fn keys(schema: &Value, value: &Value, at: &str, out: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                let named = alternatives(schema)
                    .into_iter()
                    .any(|one| one["properties"].get(key).is_some());
                let path = if named {
                    format!("{at}/{key}")
                } else {
                    at.to_owned()
                };
                if let Some(schema) = below(schema, key) {
                    keys(schema, member, &path, out);
                }
                out.extend(named.then_some(path));
            }
        }
        Value::Array(items) => {
            for item in items {
                if let Some(schema) = items_of(schema) {
                    keys(schema, item, at, out);
                }
            }
        }
        _ => {}
    }
}
