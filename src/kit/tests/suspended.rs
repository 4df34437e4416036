//! The data that a step waits for, and the expressions that use them.

use super::super::load;
use super::kit;

const CLERK: &str = "name: clerk
version: 1.0.0
model: fast
params: {schema: {type: object, additionalProperties: false, properties: {text: {type: [string, 'null'], default: null}}}}
prompt: {system: s}
commands: {suspend: true}
output: {schema: {type: object}}
";

/// What is wrong with a step whose param is `text` and that says this of its data.
fn wrong(text: &str, resume: &str) -> Vec<String> {
    let flow = format!(
        "kind: workflow\nname: main\nversion: 1.0.0\npipeline:\n- id: a\n  \
         agent: agents/clerk.agent.yaml\n  params: {{text: '{{{{ {text} }}}}'}}\n  resume: {resume}\n"
    );
    let dir = kit(&[
        ("workflows/main.workflow.yaml", &flow),
        ("agents/clerk.agent.yaml", CLERK),
    ]);
    match load(dir.path()) {
        Ok(kit) => kit.warnings.faults,
        Err(faults) => faults.faults,
    }
    .iter()
    .map(|fault| format!("{}:{} {}", fault.line, fault.column, fault.message))
    .collect()
}

#[test]
fn what_a_step_uses_of_its_data_is_held_against_their_schema() {
    let closed = "{schema: {type: object, additionalProperties: false, \
                  properties: {text: {type: string}}}}";
    let none: [&str; 0] = [];
    assert_eq!(wrong("resume.data.text", closed), none);
    assert_eq!(wrong("resume.checkpoint.any.thing", closed), none);
    let typo = wrong("resume.data.txt", closed);
    assert_eq!(typo.len(), 1, "{typo:?}");
    assert!(typo[0].starts_with("7:"), "{typo:?}");
    assert!(typo[0].contains("txt"), "{typo:?}");
    for open in ["{timeout: 1h}", "{schema: {type: object}}"] {
        assert_eq!(wrong("resume.data.anything", open), none, "{open}");
    }
}
