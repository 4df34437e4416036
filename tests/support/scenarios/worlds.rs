//! Runs that load worlds, with all that responders do and people post, decided in memory by the rules
//! in force: nothing but the inputs is written by hand.

use std::sync::Arc;

use ktsu_ledger::event::{ContinueReason, Effects, Principal};
use ktsu_ledger::{Actor, Draft, Event, Hash, Sealed, StreamId, Timestamp};
use ktsu_projections::run::RunState;
use ktsu_workflow::admit::{self, Invocation};
use ktsu_workflow::definition::Definition;
use ktsu_workflow::next::Memo;
use ktsu_workflow::timers;
use ktsu_workflow::turn::{self, Turn};
use serde_json::{Value, json};

use super::super::KitDir;
use super::super::ledgers::Recorded;
use super::agents::{self, GATEWAY};
use super::{MOMENT, Scenario};
use crate::golden::written;

/// Alerts become incidents of the service that the goal names. What cannot be made is rejected, and
/// what makes nothing is the last thing some triggers ask for.
pub(crate) const INCIDENTS: &str = r#"
kind: world
name: incidents
version: 1.0.0
budget: {max_events: 20}
goal:
  - object: {type: Service, data: {name: "{{ goal }}", state: watched}}
objects:
  Service:
    schema:
      type: object
      required: [name]
      properties: {name: {type: string}, state: {enum: [watched, hurt, quiet]}}
  Alert:
    schema:
      type: object
      required: [service]
      properties: {service: {type: string}, level: {type: integer, minimum: 0, maximum: 5}}
  Incident:
    schema:
      type: object
      required: [service]
      additionalProperties: false
      properties: {service: {type: string}, state: {type: string}}
  Check: {}
relations:
  about: {from: Incident, to: Service}
  part_of: {from: Alert, to: Incident}
  checks: {from: Check, to: Service}
  twin: {}
edges:
  - name: hurts
    type: about
    emit:
      - patch: {id: "{{ relation.target_id }}", data: {state: hurt}}
responders:
  - name: plan-checks
    "on": object.created
    type: Service
    for_each: {items: ["disk of {{ object.data.name }}", "net of {{ object.data.name }}"]}
    emit:
      - object: {type: Check, data: {what: "{{ item }}"}}
        as: check
      - relation: {type: checks, from: "{{ check.id }}", to: "{{ object.id }}"}
  - name: open-incident
    "on": object.created
    type: Alert
    with: {service: {object: "{{ object.data.service }}"}}
    when: service
    emit:
      - object: {type: Incident, data: {service: "{{ service.id }}"}}
        key: "{{ service.id }}"
        as: incident
      - relation: {type: about, from: "{{ incident.id }}", to: "{{ service.id }}", id: "about {{ service.id }}"}
      - relation: {type: part_of, from: "{{ object.id }}", to: "{{ incident.id }}"}
  - name: too-loud
    "on": object.created
    type: Alert
    when: object.data.level == `5`
    on_error: continue
    emit:
      - object: {type: Incident, data: {service: "{{ object.data.loudness }}"}}
      - object: {type: Check, data: {what: never}}
  - name: unclear
    "on": object.created
    type: Alert
    when: length(object.data.loudness)
    emit:
      - object: {type: Check, data: {what: never}}
  - name: close-incident
    "on": object.patched
    type: Incident
    changed: [state]
    when: patch.state == 'closed'
    emit:
      - remove: {relation: "about {{ object.data.service }}"}
      - patch: {id: "{{ object.data.service }}", data: {state: quiet}}
      - object: {type: Check, data: {what: again}}
        key: remark
  - name: see-step
    "on": step.completed
    emit:
      - object: {type: Check, data: {what: "{{ object.id }}", result: "{{ object.data.result }}"}}
  - name: see-remarks
    "on": [note, x.incidents.page]
    emit:
      - object: {type: Check, data: {what: "{{ event.data.text }}"}}
        key: remark
        if_exists: patch
"#;

/// Every topic makes another one.
pub(crate) const ENDLESS: &str = r#"
kind: world
name: endless
version: 1.0.0
budget: {max_events: 5, max_recursion_depth: 4}
goal:
  - object: {type: Topic, data: {text: "{{ goal }}"}}
objects: {Topic: {}}
responders:
  - name: again
    "on": object.created
    type: Topic
    for_each: {items: [one, two]}
    emit:
      - object: {type: Topic, data: {text: "{{ object.data.text }} {{ item }}"}}
"#;

/// Tells other systems about the goal, and about what it makes of it.
pub(crate) const PUBLISHES: &str = r#"
kind: world
name: publishes
version: 1.0.0
goal:
  - object: {type: Topic, data: {text: "{{ goal }}"}}
objects: {Topic: {}, Finding: {}}
responders:
  - name: finds
    "on": object.created
    type: Topic
    for_each: {items: [one, two]}
    emit:
      - object: {type: Finding, data: {text: "{{ item }}"}}
    publish: {topic: "finding.{{ item }}", payload: {of: "{{ object.data.text }}", at: "{{ item_index }}"}}
  - name: plain
    "on": object.created
    type: Finding
    emit: []
    publish: {topic: finding.seen}
