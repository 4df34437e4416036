use std::collections::{BTreeMap, BTreeSet};

use ktsu_ledger::event::plan::Plan;
use serde_json::{Value, json};

use super::*;
use crate::kit_faults::ShownCheck;
use crate::{ShownWorkflow, SignedIn};

/// A workflow with a step of each kind.
fn plan() -> Plan {
    let agent = |name: &str, more: Value| {
        let mut file = json!({
            "group": "fast", "max_turns": 4, "name": name, "version": "1.0.0",
            "output": {"type": "object"},
            "prompt": {"system": "You <sort>.", "user": "Ticket {{ params.text }}"},
        });
        for (member, value) in more.as_object().unwrap() {
            file[member] = value.clone();
        }
        file
    };
    let approval = json!({"on_reject": "recover", "quorum": 2, "not_by_proposer": true,
        "timeout": {"behavior": "reject", "ms": 3_600_000}});
    let desk = agent(
        "desk",
        json!({
            "servers": [{
                "file": "servers/grants.server.yaml", "name": "grants", "version": "2.0.0", "url": "http://u:p@grants.example/mcp",
                "tools": [{"pattern": "write_file", "approval": approval}, {"pattern": "read_*"}],
            }],
            "commands": {
                "invoke": ["page"],
                "suspend": {"timeout_ms": 60_000, "roles": ["approver"]},
            },
        }),
    );
    let page = json!({"webhooks": "suppress", "workflow": "workflows/page.workflow.yaml"});
    let steps = json!([
        {"id": "sort", "work": {"agent": {
            "agent": "agents/sorter.agent.yaml@1.0.0", "file": "agents/sorter.agent.yaml", "max_tokens": 300,
            "for_each": {"concurrency": 8, "from": "params.tickets", "max_failures": -1, "max_items": 500},
            "params": {"text": "{{ item.text }}"},
        }}},
        {"id": "count", "needs": [0], "work": {"transform": {
            "inputs": ["step.sort.results"], "ops": [{"filter": {"expr": "urgent"}}, "flatten"],
        }}},
        {"id": "decide", "condition": "length(step.count.result) > `0`", "needs": [1],
            "schema": {"type": "object", "title": "of the step"},
            "work": {"agent": {
                "agent": "agents/desk.agent.yaml", "file": "agents/desk.agent.yaml", "group": "careful", "max_tokens": 900,
                "may_invoke": {"page": {"child": page, "concurrency": 1, "max_items": 3}},
            }}},
        {"id": "send", "needs": [1, 2], "work": {"webhook": {
            "method": "POST", "timeout_ms": 10_000, "url": "https://desk.example/queues/a?key=k",
            "body": {"n": "{{ step.count.result }}"},
            "retry": {"attempts": 3, "backoff_ms": 1_000, "on": ["timeout"]},
        }}},
        {"id": "page", "needs": [2], "work": {"workflow": page}},
    ]);
    let workflow = |name: &str, steps: Value, visibility: &str| json!({"name": name, "steps": steps, "version": "1.0.0", "visibility": visibility, "webhooks": "execute"});
    let plan = json!({
        "format": 1, "root": "workflows/desk.workflow.yaml",
        "agents": {"agents/sorter.agent.yaml": agent("sorter", json!({})), "agents/desk.agent.yaml": desk},
        "workflows": {
            "workflows/desk.workflow.yaml": workflow("desk", steps, "root"),
            "workflows/page.workflow.yaml": workflow("page", json!([]), "sub-workflow"),
        },
    });
    serde_json::from_value(plan).unwrap()
}

/// The page of a workflow, with a step selected.
fn shown(plan: &Plan, step: Option<&str>, closed: bool, all: &str) -> String {
    let page = WorkflowPage {
        by: SignedIn::unknown(),
        shown: ShownWorkflow {
            name: "desk",
            plan,
            description: Some("A <desk>.".to_owned()),
            groups: BTreeSet::new(),
            is_world: false,
            is_default: true,
            shows_header: true,
        },
        plan,
        workflow: &plan.workflows["workflows/desk.workflow.yaml"],
        path: "workflows/desk.workflow.yaml",
        lines: BTreeMap::from([("decide".to_owned(), 31)]),
        digest: "0123456789abcdef0123",
        linked: BTreeMap::from([("workflows/page.workflow.yaml".to_owned(), "page".to_owned())]),
        examples: Vec::new(),
        check: Some(ShownCheck {
            is_loaded: true,
            is_sound: true,
            ..ShownCheck::default()
        }),
        closed: closed.then(|| "this needs the role auditor".to_owned()),
        step: step.map(str::to_owned),
        all: all.to_owned(),
    };
    workflow_page(&page)
}

