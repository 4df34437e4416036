//! Recorded runs under another kit: the shipped one, changed in one place at a time.

use std::path::Path;
use std::sync::Arc;

use ktsu_ledger::event::WorldEvent;
use ktsu_ledger::{Event, Frame};
use ktsu_workflow::definition::Definition;
use ktsu_workflow::replay::Definitions;
use ktsu_workflow::simulate::{Divergence, DivergenceKind, compare, simulate};
use serde_json::{Value, json};

use super::{Desk, kit, repository};
use crate::golden::goldens;

const TRIAGE: &str = "workflows/triage.workflow.yaml";
const BRIEFER: &str = "agents/briefer.agent.yaml";

/// Every golden run under the definition it was recorded with, given its own inputs.
#[test]
fn nothing_diverges_where_nothing_changed() {
    for (name, golden) in goldens() {
        let frames = golden.frames();
        let raised =
            |frame: &Frame| matches!(&frame.event, Event::World(WorldEvent::BudgetRaised(_)));
        if frames.iter().any(raised) {
            // What a person raised for one kit says nothing about another.
            continue;
        }
        let own = Definitions::default()
            .introduced_by(&frames[0])
            .unwrap()
            .unwrap();
        let tried = simulate(&frames, &own, &own).unwrap();
        assert_eq!(tried.unused_inputs, [], "{name}");
        assert_eq!(compare(&frames, &tried, &tried).unwrap(), [], "{name}");
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// One run of the shipped kit, without the params that have defaults.
fn recorded() -> (Desk, String) {
    let desk = Desk::new();
    let path = repository().join("kits/triage/examples/default.json");
    let mut input: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    input.as_object_mut().unwrap().remove("shift");
    let said = desk.ktsu(&[
        "run",
        &kit("triage"),
        "--input",
        &input.to_string(),
        "--json",
    ]);
    let run = said.is(0).json()["run_id"].as_str().unwrap().to_owned();
    (desk, run)
}

/// What is said of the run under the kit with one file changed.
fn under(desk: &Desk, run: &str, file: &str, change: impl Fn(&str) -> String) -> Vec<Value> {
    let folder = desk.path().join("changed");
    if folder.exists() {
        std::fs::remove_dir_all(&folder).unwrap();
    }
    copy(&repository().join("kits/triage"), &folder);
    let path = folder.join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    let changed = change(&text);
    assert_ne!(text, changed);
    std::fs::write(&path, changed).unwrap();
    let said = desk.ktsu(&["replay", run, "--against", "changed", "--json"]);
    let told = said.is(1).json();
    assert_eq!(told["summary"]["diverged"], 1);
    told["runs"][0]["divergences"].as_array().unwrap().clone()
}

/// What, where and at which place, in one line.
fn names(divergences: &[Value]) -> Vec<String> {
    let text = |one: &Value, name: &str| one[name].as_str().unwrap_or_default().to_owned();
    let line = |one: &Value| {
        let (what, step, field) = (text(one, "what"), text(one, "step"), text(one, "field"));
        format!("{what} {step} {field}").trim_end().to_owned()
    };
    divergences.iter().map(line).collect()
}

fn one(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from}");
    text.replacen(from, to, 1)
}

#[test]
fn each_change_of_a_kit_is_named_exactly() {
    let (desk, run) = recorded();
    desk.ktsu(&["replay", &run, "--against", &kit("triage")])
        .is(0)
        .says("no divergence: 1 run, 1 the same");
    let under =
        |file: &str, from: &str, to: &str| under(&desk, &run, file, |text| one(text, from, to));

    let condition = under(
        TRIAGE,
        "\"step.urgent.result\"\n    workflow",
        "\"params.tickets == `null`\"\n    workflow",
    );
    assert_eq!(
        names(&condition),
        [
            "condition escalate",
            "template hand_over /body/paged",
            "run_output  /paged"
        ]
    );
    assert_eq!(condition[0]["history"], "true");
    assert_eq!(condition[0]["decided"], "false");

    let from = "desk: \"{{ params.desk }}\"\n        shift";
    let template = under(
        TRIAGE,
        from,
        "desk: \"desk {{ params.desk }}\"\n        shift",
    );
    assert_eq!(names(&template), ["template hand_over /body/desk"]);
    assert_eq!(template[0]["decided"], "desk first line");

    let schema = under(BRIEFER, "maxLength: 160", "maxLength: 3");
    // Whether the child was still under way when the brief came is a matter of chance.
    let mut names_of_schema = names(&schema);
    names_of_schema.retain(|name| !name.contains(" escalate"));
    assert_eq!(
        names_of_schema,
        [
            "schema brief /errors",
            "schema brief /valid",
            "prompt brief /schema",
            "failure brief",
            "status brief",
            "status hand_over /skip_reason",
            "status hand_over",
            "status",
            "failure",
            "run_output",
        ]
    );

    let transform = under(
        TRIAGE,
        "expr: \"urgency == `1`\"",
        "expr: \"urgency == `1` && topic == 'outage'\"",
    );
    assert_eq!(names(&transform)[0], "output urgent /result/2/number");
    assert!(names(&transform).contains(&"template escalate/page /body/tickets".to_owned()));
    assert!(names(&transform).contains(&"prompt escalate/draft /user".to_owned()));

    let default = under(TRIAGE, "default: next}", "default: night}");
    assert_eq!(names(&default)[0], "param  /shift");
    assert_eq!(default[0]["history"], "next");
    assert_eq!(default[0]["decided"], "night");
    assert_eq!(
        names(&default)[1..],
        ["prompt brief /user", "prompt brief /reflect"]
    );

    let extra = "  - id: extra\n    agent: agents/briefer.agent.yaml@1.0.0\n    params: {desk: a, \
                 shift: b, tickets: \"{{ step.ranked.result }}\"}\n\n  # The tickets that could not";
    let added = under(TRIAGE, "  # The tickets that could not", extra);
    assert_eq!(
        names(&added),
        [
            "step_added extra",
            "no_record extra",
            "status",
            "run_output"
        ]
    );

    let prompt = under(BRIEFER, "Short sentences, the", "Very short sentences, the");
    assert_eq!(names(&prompt), ["prompt brief /system"]);

    let group = under(BRIEFER, "model: careful", "model: fast");
    assert_eq!(names(&group), ["group brief /group"]);
    assert_eq!(group[0]["history"], "careful");

    let output = under(TRIAGE, "handed_over: ", "handed: ");
    assert_eq!(
        names(&output),
        ["run_output  /handed", "run_output  /handed_over"]
    );
}

#[test]
fn a_step_that_goes_and_steps_that_change_places_are_named() {
    let (desk, run) = recorded();
    let removed = under(&desk, &run, TRIAGE, |text| {
        let (start, end) = (
            text.find("  - id: unsorted").unwrap(),
            text.find("  - id: topics").unwrap(),
        );
        let without = format!("{}{}", &text[..start], &text[end..]);
        without.replace("length(step.unsorted.result)", "`1`")
    });
    assert_eq!(names(&removed), ["step_removed unsorted"]);
    let moved = under(&desk, &run, TRIAGE, |text| {
        let start = text.find("  - id: urgent\n").unwrap();
        let end = text.find("  # Written, then reviewed").unwrap();
        let without = format!("{}{}", &text[..start], &text[end..]);
        without.replace(
            "  - id: topics\n",
            &format!("{}  - id: topics\n", &text[start..end]),
        )
    });
    assert_eq!(names(&moved), ["order"]);
}

/// A retry that is declared otherwise, on a run that used it up.
#[test]
fn a_webhook_that_is_sent_less_often_or_after_another_pause_is_named() {
    let found = goldens().into_iter().find(|(name, _)| name == "v1-dead");
    let frames = found.unwrap().1.frames();
    let own = Definitions::default()
        .introduced_by(&frames[0])
        .unwrap()
        .unwrap();
    let base = simulate(&frames, &own, &own).unwrap();
    let with = |member: &str, value: u64| {
        let mut plan: Value = serde_json::from_str(own.json.as_str()).unwrap();
        let workflows = plan["workflows"].as_object_mut().unwrap();
        for workflow in workflows.values_mut() {
            for step in workflow["steps"].as_array_mut().unwrap() {
                if let Some(retry) = step.pointer_mut("/work/webhook/retry") {
                    retry[member] = json!(value);
                }
            }
        }
        let plan = serde_json::from_value(plan).unwrap();
        let definition = Arc::new(Definition::compile(plan).unwrap());
        let new = simulate(&frames, &own, &definition).unwrap();
        let found = compare(&frames, &base, &new).unwrap();
        found
            .into_iter()
            .map(|one| (one.what, one.field))
            .collect::<Vec<_>>()
    };
    assert!(with("attempts", 2).contains(&(DivergenceKind::Retry, "/sendings".to_owned())));
    assert_eq!(
        with("backoff_ms", 77),
        [(DivergenceKind::Retry, "/backoff_ms".to_owned())]
    );
    assert!(
        with("attempts", 9)
            .iter()
            .any(|(what, _)| *what == DivergenceKind::NoRecord)
    );
}

#[test]
fn a_run_that_cannot_be_held_against_a_kit_is_counted_apart() {
    let desk = Desk::new();
    let run = desk.hello();
    desk.ktsu(&["replay", &run, "--against", &kit("triage")])
        .is(2)
        .says("the kit has no workflow hello")
        .says("1 could not run");
    let nothing = desk.ktsu(&[
        "replay",
        "--all",
        "--against",
        &kit("triage"),
        "--workflow",
        "triage",
    ]);
    nothing.is(0).says("0 runs");
    let later = desk.ktsu(&[
        "replay",
        "--all",
        "--against",
        &kit("hello"),
        "--since",
        "2999-01-01",
    ]);
    later.is(0).says("0 runs");
    desk.ktsu(&[
        "replay",
        &run,
        "--against",
        &kit("hello"),
        "--since",
        "soon",
    ])
    .is(2)
    .warns("soon is not a time");
    desk.ktsu(&["replay", &run, "--against", "nowhere"]).is(2);
}

/// A ledger may hold runs of several kits.
#[test]
fn with_all_runs_of_other_kits_are_skipped_and_counted() {
    let desk = Desk::new();
    desk.hello();
    desk.hello();
    desk.ktsu(&["run", &kit("intake"), "--quiet"]).is(0);
    let all = ["replay", "--all", "--against", &kit("intake")];
    desk.ktsu(&all)
        .is(0)
        .says("no divergence: 1 run, 1 the same, 0 diverged, 0 could not run")
        .says("2 skipped: runs of workflows that this kit does not have");
    let summary = &desk.ktsu(&[&all[..], &["--json"]].concat()).is(0).json()["summary"];
    assert_eq!(summary["skipped"], 2, "{summary}");
    assert_eq!(summary["of_other_kits"], 2, "{summary}");
    // One that is asked for by its name must be there.
    let named = [&all[..], &["--workflow", "hello"]].concat();
    desk.ktsu(&named)
        .is(2)
        .says("the kit has no workflow hello");
}

#[test]
fn an_invocation_that_the_kit_would_refuse_is_reported_at_its_place() {
    let desk = Desk::new();
    let workflow = |most: u32| {
        format!(
            "kind: workflow\nname: counts\nversion: 1.0.0\nparams: {{schema: {{type: object, \
             properties: {{number: {{type: integer, maximum: {most}}}}}}}}}\npipeline: []\n"
        )
    };
    let kit = desk.write_kit("counts", &workflow(9));
    let said = desk.ktsu(&["run", &kit, "--input", "{\"number\": 7}", "--json"]);
    let run = said.is(0).json()["run_id"].as_str().unwrap().to_owned();
    desk.write_kit("counts", &workflow(3));
    desk.ktsu(&["replay", &run, "--against", &kit])
        .is(2)
        .says("the invocation would be refused: expected at most 3 at /number");
}

/// What is said of the calls of a golden under its own definition with its plan changed: respect,
/// step, server, tool, and both sides. What follows from it is told beside, and is left out here.
fn golden_under(name: &str, change: impl Fn(&mut Value)) -> Vec<(String, Value, Value)> {
    let found = all_under(name, change).into_iter();
    in_words(found.filter(|one| one.server.is_some()))
}

/// Everything that is said of it.
fn all_under(name: &str, change: impl Fn(&mut Value)) -> Vec<Divergence> {
    let found = goldens().into_iter().find(|(one, _)| one == name);
    let frames = found.unwrap().1.frames();
    let own = Definitions::default()
        .introduced_by(&frames[0])
        .unwrap()
        .unwrap();
    let base = simulate(&frames, &own, &own).unwrap();
    let mut plan: Value = serde_json::from_str(own.json.as_str()).unwrap();
    let before = plan.clone();
    change(&mut plan);
    assert_ne!(plan, before, "{name}");
    let plan = serde_json::from_value(plan).unwrap();
    let definition = Arc::new(Definition::compile(plan).unwrap());
    let new = simulate(&frames, &own, &definition).unwrap();
    compare(&frames, &base, &new).unwrap()
}

/// Respect, step, server, tool, and both sides.
fn in_words(found: impl Iterator<Item = Divergence>) -> Vec<(String, Value, Value)> {
    let told = found.map(|one| {
        let words = [
            one.what.name(),
            one.step,
            one.server.unwrap_or_default(),
            one.tool.unwrap_or_default(),
        ];
        (
            words.join(" ").trim_end().to_owned(),
            one.history.unwrap_or_default(),
            one.decided.unwrap_or_default(),
        )
    });
    told.collect()
}

/// The servers of the one agent of these goldens.
fn servers(plan: &mut Value) -> &mut Vec<Value> {
    let servers = plan.pointer_mut("/agents/agents~1acts.agent.yaml/servers");
    servers.unwrap().as_array_mut().unwrap()
}

/// The rule of its server `desk` that has this pattern.
fn rule<'p>(plan: &'p mut Value, pattern: &str) -> &'p mut Value {
    let rules = servers(plan)[0]["tools"].as_array_mut().unwrap();
    let mut rules = rules.iter_mut();
    rules.find(|rule| rule["pattern"] == pattern).unwrap()
}

