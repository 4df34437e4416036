use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::*;

fn door(per_minute: Option<u32>, concurrent: Option<u32>) -> Arc<RateLimiter> {
    Arc::new(RateLimiter::new(RateLimit {
        per_minute,
        concurrent,
    }))
}

fn in_seconds(seconds: u64) -> Instant {
    Instant::now() + Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn no_minute_sees_more_calls_begin_than_the_limit() {
    let door = door(Some(3), None);
    let start = Instant::now();
    let mut begun = Vec::new();
    for _ in 0..8 {
        door.acquire(in_seconds(600)).await.unwrap();
        begun.push(start.elapsed().as_secs());
    }
    assert_eq!(begun, [0, 0, 0, 60, 60, 60, 120, 120]);
    // A pause counts: the window slides.
    tokio::time::advance(Duration::from_secs(30)).await;
    door.acquire(in_seconds(1)).await.unwrap();
    assert_eq!(
        door.acquire(in_seconds(29)).await.unwrap_err(),
        Rejected::TooLate
    );
    door.acquire(in_seconds(31)).await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 180);
}

#[tokio::test(start_paused = true)]
async fn who_would_wait_too_long_is_refused_at_once() {
    let door = door(Some(1), None);
    let start = Instant::now();
    door.acquire(in_seconds(1)).await.unwrap();
    assert_eq!(
        door.acquire(in_seconds(59)).await.unwrap_err(),
        Rejected::TooLate
    );
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_hopeless_call_is_reported_at_once_wherever_it_is() {
    // With places it does not matter whether those ahead wait for one or for their turn.
    for concurrent in [None, Some(1), Some(2)] {
        let door = door(Some(2), concurrent);
        let start = Instant::now();
        let _one = door.acquire(in_seconds(1)).await.unwrap();
        tokio::time::advance(Duration::from_secs(10)).await;
        // A second may begin now if it has a place, and the others wait.
        let mut context = Context::from_waker(Waker::noop());
        let mut line: Vec<_> = (0..5)
            .map(|_| Box::pin(door.acquire(in_seconds(600))))
            .collect();
        let mut begun = 0;
        for waiting in &mut line {
            begun += usize::from(waiting.as_mut().poll(&mut context).is_ready());
        }
        assert_eq!(begun, usize::from(concurrent != Some(1)), "{concurrent:?}");
        // Turns that are taken or spoken for: 0 s, 10 s, 60 s, 70 s, 120 s, 130 s. The next is at 180 s.
        assert_eq!(
            door.acquire(start + Duration::from_secs(179))
                .await
                .unwrap_err(),
            Rejected::TooLate
        );
        assert_eq!(start.elapsed().as_secs(), 10, "it did not wait");
        let mut patient = Box::pin(door.acquire(start + Duration::from_secs(180)));
        assert!(patient.as_mut().poll(&mut context).is_pending());
        // Whoever leaves makes room.
        drop(line.pop());
        let mut next = Box::pin(door.acquire(start + Duration::from_secs(180)));
        assert!(next.as_mut().poll(&mut context).is_pending());
    }
}

#[tokio::test(start_paused = true)]
async fn who_goes_now_or_never_takes_no_turn_of_those_who_wait() {
    let door = door(Some(2), None);
    assert!(door.try_acquire().is_some());
    tokio::time::advance(Duration::from_secs(10)).await;
    assert!(door.try_acquire().is_some());
    assert!(door.try_acquire().is_none());
    let mut context = Context::from_waker(Waker::noop());
    let mut waiting = Box::pin(door.acquire(in_seconds(600)));
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    tokio::time::advance(Duration::from_secs(51)).await;
    assert!(door.try_acquire().is_none(), "this turn is spoken for");
    tokio::time::advance(Duration::from_secs(10)).await;
    assert!(door.try_acquire().is_some(), "there are two turns now");
    assert!(door.try_acquire().is_none());
    waiting.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_goes_now_or_never_has_a_place_or_goes_without_a_trace() {
    let door = door(Some(1), Some(2));
    let one = door.try_acquire().unwrap();
    assert!(door.try_acquire().is_none());
    assert_eq!(door.places.as_ref().unwrap().available_permits(), 1);
    drop(one);
    assert_eq!(door.places.as_ref().unwrap().available_permits(), 2);
}

#[tokio::test(start_paused = true)]
async fn who_stops_waiting_takes_nobodys_turn() {
    let door = door(Some(1), Some(5));
    door.acquire(in_seconds(1)).await.unwrap();
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..10 {
        let mut gone = Box::pin(door.acquire(in_seconds(600)));
        assert!(gone.as_mut().poll(&mut context).is_pending());
    }
    let start = Instant::now();
    door.acquire(in_seconds(61)).await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 60);
    assert_eq!(door.seats.available_permits(), MAX_WAITING);
}

#[tokio::test(start_paused = true)]
async fn turns_come_in_the_order_of_asking() {
    let door = door(Some(1), None);
    door.acquire(in_seconds(1)).await.unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let (mut first, mut second) = (
        Box::pin(door.acquire(in_seconds(600))),
        Box::pin(door.acquire(in_seconds(600))),
    );
    assert!(first.as_mut().poll(&mut context).is_pending());
    assert!(second.as_mut().poll(&mut context).is_pending());
    tokio::time::advance(Duration::from_secs(61)).await;
    assert!(second.as_mut().poll(&mut context).is_pending());
    assert!(matches!(
        first.as_mut().poll(&mut context),
        Poll::Ready(Ok(_))
    ));
    assert!(second.as_mut().poll(&mut context).is_pending());
    second.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_place_is_free_again_when_its_call_ends() {
    let door = door(None, Some(2));
    let (one, two) = (
        door.acquire(in_seconds(1)).await.unwrap(),
        door.acquire(in_seconds(1)).await.unwrap(),
    );
    assert_eq!(
        door.acquire(in_seconds(5)).await.unwrap_err(),
        Rejected::TooLate
    );
    drop(one);
    let three = door.acquire(in_seconds(5)).await.unwrap();
    drop((two, three));
    assert_eq!(door.places.as_ref().unwrap().available_permits(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_line_is_bounded() {
    let door = door(None, Some(1));
    let _busy = door.acquire(in_seconds(1)).await.unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let mut line: Vec<_> = (0..MAX_WAITING)
        .map(|_| Box::pin(door.acquire(in_seconds(9))))
        .collect();
    for waiting in &mut line {
        assert!(waiting.as_mut().poll(&mut context).is_pending());
    }
    assert_eq!(
        door.acquire(in_seconds(9)).await.unwrap_err(),
        Rejected::TooMany
    );
    line.pop();
    assert_eq!(
        door.acquire(in_seconds(9)).await.unwrap_err(),
        Rejected::TooLate
    );
}