"#;

/// About the topic of a goal a model is asked two questions; what it says is put into the topic, and
/// what has no answer into an object of its own.
const ASKS: &str = r#"
kind: world
name: asks
version: 1.0.0
goal:
  - object: {type: Topic, data: {text: "{{ goal }}"}}
objects:
  Topic: {schema: {type: object, required: [text]}}
  Remark: {}
responders:
  - name: ask-about
    "on": object.created
    type: Topic
    for_each: {items: [who, what]}
    concurrency: 1
    ask:
      model: std
      messages:
        - {role: system, content: You know the sea.}
        - {role: user, content: "{{ item }} is {{ object.data.text }}"}
      output: {schema: {type: object, required: [answer], properties: {answer: {type: string}}}}
    then:
      - patch: {id: "{{ object.id }}", data: {known: "{{ reply.output.answer }}"}}
      - object: {type: Remark, data: {about: "{{ item }}"}}
        when: reply.output.absent
"#;

/// A run whose responder asks a model.
pub(crate) fn asking() -> Scenario {
    Scenario::new("worlds-ask", "pipeline: []\n")
        .file("worlds/asks.world.yaml", ASKS)
        .file("gateway.yaml", GATEWAY)
        .body(json!({"goal": "tides"}))
        .script(agents::model)
}

/// Whoever is on duty is reminded of an alert while it is open, and somebody else paged later.
pub(crate) const WAITS: &str = r#"
kind: world
name: waits
version: 1.0.0
budget: {max_events: 20}
goal:
  - object: {type: Alert, data: {service: "{{ goal }}", state: open}}
objects: {Alert: {}, Page: {}}
responders:
  - name: page
    "on": object.created
    type: Alert
    after: 15m
    when: object.data.state == 'open'
    emit:
      - object: {type: Page, data: {of: "{{ object.id }}", who: everybody}}
  - name: remind
    "on": object.created
    type: Alert
    after: 10m
    when: object.data.state == 'open'
    emit:
      - object: {type: Page, data: {of: "{{ object.id }}", who: duty}}
  - name: note-quiet
    "on": object.patched
    type: Alert
    after: 20m
    when: object.data.state == patch.state
    emit:
      - patch: {id: "{{ object.id }}", data: {quiet: true}}
"#;

/// The run of [`WAITS`]: the alert is closed between the two pages.
pub(crate) fn waiting() -> Recorded {
    let mut run = WorldRun::begin("waits", WAITS, "pipeline: []\n");
    run.wait();
    let alert = run.id_of("Alert");
    let closed = json!({"id": alert, "patch": {"state": "closed"}});
    run.post("ann", &[("object.patched", closed)]);
    run.wait();
    run.wait();
    // What is patched last is quiet, too.
    run.wait();
    run.recorded()
}

const STEPS: &str = r#"
pipeline:
  - id: count
    transform: {inputs: [{from: params.numbers}], ops: [{deduplicate: {field: "@"}}]}
"#;

/// The names of [`record`].
pub(crate) const NAMES: [&str; 2] = ["worlds", "worlds-exhausted"];

/// A run of a world, decided to its end.
pub(crate) fn record(name: &str) -> Recorded {
    match name {
        "worlds" => incidents().recorded(),
        "worlds-exhausted" => WorldRun::begin(name, ENDLESS, "pipeline: []\n").recorded(),
        "worlds-publish" => WorldRun::begin(name, PUBLISHES, "pipeline: []\n").recorded(),
        other => panic!("{other}"),
    }
}

/// The run of [`INCIDENTS`], with what people do in it.
pub(crate) fn incidents() -> WorldRun {
    let mut run = WorldRun::begin("worlds", INCIDENTS, STEPS);
    let service = run.id_of("Service");
    run.post(
        "ann",
        &[
            (
                "object.created",
                json!({"id": "alert-1", "type": "Alert", "data": {"service": service, "level": 5, "loudness": 11,
                    "é\u{1f600}": 1e21, "load": 1.5e-7, "\u{fffd}": [-0.0, 100, 0.1, 9007199254740993_u64]}}),
            ),
            (
                "object.created",
                json!({"id": "alert-2", "type": "Alert", "data": {"service": service}}),
            ),
        ],
    );
    run.post(
        "bob",
        &[
            ("note", json!({"data": {"text": "look \u{1}\t\"here\""}})),
            (
                "x.incidents.page",
                json!({"data": {"text": "paged", "to": "bob"}}),
            ),
        ],
    );
    run.raise("ann", json!({"max_events": 60, "reason": "more to come"}));
    let incident = run.id_of("Incident");
    run.post(
        "bob",
        &[
            (
                "relation.created",
                json!({"id": "twin-1", "type": "twin", "source_id": "alert-1",
                "target_id": "alert-2", "data": {"since": 1.0}}),
            ),
            (
                "object.patched",
                json!({"id": incident, "patch": {"state": "closed"}}),
            ),
            ("relation.removed", json!({"id": "twin-1"})),
            (
                "relation.created",
                json!({"id": "twin-2", "type": "twin", "source_id": "alert-2", "target_id": "absent"}),
            ),
        ],
    );
    run
}