fn said(what: &str, history: Value, decided: Value) -> (String, Value, Value) {
    (what.to_owned(), history, decided)
}

#[test]
fn a_gate_that_comes_or_goes_is_named_with_server_tool_and_policy() {
    let policy = json!({"on_reject": "fail", "quorum": 1});
    let added = golden_under("v1-tool-calls", |plan| {
        rule(plan, "read")["approval"] = policy.clone();
    });
    let expected = said("gate_added act desk read", Value::Null, policy);
    assert_eq!(added, [expected]);
    let removed = golden_under("v1-tool-quorum", |plan| {
        rule(plan, "two")
            .as_object_mut()
            .unwrap()
            .remove("approval");
    });
    let policy = json!({"not_by_proposer": true, "on_reject": "fail", "quorum": 2});
    let expected = said("gate_removed act desk two", policy, Value::Null);
    assert_eq!(removed, [expected]);
}

#[test]
fn each_term_of_a_gate_is_named_by_itself() {
    let changed = golden_under("v1-tool-quorum", |plan| {
        rule(plan, "two")["approval"] = json!({
            "on_reject": "recover", "quorum": 3, "timeout": {"behavior": "reject", "ms": 5},
        });
    });
    let timeout = json!({"behavior": "reject", "ms": 5});
    assert_eq!(
        changed,
        [
            said("on_reject act desk two", json!("fail"), json!("recover")),
            said("approval_timeout act desk two", Value::Null, timeout),
            said("quorum act desk two", json!(2), json!(3)),
            said("not_by_proposer act desk two", json!(true), json!(false)),
        ]
    );
    let (was, is) = (
        json!({"behavior": "fail", "ms": 1000}),
        json!({"behavior": "fail", "ms": 60_000}),
    );
    let later = golden_under("v1-tool-late", |plan| {
        rule(plan, "late")["approval"]["timeout"] = is.clone();
    });
    let expected = said("approval_timeout act desk late", was, is.clone());
    assert_eq!(later, [expected]);
    let rejected = golden_under("v1-tool-rejected", |plan| {
        rule(plan, "drop")["approval"]["on_reject"] = json!("recover");
    });
    let expected = said("on_reject act desk drop", json!("fail"), json!("recover"));
    assert_eq!(rejected, [expected]);
}

