//! Worlds of kits: what becomes of them in definitions, and what is said of them.

use std::path::Path;

use ktsu_ledger::event::plan::world::WorldBudget;

use super::*;

fn shipped(name: &str) -> Kit {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../kits")
        .join(name);
    load(&folder).unwrap_or_else(|faults| panic!("{faults}"))
}

#[test]
fn a_kit_of_a_world_alone_has_a_root_without_steps() {
    for name in ["diligence", "research"] {
        let kit = shipped(name);
        assert_eq!(kit.warnings.faults, [], "{name}: {}", kit.warnings);
        assert_eq!(kit.default_root(), Some(name));
        let workflow = &kit.workflows[name];
        assert!(workflow.is_world());
        let definition = &workflow.definition;
        let root = definition.root_plan().unwrap();
        assert_eq!((root.name.as_str(), root.version.as_str()), (name, "1.0.0"));
        assert!(root.steps.is_empty());
        let params = root.params.as_ref().unwrap().to_value();
        let goal =
            serde_json::json!({"properties": {"goal": {"type": "string"}}, "type": "object"});
        assert_eq!(params, goal, "what `--goal` gives");
        let worlds = definition.worlds().unwrap();
        let named = WorldBudget {
            limits_cost: true,
            ..WorldBudget::default()
        };
        assert_eq!(worlds.budget, named);
        assert_eq!(Vec::from_iter(definition.groups()), ["fast"]);
        let path = format!("worlds/{name}.world.yaml");
        assert!(
            kit.files
                .iter()
                .any(|file| file.path == path && file.kind == FileKind::World)
        );
    }
}

#[test]
fn candidates_come_in_the_order_of_the_file_and_look_ups_have_their_indexes() {
    let diligence = shipped("diligence");
    let worlds = diligence.workflows["diligence"]
        .definition
        .worlds()
        .unwrap();
    let of = |kind: &str| -> Vec<&str> {
        let found = worlds.candidates("object.created", Some(kind)).iter();
        found
            .map(|at| worlds.responders()[*at as usize].plan.name.as_str())
            .collect()
    };
    assert_eq!(of("Claim"), ["evidence-of-claim", "write-claim"]);
    assert_eq!(of("Company"), ["claim-of-company"]);
    assert_eq!(
        Vec::from_iter(worlds.indexed_fields()),
        [("Evidence", "claim_id")]
    );
    let research = shipped("research");
    let worlds = research.workflows["research"].definition.worlds().unwrap();
    let fields = Vec::from_iter(worlds.indexed_fields());
    let wanted = [
        ("Finding", "question_id"),
        ("Question", "goal_id"),
        ("Synthesis", "goal_id"),
    ];
    assert_eq!(fields, wanted);
}

const CLAIMS: &str = "kind: world
name: claims
version: 1.0.0
env: [{name: REGION, default: eu}]
objects: {Claim: {}, Note: {}}
relations: {contradicts: {from: Claim, to: Claim}}
edges:
  - name: note-of-contradiction
    type: contradicts
    emit: [{object: {type: Note, data: {a: '{{ source.id }}', where: '{{ env.REGION }}'}}}]
responders:
  - {name: look, on: object.created, type: Claim, run: {workflow: workflows/look.workflow.yaml, params: {x: '{{ object.id }}'}}, then: [{patch: {id: '{{ object.id }}', data: {seen: '{{ result }}'}}}]}
";
const PLAIN: &str = "kind: world
name: plain
version: 1.0.0
params: {schema: {type: object, required: [x], additionalProperties: false, properties: {x: {type: string}}}}
responders:
  - {name: r, on: object.created, type: Goal, when: params.x && params.goal, emit: []}
";
const AUDIT: &str = "kind: world
name: audit
version: 2.0.0
edges:
  - {name: audit-of-contradiction, type: contradicts, emit: [{object: {type: Note}}]}
