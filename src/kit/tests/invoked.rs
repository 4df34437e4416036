//! Workflows that the agent of a step may invoke: what a kit keeps of them, and what is wrong.

use std::fs;

use ktsu_ledger::event::plan::{StepWork, Webhooks};

use super::super::{load, tree};
use super::kit;
use ktsu_config::fault::FaultCode;

const JUDGE: &str = "name: judge
version: 1.0.0
model: fast
prompt: {system: s}
commands: {invoke: ['ver*']}
output: {schema: {type: object, additionalProperties: false, properties: {ok: {type: boolean}}}}
";
const MAIN: &str = "kind: workflow
name: main
version: 1.0.0
pipeline:
  - id: a
    agent: agents/judge.agent.yaml
    may_invoke:
      other: ./sub/verify.workflow.yaml
      verify: {workflow: ./sub/verify.workflow.yaml@1.0.0, max_items: 7, concurrency: 2}
  - id: b
    transform: {inputs: ['{{ step.a.ktsu_invoked[1].said }}']}
";
const VERIFY: &str = "kind: workflow
name: verify
version: 1.0.0
visibility: sub-workflow
params: {schema: {type: object, required: [claim], properties: {claim: {type: string}}}}
pipeline:
  - {id: v, transform: {inputs: ['{{ params.claim }}']}}
output: {map: {said: '{{ v.result }}'}}
";

fn files(main: &str, verify: &str) -> tempfile::TempDir {
    kit(&[
        ("workflows/main.workflow.yaml", main),
        ("workflows/sub/verify.workflow.yaml", verify),
        ("agents/judge.agent.yaml", JUDGE),
    ])
}

/// `file:line code` of each fault.
fn faults(main: &str, verify: &str) -> Vec<String> {
    let found = load(files(main, verify).path()).unwrap_err();
    let found = found.faults.iter();
    let told = found.map(|one| {
        let name = one.file.file_name().unwrap().to_str().unwrap();
        format!("{name}:{} {}", one.line, one.code.text())
    });
    told.collect()
}

#[test]
fn a_kit_keeps_what_the_agent_of_a_step_may_invoke() {
    let dir = files(MAIN, VERIFY);
    let kit = load(dir.path()).unwrap_or_else(|faults| panic!("{faults}"));
    let plan = &kit.workflows["main"].definition.plan;
    let root = kit.workflows["main"].definition.root().unwrap();
    let StepWork::Agent(agent) = &root.plan.steps[0].work else {
        panic!()
    };
    let told: Vec<_> = agent
        .may_invoke
        .iter()
        .map(|(name, one)| {
            assert_eq!(one.child.workflow, "workflows/sub/verify.workflow.yaml");
            assert_eq!(one.child.webhooks, Webhooks::Suppress);
            (name.as_str(), one.max_items, one.concurrency)
        })
        .collect();
    assert_eq!(told, [("other", 100, 4), ("verify", 7, 2)]);
    assert!(
        plan.workflows
            .contains_key("workflows/sub/verify.workflow.yaml")
    );
    let commands = plan.agents["agents/judge.agent.yaml"].commands.as_ref();
    let commands = commands.unwrap();
    assert!(commands.may_invoke("verify") && !commands.may_invoke("other"));
    let tools = &plan.agents["agents/judge.agent.yaml"].servers[0].tools;
    let tools: Vec<&str> = tools.iter().map(|tool| tool.pattern.as_str()).collect();
    assert_eq!(tools, ["invoke", "fanout"], "and no emit");
    assert_eq!(
        tree::branch(&kit, plan).text(termtree::GlyphPalette::new()),
        "workflows/main.workflow.yaml (workflow)\n└── agents/judge.agent.yaml (agent)\n    \
         ├── ktsu/commands@1.0.0 (server)\n    \
         ├── workflows/sub/verify.workflow.yaml (workflow)\n    \
         └── workflows/sub/verify.workflow.yaml (workflow)\n"
    );
}