#[test]
fn a_tool_or_a_server_that_is_gone_is_named_and_nothing_about_what_was_never_called() {
    let forbidden = golden_under("v1-tool-quorum", |plan| {
        rule(plan, "two")["pattern"] = json!("two_*");
    });
    let expected = said(
        "tool_not_permitted act desk two",
        json!(["two"]),
        json!(["two_*"]),
    );
    assert_eq!(forbidden, [expected]);
    let gone = golden_under("v1-tool-quorum", |plan| {
        servers(plan).remove(0);
    });
    let file = json!("servers/desk.server.yaml");
    let expected = said("server_removed act desk two", file, Value::Null);
    assert_eq!(gone, [expected]);
    let unused = golden_under("v1-tool-quorum", |plan| {
        servers(plan).remove(1);
    });
    assert_eq!(unused, []);
}

#[test]
fn each_divergence_names_the_frame_in_which_history_says_otherwise() {
    let (desk, run) = recorded();
    let lines = desk.ktsu(&["frames", &run, "--json"]).is(0).out.clone();
    let frames: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let found = under(&desk, &run, TRIAGE, |text| {
        one(
            text,
            "\"step.urgent.result\"\n    workflow",
            "\"params.tickets == `null`\"\n    workflow",
        )
    });
    for divergence in &found {
        let what = divergence["what"].as_str().unwrap();
        let seq = divergence["frame"].as_u64();
        let seq = seq.unwrap_or_else(|| panic!("{divergence} names no frame"));
        let frame = &frames[usize::try_from(seq).unwrap()];
        let kind = frame["type"].as_str().unwrap();
        let expected = match what {
            "condition" | "template" => "step.started",
            "webhook" => "webhook.sent",
            "run_output" => "run.completed",
            _ => kind,
        };
        assert_eq!(kind, expected, "{divergence} {frame}");
        let step = divergence["step"].as_str().unwrap_or_default();
        if !step.is_empty() && !step.contains('/') {
            assert_eq!(frame["data"]["step"], step, "{divergence}");
        }
    }
    desk.ktsu(&["replay", &run, "--against", "changed"])
        .is(1)
        .says(&format!("step escalate (frame {})", found[0]["frame"]));
    // An item is named as it is everywhere.
    let found = under(&desk, &run, "agents/classifier.agent.yaml", |text| {
        one(text, "You sort support tickets", "You sort tickets")
    });
    let frame = &found[0]["frame"];
    desk.ktsu(&["replay", &run, "--against", "changed"])
        .is(1)
        .says(&format!("step classify.0 (frame {frame})"));
}