";
const LOOK: &str = "kind: workflow
name: look
version: 1.0.0
visibility: sub-workflow
params: {schema: {required: [x], properties: {x: {}}}}
pipeline: []
";
const MAIN: &str = "kind: workflow
name: main
version: 1.0.0
pipeline: [{id: a, transform: {}}]
";

#[test]
fn every_run_of_a_root_loads_all_worlds_and_reaches_what_they_run() {
    let dir = kit(&[
        ("worlds/claims.world.yaml", CLAIMS),
        ("worlds/audit.world.yaml", AUDIT),
        ("workflows/look.workflow.yaml", LOOK),
        ("workflows/main.workflow.yaml", MAIN),
    ]);
    let kit = load(dir.path()).unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(
        kit.default_root(),
        Some("main"),
        "a file comes before worlds"
    );
    let main = &kit.workflows["main"].definition;
    assert_eq!(
        Vec::from_iter(main.plan.worlds.keys()),
        ["worlds/audit.world.yaml", "worlds/claims.world.yaml"]
    );
    assert!(main.workflow("workflows/look.workflow.yaml").is_some());
    assert_eq!(
        main.declared()[0].name,
        "REGION",
        "a root has the variables of its worlds"
    );
    let worlds = main.worlds().unwrap();
    let both = worlds.candidates("relation.created", Some("contradicts"));
    let names: Vec<&str> = both
        .iter()
        .map(|at| worlds.responders()[*at as usize].plan.name.as_str())
        .collect();
    assert_eq!(names, ["audit-of-contradiction", "note-of-contradiction"]);
    let look = &kit.workflows["look"].definition;
    assert!(look.plan.worlds.is_empty(), "a sub-workflow starts no run");
    let audit = &kit.workflows["audit"];
    assert!(audit.is_world() && audit.definition.plan.worlds.len() == 2);
    assert_eq!(audit.definition.root_plan().unwrap().version, "2.0.0");
}

#[test]
fn a_world_with_params_takes_a_goal_beside_them() {
    let dir = kit(&[("worlds/plain.world.yaml", PLAIN)]);
    let kit = load(dir.path()).unwrap_or_else(|faults| panic!("{faults}"));
    let root = kit.workflows["plain"].definition.root().unwrap();
    let schema = root.params.as_ref().unwrap();
    assert_eq!(Vec::from_iter(schema.properties()), ["goal", "x"]);
    let given = serde_json::json!({"x": "a", "goal": "b"});
    let resolved = ktsu_workflow::params::resolve(Some(schema), given, DecisionRules::NEWEST);
    assert!(resolved.is_ok());
}

#[test]
fn a_root_workflow_of_the_name_of_a_world_is_its_root() {
    let main = MAIN.replace("main", "claims");
    let dir = kit(&[
        ("worlds/claims.world.yaml", CLAIMS),
        ("workflows/look.workflow.yaml", LOOK),
        ("workflows/claims.workflow.yaml", &main),
    ]);
    let kit = load(dir.path()).unwrap_or_else(|faults| panic!("{faults}"));
    assert!(!kit.workflows["claims"].is_world());
    assert_eq!(kit.workflows.len(), 2);
}

#[test]
fn a_lock_holds_worlds_as_it_holds_workflows() {
    let dir = kit(&[
        ("worlds/claims.world.yaml", CLAIMS),
        ("workflows/look.workflow.yaml", LOOK),
    ]);
    let kit = load(dir.path()).unwrap();
    let lock = lock::generate(&kit).unwrap();
    let world = lock
        .entries
        .iter()
        .find(|one| one.path == "worlds/claims.world.yaml");
    let world = world.unwrap();
    assert_eq!(world.kind.text(), "world");
    assert_eq!(
        world.definition.as_ref(),
        Some(&kit.workflows["claims"].definition.digest)
    );
}

