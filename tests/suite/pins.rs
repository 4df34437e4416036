//! Words that other people's files and ledgers rest on, held against the documents that name them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ktsu_ledger::Event;
use ktsu_ledger::event::{AgentEvent, Role, WorldEvent};
use serde_json::{Value, json};

use crate::support::{KitDir, Lab, Sink};

fn document(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What stands in backticks at the start of the items of a list under a heading.
fn listed(document: &str, heading: &str) -> BTreeSet<String> {
    let (_, below) = document.split_once(&format!("## {heading}\n")).unwrap();
    let section = below.split("\n## ").next().unwrap();
    let items = section.lines().filter_map(|line| line.strip_prefix("- `"));
    items
        .map(|item| item.split('`').next().unwrap().to_owned())
        .collect()
}

fn set(words: &[&str]) -> BTreeSet<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Invariants 20 and 23. A fifth kind of step, or a seventh operation, needs a decision first.
#[tokio::test]
async fn there_are_four_kinds_of_steps_and_six_operations() {
    let adr = document("docs/adr/0001-four-primitives-six-ops.md");
    let kinds = ["agent", "transform", "webhook", "workflow"];
    let ops = ["deduplicate", "filter", "flatten", "map", "merge", "sort"];
    assert_eq!(listed(&adr, "Kinds of steps"), set(&kinds));
    assert_eq!(listed(&adr, "Operations"), set(&ops));

    // A kit may use each of them, and the engine calls them by these names.
    let sink = Sink::new().await;
    let kit = KitDir::new(&[
        ("child", "visibility: sub-workflow\npipeline: []\n"),
        (
            "w",
            r#"
env: [{name: SINK}]
pipeline:
  - id: t
    transform:
      inputs: []
      ops: [{merge: [h]}, {map: {expr: "@"}}, {filter: {expr: "@"}}, {flatten: {}}, {sort: {field: sent}}, {deduplicate: {field: sent}}]
  - {id: h, webhook: {url: "{{ env.SINK }}"}}
  - {id: w, workflow: ./child.workflow.yaml}
"#,
        ),
        ("a", "pipeline:\n  - {id: think, agent: ./agents/a.agent.yaml}\n"),
    ])
    .with(
        "agents/a.agent.yaml",
        "name: a\nmodel: m\nprompt: {system: s, user: u}\noutput: {schema: {type: object}}\n",
    );
    let lab = Lab::new(&kit, &[("SINK", &sink.url)]).await;
    let envelope = lab.client.run("w", json!({})).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    let steps = envelope["steps"].as_array().unwrap();
    let mut used: BTreeSet<String> = steps
        .iter()
        .map(|step| step["type"].as_str().unwrap().to_owned())
        .collect();
    used.insert("agent".to_owned());
    assert_eq!(used, set(&kinds));

    // Anything else is refused before anything runs, and the refusal names what there is.
    for (step, words) in [
        ("{id: x}", &kinds[..]),
        ("{id: x, script: ls}", &["script"]),
        (
            "{id: x, webhook: {url: \"http://x\"}, transform: {inputs: [], ops: []}}",
            &["webhook", "transform"],
        ),
        (
            "{id: x, transform: {inputs: [], ops: [{exec: {cmd: ls}}]}}",
            &ops[..],
        ),
        (
            "{id: x, transform: {inputs: [], ops: [{map: {expr: a}, sort: {field: sent}}]}}",
            &["map", "sort"],
        ),
    ] {
        let kit = KitDir::new(&[("w", &format!("pipeline:\n  - {step}\n"))]);
        let Err(faults) = ktsu_kit::load(kit.dir.path()) else {
            panic!("{step} was accepted");
        };
        let told = ktsu_config::render::text(&faults, false);
        for word in words {
            assert!(
                told.contains(word),
                "{step} does not mention {word}:\n{told}"
            );
        }
    }
}

/// A row a type: its name, which side it stands on, the members of its data.
fn types() -> BTreeMap<String, (String, BTreeSet<String>)> {
    let format = document("docs/ledger-format.md");
    let rows = format.lines().filter_map(|line| {
        let cells: Vec<&str> = line
            .strip_prefix("| `")?
            .split('|')
            .map(str::trim)
            .collect();
        let [name, role @ ("input" | "decision"), _, members, _] = cells.as_slice() else {
            return None;
        };
        let members = members.split('`').skip(1).step_by(2);
        let members = members.map(|member| member.trim_end_matches('?').to_owned());
        let name = name.trim_end_matches('`').to_owned();
        Some((name, ((*role).to_owned(), members.collect())))
    });
    rows.collect()
}

#[test]
fn every_type_of_frame_is_documented() {
    let documented: Vec<String> = types().into_keys().collect();
    let mut kinds: Vec<String> = Event::KINDS.iter().map(|&kind| kind.to_owned()).collect();
    kinds.sort();
    assert_eq!(documented, kinds);
}

/// The document names every member that a recorded frame has, and says which side it stands on.
#[test]
fn recorded_frames_have_the_members_the_document_names() {
    let types = types();
    for (name, golden) in super::golden::goldens() {
        for (frame, record) in golden.frames().iter().zip(&golden.records) {
            // A kit's own events are no types of ktsu.
            let Some((role, members)) = types.get(frame.event.kind()) else {
                assert!(
                    frame.event.kind().starts_with("x."),
                    "{}",
                    frame.event.kind()
                );
                continue;
            };
            let expected = match frame.event.role() {
                Role::Input => "input",
                Role::Decision => "decision",
            };
            // An end that no runtime reported is one that the engine decided on.
            let by_engine = matches!(&frame.event,
                Event::Agent(AgentEvent::Finished(end)) if end.report.is_none())
                || matches!(&frame.event,
                    Event::Agent(AgentEvent::ToolInDoubt(doubt)) if doubt.report.is_none());
            let by_engine =
                by_engine || matches!(&frame.event, Event::World(WorldEvent::BudgetExhausted(_)));
            let is_posted = matches!(&frame.event, Event::World(one) if one.post().is_some());
            let by_engine = by_engine
                || matches!(&frame.event,
                    Event::Agent(AgentEvent::Response(reply)) if reply.repeats.is_some());
            let told = match (by_engine, is_posted) {
                (true, _) => "decision",
                (_, true) => "input",
                _ => role.as_str(),
            };
            assert_eq!(told, expected, "{}", frame.event.kind());
            let mut members = members;
            if members.contains("webhook.delivered") {
                members = &types["webhook.delivered"].1;
            }
            let body: Value = serde_json::from_str(&record.body).unwrap();
            let asked = body["data"]["responder"].as_str();
            let asked = asked.is_some_and(|name| name.starts_with('@'));
            for member in body["data"].as_object().unwrap().keys() {
                // What a responder asks is in the place of a step.
                let member = match member.as_str() {
                    "responder" if asked => "step",
                    member => member,
                };
                assert!(members.contains(member), "{name}#{}: {member}", frame.seq);
            }
        }
    }
}