fn has(page: &str, parts: &[&str]) {
    for part in parts {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[test]
fn a_definition_is_drawn_as_boxes_that_say_what_each_step_is() {
    let plan = plan();
    let workflow = &plan.workflows[&plan.root];
    let drawing = draw_steps(&defined_steps(&plan, workflow), &GraphView::default());
    let words: Vec<String> = drawing
        .marks
        .iter()
        .filter_map(|mark| match mark {
            crate::graph::GraphMark::Node(node) => Some(format!("{} {}", node.class, node.words)),
            _ => None,
        })
        .collect();
    assert_eq!(
        words,
        [
            "model sort, agent sorter · fast, for each of params.tickets",
            "plan count, transform, 2 operations, after sort",
            "asks decide, agent desk · careful, if length(step.count.result) > `0`, may wait for approval of calls, data from people, after count",
            "plan page, workflow page, after decide",
            "sends send, POST desk.example, after count, decide",
        ]
    );
    let lines = drawing
        .marks
        .iter()
        .filter(|mark| matches!(mark, crate::graph::GraphMark::Line(line) if line.is_past));
    assert_eq!(lines.count(), 5, "each need is a whole line");
    let page = shown(&plan, None, false, "");
    has(
        &page,
        &[
            "A &lt;desk&gt;.",
            "href=\"../kit/desk?step=decide\"",
            "href=\"../runs?workflow=desk\"",
            "The steps as a list",
            "0123456789abcdef<",
        ],
    );
}

#[test]
fn the_panel_of_a_step_has_its_place_its_prompts_its_tools_and_their_approvals() {
    let plan = plan();
    has(
        &shown(&plan, Some("decide"), false, ""),
        &[
            "workflows/desk.workflow.yaml:31",
            "length(step.count.result) &gt; `0`",
            "You &lt;sort&gt;.",
            "Ticket {{ params.text }}",
            "model group careful",
            " at grants.example<",
            "needs 2 approvals, not by who started the run, within 1 h 0 min, else: reject; the agent continues after a rejection",
            "without approval",
            "href=\"../kit/page\"",
            "waits at most 1 min 0 s, by approver",
            "of the step",
        ],
    );
    has(
        &shown(&plan, Some("sort"), false, ""),
        &[
            "8 at once, at most 500 items, any number may fail",
            "{{ item.text }}",
        ],
    );
    has(
        &shown(&plan, Some("send"), false, ""),
        &[
            "https://desk.example/queues/a?key=k",
            "at most 3 attempts, from 1.0 s apart, after no answer in time",
        ],
    );
    has(
        &shown(&plan, Some("page"), false, ""),
        &["whose webhooks are not sent", "href=\"../kit/page\""],
    );
    has(
        &shown(&plan, Some("count"), false, ""),
        &["filter <code>urgent</code>", "step.sort.results"],
    );
    has(
        &shown(&plan, Some("absent<"), false, ""),
        &["The workflow has no step absent&lt;."],
    );
}

#[test]
fn a_model_group_is_the_one_that_the_policy_of_the_root_puts_in_its_place() {
    let mut plan = plan();
    let root = plan
        .workflows
        .get_mut("workflows/desk.workflow.yaml")
        .unwrap();
    let policy = json!({"group_map": {"careful": "cheap"}});
    std::sync::Arc::make_mut(root).policy = serde_json::from_value(policy).unwrap();
    has(
        &shown(&plan, Some("decide"), false, ""),
        &["model group cheap", "agent desk · cheap"],
    );
}

#[test]
fn prompts_and_inputs_are_lengths_to_those_who_may_not_read_frames() {
    let plan = plan();
    for (step, hidden) in [
        ("decide", "You &lt;sort&gt;."),
        ("sort", "item.text"),
        ("count", "step.sort.results"),
        ("send", "key=k"),
    ] {
        let page = shown(&plan, Some(step), true, "system");
        assert!(!page.contains(hidden), "{step}: {page}");
        has(&page, &[" bytes, not shown to you"]);
    }
    let page = shown(&plan, Some("send"), true, "");
    has(&page, &["this needs the role auditor", "POST desk.example"]);
}

#[test]
fn a_long_prompt_says_how_long_it_is_and_all_of_it_is_one_link_away() {
    let mut plan = plan();
    let file = plan.agents.get_mut("agents/desk.agent.yaml").unwrap();
    std::sync::Arc::make_mut(file).prompt.system = "long ".repeat(2_000);
    let page = shown(&plan, Some("decide"), false, "");
    has(
        &page,
        &[
            "Cut: the first 2000 characters of 9.8 KiB. ",
            "href=\"../kit/desk?step=decide&amp;all=system\"",
        ],
    );
    assert!(page.matches("long ").count() <= 400, "{page}");
    let all = shown(&plan, Some("decide"), false, "system");
    assert!(all.matches("long ").count() >= 2_000);
}

#[test]
fn of_many_steps_of_a_definition_some_are_summed_up() {
    let mut plan = plan();
    let steps = (0..2_000).map(|n| json!({"id": format!("s{n}"), "work": {"transform": {}}}));
    let steps: Vec<Value> = steps.collect();
    let root = plan
        .workflows
        .get_mut("workflows/desk.workflow.yaml")
        .unwrap();
    std::sync::Arc::make_mut(root).steps = serde_json::from_value(Value::Array(steps)).unwrap();
    let page = shown(&plan, Some("s1999"), false, "");
    assert!(page.matches("class=\"node ").count() <= 41, "{page}");
    has(
        &page,
        &[
            "1960 steps more",
            "aria-current=\"true\" aria-label=\"s1999, transform\"",
        ],
    );
}