/// The reviews of the one agent of these goldens.
fn reviews(plan: &mut Value) -> &mut serde_json::Map<String, Value> {
    let commands = plan.pointer_mut("/agents/agents~1judge.agent.yaml/commands");
    commands.unwrap().as_object_mut().unwrap()
}

fn reviewed_under(name: &str, change: impl Fn(&mut Value)) -> Vec<(String, Value, Value)> {
    in_words(all_under(name, change).into_iter())
}

#[test]
fn each_term_of_a_review_is_named_by_itself_and_so_is_one_that_goes() {
    let changed = reviewed_under("v7-review-approved", |plan| {
        reviews(plan)["review"] =
            json!({"quorum": 3, "roles": ["operator"], "timeout": {"behavior": "reject", "ms": 5}});
    });
    let (was, is) = (
        json!({"behavior": "fail", "ms": 7_200_000}),
        json!({"behavior": "reject", "ms": 5}),
    );
    let terms = [
        said("approval_timeout a", was, is),
        said("quorum a", json!(2), json!(3)),
        said("not_by_proposer a", json!(true), json!(false)),
        said(
            "review_roles a",
            json!(["approver", "admin"]),
            json!(["operator"]),
        ),
    ];
    assert_eq!(changed[..4], terms, "{changed:?}");
    let waits = json!("waits for an answer that is not recorded");
    assert!(
        changed.contains(&said("no_record a", Value::Null, waits)),
        "{changed:?}"
    );
    // A policy that names no roles has those of every policy that names none.
    let unnamed = reviewed_under("v7-review-approved", |plan| {
        reviews(plan)["review"] = json!({"quorum": 2, "not_by_proposer": true, "timeout": {"behavior": "fail", "ms": 7_200_000}});
    });
    let roles = |one: &&(String, Value, Value)| one.0.starts_with("review_roles");
    assert_eq!(unnamed.iter().find(roles), None, "{unnamed:?}");
    let named = reviewed_under("v7-review-rejected", |plan| {
        reviews(plan)["review"]["roles"] = json!(["operator"]);
    });
    let sides = (json!(["approver", "admin"]), json!(["operator"]));
    assert_eq!(
        named[0],
        said("review_roles a", sides.0, sides.1),
        "{named:?}"
    );
    // One of two approvals is enough, and the other answers nothing.
    let fewer = reviewed_under("v7-review-approved", |plan| {
        reviews(plan)["review"]["quorum"] = json!(1);
    });
    assert_eq!(fewer[0], said("quorum a", json!(2), json!(1)), "{fewer:?}");
    let gone = reviewed_under("v7-review-approved", |plan| {
        reviews(plan).remove("review");
    });
    assert!(
        gone.iter().any(|one| one.0 == "review_removed a"),
        "{gone:?}"
    );
    let failed = |one: &(String, Value, Value)| one.0 == "failure a";
    let failed = gone.iter().find(|one| failed(one)).unwrap();
    assert!(
        failed.2.to_string().contains("command_not_permitted"),
        "{gone:?}"
    );
    let late = reviewed_under("v7-review-late", |plan| {
        reviews(plan)["review"]["timeout"]["behavior"] = json!("reject");
    });
    assert_eq!(late[0].0, "approval_timeout a", "{late:?}");
    let failed = late.iter().find(|one| one.0 == "failure a").unwrap();
    assert!(failed.2.to_string().contains("review_rejected"), "{late:?}");
}
