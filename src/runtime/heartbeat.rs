//! Heartbeats: the runtime is alive, and these are its tasks (decision W3).

use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::Bytes;
use tokio::time::MissedTickBehavior;

use super::Inner;
use super::callbacks::Callbacks;
use ktsu_contract::report::{HEARTBEAT_INTERVAL_SECONDS, Heartbeat, HeartbeatAck};

const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(HEARTBEAT_INTERVAL_SECONDS);

/// Beats at once, then regularly and whenever it is asked to, until `shutdown` resolves.
pub(super) async fn run(runtime: &Inner, shutdown: impl Future<Output = ()>) {
    let mut ticks = tokio::time::interval(HEARTBEAT_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let beating = async {
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = runtime.beat_now.notified() => {}
            }
            once(runtime).await;
        }
    };
    tokio::select! {
        () = beating => {}
        () = shutdown => {}
    }
}

/// Logs a beat that no orchestrator took: the first one in a row as a warning. One of this process is away only
/// while it starts and stops.
fn note_missed(runtime: &Inner, why: &str) {
    let is_remote = matches!(runtime.orchestrator, Callbacks::Remote { .. });
    match is_remote && !runtime.is_unheard.swap(true, Ordering::Relaxed) {
        true => tracing::warn!(
            why,
            "no orchestrator takes heartbeats, so this runtime gets no tasks; it tries again every \
             {HEARTBEAT_INTERVAL_SECONDS} s"
        ),
        false => tracing::debug!(why, "heartbeat not delivered"),
    }
}

/// One beat, and what the answer asks for. One that fails is made up for by the next.
pub(super) async fn once(runtime: &Inner) {
    let beat = Heartbeat {
        runtime_id: runtime.id.clone(),
        active: runtime.tasks.active(),
        places: runtime.places,
    };
    let json = match serde_json::to_vec(&beat) {
        Ok(json) => Bytes::from(json),
        Err(error) => return tracing::debug!(%error, "cannot encode a heartbeat"),
    };
    let body = match runtime.orchestrator.beat(HEARTBEAT_INTERVAL, json).await {
        Ok((200, body)) => body,
        Ok((status @ (401 | 403), _)) => {
            return tracing::warn!(
                status,
                "heartbeat refused: KTSU_TOKEN does not belong to a runtime"
            );
        }
        Ok((status, _)) => return note_missed(runtime, &format!("the answer is {status}")),
        Err(error) => return note_missed(runtime, &error.to_string()),
    };
    if runtime.is_unheard.swap(false, Ordering::Relaxed) {
        tracing::info!("the orchestrator takes heartbeats again");
    }
    // An older orchestrator answers with an empty body.
    let heard: HeartbeatAck = serde_json::from_slice(&body).unwrap_or_default();
    runtime.tasks.pause_only(&heard.paused);
    for task in heard.stop {
        tracing::debug!(
            run_id = task.run_id,
            step_id = task.step_id,
            "stopping a task"
        );
        runtime.tasks.abort(task);
    }
}
