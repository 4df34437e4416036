//! Random worlds whose replies come in random order: their runs end, follow from their inputs, and
//! are the same wherever their logs are cut or forked.

use ktsu_ledger::event::Effects;
use ktsu_projections::RunState;
use ktsu_projections::world::World;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::driven_tests::history_tests::refolded;
use crate::driven_tests::{Driven, Say, output};
use crate::plans_tests::{plan, transform, workflow};

/// What a random responder does with an object.
#[derive(Debug, Clone)]
enum Work {
    /// Makes an object of this type, and relates it.
    Make(usize),
    /// Makes one object of this type for each value of a field.
    MakeOnce(usize),
    /// Patches what it reacts to.
    Patch,
    /// Asks a model, and makes an object of the reply.
    Ask(usize),
    /// Runs a workflow, and makes an object of the result.
    Run(usize),
}

#[derive(Debug, Clone)]
struct Rule {
    on: usize,
    items: usize,
    concurrency: Option<u32>,
    guarded: bool,
    /// Milliseconds that it waits; 0: it does not.
    after: u64,
    work: Work,
}

const TYPES: [&str; 4] = ["A", "B", "C", "D"];

/// Responders react to one type and make objects of later ones, so that worlds are finite; or of any,
/// so that only their budget ends them.
fn rules(endless: bool) -> impl Strategy<Value = Vec<Rule>> {
    let rule = (
        0..TYPES.len() - 1,
        1..4usize,
        0..3u32,
        any::<bool>(),
        0..5usize,
        0..4usize,
        prop_oneof![3 => Just(0), 1 => 1..20u64],
    );
    let rule = rule.prop_map(move |(on, items, concurrency, guarded, work, to, after)| {
        let to = match endless {
            true => to,
            false => (on + 1 + to).min(TYPES.len() - 1),
        };
        let work = match work {
            0 => Work::Make(to),
            1 => Work::MakeOnce(to),
            2 => Work::Patch,
            3 => Work::Ask(to),
            _ => Work::Run(to),
        };
        Rule {
            on,
            items,
            concurrency: (concurrency > 0).then_some(concurrency),
            guarded,
            after,
            work,
        }
    });
    prop::collection::vec(rule, 1..5)
}

fn responder(at: usize, rule: &Rule) -> Value {
    let object = |to: usize, text: &str| {
        json!({"as": "made", "make": {"object": {"type": TYPES[to],
            "data": {"text": text, "of": "{{ object.id }}"}}}})
    };
    let relation = json!({"make": {"relation":
        {"type": "from", "from": "{{ made.id }}", "to": "{{ object.id }}"}}});
    let mut responder = json!({"name": format!("r{at}"), "on": ["object.created"],
        "type": [TYPES[rule.on]]});
    let items: Vec<String> = (0..rule.items).map(|item| format!("i{item}")).collect();
    responder["for_each"] = json!({"items": items});
    if let Some(most) = rule.concurrency {
        responder["concurrency"] = json!(most);
    }
    if rule.after > 0 {
        responder["after_ms"] = json!(rule.after);
    }
    if rule.guarded {
        let same = json!({"count": {"type": TYPES[rule.on],
            "where": {"text": {"equals": "{{ object.data.text }}"}}}});
        responder["with"] = json!([{"find": same, "name": "same"}]);
        responder["when"] = json!("same < `3`");
    }
    let (work, then) = match rule.work {
        Work::Make(to) => (
            json!({"emit": [object(to, "{{ item }}"), relation]}),
            json!([]),
        ),
        Work::MakeOnce(to) => {
            let mut once = object(to, "once");
            once["key"] = json!("{{ object.data.text }}");
            (json!({"emit": [once, relation]}), json!([]))
        }
        Work::Patch => {
            let patch =
                json!({"make": {"patch": {"id": "{{ object.id }}", "data": {"seen": true}}}});
            (json!({"emit": [patch]}), json!([]))
        }
        Work::Ask(to) => {
            let messages = json!([{"role": "user", "content": "{{ object.id }}"}]);
            let ask = json!({"group": "std", "max_tokens": 10, "messages": messages});
            (
                json!({"ask": ask}),
                json!([object(to, "{{ reply.text }}"), relation]),
            )
        }
        Work::Run(to) => {
            let run = json!({"workflow": "part", "webhooks": "suppress",
                "params": {"x": ["{{ object.id }}"]}});
            (
                json!({"run": run}),
                json!([object(to, "{{ result.x }}"), relation]),
            )
        }
    };
    responder["work"] = work;
    responder["then"] = then;
    responder
}

fn begun(rules: &[Rule], most: u64) -> Driven {
    let responders = rules.iter().enumerate();
    let responders: Vec<Value> = responders.map(|(at, rule)| responder(at, rule)).collect();
    let types = TYPES.map(|name| (name.to_owned(), json!({})));
    let world = json!({
        "name": "w", "version": "1.0.0",
        "budget": {"max_events": most, "max_llm_cost_micro_usd": 1_000_000,
            "max_recursion_depth": 50, "max_wall_ms": 100_000},
        "goal": [{"make": {"object": {"type": "A", "data": {"text": "{{ goal }}"}}}}],
        "objects": serde_json::Map::from_iter(types),
        "relations": {"from": {}},
        "responders": responders,
    });
    let mut part = workflow("part", json!([transform("t", json!([]), "params.x")]));
    part["visibility"] = json!("sub-workflow");
    part["output"] = json!({"map": {"x": "{{ step.t.result[0] }}"}});
    let mut plan = plan(json!({"main": workflow("main", json!([])), "part": part}));
    plan["worlds"] = json!({"worlds/w.world.yaml": world});
    Driven::invoke(plan, json!({"goal": "tides", "x": [1]}))
}

