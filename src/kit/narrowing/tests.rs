use ktsu_ledger::event::plan::{AgentFile, StepWork};

use crate::Kit;
use crate::load;
use crate::tests::kit;

const JUDGE: &str = "name: judge
version: 1.0.0
model: fast
prompt: {system: s}
commands: {emit: ['claim.*', other], review: {quorum: 1, roles: [approver, operator], timeout: 3h}, suspend: true}
output: {schema: {type: object}}
";
const PLAIN: &str = "name: plain
version: 1.0.0
model: fast
prompt: {system: s}
output: {schema: {type: object}}
";

/// A kit whose step `a` says this of the commands, and whose step `b` says nothing.
fn of(agent: &str, commands: &str) -> Result<Kit, Vec<String>> {
    let flow = format!(
        "kind: workflow\nname: main\nversion: 1.0.0\npipeline:\n- id: a\n  \
         agent: agents/{agent}.agent.yaml\n  commands: {commands}\n\
         - {{id: b, agent: agents/{agent}.agent.yaml}}\n"
    );
    let dir = kit(&[
        ("workflows/main.workflow.yaml", &flow),
        ("agents/judge.agent.yaml", JUDGE),
        ("agents/plain.agent.yaml", PLAIN),
    ]);
    load(dir.path()).map_err(|faults| {
        let faults = faults.faults.iter();
        let place = |line: usize, words: &str| format!("{line} {words}");
        faults.map(|one| place(one.line, &one.message)).collect()
    })
}

/// The agents of the two steps.
fn agents(commands: &str) -> (AgentFile, AgentFile) {
    let kit = of("judge", commands).unwrap_or_else(|faults| panic!("{faults:?}"));
    let definition = &kit.workflows["main"].definition;
    let steps = &definition.root().unwrap().plan.steps;
    let file = |position: usize| match &steps[position].work {
        StepWork::Agent(agent) => AgentFile::clone(&definition.plan.agents[&agent.file]),
        _ => panic!(),
    };
    (file(0), file(1))
}

fn tools(agent: &AgentFile) -> Vec<&str> {
    let tools = agent.servers.iter().flat_map(|server| &server.tools);
    tools.map(|rule| rule.pattern.as_str()).collect()
}

#[test]
fn a_step_leaves_some_of_the_commands_of_its_agent_and_another_step_all() {
    let (narrow, whole) = agents("{emit: [claim.seen], review: false, suspend: false}");
    let commands = narrow.commands.as_ref().unwrap();
    assert_eq!(commands.emit, ["claim.seen"]);
    assert_eq!((&commands.review, &commands.suspend), (&None, &None));
    assert_eq!(tools(&narrow), ["emit"]);
    assert_eq!(tools(&whole), ["emit", "review", "suspend"]);
    assert_eq!(whole.commands.as_ref().unwrap().emit, ["claim.*", "other"]);
    assert_eq!(narrow.name, whole.name);
    let (none, _) = agents("{emit: [], review: false, suspend: false}");
    assert_eq!(tools(&none), [""; 0]);
    assert!(none.servers.is_empty());
    let (same, _) = agents("{review: true}");
    assert_eq!(tools(&same), ["emit", "review", "suspend"]);
}

#[test]
fn a_policy_of_a_step_is_met_beside_that_of_its_agent() {
    let (narrow, _) =
        agents("{review: {quorum: 2, roles: [operator], timeout: 5h, not_by_proposer: true}}");
    let policy = narrow.commands.unwrap().review.unwrap();
    assert_eq!((policy.quorum, policy.not_by_proposer), (2, true));
    assert_eq!(policy.roles, ["operator"]);
    assert_eq!(policy.timeout.ms, 3 * 3_600_000, "the shorter time counts");
    let (narrow, whole) = agents("{review: {timeout_behavior: reject}}");
    let of = |agent: AgentFile| agent.commands.unwrap().review.unwrap();
    let (narrow, whole) = (of(narrow), of(whole));
    assert_eq!(narrow.timeout.ms, whole.timeout.ms);
    assert_ne!(narrow.timeout.behavior, whole.timeout.behavior);
    assert_eq!(narrow.roles, whole.roles);
}

#[test]
fn what_the_agent_does_not_declare_no_step_allows() {
    for (agent, commands, words) in [
        (
            "judge",
            "{emit: [news]}",
            "does not declare that it emits \"news\"",
        ),
        (
            "judge",
            "{emit: ['*']}",
            "does not declare that it emits \"*\"",
        ),
        (
            "judge",
            "{review: {roles: [admin]}}",
            "are not decided by the role admin",
        ),
        (
            "plain",
            "{review: {quorum: 2}}",
            "does not declare that it asks for reviews",
        ),
        (
            "plain",
            "{suspend: true}",
            "does not declare that it suspends its step",
        ),
        ("judge", "{invoke: [x]}", "invoke"),
        ("judge", "{emit: ['a b']}", "topic"),
        (
            "judge",
            "{suspend: false}\n  resume: {timeout: 1h}",
            "this step cannot be suspended",
        ),
    ] {
        let found = of(agent, commands).unwrap_err();
        let [one] = found.as_slice() else {
            panic!("{commands}: {found:?}");
        };
        assert!(one.contains(words), "{commands}: {one}");
        assert!(one.starts_with("7 ") || one.starts_with("8 "), "{one}");
    }
}
