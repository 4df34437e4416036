//! What a schema allows is no fault, however the schema allows it.

use std::collections::BTreeMap;

use super::kit;
use crate::{CheckWith, check};

/// The codes of what is told of a kit.
fn codes(files: &[(&str, &str)]) -> Vec<String> {
    let dir = kit(files);
    let judged = check(dir.path(), CheckWith::Nothing, &BTreeMap::new(), false);
    let faults = judged.faults.faults.iter();
    let codes = faults.map(|fault| format!("{} {}", fault.code.text(), fault.message));
    codes
        .filter(|told| !told.starts_with("gateway") && !told.starts_with("optional-without"))
        .collect()
}

fn agent(params: &str, user: &str, output: &str) -> String {
    format!(
        "name: a\nversion: 1.0.0\nmodel: m\nparams: {{schema: {params}}}\n\
         prompt: {{system: s, user: {user:?}}}\noutput: {{schema: {output}}}\n"
    )
}

const CALL: &str = "kind: workflow
name: w
version: 1.0.0
pipeline:
  - id: s
    agent: agents/a.agent.yaml
    confidence_threshold: 0.7
    params: {ticket: x, tone: y}
";

#[test]
fn params_of_an_agent_may_be_declared_by_a_part_of_its_schema() {
    let two = "{ticket: {type: string}, tone: {type: string}}";
    let output = "{type: object, properties: {ktsu_confidence: {type: number}}}";
    let user = "{{ params.ticket }} {{ params.tone }}";
    for params in [
        format!("{{type: object, allOf: [{{properties: {two}}}]}}"),
        format!("{{$ref: \"#/$defs/p\", $defs: {{p: {{type: object, properties: {two}}}}}}}"),
        format!("{{type: object, properties: {{ticket: {{}}}}, oneOf: [{{properties: {two}}}]}}"),
        "{type: object, properties: {ticket: {}}, additionalProperties: {type: string}}".to_owned(),
    ] {
        let agent = agent(&params, user, output);
        let told = codes(&[
            ("workflows/w.workflow.yaml", CALL),
            ("agents/a.agent.yaml", &agent),
        ]);
        let told: Vec<_> = told.iter().filter(|one| one.contains("param")).collect();
        assert!(told.is_empty(), "{params}: {told:?}");
    }
    let left_open = agent("{type: object, properties: {ticket: {}}}", user, output);
    let told = codes(&[
        ("workflows/w.workflow.yaml", CALL),
        ("agents/a.agent.yaml", &left_open),
    ]);
    let undeclared = told
        .iter()
        .filter(|one| one.starts_with("undeclared-param"));
    assert_eq!(undeclared.count(), 2, "{told:?}");
}

#[test]
fn confidence_may_be_declared_by_a_part_of_the_schema() {
    let params = "{type: object, properties: {ticket: {}, tone: {}}}";
    let confidence = "{properties: {ktsu_confidence: {type: number}}}";
    for (output, told) in [
        (format!("{{type: object, allOf: [{confidence}]}}"), 0),
        (
            format!("{{type: object, $ref: \"#/$defs/c\", $defs: {{c: {confidence}}}}}"),
            0,
        ),
        (
            format!("{{type: object, properties: {{a: {confidence}}}}}"),
            1,
        ),
    ] {
        let agent = agent(params, "{{ params.ticket }}", &output);
        let codes = codes(&[
            ("workflows/w.workflow.yaml", CALL),
            ("agents/a.agent.yaml", &agent),
        ]);
        let found = codes.iter().filter(|one| one.starts_with("threshold-"));
        assert_eq!(found.count(), told, "{output}: {codes:?}");
    }
}

#[test]
fn what_is_beside_a_reference_closes_nothing_before_the_draft_of_2019() {
    let params = |draft: &str| {
        format!(
            "{{$schema: \"{draft}\", $ref: \"#/definitions/p\", additionalProperties: false, \
             definitions: {{p: {{type: object, properties: {{ticket: {{}}, tone: {{}}}}}}}}}}"
        )
    };
    for (draft, unknown) in [
        ("http://json-schema.org/draft-07/schema#", 0),
        ("https://json-schema.org/draft/2020-12/schema", 2),
    ] {
        let agent = agent(&params(draft), "hi", "{type: object}");
        let told = codes(&[
            ("workflows/w.workflow.yaml", CALL),
            ("agents/a.agent.yaml", &agent),
        ]);
        let found = told.iter().filter(|one| one.starts_with("unknown-param"));
        assert_eq!(found.count(), unknown, "{told:?}");
    }
}

#[test]
fn a_null_fits_where_both_sides_have_it() {
    let parent = "kind: workflow
name: w
version: 1.0.0
params: {schema: {type: object, properties: {s: {type: [string, 'null'], default: null}}}}
pipeline:
  - {id: c, workflow: ./c.workflow.yaml, params: {n: '{{ params.s }}'}}
";
    let child = |kinds: &str| {
        format!(
            "kind: workflow\nname: c\nversion: 1.0.0\nvisibility: sub-workflow\n\
             params: {{schema: {{type: object, properties: {{n: {{type: {kinds}, default: 3}}}}}}}}\n\
             pipeline: []\n"
        )
    };
    for (kinds, found) in [("[integer, 'null']", 0), ("integer", 1)] {
        let child = child(kinds);
        let told = codes(&[
            ("workflows/w.workflow.yaml", parent),
            ("workflows/c.workflow.yaml", &child),
        ]);
        let mismatched = told.iter().filter(|one| one.starts_with("type-mismatch"));
        assert_eq!(mismatched.count(), found, "{kinds}: {told:?}");
    }
}