/// Answers what is asked, in an order that chance decides, and lets time pass in between and where
/// nothing is asked, until the run ends.
fn answered(run: &mut Driven, order: &[u8]) {
    for which in order.iter().cycle() {
        if which % 4 == 3 {
            run.waits_for_responder();
        }
        let open: Vec<String> = run
            .state
            .open_asks()
            .filter_map(|(at, _)| run.state.step_id(at).map(str::to_owned))
            .collect();
        let Some(address) = open.get(usize::from(*which) % open.len().max(1)) else {
            if run.waits_for_responder() {
                continue;
            }
            return;
        };
        let said = json!(format!("{address}!"));
        match run.task(address).open_call {
            // It was asked for before the run was cut.
            Some(_) => run.says(address, &[Say::Reply { cost: 10 }, output(said)]),
            None => run.does(address, said),
        }
    }
}

fn head(state: &RunState) -> Option<&World> {
    Some(state.responding()?.head())
}

/// Rules whose worlds do not depend on the order of replies: objects are only made, without guards.
fn creations() -> impl Strategy<Value = Vec<Rule>> {
    rules(false).prop_map(|mut rules| {
        rules.retain(|rule| !matches!(rule.work, Work::MakeOnce(_)));
        for rule in &mut rules {
            (rule.guarded, rule.items) = (false, rule.items.min(2));
        }
        rules.truncate(3);
        rules
    })
}

/// Rules that may set each other off for ever. They ask nothing: a question that is asked again
/// after a crash counts against the budget again.
fn endless() -> impl Strategy<Value = Vec<Rule>> {
    rules(true).prop_map(|mut rules| {
        rules.retain(|rule| !matches!(rule.work, Work::Ask(_)));
        rules
    })
}

proptest! {
    #![proptest_config(ktsu_campaign::config(12))]

    #[test]
    fn a_world_that_only_its_budget_ends_is_the_same_wherever_its_log_is_cut(
        rules in endless(),
        most in 4..40u64,
    ) {
        let mut run = begun(&rules, most);
        while run.waits_for_responder() {}
        run.holds_together_every(7);
    }

    #[test]
    fn a_world_that_asks_and_runs_is_the_same_wherever_its_log_is_cut(
        rules in creations(),
        order in prop::collection::vec(any::<u8>(), 1..8),
    ) {
        let mut run = begun(&rules, 100_000);
        answered(&mut run, &order);
        run.holds_together_every(1 + run.frames.len() / 12);
    }

    #[test]
    fn the_order_of_replies_changes_nothing_where_objects_are_only_made(
        rules in creations(),
        one in prop::collection::vec(any::<u8>(), 1..8),
        other in prop::collection::vec(any::<u8>(), 1..8),
    ) {
        let [one, other] = [one, other].map(|order| {
            let mut run = begun(&rules, 100_000);
            answered(&mut run, &order);
            run.is_whole();
            head(&run.state).map(World::hash)
        });
        prop_assert_eq!(one, other);
    }

    #[test]
    fn a_world_at_any_frame_is_the_snapshot_that_was_taken_there(
        rules in endless(),
        most in 4..40u64,
    ) {
        let run = begun(&rules, most);
        let mut state = RunState::fold(&run.frames[..1]).unwrap();
        let mut snapshots = vec![(head(&state).cloned(), head(&state).map(World::hash))];
        for frame in &run.frames[1..] {
            state.apply(frame).unwrap();
            snapshots.push((head(&state).cloned(), head(&state).map(World::hash)));
        }
        for (at, (snapshot, hash)) in (1usize..).zip(snapshots).step_by(5) {
            let folded = RunState::fold(&run.frames[..at]).unwrap();
            prop_assert_eq!(head(&folded).map(World::hash), hash.clone(), "{}", at);
            prop_assert_eq!(snapshot.map(|world| world.hash()), hash, "{}", at);
        }
    }

    #[test]
    fn a_branch_has_the_world_of_its_prefix_and_comes_to_the_world_of_its_run(
        rules in creations(),
        at in any::<prop::sample::Index>(),
    ) {
        let mut run = begun(&rules, 100_000);
        answered(&mut run, &[0]);
        run.is_whole();
        // At its end there is nothing to go on with.
        let at = 1 + at.index(run.frames.len() - 1);
        let (shared, _) = refolded(&run.frames[..at]);
        let before = head(&shared).map(World::hash);
        let mut branch = run.branch(at, Effects::Suppress);
        let hashes = |run: &Driven| Vec::from_iter(run.frames[..at].iter().map(|one| one.hash));
        prop_assert_eq!(hashes(&branch), hashes(&run));
        answered(&mut branch, &[0]);
        branch.is_whole();
        prop_assert_eq!(head(&shared).map(World::hash), before);
        prop_assert_eq!(head(&branch.state).map(World::hash), head(&run.state).map(World::hash));
    }
}
