//! Params of several worlds of a kit: a run of one of them takes those of all.

use ktsu_config::fault::Severity;
use ktsu_workflow::rules::DecisionRules;
use serde_json::{Value, json};

use super::*;

/// A world with params, as JSON.
fn world(name: &str, params: &str) -> String {
    format!("kind: world\nname: {name}\nversion: 1.0.0\nparams: {{schema: {params}}}\n")
}

fn both(a: &str, b: &str) -> Result<Kit, Faults> {
    let dir = kit(&[
        ("worlds/a.world.yaml", &world("a", a)),
        ("worlds/b.world.yaml", &world("b", b)),
    ]);
    load(dir.path())
}

#[test]
fn a_run_of_one_world_takes_and_needs_the_params_of_all() {
    let kit = both(
        "{type: object, required: [x], properties: {x: {type: string}, goal: {type: string, minLength: 1}}, \
         additionalProperties: false}",
        "{required: [y, x], properties: {y: {type: integer}, x: {type: string}}, additionalProperties: false}",
    );
    let kit = kit.unwrap_or_else(|faults| panic!("{faults}"));
    for name in ["a", "b"] {
        let root = kit.workflows[name].definition.root().unwrap();
        let schema = root.params.as_ref().unwrap();
        assert_eq!(Vec::from_iter(schema.properties()), ["goal", "x", "y"]);
        let takes = |given: Value| {
            ktsu_workflow::params::resolve(Some(schema), given, DecisionRules::NEWEST).is_ok()
        };
        assert!(takes(json!({"x": "a", "y": 1, "goal": "g"})));
        assert!(!takes(json!({"x": "a"})), "the other world needs y");
        assert!(!takes(json!({"y": 1})), "this world needs x");
        assert!(!takes(json!({"x": "a", "y": 1, "z": 1})), "both are closed");
        assert!(
            !takes(json!({"x": "a", "y": 1, "goal": ""})),
            "a goal that is declared stays so"
        );
    }
    let open = both(
        "{properties: {x: {}}, additionalProperties: false}",
        "{properties: {y: {}}}",
    );
    let open = open.unwrap_or_else(|faults| panic!("{faults}"));
    let root = open.workflows["a"].definition.root().unwrap();
    let schema = root.params.as_ref();
    let given = json!({"z": 1});
    assert!(ktsu_workflow::params::resolve(schema, given, DecisionRules::NEWEST).is_ok());
}

#[test]
fn params_that_cannot_be_put_together_are_refused_where_they_are() {
    let said = |a: &str, b: &str| {
        let faults = both(a, b).unwrap_err().faults;
        let errors = faults
            .iter()
            .filter(|fault| fault.severity == Severity::Error);
        let faults = errors.map(|fault| {
            let file = fault
                .file
                .file_name()
                .unwrap()
                .to_string_lossy()
                .into_owned();
            format!(
                "{file}:{} {}: {}",
                fault.line,
                fault.code.text(),
                fault.message
            )
        });
        faults.collect::<Vec<_>>()
    };
    assert_eq!(
        said(
            "{properties: {x: {type: string}}}",
            "{properties: {x: {type: integer}}}"
        ),
        ["b.world.yaml:4 duplicate-name: worlds/a.world.yaml declares the param \"x\" otherwise"]
    );
    assert_eq!(
        said(
            "{properties: {x: {}}}",
            "{anyOf: [{required: [x]}, {required: [y]}]}"
        ),
        [
            "b.world.yaml:4 bad-schema: params of several worlds are put together, which their anyOf does not allow"
        ]
    );
    assert_eq!(
        said(
            "{additionalProperties: {type: string}}",
            "{properties: {x: {}}}"
        ),
        [
            "a.world.yaml:4 bad-schema: params of several worlds are put together, which their \
          additionalProperties does not allow"
        ]
    );
}
