use super::*;

const NOW: u64 = 100;

fn candidate(standing: Standing, free: u32) -> Candidate {
    Candidate {
        standing,
        free,
        tried: false,
    }
}

fn tried(candidate: Candidate) -> Candidate {
    Candidate {
        tried: true,
        ..candidate
    }
}

/// The index that an offer goes to.
fn offered(fleet: &Fleet, instances: &Instances, tried: &[bool]) -> Option<usize> {
    match fleet.place(instances, tried, NOW) {
        TaskPlacement::Offer(index, _) => Some(index),
        TaskPlacement::Full(_) | TaskPlacement::Exhausted => None,
    }
}

#[test]
fn the_runtime_with_the_most_free_places_among_those_alive_gets_the_task() {
    use Standing::{Alive, Failing, Unknown};
    for (given, then) in [
        (vec![candidate(Alive, 1), candidate(Alive, 2)], 1),
        (vec![candidate(Alive, 2), candidate(Alive, 2)], 0),
        (vec![candidate(Unknown, 9), candidate(Alive, 1)], 1),
        (vec![candidate(Alive, 0), candidate(Unknown, 1)], 1),
        (vec![candidate(Failing, 9), candidate(Unknown, 1)], 1),
        (vec![tried(candidate(Alive, 5)), candidate(Alive, 1)], 1),
        (vec![tried(candidate(Unknown, 5)), candidate(Failing, 0)], 1),
    ] {
        assert_eq!(choose(&given), RuntimeChoice::Take(then), "{given:?}");
    }
}

#[test]
fn a_task_waits_for_a_place_only_if_one_that_is_alive_is_full() {
    use Standing::{Alive, Failing, Unknown};
    let full = vec![candidate(Alive, 0), candidate(Failing, 9)];
    assert_eq!(choose(&full), RuntimeChoice::Full);
    let all_tried = vec![tried(candidate(Failing, 9)), tried(candidate(Unknown, 1))];
    assert_eq!(choose(&all_tried), RuntimeChoice::Exhausted);
    let silent = vec![tried(candidate(Failing, 0)), tried(candidate(Unknown, 0))];
    assert_eq!(choose(&silent), RuntimeChoice::Exhausted);
    let silent = vec![tried(candidate(Failing, 0)), tried(candidate(Unknown, 0))];
    assert_eq!(choose(&silent), RuntimeChoice::Exhausted);
    assert_eq!(choose(&[]), RuntimeChoice::Exhausted);
}

#[test]
fn tasks_of_an_instance_and_dispatches_under_way_take_its_places() {
    let mut instances = Instances::default();
    let mut fleet = Fleet::of([false, false]);
    for (index, (id, places)) in [("one", 3), ("two", 2)].into_iter().enumerate() {
        instances.heard(id, Some(places), NOW);
        fleet.is_instance(index, id);
    }
    assert_eq!(
        offered(&fleet, &instances, &[]),
        Some(0),
        "three against two"
    );
    let first = fleet.place(&instances, &[], NOW);
    let task = instances.heard("one", None, NOW);
    assert_eq!(offered(&fleet, &instances, &[]), Some(1), "one against two");
    let second = fleet.place(&instances, &[], NOW);
    let third = fleet.place(&instances, &[], NOW);
    let fourth = fleet.place(&instances, &[], NOW);
    assert!(matches!(
        fleet.place(&instances, &[], NOW),
        TaskPlacement::Full(_)
    ));
    drop(task);
    assert_eq!(
        offered(&fleet, &instances, &[]),
        Some(0),
        "a task has ended"
    );
    drop((first, second, third, fourth));
}

#[test]
fn of_runtimes_that_nothing_is_known_of_the_one_with_fewest_dispatches_is_first() {
    let (instances, fleet) = (Instances::default(), Fleet::of([false, false]));
    let first = fleet.place(&instances, &[], NOW);
    assert!(matches!(first, TaskPlacement::Offer(0, _)));
    assert_eq!(offered(&fleet, &instances, &[]), Some(1));
}

#[test]
fn a_runtime_in_this_process_has_a_place_for_every_task() {
    let mut instances = Instances::default();
    let mut fleet = Fleet::of([true]);
    let _task = instances.heard("here", Some(1), NOW);
    fleet.is_instance(0, "here");
    assert_eq!(offered(&fleet, &instances, &[]), Some(0));
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_says_that_it_is_full_is_offered_nothing_for_a_while() {
    let instances = Instances::default();
    let mut fleet = Fleet::of([false]);
    fleet.unavailable(0, Unavailability::Busy);
    let TaskPlacement::Full(look) = fleet.place(&instances, &[true], NOW) else {
        panic!("a task waits for a place");
    };
    assert_eq!(look, MIN_BUSY);
    tokio::time::advance(look).await;
    assert_eq!(offered(&fleet, &instances, &[]), Some(0));
    fleet.unavailable(0, Unavailability::Busy);
    let again = fleet.place(&instances, &[true], NOW);
    assert!(matches!(again, TaskPlacement::Full(look) if look == MIN_BUSY * 2));
}

#[test]
fn a_runtime_that_failed_is_the_last_until_it_is_heard_of() {
    let mut instances = Instances::default();
    let mut fleet = Fleet::of([false, false]);
    instances.heard("one", Some(9), NOW);
    fleet.is_instance(0, "one");
    fleet.unavailable(0, Unavailability::Failing);
    assert_eq!(offered(&fleet, &instances, &[]), Some(1));
    assert!(fleet.beats("one"));
    assert_eq!(offered(&fleet, &instances, &[]), Some(0));
    instances.heard("one", None, NOW - MAX_SILENT_TICKS - 1);
    assert_eq!(offered(&fleet, &instances, &[]), Some(1), "it is silent");
}

#[test]
fn an_instance_replaces_earlier_ones_of_its_own_url_only() {
    let mut fleet = Fleet::of([false, false]);
    fleet.is_instance(0, "one");
    fleet.is_instance(1, "beside");
    fleet.is_instance(0, "two");
    assert!(fleet.has_replaced("two", "one"));
    assert!(!fleet.has_replaced("two", "beside"));
    assert!(!fleet.has_replaced("beside", "one"));
    assert!(!fleet.has_replaced("stranger", "one"));
    assert!(fleet.are_beside_each_other("two", "beside"));
    assert!(!fleet.are_beside_each_other("two", "one"));
}

#[test]
fn the_only_runtime_replaces_every_other_instance() {
    let mut fleet = Fleet::of([false]);
    fleet.is_instance(0, "two");
    assert!(fleet.has_replaced("two", "never heard of by its url"));
}

#[test]
fn each_runtime_is_asked_once_who_it_is_and_a_single_one_never() {
    let mut fleet = Fleet::of([false, false]);
    fleet.is_instance(0, "one");
    assert_eq!(fleet.take_unasked(), [1]);
    assert_eq!(fleet.take_unasked(), [0_usize; 0]);
    assert_eq!(Fleet::of([false]).take_unasked(), [0_usize; 0]);
}
