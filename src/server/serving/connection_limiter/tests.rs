use futures_util::FutureExt as _;

use super::*;

fn has_to_leave(seat: &ConnectionSlot) -> bool {
    seat.evicted().now_or_never().is_some()
}

#[tokio::test(start_paused = true)]
async fn who_does_not_read_leaves_first_and_the_longest_first() {
    let room = ConnectionLimiter::new(4, 100, 8);
    let [idle, first, second, busy] = [(); 4].map(|()| room.try_acquire().expect("a place"));
    assert!(room.try_acquire().is_none());
    busy.begin_request();
    for seat in [&first, &second] {
        seat.begin_request();
        seat.mark_stalled();
        tokio::time::advance(Duration::from_secs(2)).await;
    }
    room.evict_for(1);
    assert!(has_to_leave(&first));
    assert!(!has_to_leave(&second) && !has_to_leave(&idle) && !has_to_leave(&busy));
    // It was told, and has not gone yet: nobody else has to for the same newcomer.
    room.evict_for(1);
    assert!(!has_to_leave(&second));
    room.evict_for(3);
    assert!(has_to_leave(&second) && has_to_leave(&idle));
    assert!(!has_to_leave(&busy), "its request is under way");
    drop(first);
    assert!(room.try_acquire().is_some());
}

#[tokio::test(start_paused = true)]
async fn who_has_not_sent_its_body_leaves_after_who_does_not_read() {
    let room = ConnectionLimiter::new(5, 100, 8);
    let [unread, first, second, sent, idle] =
        [(); 5].map(|()| room.try_acquire().expect("a place"));
    for seat in [&first, &second, &sent] {
        seat.begin_request();
        seat.body_pending();
        tokio::time::advance(BODY_TIMEOUT / 5).await;
        // More of it came, and not all.
        seat.body_pending();
    }
    unread.begin_request();
    unread.mark_stalled();
    tokio::time::advance(BODY_TIMEOUT / 5).await;
    room.evict_for(5);
    let seats = [&unread, &first, &second, &sent, &idle];
    assert!(seats.iter().all(|seat| !has_to_leave(seat)), "too early");
    sent.body_complete();
    tokio::time::advance(BODY_TIMEOUT).await;
    for leaves in [&unread, &first, &second] {
        room.evict_for(1);
        assert!(has_to_leave(leaves));
        drop(room.state.lock().slots.remove(&leaves.id));
    }
    tokio::time::advance(IDLE_TIMEOUT).await;
    room.evict_for(2);
    assert!(!has_to_leave(&sent), "its request is under way");
    assert!(has_to_leave(&idle));
}

#[tokio::test(start_paused = true)]
async fn who_sends_ahead_leaves_before_who_asks_nothing() {
    let room = ConnectionLimiter::new(2, 100, 8);
    let (idle, ahead) = (
        room.try_acquire().expect("one"),
        room.try_acquire().expect("two"),
    );
    tokio::time::advance(IDLE_TIMEOUT).await;
    for _ in 0..=PIPELINING_THRESHOLD {
        ahead.begin_request();
        ahead.end_request();
    }
    ahead.begin_request();
    room.evict_for(1);
    assert!(has_to_leave(&ahead) && !has_to_leave(&idle));
}

#[tokio::test(start_paused = true)]
async fn who_reads_again_or_only_just_stopped_stays() {
    let room = ConnectionLimiter::new(2, 100, 8);
    let (reads, stops) = (
        room.try_acquire().expect("one"),
        room.try_acquire().expect("two"),
    );
    for seat in [&reads, &stops] {
        seat.begin_request();
    }
    reads.mark_stalled();
    tokio::time::advance(UNREAD_TIMEOUT * 2).await;
    reads.mark_reading();
    stops.mark_stalled();
    room.evict_for(2);
    assert!(!has_to_leave(&reads) && !has_to_leave(&stops));
}

