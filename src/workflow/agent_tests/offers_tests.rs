//! Warnings of envelopes about entries of allowlists that match no tool which a model was offered.

use serde_json::{Value, json};

use crate::driven_tests::{Driven, Say, output};
use crate::plans_tests::{agent, plan, run_of, workflow};

fn acting() -> Driven {
    run_of(json!([agent("a", json!([]), "acts", json!({}))]), json!({}))
}

/// The entries of which the envelope warns, as `server entry`.
fn warned(run: &Driven) -> Vec<String> {
    let envelope = run.envelope();
    let warnings = envelope["warnings"].as_array().cloned().unwrap_or_default();
    let entry = |one: &Value| {
        assert_eq!(
            (&one["code"], &one["step"]),
            (&json!("tool_not_offered"), &json!("a"))
        );
        let message = one["message"].as_str().unwrap();
        let mut quoted = message.split('"');
        let entry = quoted.nth(1).unwrap();
        let server = quoted.next().unwrap().trim_start_matches(" of the server ");
        format!("{} {entry}", server.split(' ').next().unwrap())
    };
    warnings.iter().map(entry).collect()
}

#[test]
fn an_allowlist_entry_that_matches_no_offered_tool_is_a_warning() {
    let offer = |tools: &[(&'static str, &'static str)]| {
        let mut run = acting();
        run.says("a", &[Say::Offer(tools.to_vec())]);
        run
    };
    let all = [
        ("s", "read-a"),
        ("s", "delete-a"),
        ("s", "ask-a"),
        ("s", "late-a"),
        ("s", "soft-a"),
        ("s", "two-a"),
        ("w", "write"),
        ("t", "read-a"),
        ("t", "delete-b"),
    ];
    let mut whole = offer(&all);
    assert_eq!(warned(&whole), [""; 0]);
    whole.says("a", &[Say::Reply { cost: 3 }, output(json!({"v": 1}))]);
    assert_eq!(warned(&whole), [""; 0]);
    whole.shows_what_its_frames_show();
    // Exact names, of the server that lists them.
    let mut some = offer(
        &[
            &all[1..6],
            &[("w", "read-a"), ("w", "writer"), ("t", "read-")],
        ]
        .concat(),
    );
    let missing = ["s read-*", "w write", "t delete-*"];
    assert_eq!(warned(&some), missing);
    some.says("a", &[Say::Reply { cost: 3 }, output(json!({"v": 1}))]);
    assert_eq!(warned(&some), missing);
    some.shows_what_its_frames_show();
    // No tool at all.
    let mut none = acting();
    none.does("a", json!({"v": 1}));
    assert_eq!(warned(&none).len(), 9);
    none.holds_together();
}

#[test]
fn a_request_of_the_last_turn_says_nothing_about_allowlists() {
    let mut plan = plan(json!({"main":
        workflow("main", json!([agent("a", json!([]), "acts", json!({}))]))}));
    plan["agents"]["acts"]["max_turns"] = json!(1);
    let mut run = Driven::invoke(plan, json!({}));
    run.asks("a");
    assert_eq!(warned(&run), [""; 0]);
}
