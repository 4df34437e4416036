use super::*;

/// More links than the little stack has bytes for, at any number of bytes a link.
const MANY: u64 = 300_000;

/// A set of several places, so that it is shared rather than put together with others.
fn several(frame: u64) -> Provenance {
    let place = |at| FramePointer::new(frame, format!("/{at}"));
    (0..8).map(place).collect()
}

/// What follows a chain on the stack ends the process here.
fn on_little_stack(work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(256 * 1024);
    thread.spawn(work).unwrap().join().unwrap();
}

#[test]
fn a_long_chain_of_sets_is_read_and_dropped_without_recursion() {
    on_little_stack(|| {
        let mut marks = Provenance::default();
        for frame in 0..MANY {
            marks = marks.and(&Provenance::at(FramePointer::new(frame, "/status")));
        }
        assert!(marks.covers(&FramePointer::new(0, "/status/below")));
        assert!(marks.iter().map(|place| place.frame).eq(0..MANY));
        drop(marks);
    });
}

#[test]
fn a_long_chain_of_shared_sets_is_shown_without_recursion() {
    on_little_stack(|| {
        let shared = [several(1), several(2)];
        let mut marks = Provenance::default();
        for own in shared.iter().cycle().take(MANY as usize) {
            marks = marks.and(own);
        }
        let flat: BTreeSet<&FramePointer> = marks.iter().collect();
        assert_eq!(flat.len(), 16);
        assert_eq!(format!("{marks:?}"), format!("{flat:?}"));
        let value = Tracked::missing(marks);
        assert!(format!("{value:?}").contains("/7"));
        drop(value);
    });
}

#[test]
fn what_two_sets_share_is_visited_once() {
    on_little_stack(|| {
        let mut marks = several(0);
        // As many ways through it as no computer counts.
        for level in 0..1000 {
            let sides = [1, 2].map(|side| marks.and(&several(2 * level + side)));
            marks = union(&sides);
        }
        let mut visits = 0;
        marks.each(&mut |_| visits += 1);
        assert!(visits <= 5 * 1000 + 1, "{visits}");
        assert_eq!(marks.iter().count(), 8 * 2001);
        assert!(!marks.covers(&FramePointer::new(9999, "/0")));
    });
}

#[test]
fn steps_that_each_add_places_keep_as_many_as_there_are() {
    let steps = 10_000;
    let mut gates = vec![Provenance::default()];
    for step in 0..steps {
        let before = &gates[step];
        let risk = several(step as u64);
        gates.push(union([before, &risk, before]));
    }
    let last = gates.last().unwrap();
    assert_eq!(last.iter().count(), 8 * steps);
    assert!(
        retained_size(&gates) < 15 * steps,
        "{}",
        retained_size(&gates)
    );
}

#[test]
fn a_union_holds_each_place_once_and_in_order() {
    let place = |frame| FramePointer::new(frame, "/a");
    let some: Provenance = (0..10).map(place).collect();
    let more: Provenance = (5..20).map(place).collect();
    let both = some.and(&more).and(&some).and(&Provenance::at(place(3)));
    let told: Vec<u64> = both.iter().map(|place| place.frame).collect();
    assert_eq!(told, (0..20).collect::<Vec<_>>());
    assert!(Provenance::default().and(&Provenance::default()).is_empty());
    assert!(union(&[]).is_empty());
}

#[test]
fn a_place_that_is_there_already_adds_nothing() {
    let some = several(1);
    let again = some
        .and(&Provenance::at(FramePointer::new(1, "/3")))
        .and(&some);
    assert_eq!(retained_size([&some, &again]), retained_size([&some]));
}
