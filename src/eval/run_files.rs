//! Files about a run that scripts read: its trace and its audit log, each a line of JSON for each
//! entry.

use std::collections::BTreeMap;

use ktsu_workflow::next::service_of;
use serde_json::{Value, json};

use crate::frames::FrameView;
use crate::http_mock::record::{MockRequest, ServiceRecords};

/// The most bytes of a file.
const MAX_FILE: usize = 64 << 20;

/// The most bytes of a value; one that is larger is null.
const MAX_VALUE: usize = 1 << 20;

/// The lines of a file.
#[derive(Default)]
struct Lines {
    text: String,
    is_too_large: bool,
}

impl Lines {
    fn add(&mut self, line: &Value) {
        let line = line.to_string();
        self.is_too_large |= self.text.len() + line.len() > MAX_FILE;
        if !self.is_too_large {
            self.text.push_str(&line);
            self.text.push('\n');
        }
    }

    fn finish(self) -> Option<String> {
        (!self.is_too_large).then_some(self.text)
    }
}

/// Facts from earlier frames, for the spans of a trace.
#[derive(Default)]
struct Spans {
    /// The id of the first frame.
    root: Value,
    /// The id of the last `step.started`, by scope and step.
    steps: BTreeMap<(String, String), Value>,
    /// The id and the messages of an `llm.request`, or the id and the arguments of a `tool.called`.
    open: BTreeMap<u64, (Value, Value)>,
}

/// The trace: an entry for each model call, for each call that a model asked for, and for the
/// beginning and the end of each call of a tool. None if it is too large.
pub(crate) fn trace(frames: &[FrameView]) -> Option<String> {
    let (mut lines, mut spans) = (Lines::default(), Spans::default());
    for frame in frames {
        if spans.root.is_null() {
            spans.root = frame.to_value()["id"].take();
        }
        match frame.kind.as_str() {
            "step.started" => {
                let id = frame.to_value()["id"].take();
                spans.steps.insert(step_of(frame), id);
            }
            "llm.request" => {
                let mut value = frame.to_value();
                let open = (value["id"].take(), value["data"]["messages"].take());
                spans.open.insert(frame.seq, open);
            }
            "llm.response" => spans.model_call(frame, &mut lines),
            "tool.called" => {
                let mut value = frame.to_value();
                let open = (value["id"].clone(), value["call"]["arguments"].take());
                let entry = json!({"input": bounded(&open.1), "phase": "start", "span_id": open.0});
                spans.open.insert(frame.seq, open);
                lines.add(&spans.entry(frame, "tool_call", &value, entry));
            }
            "tool.returned" => spans.tool_call(frame, &mut lines),
            _ => {}
        }
    }
    lines.finish()
}

impl Spans {
    fn model_call(&mut self, frame: &FrameView, lines: &mut Lines) {
        let value = frame.to_value();
        let data = &value["data"];
        let asked = data["request"]
            .as_u64()
            .and_then(|seq| self.open.remove(&seq));
        let (span, messages) = asked.unwrap_or_else(|| (value["id"].clone(), Value::Null));
        let (input, output) = (bounded(&messages), bounded(&data["content"]));
        let entry = json!({
            "cost": dollars(frame.cost_micro_usd),
            "duration_ms": data["duration_ms"],
            "error_type": data["error"]["code"],
            "input": input,
            "input_bytes": size(&messages),
            "metadata": {
                "gen_ai.response.model": data["model"],
                "gen_ai.system": data["provider"],
                "gen_ai.usage.input_tokens": data["tokens_in"],
                "gen_ai.usage.output_tokens": data["tokens_out"],
            },
            "output": output,
            "output_bytes": size(&data["content"]),
            "phase": "complete",
            "span_id": span,
            "status": frame.status,
        });
        lines.add(&self.entry(frame, "llm_call", &value, entry));
        for call in data["tool_calls"].as_array().into_iter().flatten() {
            let entry = json!({
                "input": bounded(&call["arguments"]),
                "input_bytes": size(&call["arguments"]),
                "phase": "invoked",
                "span_id": value["id"],
                "tool": call["name"],
            });
            lines.add(&self.entry(frame, "tool_use", &value, entry));
        }
    }

    fn tool_call(&mut self, frame: &FrameView, lines: &mut Lines) {
        let value = frame.to_value();
        let data = &value["data"];
        let called = data["called"]
            .as_u64()
            .and_then(|seq| self.open.remove(&seq));
        let phase = if called.is_some() { "end" } else { "complete" };
        let (span, arguments) =
            called.unwrap_or_else(|| (value["id"].clone(), value["call"]["arguments"].clone()));
        let is_error = frame.status.as_deref() != Some("ok");
        let entry = json!({
            "duration_ms": data["duration_ms"],
            "error_type": data["not_sent"],
            "input": bounded(&arguments),
            "input_bytes": size(&arguments),
            "output": bounded(&data["content"]),
            "output_bytes": size(&data["content"]),
            "phase": phase,
            "span_id": span,
            "status": if is_error { "error" } else { "ok" },
        });
        lines.add(&self.entry(frame, "tool_call", &value, entry));
    }