/// What is said of the lines of a world, whose types are `Claim` with a text and `Note` of any data,
/// and whose relation `about` leads from notes to claims.
fn said(responders: &str) -> Vec<String> {
    let world = format!(
        "kind: world\nname: x\nversion: 1.0.0\nobjects:\n  Claim: {{schema: {{type: object, required: [text], \
         properties: {{text: {{type: string}}, status: {{enum: [open, done]}}}}}}}}\n  Note: {{}}\n\
         relations: {{about: {{from: Note, to: Claim}}}}\nresponders:\n{responders}"
    );
    let dir = kit(&[("worlds/x.world.yaml", &world)]);
    let faults = match load(dir.path()) {
        Ok(kit) => kit.warnings,
        Err(faults) => faults,
    };
    let faults = faults.faults.into_iter();
    faults
        .map(|fault| {
            let hint = fault.hint.map(|hint| format!(" ({hint})"));
            let (code, hint) = (fault.code.text(), hint.unwrap_or_default());
            format!(
                "{}:{} {code}: {}{hint}",
                fault.line - 8,
                fault.column,
                fault.message
            )
        })
        .collect()
}

#[test]
fn faults_of_worlds_say_what_to_write_instead() {
    let mut wrong = Vec::new();
    for (responders, words) in [
        (
            "- {name: a, on: object.creeted, emit: []}",
            "1:17 unknown-event: there is no event \"object.creeted\" to react to (did you mean object.created?)",
        ),
        (
            "- {name: a, on: claim.made, emit: []}",
            "1:17 unknown-event: there is no event \"claim.made\" to react to (object.created, object.patched, \
             relation.created, relation.removed, step.completed, note, *, or x.KIT.NAME for one that is posted)",
        ),
        (
            "- {name: a, on: object.created, when: objct.data.x, emit: []}",
            "1:39 unknown-name: there is no name \"objct\" here (did you mean object?)",
        ),
        (
            "- {name: a, on: object.created, when: reply.text, emit: []}",
            "1:39 unknown-name: there is no name \"reply\" here (only `then` and `publish` see what came of `ask` and `run`)",
        ),
        (
            "- {name: a, on: object.created, when: '!object.data.x', emit: []}",
            "1:40 negated-path: !object.data.x is read as (!object).data.x, which is never there (write !(object.data.x))",
        ),
        (
            "- {name: a, on: object.created, type: Clam, emit: []}",
            "1:39 unknown-type: there is no type of objects \"Clam\" (did you mean Claim?)",
        ),
        (
            "- {name: a, on: object.created, type: about, emit: []}",
            "1:39 unknown-type: there is no type of objects \"about\" (it is a type of relations)",
        ),
        (
            "- {name: a, on: step.completed, type: Claim, emit: []}",
            "1:17 unreachable-responder: no step of this kit ever completes in a run of its own (step.completed is about the steps of a root workflow)\n\
             1:33 bad-value: the events of this responder have no type (when: object.id == 'step/ID' distinguishes steps)",
        ),
        (
            "- {name: a, on: object.created, emit: [{}]}",
            "1:40 no-primitive: the entry has none of object, patch, relation, remove (give it exactly one of them)",
        ),
        (
            "- {name: a, on: object.created, publish: {topic: t}}",
            "1:10 no-primitive: the responder has none of emit, ask, run (beside publish alone: emit: [])",
        ),
        (
            "- {name: a, on: object.created, emit: [], then: []}",
            "1:43 misplaced-key: then does not go with this responder (it belongs beside ask or run)",
        ),
        (
            "- {name: a, on: note, with: {item: {object: x}}, emit: []}",
            "1:30 reserved-name: \"item\" means something else in expressions (call it item_found, for instance)",
        ),
        (
            "- {name: a, on: note, emit: [{object: {type: Claim}}]}",
            "1:39 output-mismatch: the data of this Claim can never fit its schema: missing required field: text",
        ),
        (
            "- {name: a, on: note, emit: [{object: {type: Claim, data: {text: 5}}}]}",
            "1:66 bad-value: text does not fit: expected string, got integer",
        ),
        (
            "- {name: a, on: note, emit: [{object: {type: Claim, data: {text: a, status: opn}}}]}",
            "1:77 bad-value: status does not fit: expected one of \"open\", \"done\"",
        ),
        (
            "- {name: a, on: object.created, type: Claim, when: object.data.statos, emit: []}",
            "1:64 undeclared-field: object.data declares no \"statos\" (did you mean status?)",
        ),
        (
            "- {name: a, on: object.created, type: Claim, when: object.data, \
             emit: [{object: {type: Note}, as: n}, {relation: {type: about, from: '{{ object.id }}', to: '{{ n.id }}'}}]}",
            "1:134 type-mismatch: about begins at Note, and this is the id of a Claim\n\
             1:157 type-mismatch: about ends at Claim, and this is the id of a Note",
        ),
        (
            "- {name: a, on: object.created, type: Note, emit: [{object: {type: Note}}]}",
            "1:10 endless-responders: \"a\" sets itself off, and only a budget ends it (give one of them a `when`, or its entry a key)",
        ),
        (
            "- {name: a, on: note, emit: [{object: {type: Note}}]}\n\
             - {name: b, on: object.created, type: Note, emit: [{relation: {type: about, from: '{{ object.id }}', to: c}}]}\n\
             - {name: c, on: relation.created, type: about, emit: [{object: {type: Note}}]}\n\
             - {name: d, on: object.created, type: Claim, emit: [{object: {type: Claim, data: {text: a}}}]}",
            "2:10 endless-responders: responders set each other off, and only a budget ends it: b -> c -> b (give one of them a `when`, or its entry a key)\n\
             4:10 endless-responders: \"d\" sets itself off, and only a budget ends it (give one of them a `when`, or its entry a key)",
        ),
        (
            "- {name: a, on: object.created, type: Note, emit: [{object: {type: Note}}, {object: {type: Claim, data: {text: a}}}]}\n\
             - {name: b, on: object.created, type: Claim, emit: [{object: {type: Note}}]}",
            "1:10 endless-responders: responders set each other off, and only a budget ends it: a, b (give one of them a `when`, or its entry a key)",
        ),
        (
            "- {name: a, on: object.created, type: Note, with: {c: {count: Claim}}, when: 'c == `0`', emit: [{object: {type: Claim, data: {text: a}}}]}",
            "1:78 made-twice: two triggers in a row may both find no Claim in \"c\", and make one each (give the entry a key: it is judged when the object is made)",
        ),
        (
            "- {name: a, on: object.created, type: Note, with: {c: {objects: Claim}}, when: c, emit: []}",
            "1:52 missed-later: \"c\" reads Claim, and nothing reacts when one comes later (add a responder on object.created of Claim)",
        ),
        (
            // Whoever posts names events as he likes.
            "- {name: a, on: x.another.paid, emit: []}",
            "",
        ),
        (
            "- {name: a, on: note, emit: [{object: {type: step, data: {x: 1}}}]}",
            "1:46 reserved-name: \"step\" is the type of objects that represent steps (steps alone make such objects: declare a type of your own)",
        ),
        (
            "- {name: a, on: note, emit: [{remove: {relation: ''}}]}",
            "1:50 bad-value: the id of a relation has 0 characters: expected 1 to 256",
        ),
        (
            "- {name: a, on: note, emit: [{patch: {id: '', data: {text: a}}}]}",
            "1:43 bad-value: the id of an object has 0 characters: expected 1 to 256",
        ),
        (
            "- {name: a, on: step.completed, emit: []}",
            "1:17 unreachable-responder: no step of this kit ever completes in a run of its own (step.completed is about the steps of a root workflow)",
        ),
    ] {
        let found = said(responders).join("\n");
        if found != words {
            wrong.push(format!("{responders}\n  said   {found}\n  wanted {words}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn worlds_are_bounded() {
    let many = |count: usize, one: &dyn Fn(usize) -> String| -> String {
        (0..count).map(one).collect::<Vec<_>>().join(", ")
    };
    let lookups = many(33, &|n| format!("l{n}: {{object: x}}"));
    let entries = many(257, &|_| "{patch: {id: x, data: {}}}".to_owned());
    let messages = many(65, &|_| "{role: user, content: x}".to_owned());
    let conditions = many(17, &|n| format!("f{n}: x"));
    let responders = many(1001, &|n| format!("{{name: r{n}, on: note, emit: []}}"));
    for (text, words) in [
        (
            format!("- {{name: a, on: note, with: {{{lookups}}}, emit: []}}"),
            "33 look-ups are more than 32",
        ),
        (
            format!("- {{name: a, on: note, emit: [{entries}]}}"),
            "257 entries are more than 256",
        ),
        (
            format!("- {{name: a, on: note, ask: {{model: m, messages: [{messages}]}}}}"),
            "65 messages are more than 64",
        ),
        (
            format!(
                "- {{name: a, on: note, with: {{c: {{count: Claim, where: {{{conditions}}}}}}}, emit: []}}"
            ),
            "17 conditions are more than 16",
        ),
        (
            format!("  [{responders}]"),
            "1001 responders are more than 1000",
        ),
    ] {
        let found = said(&text);
        assert!(
            found.iter().any(|one| one.contains(words)),
            "{words}: {found:?}"
        );
    }
}

#[test]
fn a_goal_that_no_world_takes_up_is_an_object_that_responders_may_name() {
    assert_eq!(
        said("- {name: a, on: object.created, type: Goal, emit: []}"),
        Vec::<String>::new()
    );
}

/// Responders that go over lists whose items have a `name` and nothing else.
const ROWS: &str = "\
kind: world
name: w
version: 1.0.0
params:
  schema:
    required: [rows]
    properties:
      rows: {type: array, items: {type: object, additionalProperties: false, properties: {name: {}}}}
objects:
  alert:
    schema:
      type: object
      required: [rows]
      properties:
        rows: {type: array, items: {type: object, additionalProperties: false, properties: {name: {}}}}
  note: {}
responders:
  - name: a
    on: object.created
    type: alert
    for_each: {from: params.rows}
    emit: [{object: {type: note, data: {text: '{{ item.name }}'}}}]
  - name: b
    on: [object.created, object.patched]
    type: alert
    for_each: {from: object.data.rows}
    emit: [{object: {type: note, data: {text: '{{ item.name }}'}}}]
";

#[test]
fn a_field_that_items_cannot_have_is_found_in_every_kit_with_the_world() {
    let workflow = |rest: &str| format!("kind: workflow\nname: v\nversion: 1.0.0\n{rest}");
    let pipeline = "pipeline: [{id: t, transform: {ops: []}}]\n";
    let kits = [
        None,
        Some(workflow(&format!("visibility: sub-workflow\n{pipeline}"))),
        Some(workflow(&format!(
            "params: {{schema: {{type: object}}}}\n{pipeline}"
        ))),
    ];
    for beside in kits {
        let lines = |world: &str| {
            let mut files = vec![("worlds/w.world.yaml", world)];
            files.extend(
                beside
                    .as_deref()
                    .map(|text| ("workflows/v.workflow.yaml", text)),
            );
            let loaded = load(kit(&files).path());
            let faults = loaded.err().map_or_else(Vec::new, |faults| faults.faults);
            let told = faults.iter().map(|fault| (fault.line, fault.code.text()));
            told.collect::<Vec<_>>()
        };
        assert_eq!(lines(ROWS), [], "{beside:?}");
        let typo = ROWS.replace("item.name", "item.nmae");
        assert_eq!(
            lines(&typo),
            [(22, "unknown-field"), (27, "unknown-field")],
            "{beside:?}"
        );
    }
    // What the workflow declares under the same name can be there, too.
    let other = workflow(&format!(
        "params: {{schema: {{required: [rows], properties: {{rows: {{type: array, items: {{type: \
         object, properties: {{nmae: {{}}}}}}}}}}}}}}\n{pipeline}"
    ));
    let typo = ROWS.replacen("item.name", "item.nmae", 1);
    let files = [
        ("worlds/w.world.yaml", typo.as_str()),
        ("workflows/v.workflow.yaml", other.as_str()),
    ];
    assert!(load(kit(&files).path()).is_ok());
}
