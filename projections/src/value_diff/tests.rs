use proptest::prelude::*;
use serde_json::{Value, json};

use super::{ValueDifference, apply, diff};

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3i64..3).prop_map(Value::from),
        "[a-c/~0-1]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-c/~0-1]{0,2}", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ktsu_campaign::config(256))]

    #[test]
    fn the_changes_lead_from_one_value_to_the_other_and_back(a in values(), b in values()) {
        let changes = diff(&a, &b);
        prop_assert_eq!(apply(&a, &changes), b.clone());
        prop_assert_eq!(changes.is_empty(), a == b);
        let back: Vec<ValueDifference> = changes.into_iter().map(ValueDifference::inverse).collect();
        prop_assert_eq!(&back, &diff(&b, &a));
        prop_assert_eq!(apply(&b, &back), a);
    }

    #[test]
    fn a_change_is_read_as_it_was_written(a in values(), b in values()) {
        let changes = diff(&a, &b);
        let text = serde_json::to_string(&changes).unwrap();
        prop_assert_eq!(serde_json::from_str::<Vec<ValueDifference>>(&text).unwrap(), changes);
    }
}

#[test]
fn every_leaf_that_differs_is_named_by_its_place_in_order() {
    let before = json!({"b": [1, 2, 3], "a": {"x/y": null}, "same": {"deep": 1}});
    let after = json!({"b": [1, "2"], "a": {"x/y": false}, "same": {"deep": 1}, "z": null});
    let changes = diff(&before, &after);
    let told: Vec<_> = changes
        .iter()
        .map(|one| (one.path.as_str(), one.before.clone(), one.after.clone()))
        .collect();
    assert_eq!(
        told,
        [
            ("/a/x~1y", Some(Value::Null), Some(json!(false))),
            ("/b/1", Some(json!(2)), Some(json!("2"))),
            ("/b/2", Some(json!(3)), None),
            ("/z", None, Some(Value::Null)),
        ]
    );
}

#[test]
fn a_change_whose_place_is_not_there_changes_nothing() {
    let base = json!({"list": [1]});
    for path in ["/no/where", "/list/7", "/list/x", "x"] {
        let change = ValueDifference {
            path: path.to_owned(),
            before: None,
            after: path.contains('/').then(|| json!(2)),
        };
        assert_eq!(apply(&base, &[change]), base, "{path}");
    }
}
