//! Questions that wait for others, since together they may exceed what the world may cost.

use ktsu_ledger::event::Purpose;
use ktsu_projections::run::{GroupPrice, GroupPrices};

use super::budget_tests::{answers, asking_within, open};
use super::*;
use crate::admit::budget::RaisedBudget;
use crate::admit::report::{ReportAdmission, report};
use crate::driven_tests::Say;

/// Two questions within a limit that a file names, or within the usual one.
fn asking(cost: u64, names_limit: bool) -> Driven {
    let limits = json!({"max_llm_cost_micro_usd": cost, "limits_cost": names_limit});
    asking_within(limits, json!({}))
}

/// What comes of the request of a question at these prices; it is recorded if it may be.
fn asks_at(run: &mut Driven, address: &str, prices: &GroupPrices) -> ReportAdmission {
    let attempt = run.task(address).attempt;
    let events = run.events(address, attempt, 1, &[Say::Ask(Purpose::Turn)]);
    let admitted = report(&run.state, "", events, prices);
    if let ReportAdmission::Accepted(drafts) = &admitted {
        run.inputs(drafts.clone());
    }
    admitted
}

fn at(output: u64) -> GroupPrices {
    GroupPrices::from([("std".to_owned(), GroupPrice { input: 0, output })])
}

fn is_held(admitted: &ReportAdmission) -> bool {
    matches!(admitted, ReportAdmission::Deferred(_))
}

fn is_made(admitted: &ReportAdmission) -> bool {
    matches!(admitted, ReportAdmission::Accepted(_))
}

#[test]
fn a_question_waits_for_the_first_one_and_is_refused_once_that_used_the_limit_up() {
    let mut run = asking(250, true);
    let [first, second] = &open(&run)[..] else {
        panic!("{:?}", run.kinds());
    };
    let unknown = GroupPrices::new();
    assert!(is_made(&asks_at(&mut run, first, &unknown)));
    let frames = run.frames.len();
    assert!(is_held(&asks_at(&mut run, second, &unknown)));
    assert_eq!(run.frames.len(), frames, "nothing is recorded of it");
    let reply = crate::driven_tests::output(json!("the moon"));
    run.says(first, &[Say::Reply { cost: 250 }, reply]);
    assert!(run.state.failing().is_none(), "an exact fit");
    assert!(is_made(&asks_at(&mut run, second, &unknown)));
    let kinds = run.kinds();
    assert_eq!(
        kinds
            .iter()
            .filter(|kind| kind.starts_with("llm.request"))
            .count(),
        1
    );
    let refused = format!("budget.exhausted {second}");
    assert!(kinds.contains(&refused), "{kinds:?}");
    assert_eq!(
        run.last("budget.exhausted")["reasons"],
        json!(["max_llm_cost_usd=0.00025"])
    );
    assert_eq!(kinds.last().unwrap(), "run.failed");
    run.is_whole();
    let enough = RaisedBudget {
        max_llm_cost_micro_usd: Some(251),
        ..RaisedBudget::default()
    };
    run.raises(enough).unwrap();
    answers(&mut run, second, 1);
    assert_eq!(run.kinds().last().unwrap(), "run.completed");
    run.is_whole();
}

#[test]
fn prices_tell_how_many_questions_the_limit_leaves_room_for() {
    // A reply has at most 100 tokens.
    for (per_million, together) in [(0, true), (1_000_000, true), (2_500_000, false)] {
        let mut run = asking(250, true);
        let addresses = open(&run);
        assert!(is_made(&asks_at(&mut run, &addresses[0], &at(per_million))));
        let second = asks_at(&mut run, &addresses[1], &at(per_million));
        assert_eq!(is_made(&second), together, "{per_million}");
        assert_eq!(is_held(&second), !together, "{per_million}");
    }
}

#[test]
fn the_usual_limit_reserves_nothing_for_calls_whose_price_is_not_known() {
    let mut run = asking(250, false);
    let addresses = open(&run);
    let unknown = GroupPrices::new();
    for address in &addresses {
        assert!(is_made(&asks_at(&mut run, address, &unknown)));
    }
    let mut run = asking(250, false);
    assert!(is_made(&asks_at(&mut run, &addresses[0], &at(2_500_000))));
    assert!(is_held(&asks_at(&mut run, &addresses[1], &at(2_500_000))));
}

#[test]
fn only_models_with_a_price_are_asked_where_a_file_limits_the_cost() {
    assert!(asking(250, true).state.limits_world_cost());
    assert!(!asking(250, false).state.limits_world_cost());
}