    /// An entry with every member, those that are not given as null.
    fn entry(&self, frame: &FrameView, kind: &str, value: &Value, given: Value) -> Value {
        let mut entry = json!({
            "cost": null,
            "duration_ms": null,
            "error_type": null,
            "event_type": kind,
            "expected": null,
            "input": null,
            "input_bytes": null,
            "metadata": {},
            "output": null,
            "output_bytes": null,
            "parent_span_id": self.steps.get(&step_of(frame)),
            "phase": null,
            "root_span_id": self.root,
            "span_id": null,
            "status": null,
            "tool": if kind == "tool_call" { json!(frame.tool) } else { Value::Null },
            "ts": value["at"],
        });
        if let (Value::Object(entry), Value::Object(given)) = (&mut entry, given) {
            entry.extend(given);
        }
        entry
    }
}

/// The audit log: an entry for each call of a tool that ended, and for each request to another
/// system, those that services of the suite received after all others. None if it is too large.
pub(crate) fn audit(frames: &[FrameView], services: Option<&ServiceRecords>) -> Option<String> {
    let mut lines = Lines::default();
    let mut sent: BTreeMap<(String, String), Value> = BTreeMap::new();
    for frame in frames {
        match frame.kind.as_str() {
            "tool.returned" | "tool.in_doubt" => {
                let value = frame.to_value();
                let (call, data) = (&value["call"], &value["data"]);
                let status = match frame.kind.as_str() {
                    "tool.returned" => frame.status.as_deref().unwrap_or("ok"),
                    _ => "in_doubt",
                };
                let details = json!({
                    "approved": call["approved"],
                    "arguments": bounded(&call["arguments"]),
                    "frame": value["id"],
                    "not_sent": data["not_sent"],
                    "result": bounded(&data["content"]),
                    "server": frame.server,
                    "status": status,
                    "step": frame.step,
                    "tool": frame.tool,
                });
                lines.add(&json!({"details": details, "type": "tool_call"}));
            }
            "webhook.sent" => drop(sent.insert(step_of(frame), frame.to_value())),
            "webhook.delivered" | "webhook.failed" => {
                let value = frame.to_value();
                let asked = sent.get(&step_of(frame)).map(|asked| &asked["data"]);
                if asked.is_some_and(|asked| is_kept(&asked["target"], services)) {
                    continue;
                }
                let data = &value["data"];
                let response = bounded(&data["response"]);
                let details = json!({
                    "code": data["code"],
                    "duration_ms": data["duration_ms"],
                    "frame": value["id"],
                    "method": asked.map(|asked| &asked["method"]),
                    "response_body": match response {
                        Value::String(_) | Value::Null => response,
                        other => Value::String(other.to_string()),
                    },
                    "status": data["status"],
                    "step": frame.step,
                    "target": asked.map(|asked| &asked["target"]),
                });
                lines.add(&json!({"details": details, "type": "http_call"}));
            }
            _ => {}
        }
    }
    let records = services.into_iter().flat_map(ServiceRecords::iter);
    for (service, record) in records {
        for request in &record.requests {
            lines.add(&http_call(service, request));
        }
    }
    lines.finish()
}

/// Returns `true` if a webhook went to a service that keeps what it receives: that has an entry of
/// its own.
fn is_kept(target: &Value, services: Option<&ServiceRecords>) -> bool {
    let target = target.as_str().and_then(service_of);
    let name = target.and_then(|(name, _)| name.strip_prefix("services.")?.strip_suffix(".url"));
    name.is_some_and(|name| services.is_some_and(|services| services.get(name).is_some()))
}

fn http_call(service: &str, request: &MockRequest) -> Value {
    let body = match (&request.body, &request.base64) {
        (Some(text), _) => json!(text),
        (None, base64) => json!(base64),
    };
    let details = json!({
        "method": request.method,
        "path": request.path,
        "query": request.query,
        "request_body": bounded(&body),
        "request_headers": request.headers,
        "response_body": request.response,
        "service": service,
        "status": request.status,
        "target": format!("{{{{ services.{service}.url }}}}"),
    });
    json!({"details": details, "type": "http_call"})
}

fn step_of(frame: &FrameView) -> (String, String) {
    let step = frame.step.clone().unwrap_or_default();
    (frame.scope.clone(), step)
}

/// A value, unless it is too large.
fn bounded(value: &Value) -> Value {
    match size(value) {
        Some(size) if size > MAX_VALUE => Value::Null,
        Some(_) | None => value.clone(),
    }
}

/// The bytes of a value as JSON; none of null.
fn size(value: &Value) -> Option<usize> {
    (!value.is_null()).then(|| value.to_string().len())
}

fn dollars(micro: u64) -> Value {
    #[expect(
        clippy::cast_precision_loss,
        reason = "exact below 2^53: billions of dollars"
    )]
    let dollars = micro as f64 / 1e6;
    json!(dollars)
}
