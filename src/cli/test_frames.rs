//! Frames for tests, as an engine sends them. Whatever a test omits is filled in.

use ktsu_ledger::{Frame, Hash};
use serde_json::{Value, json};

/// The text of a frame of `run:run_r`.
pub(super) fn text(kind: &str, scope: &str, seq: u64, at: &str, data: &Value) -> String {
    let mut whole = json!({
        "arguments": {"frame": 1, "path": ""}, "attempt": 1, "body_hash": "",
        "by": {"auth": "none", "id": "me"}, "call": 0, "called": 1, "cost_micro_usd": 0,
        "decision": "approved", "delivery_id": "", "digest": "d", "duration_ms": 0, "group": "g",
        "idempotency_key": "k", "input": {}, "input_hash": "", "limit_micro_usd": 0,
        "max_tokens": 1, "messages": [], "method": "GET", "model": "m", "outcome": {},
        "output_hash": "", "policy": {"on_reject": "fail", "quorum": 1}, "provider": "p",
        "purpose": "turn", "report": {"digest": "", "n": 1}, "request": 1, "response": 1,
        "runtime_alive": true, "sending": 1, "server": "desk", "step": "a", "target": "",
        "tokens_in": 0, "tokens_out": 0, "tool": "put", "value": null, "verdict": "noted",
    });
    match kind {
        "worker.lost" => whole["reason"] = json!("heartbeat"),
        "agent.finished" => whole["reason"] = json!("completed"),
        "tool.in_doubt" => whole["reason"] = json!("no_answer"),
        _ => {}
    }
    for (name, value) in data.as_object().unwrap() {
        whole[name] = value.clone();
    }
    let (scope, none) = (json!(scope), Hash::ZERO);
    format!(
        r#"{{"v":1,"stream":"run:run_r","seq":{seq},"type":"{kind}","scope":{scope},"actor":"orchestrator","cause":[],"at":"{at}","data":{whole},"ext":[],"prev":"{none}","hash":"{none}"}}"#
    )
}

/// A frame of `run:run_r`.
pub(super) fn frame(kind: &str, scope: &str, seq: u64, at: &str, data: &Value) -> Frame {
    let text = text(kind, scope, seq, at, data);
    Frame::from_json(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}