/// A run in memory.
pub(crate) struct WorldRun {
    definition: Arc<Definition>,
    state: RunState,
    memo: Memo,
    sealed: Vec<Sealed>,
    more: bool,
    now: Timestamp,
}

impl WorldRun {
    /// A run of a workflow beside a world, decided as far as it goes without anybody.
    pub(crate) fn begin(name: &str, world: &str, steps: &str) -> Self {
        let world_name = world.split("name: ").nth(1).unwrap();
        let world_name = world_name.lines().next().unwrap();
        let path = format!("worlds/{world_name}.world.yaml");
        let kit = KitDir::new(&[("main", steps)]).with(&path, world).load();
        let definition = Arc::clone(&kit.workflows["main"].definition);
        let asked = Invocation {
            body: json!({"goal": "payments", "numbers": [3, 1, 3]}),
            env: Default::default(),
            idempotency: None,
            lock: None,
            principal: Principal {
                auth: "none".to_owned(),
                id: "local".to_owned(),
            },
            effects: Effects::Execute,
            no_cache: false,
            references: Vec::new(),
        };
        let created = admit::invocation(&definition, asked).unwrap();
        let stream = StreamId::run(&format!("run_{}", name.replace('-', "_"))).unwrap();
        let memo = Memo::default();
        let at = Timestamp::from_micros(MOMENT);
        let (state, turn) = turn::begin(&definition, stream, created, at, &memo).unwrap();
        let mut run = Self {
            definition,
            state,
            memo,
            sealed: Vec::new(),
            more: false,
            now: at,
        };
        run.take(turn);
        run
    }

    fn take(&mut self, turn: Turn) {
        self.more = turn.more;
        self.sealed.extend(turn.sealed);
        while self.more {
            self.inputs(vec![turn::continuation(&self.state, ContinueReason::Bound)]);
        }
    }

    fn inputs(&mut self, drafts: Vec<Draft>) {
        let (definition, at) = (&self.definition, self.now);
        let turn = turn::apply_report(definition, &mut self.state, drafts, at, &self.memo);
        self.take(turn.unwrap());
    }

    /// A person posts events, all of them one input.
    pub(crate) fn post(&mut self, who: &str, events: &[(&str, Value)]) {
        let n = self.state.responding().unwrap().next_post();
        let digest = Hash::of(json!(events).to_string().as_bytes()).to_string();
        let drafts = events.iter().map(|(kind, data)| {
            let mut data = data.clone();
            data["by"] = json!({"auth": "token", "id": who});
            data["post"] = json!({"digest": digest, "n": n});
            input(kind, who, data)
        });
        self.inputs(drafts.collect());
    }

    /// Time passes until the next timer fires.
    pub(crate) fn wait(&mut self) {
        let timer = timers::next(&self.state).expect("a timer is set");
        self.now = self.now.max(timer.until);
        self.inputs(vec![timers::due(&self.state, timer.until).unwrap()]);
    }

    /// A person raises limits.
    pub(crate) fn raise(&mut self, who: &str, mut data: Value) {
        data["by"] = json!({"auth": "token", "id": who});
        self.inputs(vec![input("budget.raised", who, data)]);
    }

    /// The first object of a type.
    pub(crate) fn id_of(&self, kind: &str) -> String {
        let head = self.state.responding().unwrap().head();
        head.of_type(kind).next().unwrap().id.to_string()
    }

    /// The run as a ledger has it, after its end.
    pub(crate) fn recorded(mut self) -> Recorded {
        while self.state.worlds_are_idle() {
            self.inputs(vec![turn::continuation(&self.state, ContinueReason::Idle)]);
        }
        assert!(self.state.status().is_terminal(), "{:?}", self.state.todo());
        let blobs = self.sealed.iter().flat_map(|sealed| sealed.blobs.clone());
        Recorded {
            stream: self.state.stream().clone(),
            blobs: blobs.collect(),
            records: self.sealed.into_iter().map(|one| one.record).collect(),
        }
    }
}

/// An input as a frame would have it.
fn input(kind: &str, who: &str, data: Value) -> Draft {
    let body = json!({"v": 1, "stream": "run:r", "seq": 0, "type": kind, "scope": "", "cause": [],
        "actor": format!("principal:{who}"), "at": Timestamp::from_micros(MOMENT), "data": data,
        "ext": [], "prev": Hash::ZERO});
    let event: Event = written(0, &body).decode_bare().unwrap().event;
    Draft {
        scope: String::new(),
        actor: Actor::Principal(who.to_owned()),
        cause: Vec::new(),
        event,
    }
}
