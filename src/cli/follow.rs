//! Following a run while it goes: frames as they become durable, one line each that matters.

use futures_util::StreamExt as _;
use serde_json::Value;

use super::Failure;
use super::output::note;
use crate::peer::Peer;

/// Shows a run until it ends, and gives its envelope.
pub(super) async fn follow(peer: &Peer, run_id: &str, quiet: bool) -> Result<Value, Failure> {
    let failed = |error: String| Failure::could_not_run(error);
    let path = format!("/runs/{run_id}/frames");
    let response = peer
        .get(&path, "text/event-stream")
        .await
        .map_err(|e| failed(e.to_string()))?;
    let mut body = response.into_body().into_data_stream();
    let mut pending = Vec::new();
    while let Some(chunk) = body.next().await {
        pending.extend_from_slice(&chunk.map_err(|error| failed(error.to_string()))?);
        while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
            let text: Vec<u8> = pending.drain(..=end).collect();
            let text = String::from_utf8_lossy(&text);
            let Some(data) = text.trim_end().strip_prefix("data:") else {
                continue;
            };
            let frame: Value = serde_json::from_str(data.trim_start()).unwrap_or_default();
            if !quiet {
                show(&frame);
            }
        }
    }
    let response = peer
        .get(&format!("/runs/{run_id}/envelope"), "application/json")
        .await;
    let response = response.map_err(|error| failed(error.to_string()))?;
    let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await;
    serde_json::from_slice(&bytes.map_err(|error| failed(error.to_string()))?)
        .map_err(|error| failed(error.to_string()))
}

fn show(frame: &Value) {
    let text = |name: &str| frame[name].as_str().unwrap_or_default().to_owned();
    let step = frame["data"]["step"].as_str().unwrap_or_default();
    note(&format!(
        "{:>5}  {:<20} {} {step}",
        frame["seq"],
        text("type"),
        text("scope")
    ));
}
