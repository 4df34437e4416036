use super::*;
use crate::expression::from_value;
use crate::expression::provenance::FramePointer;

fn run(ops: Vec<Op>, input: Value) -> Result<Value, TransformError> {
    let plan = TransformPlan {
        inputs: vec![],
        ops,
    };
    let transform = CompiledTransform::compile(&plan).unwrap();
    let plain = transform.run(&[from_value(&input)], &());
    let place = FramePointer::new(0, "");
    let tracked = Tracked::recorded(place, from_value(&input));
    let tracked = transform.apply(&[tracked], &(), &mut Tracker::default());
    let tracked = tracked.map(|value| json!({ "result": value.to_value() }));
    assert_eq!(tracked, plain);
    plain.map(|mut output| output["result"].take())
}

fn sort(descending: bool) -> Op {
    Op::Sort {
        descending,
        field: "@".into(),
    }
}

#[test]
fn sorting_orders_every_type_and_keeps_null_last_both_ways() {
    // S8
    let mixed = json!([null, {"a": 1}, "b", [1], 2, true, "a", 1, false, null]);
    assert_eq!(
        run(vec![sort(false)], mixed.clone()).unwrap(),
        json!([false, true, 1, 2, "a", "b", [1], {"a": 1}, null, null])
    );
    assert_eq!(
        run(vec![sort(true)], mixed).unwrap(),
        json!([{"a": 1}, [1], "b", "a", 2, 1, true, false, null, null])
    );
}

#[test]
fn descending_keeps_ties_in_place() {
    let op = Op::Sort {
        descending: true,
        field: "k".into(),
    };
    let rows = json!([{"k": 1, "n": 0}, {"k": 2, "n": 1}, {"k": 1, "n": 2}]);
    assert_eq!(
        run(vec![op], rows).unwrap(),
        json!([{"k": 2, "n": 1}, {"k": 1, "n": 0}, {"k": 1, "n": 2}])
    );
}

#[test]
fn an_error_names_the_operation_and_its_position() {
    let error = run(vec![Op::Flatten, sort(false)], json!({})).unwrap_err();
    assert_eq!(
        (error.message.as_str(), error.op),
        ("sort: needs an array, got object", Some(1))
    );
    let expr = "length(@)".into();
    let error = run(vec![Op::Map { expr }], json!([1])).unwrap_err();
    assert_eq!(error.code, "expression_type");
}

#[test]
fn several_inputs_merge_one_level_and_a_later_scalar_replaces() {
    let plan = TransformPlan {
        inputs: vec![],
        ops: vec![],
    };
    let transform = CompiledTransform::compile(&plan).unwrap();
    let start = |inputs: &[Value]| {
        let inputs: Vec<_> = inputs.iter().map(from_value).collect();
        transform.run(&inputs, &()).unwrap()["result"].take()
    };
    assert_eq!(start(&[]), json!(null));
    assert_eq!(
        start(&[json!({"a": {"x": 1}, "b": 1}), json!({"a": {"y": 2}})]),
        json!({"a": {"y": 2}, "b": 1})
    );
    assert_eq!(start(&[json!({"a": 1}), json!(5)]), json!(5));
}

#[test]
fn large_integers_survive_and_keys_are_distinguished() {
    let n = 9_007_199_254_740_993_i64;
    let dedupe = Op::Deduplicate { field: "@".into() };
    let input = json!([n, n - 1, n, 1, "1", null, null]);
    assert_eq!(
        run(vec![dedupe, sort(true)], input).unwrap(),
        json!(["1", n, n - 1, 1, null])
    );
}

#[test]
fn work_over_many_elements_is_bounded() {
    let grow = Op::Map {
        expr: "[@,@,@,@,@,@,@,@,@,@]".into(),
    };
    let error = run(vec![grow; 9], json!([[1]])).unwrap_err();
    assert!(
        ["result_size", "expression_cost"].contains(&error.code),
        "{error:?}"
    );
    let nest = Op::Map { expr: "[@]".into() };
    assert_eq!(
        run(vec![nest; 70], json!([1])).unwrap_err().code,
        "result_depth"
    );
}