#[tokio::test(start_paused = true)]
async fn large_answers_wait_up_to_a_bound_and_push_out_who_does_not_read() {
    let large = SMALL_RESPONSE_BYTES + 1;
    let room = ConnectionLimiter::new(4, 2 * large, 8);
    let [one, two, three] = [(); 3].map(|()| room.try_acquire().expect("a place"));
    assert!(one.try_reserve_space(large) && two.try_reserve_space(large));
    assert!(!three.try_reserve_space(large), "both may be reading");
    assert!(
        three.try_reserve_space(SMALL_RESPONSE_BYTES),
        "a small answer always goes"
    );
    assert!(!three.has_space(), "a stream waits");
    one.sent(large - 1);
    assert!(!three.has_space(), "the rest of an answer keeps all of it");
    one.sent(1);
    three.sent(SMALL_RESPONSE_BYTES);
    assert!(three.has_space());
    assert!(
        three.try_reserve_space(large),
        "what was sent waits no longer"
    );
    two.mark_stalled();
    tokio::time::advance(UNREAD_TIMEOUT).await;
    assert!(one.try_reserve_space(large));
    assert!(has_to_leave(&two) && !has_to_leave(&three));
    drop((one, two, three));
    assert_eq!(room.state.lock().unsent, 0);
}

#[tokio::test(start_paused = true)]
async fn an_answer_larger_than_the_bound_is_sent_once_nothing_else_waits() {
    let room = ConnectionLimiter::new(2, 100, 8);
    let (reads, asks) = (
        room.try_acquire().expect("one"),
        room.try_acquire().expect("two"),
    );
    assert!(reads.reserve_space(10 * SMALL_RESPONSE_BYTES).await);
    let late = asks.reserve_space(10 * SMALL_RESPONSE_BYTES);
    let read = async {
        sleep(SPACE_TIMEOUT / 2).await;
        reads.sent(10 * SMALL_RESPONSE_BYTES);
    };
    let (fits, ()) = tokio::join!(late, read);
    assert!(fits, "it waited for the other client to read");
    let asked = Instant::now();
    assert!(!reads.reserve_space(2 * SMALL_RESPONSE_BYTES).await);
    assert!(asked.elapsed() >= SPACE_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn a_few_answers_wait_for_room_and_the_next_is_refused_at_once() {
    let room = ConnectionLimiter::new(MAX_WAITING_RESPONSES + 2, 100, 8);
    let mut seats: Vec<_> = (0..MAX_WAITING_RESPONSES + 2)
        .filter_map(|_| room.try_acquire())
        .collect();
    let first = seats.pop().expect("a place");
    assert!(first.reserve_space(2 * SMALL_RESPONSE_BYTES).await);
    let last = seats.pop().expect("a place");
    let wait = seats
        .iter()
        .map(|seat| seat.reserve_space(2 * SMALL_RESPONSE_BYTES));
    let (refused, took) = tokio::join!(futures_util::future::join_all(wait), async {
        let asked = Instant::now();
        assert!(!last.reserve_space(2 * SMALL_RESPONSE_BYTES).await);
        asked.elapsed()
    });
    assert_eq!(
        (refused, took),
        (vec![false; MAX_WAITING_RESPONSES], Duration::ZERO)
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_a_request_sent_ahead_does_not_wait_for_space() {
    let room = ConnectionLimiter::new(2, 100, 8);
    let (first, ahead) = (
        room.try_acquire().expect("a place"),
        room.try_acquire().expect("a place"),
    );
    assert!(first.reserve_space(2 * SMALL_RESPONSE_BYTES).await);
    ahead.begin_request();
    ahead.end_request();
    assert!(ahead.begin_request().is_ahead);
    let asked = Instant::now();
    assert!(!ahead.reserve_space(2 * SMALL_RESPONSE_BYTES).await);
    assert_eq!(asked.elapsed(), Duration::ZERO);
}

#[tokio::test]
async fn requests_in_a_row_are_counted_only_if_they_came_without_a_pause() {
    let room = ConnectionLimiter::new(1, 100, 2);
    let seat = room.try_acquire().expect("a place");
    // Asks, reads the answer, asks again.
    for _ in 0..5 {
        seat.mark_paused();
        assert_eq!(seat.begin_request(), RequestPosition::default());
        seat.end_request();
    }
    // Four at once.
    seat.mark_paused();
    let mut last = Vec::new();
    for _ in 0..4 {
        last.push(seat.begin_request().is_last);
        seat.end_request();
    }
    assert_eq!(last, [false, false, true, true]);
}
