//! Values that would take too much to check against their schema are refused unchecked, and what
//! ships is never refused.

use ktsu_workflow::airlock::TOO_EXPENSIVE;
use ktsu_workflow::definition::Definition;
use ktsu_workflow::params;
use ktsu_workflow::rules::DecisionRules;
use serde_json::{Value, json};

use crate::golden::goldens;
use crate::rules::decided;
use crate::support::{KitDir, Lab};

/// A recursion that comes to itself under `a` by two ways, and takes text at its end.
const DOUBLING: &str = "{type: object, required: [x], properties: {x: {$ref: '#/$defs/n'}}, \
    $defs: {n: {anyOf: [{type: object, required: [a], properties: {a: {$ref: '#/$defs/n'}}}, \
    {type: object, required: [a], properties: {a: {$ref: '#/$defs/n'}}}, {type: string}]}}}";

fn nested(depth: usize) -> Value {
    (0..depth).fold(json!(1), |inner, _| json!({ "a": inner }))
}

#[tokio::test]
async fn params_that_double_with_each_level_are_refused_at_once() {
    let workflow =
        format!("params: {{schema: {DOUBLING}}}\npipeline: [{{id: t, transform: {{ops: []}}}}]\n");
    let kit = KitDir::new(&[("w", &workflow)]);
    let lab = Lab::new(&kit, &[]).await;
    // What is checked at all ends soon; these would take hours and all memory.
    for depth in [20, 40, 60] {
        let body = json!({"x": nested(depth)}).to_string();
        let answer = lab.client.post("/invoke/w", body).await;
        let told = answer.json();
        assert_eq!(
            (answer.status, &told["code"]),
            (422, &json!(TOO_EXPENSIVE)),
            "{told}"
        );
        let message = told["message"].as_str().unwrap();
        assert!(message.contains("ktsu validate"), "{message}");
    }
    let few = json!({"x": nested(3)}).to_string();
    let answer = lab.client.post("/invoke/w", few).await;
    assert_eq!(answer.json()["code"], "invalid_params");
    let fits = json!({"x": {"a": {"a": "text"}}}).to_string();
    assert_eq!(lab.client.post("/invoke/w", fits).await.status, 202);
    assert_eq!(
        lab.client.get("/runs").await.json()["runs"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test]
async fn an_output_that_takes_too_much_fails_its_step_and_earlier_rules_check_it() {
    let workflow = format!(
        "params: {{schema: {{type: object}}}}\npipeline:\n  - id: t\n    transform: {{inputs: \
         [{{from: params.list}}], ops: [{{map: {{expr: '@'}}}}]}}\n    output: {{schema: {{type: \
         array, items: {DOUBLING}}}}}\n"
    )
    .replace("#/$defs", "#/items/$defs");
    let kit = KitDir::new(&[("w", &workflow)]);
    let body = json!({"list": [{"x": nested(12)}]});
    let (envelope, _) = decided(&kit, "w", body.clone(), 6).await;
    assert_eq!(envelope["error"]["code"], TOO_EXPENSIVE, "{envelope:#}");
    let (envelope, _) = decided(&kit, "w", body, 5).await;
    assert_eq!(
        envelope["error"]["code"], "schema_violation",
        "{envelope:#}"
    );
}

#[test]
fn no_schema_of_a_recorded_run_needs_its_values_counted() {
    let mut checked = 0;
    for (name, golden) in goldens() {
        let frames = golden.frames();
        for created in frames.iter().filter_map(|frame| frame.event.created()) {
            let plan = serde_json::from_str(created.definition.as_str()).unwrap();
            let definition = Definition::compile(plan).unwrap();
            assert!(!definition.checks_may_grow(), "{name}");
            let root = definition.root().unwrap().params.as_ref();
            let params = created.params.to_value();
            let resolved = params::resolve(root, params, DecisionRules::NEWEST);
            let found = resolved.err().unwrap_or_default();
            assert!(found.iter().all(|one| one.rule != TOO_EXPENSIVE), "{name}");
            checked += usize::from(root.is_some());
        }
    }
    assert!(checked > 20, "{checked}");
}
