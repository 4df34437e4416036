use serde_json::json;

use super::*;
use crate::driven_tests::Driven;
use crate::plans_tests::{fan_out, plan, transform, workflow};

fn run(steps: serde_json::Value, params: serde_json::Value) -> Driven {
    Driven::invoke(plan(json!({"main": workflow("main", steps)})), params)
}

fn key(driven: &Driven, id: &str) -> StepKey {
    let shape = &driven.state.scope(0).unwrap().shape;
    StepKey::of(0, shape.position(id).unwrap())
}

#[test]
fn a_summary_is_made_of_what_the_run_has_by_then() {
    let mut first = transform("first", json!([]), "params.list");
    first["summary"] =
        json!("of {{ params.name }}:\n\t{{ step.first.result[0] }}{{ step.first.none }}");
    let mut plain = transform("plain", json!([]), "params.list");
    plain["summary"] = json!("{{ params.none }}");
    let bare = transform("bare", json!([]), "params.list");
    let driven = run(
        json!([first, plain, bare]),
        json!({"name": "Ada", "list": [[7]]}),
    );
    let wanted = ["first", "plain", "bare"].map(|id| (key(&driven, id), None));
    let summaries = step_summaries(&driven.state, &wanted);
    assert_eq!(summaries, [Some("of Ada: 7".to_owned()), None, None]);
}

#[test]
fn items_have_summaries_of_their_own_where_the_author_names_the_item() {
    let mut each = fan_out("each", json!([]), json!({"from": "params.list"}));
    each["summary"] = json!("{{ item_index }}: {{ item.id }}");
    let mut other = fan_out("other", json!([]), json!({"from": "params.list"}));
    other["summary"] = json!("all of {{ params.name }}");
    let params = json!({"name": "Ada", "list": [{"id": "a"}, {"id": "b"}]});
    let driven = run(json!([each, other]), params);
    let (each, other) = (key(&driven, "each"), key(&driven, "other"));
    let wanted = [
        (each, None),
        (each, Some(1)),
        (each, Some(9)),
        (other, None),
        (other, Some(0)),
    ];
    assert_eq!(
        step_summaries(&driven.state, &wanted),
        [
            None,
            Some("1: b".to_owned()),
            Some("9:".to_owned()),
            Some("all of Ada".to_owned()),
            None
        ]
    );
}

#[test]
fn a_summary_is_one_line_of_a_bounded_length() {
    assert_eq!(in_a_line(" a\n b\u{2003}c\t"), "a b c");
    let long = in_a_line(&"é".repeat(1_000));
    assert_eq!(long, format!("{}…", "é".repeat(MAX_SUMMARY)));
    let words = in_a_line(&"word ".repeat(1_000));
    assert_eq!(words.chars().count(), MAX_SUMMARY + 1);
    assert!(words.ends_with('…'), "{words}");
}

#[test]
fn all_summaries_of_a_page_together_take_a_bounded_time() {
    let mut step = transform("a", json!([]), "params.list");
    step["summary"] = json!("{{ params.list[0][?@ == `1`] | length(@) }}");
    let list: Vec<u32> = (0..50_000).collect();
    let driven = run(json!([step]), json!({"list": [list]}));
    let wanted = vec![(key(&driven, "a"), None); 2_000];
    let summaries = step_summaries(&driven.state, &wanted);
    assert!((1..2_000).contains(&summaries.len()), "{}", summaries.len());
    assert!(summaries.iter().all(Option::is_some));
}
