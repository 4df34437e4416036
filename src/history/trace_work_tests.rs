//! The work of tracing values of long chains, and its bound.

use serde_json::{Value, json};

use crate::provenance::{self, TraceError, TracedRun};
use crate::world_tests::WorldRun;

/// A chain of notes, each made of the one before, as long as a look-up finds fewer than `count`.
fn chain(count: u32, look_up: &Value, guard: &str) -> WorldRun {
    let note = json!({"make": {"object": {"type": "Note",
        "data": {"n": "{{ sum([object.data.n, `1`]) }}"}}}});
    let start = json!({"make": {"object": {"type": "Note", "data": {"n": 1}}}});
    let step = json!({"name": "counts", "on": ["object.created"], "type": ["Note"],
        "with": [{"name": "all", "find": look_up}],
        "when": format!("{guard} < `{count}`"), "work": {"emit": [note]}});
    let world = json!({
        "name": "w", "version": "1.0.0",
        "budget": {"max_events": 100_000, "max_llm_cost_micro_usd": 1_000_000,
            "max_recursion_depth": 100_000, "max_wall_ms": 100_000},
        "goal": [start], "objects": {"Note": {}}, "responders": [step],
    });
    WorldRun::of(world, json!({}))
}

fn last(count: u32) -> String {
    format!("Note[{}].n", count - 1)
}

#[test]
fn the_work_of_a_trace_grows_with_a_chain_whose_guards_count_all_of_it() {
    let look_up = json!({"count": {"type": "Note"}});
    let work = [1000, 2000, 4000].map(|count| {
        let run = chain(count, &look_up, "all");
        let story = TracedRun::of(&run.frames).unwrap();
        let answer = provenance::answer(&story, "", &last(count)).unwrap();
        assert_eq!((answer.value, answer.chain.len()), (json!(count), 1000));
        // Every guard on the way counted objects, the first thousand of which are named.
        assert!(answer.deciders.len() >= 999, "{}", answer.deciders.len());
        (story.work(), story.kept())
    });
    for pair in work.windows(2) {
        let ((work, kept), (more, more_kept)) = (pair[0], pair[1]);
        assert!(more * 10 <= work * 24, "{more} after {work}");
        assert!(more_kept * 10 <= kept * 24, "{more_kept} after {kept}");
    }
    let (work, _) = work[2];
    assert!(work < 100_000, "{work}");
}

#[test]
fn an_answer_that_takes_more_work_than_the_bound_allows_is_refused_the_same_way_every_time() {
    // Every guard looks at each object that there is: as much as the run did, and more than is shown.
    let look_up = json!({"objects": {"type": "Note"}});
    let run = chain(120, &look_up, "length(all[?data.n > `0`])");
    let free = TracedRun::of(&run.frames).unwrap();
    assert!(provenance::answer(&free, "", &last(120)).is_ok());
    let needed = free.work();
    let ask = |bound: u64| {
        let story = TracedRun::of(&run.frames).unwrap().limited_to(bound);
        let refused = matches!(
            provenance::answer(&story, "", &last(120)),
            Err(TraceError::TooLarge)
        );
        (refused, story.work())
    };
    assert_eq!(ask(needed), (false, needed));
    assert!(ask(needed - 1).0);
    let (refused, done) = ask(needed / 4);
    assert!(refused && done < needed / 3, "{done} of {needed}");
    assert_eq!(ask(needed / 4), (refused, done));
}
