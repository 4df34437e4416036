//! What a story keeps of a long run.

use serde_json::{Value, json};

use super::Story;
use crate::workflow::driven_tests::Driven;
use crate::workflow::expression::marks::{Marks, kept};
use crate::workflow::plans_tests::{plan, webhook, workflow};

/// Webhooks, one after another, of which one fails, or none does.
fn webhooks(count: usize, failing: Option<usize>) -> Driven {
    let step = |at: usize| {
        let needs: Vec<usize> = at.checked_sub(1).into_iter().collect();
        webhook(&format!("w{at}"), json!(needs), "http://x/")
    };
    let steps: Value = (0..count).map(step).collect();
    let plan = plan(json!({"main": workflow("main", steps)}));
    let mut run = Driven::invoke(plan, json!({"n": 7}));
    for at in 0..count.min(failing.map_or(count, |at| at + 1)) {
        let status = if failing == Some(at) { 400 } else { 204 };
        run.answer("", &format!("w{at}"), 1, status);
    }
    assert!(run.state.status().is_terminal());
    run
}

/// The places that a story keeps, with the sets they are in.
fn size(run: &Driven, count: usize) -> usize {
    let story = Story::of(&run.frames).unwrap();
    let mut sets: Vec<Marks> = Vec::new();
    for at in 0..count {
        let track = story.step(0, u32::try_from(at).unwrap()).unwrap();
        sets.extend([track.gate.clone(), track.risk.clone()]);
        let value = track.value.iter();
        sets.extend(value.flat_map(|value| [value.source(), value.chosen().clone()]));
    }
    kept(&sets)
}

#[test]
fn what_a_story_keeps_grows_with_its_run_and_not_with_the_square_of_it() {
    for fails in [false, true] {
        // Where one fails, half of the steps are there before it, and half are skipped because of it.
        let sizes = [100, 400].map(|count| {
            let run = webhooks(count, fails.then_some(count / 2));
            size(&run, count)
        });
        let [few, many] = sizes;
        assert!(many <= 5 * few, "{fails}: {few}, {many}");
    }
}
