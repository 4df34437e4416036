//! The text on the world in an envelope: how much is in it, and what did not stop the run.

use serde_json::Value;

use super::super::output::{DIM, WARN, line, painted, words};
use super::super::text;

/// Prints what did not stop the run, and somebody should know.
pub(super) fn warnings(envelope: &Value) {
    let all = envelope["warnings"].as_array().map(Vec::as_slice);
    for one in all.unwrap_or_default() {
        let text = |name: &str| one[name].as_str().unwrap_or_default();
        let place = match text("responder") {
            "" if !text("step").is_empty() => format!(" of step {}", text::line(text("step"))),
            "" => String::new(),
            responder => format!(" of responder {}", text::line(responder)),
        };
        let said = format!("{}: {}", text("code"), text("message"));
        let said = text::line(&said);
        words(&format!("{}{place}: {said}", painted(WARN, "warning")), 2);
    }
}

/// Prints how many objects and relations of which types there are, and their hash; of a run without
/// a world, nothing.
pub(super) fn summary(envelope: &Value) {
    let world = &envelope["world"];
    if world.is_null() {
        return;
    }
    line("");
    words(&format!("objects    {}", counted(&world["objects"])), 11);
    words(&format!("relations  {}", counted(&world["relations"])), 11);
    if let Some(hash) = world["world_hash"].as_str() {
        let hash = text::line(hash).into_owned();
        words(&format!("world      {}", painted(DIM, &hash)), 11);
    }
    for wait in world["waits"].as_array().into_iter().flatten() {
        let named = |name: &str| wait[name].as_str().map(text::line).unwrap_or_default();
        let (responder, until) = (named("responder"), named("until"));
        words(&format!("waits      {responder} until {until}"), 11);
    }
}

/// `3 Finding, 1 Goal`; the types in the order of their names.
fn counted(by_type: &Value) -> String {
    let types = by_type.as_object().into_iter().flatten();
    let counts = types.map(|(kind, count)| format!("{count} {}", text::line(kind)));
    match counts.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => "none".to_owned(),
        counts => counts,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn types_are_counted_and_cannot_steer_the_terminal() {
        assert_eq!(counted(&json!({})), "none");
        assert_eq!(
            counted(&json!({"Claim": 12, "Company": 1})),
            "12 Claim, 1 Company"
        );
        let hostile = counted(&json!({"\u{1b}[2J\n": 1}));
        assert!(!hostile.contains(text::is_control), "{hostile:?}");
    }
}
