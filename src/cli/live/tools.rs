//! Tool calls in the live view: the call, its result, and its approval.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::text;

/// The calls that were spoken of, by the frames that later ones name.
#[derive(Debug, Default)]
pub(super) struct OpenCalls {
    /// By reply and place.
    asked: BTreeMap<(u64, u64), String>,
    /// By the frame that tells of it.
    told: BTreeMap<u64, String>,
}

/// A word about a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ToolNote {
    /// What goes on in the step from now on.
    pub(super) doing: String,
    /// What happened.
    pub(super) line: String,
    /// Whether a terminal gets a line for it, too.
    pub(super) matters: bool,
    /// Whether a call was sent.
    pub(super) is_call: bool,
}

impl OpenCalls {
    /// Takes a frame; nothing if it is not about a call.
    pub(super) fn take(&mut self, kind: &str, seq: u64, data: &Value) -> Option<ToolNote> {
        let number = |name: &str| data[name].as_u64();
        let place = number("response").zip(number("call"));
        let named = || {
            let text = |name: &str| data[name].as_str().unwrap_or_default();
            text::line(&format!("{}.{}", text("server"), text("tool"))).into_owned()
        };
        let known = match kind {
            "tool.called" | "approval.requested" => Some(named()),
            "tool.returned" => place.and_then(|place| self.asked.get(&place).cloned()),
            "tool.in_doubt" => number("called").and_then(|seq| self.told.get(&seq).cloned()),
            "approval.decided" | "approval.expired" => {
                number("request").and_then(|seq| self.told.get(&seq).cloned())
            }
            _ => return None,
        };
        if let (Some(name), Some(place)) = (&known, place) {
            self.asked.insert(place, name.clone());
        }
        if let Some(name) = &known {
            self.told.insert(seq, name.clone());
        }
        // One that was never sent has no server.
        let name = known.unwrap_or_else(|| "a tool".to_owned());
        let word = |doing: &str, line: String, matters| ToolNote {
            doing: doing.to_owned(),
            line,
            matters,
            is_call: kind == "tool.called",
        };
        Some(match kind {
            "tool.called" => word(&format!("calls {name}"), format!("calls {name}"), false),
            "approval.requested" => {
                let line = format!("asks people about {name}");
                word("waits for people", line, true)
            }
            "tool.in_doubt" => {
                let line = format!("does not know what became of {name}");
                word("waits for people", line, true)
            }
            "approval.expired" => word("", format!("nobody decided on {name} in time"), true),
            "approval.decided" => {
                let by = data["by"]["id"].as_str().unwrap_or_default();
                let decision = data["decision"].as_str().unwrap_or_default();
                word("", format!("{name} {decision} by {}", text::line(by)), true)
            }
            _ => word("", returned(&name, data), false),
        })
    }
}

fn returned(name: &str, data: &Value) -> String {
    let took = text::duration(data["duration_ms"].as_u64().unwrap_or_default());
    match (data["not_sent"].as_str(), data["is_error"] == true) {
        (Some(why), _) => format!("did not call {name}: {}", text::line(why)),
        (None, true) => format!("{name} gave an error {took}"),
        (None, false) => format!("{name} gave a result {took}"),
    }
}
