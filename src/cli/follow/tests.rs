//! Given a stream of frames, simulated prompts, and a clock that advances by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::routing::{get, post};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use crate::test_frames;

use super::{ApprovalPrompt, Peer, REDRAW_INTERVAL, SILENCE_TIMEOUT, Viewer, follow, within};

/// Longer than anything takes, of a time that passes when nothing else happens.
const GUARD: Duration = Duration::from_secs(3600);

#[derive(Clone)]
struct World {
    frames: mpsc::UnboundedSender<String>,
    waits: Arc<AtomicBool>,
    /// How often it was asked whether the run waits.
    looked: watch::Sender<u32>,
    begun: Arc<AtomicU32>,
    decided: Arc<AtomicU32>,
}

impl World {
    fn new() -> (Self, Peer) {
        let (frames, sent) = mpsc::unbounded_channel();
        let world = Self {
            frames,
            waits: Arc::default(),
            looked: watch::Sender::new(0),
            begun: Arc::default(),
            decided: Arc::default(),
        };
        let chunks = futures_util::stream::unfold(sent, async |mut sent: Sent| {
            let frame = sent.recv().await.filter(|frame| !frame.is_empty())?;
            let chunk = Bytes::from(format!("data: {frame}\n\n"));
            Some((Ok::<_, std::convert::Infallible>(chunk), sent))
        });
        let stream = Arc::new(std::sync::Mutex::new(Some(Body::from_stream(chunks))));
        let frames = move || {
            let body = stream.lock().unwrap().take().unwrap();
            std::future::ready(body)
        };
        let router = Router::new()
            .route("/runs/run_r/frames", get(frames))
            .route("/runs/run_r/envelope", get(envelope))
            .route("/runs/run_r/steps/a/approval", get(record))
            .route("/runs/run_r/steps/a/approval/decide", post(decide))
            .with_state(world.clone());
        (world, Peer::Local(router))
    }

    fn sends(&self, kind: &str, data: Value) {
        let at = "2026-01-01T00:00:00.000000Z";
        let frame = test_frames::text(kind, "", 1, at, &data);
        self.frames.send(frame).unwrap();
    }

    fn ends(&self) {
        self.frames.send(String::new()).unwrap();
    }
}

type Sent = mpsc::UnboundedReceiver<String>;

fn asked(status: &str) -> String {
    json!({"approval_id": "apr_x", "kind": "approval", "run_id": "run_r", "step_id": "a",
        "server": "desk", "tool_name": "put", "tool_use_id": "", "arguments": {}, "digest": "d",
        "on_reject": "fail", "timeout_ms": 0, "quorum": 1, "not_by_proposer": false,
        "status": status, "proposer": "me", "created_at": "2026-01-01T00:00:00.000000Z",
        "request": 1})
    .to_string()
}

async fn record() -> String {
    asked("pending")
}

async fn envelope(State(world): State<World>) -> String {
    let status = match world.waits.load(Ordering::SeqCst) {
        true => "waiting",
        false => "running",
    };
    world.looked.send_modify(|looked| *looked += 1);
    json!({ "status": status }).to_string()
}

/// Takes its time, while the run goes on.
async fn decide(State(world): State<World>) -> String {
    world.begun.fetch_add(1, Ordering::SeqCst);
    world.sends("step.completed", json!({"step": "b"}));
    tokio::time::sleep(REDRAW_INTERVAL * 10).await;
    world.decided.fetch_add(1, Ordering::SeqCst);
    world.sends("approval.decided", json!({"request": 1, "step": "a"}));
    world.ends();
    asked("approved")
}

#[tokio::test(start_paused = true)]
async fn an_answer_under_way_is_finished_though_frames_come_and_time_passes() {
    let (world, peer) = World::new();
    let (typed, input) = mpsc::channel(1);
    let mut asking = ApprovalPrompt::typed(&peer, "run_r", input, move |line| {
        if line.contains("approve?") {
            typed.try_send("y".to_owned()).unwrap();
        }
    });
    world.sends("approval.requested", json!({"step": "a"}));
    let viewer = Viewer {
        asking: Some(&mut asking),
        ..Viewer::default()
    };
    let followed = tokio::time::timeout(GUARD, follow(&peer, "run_r", viewer)).await;
    let counts = [&world.begun, &world.decided].map(|count| count.load(Ordering::SeqCst));
    assert_eq!(counts, [1, 1]);
    followed.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_again_is_left_whatever_made_it_wait() {
    let (world, peer) = World::new();
    let mut asking = ApprovalPrompt::unattended(&peer, "run_r");
    let viewer = Viewer {
        asking: Some(&mut asking),
        leaves_waiting: true,
        silence: None,
        ..Viewer::default()
    };
    world.sends("approval.requested", json!({"step": "a"}));
    let mut looked = world.looked.subscribe();
    let other = async {
        // Another step is at work, and then no more.
        looked.wait_for(|looked| *looked == 1).await.unwrap();
        world.waits.store(true, Ordering::SeqCst);
        world.sends("step.completed", json!({"step": "b"}));
        std::future::pending::<()>().await;
    };
    tokio::select! {
        followed = follow(&peer, "run_r", viewer) => drop(followed.unwrap()),
        () = other => {}
        () = tokio::time::sleep(GUARD) => panic!("it is watched for ever"),
    }
    // Once for each frame that might matter, and once for what is shown at the end.
    assert_eq!(*looked.borrow(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_falls_silent_is_given_up_and_one_in_this_process_is_waited_for() {
    let late = async || {
        tokio::time::sleep(SILENCE_TIMEOUT + Duration::from_secs(1)).await;
        Ok(7)
    };
    let given_up = within(Some(SILENCE_TIMEOUT), late()).await.unwrap_err();
    let words = format!("{given_up:?}");
    assert!(words.contains("stopped responding"), "{words}");
    assert_eq!(within(None, late()).await, Ok(7));
    assert_eq!(within(Some(SILENCE_TIMEOUT), async { Ok(8) }).await, Ok(8));
}