#[test]
fn what_commands_ran_has_the_type_of_what_the_workflows_give() {
    let with = |path: &str| MAIN.replace("ktsu_invoked[1].said", path);
    for path in [
        "ktsu_invoked",
        "ktsu_invoked[0]",
        "ktsu_invoked[*].said",
        "ktsu_invoked[-1].said",
        "{n: ktsu_invoked[0].said, ok: ok}",
        "ok",
    ] {
        let dir = files(&with(path), VERIFY);
        assert_eq!(
            load(dir.path()).err().map(|faults| faults.to_string()),
            None
        );
    }
    for (path, code) in [
        ("ktsu_invoked[0].sad", "unknown-field"),
        ("ktsu_invoked[*].sad", "unknown-field"),
        ("ktsu_invoked[-1].sad", "unknown-field"),
        ("{n: ktsu_invoked[0].sad}", "unknown-field"),
        ("ktsu_invoke", "unknown-field"),
        ("ktsu_invoked.said", "type-mismatch"),
    ] {
        let told = format!("main.workflow.yaml:11 {code}");
        assert_eq!(faults(&with(path), VERIFY), [told], "{path}");
    }
    // Only a step that may invoke something has it.
    let without: String = MAIN
        .lines()
        .filter(|line| !line.contains("verify") && !line.contains("may_invoke"))
        .map(|line| format!("{line}\n"))
        .collect();
    assert_eq!(
        faults(&without, VERIFY),
        ["main.workflow.yaml:8 unknown-field"]
    );
}

#[test]
fn what_may_be_invoked_is_judged_like_the_child_of_a_workflow_step() {
    let absent = MAIN.replace("other: ./sub/verify", "other: ./sub/gone");
    assert_eq!(
        faults(&absent, VERIFY),
        ["main.workflow.yaml:8 child-not-found"]
    );
    let version = MAIN.replace("@1.0.0", "@2.0.0");
    assert_eq!(
        faults(&version, VERIFY),
        ["main.workflow.yaml:9 version-mismatch"]
    );
    let itself = MAIN.replace("other: ./sub/verify", "other: ./main");
    assert_eq!(
        faults(&itself, VERIFY),
        ["main.workflow.yaml:8 workflow-cycle"]
    );
    let many = MAIN.replace("max_items: 7", "max_items: 10001");
    assert_eq!(faults(&many, VERIFY), ["main.workflow.yaml:9 bad-value"]);
    let name = MAIN.replace("      other:", "      an.other:");
    assert_eq!(faults(&name, VERIFY), ["main.workflow.yaml:8 bad-id"]);
    let webhooks = MAIN.replace("max_items: 7", "webhooks: execute");
    let kit = load(files(&webhooks, VERIFY).path()).unwrap();
    let told: Vec<_> = kit.warnings.faults.iter().map(|one| one.code).collect();
    assert_eq!(told, [FaultCode::WebhooksNotAgreed]);
    let env = VERIFY.replace("params: {schema", "env: [{name: URL}]\nparams: {schema");
    let found = faults(MAIN, &env);
    assert!(
        found.iter().any(|one| one.contains("env")),
        "no child declares variables: {found:?}"
    );
}

#[test]
fn a_change_of_what_may_be_invoked_changes_the_lock() {
    let dir = files(MAIN, VERIFY);
    let digest = |dir: &tempfile::TempDir| {
        let kit = load(dir.path()).unwrap();
        kit.workflows["main"].definition.digest.to_string()
    };
    let before = digest(&dir);
    let verify = VERIFY.replace(
        "version: 1.0.0\nvisibility",
        "version: 1.0.0 # same\nvisibility",
    );
    fs::write(
        dir.path().join("workflows/sub/verify.workflow.yaml"),
        verify,
    )
    .unwrap();
    assert_eq!(digest(&dir), before, "a comment is nothing");
    let verify = VERIFY.replace("{said:", "{more: 1, said:");
    fs::write(
        dir.path().join("workflows/sub/verify.workflow.yaml"),
        verify,
    )
    .unwrap();
    assert_ne!(digest(&dir), before);
}
