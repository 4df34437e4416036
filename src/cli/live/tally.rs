//! The activity and usage of an agent step or an item.

use std::collections::BTreeMap;

use ktsu_ledger::Timestamp;
use serde_json::Value;

use super::super::{agents, text};

/// An agent's task, or the sum of a step's tasks.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    /// When it started.
    at: Option<Timestamp>,
    /// What goes on: `asks careful`.
    pub(super) doing: String,
    calls: u64,
    tokens: (u64, u64),
    cost_micro_usd: u64,
    reflections: u64,
    repairs: u64,
    /// Calls of tools that were sent.
    pub(super) tools: u64,
    flags: Vec<String>,
    model: String,
}

/// The items of a fan-out.
#[derive(Debug, Clone, Default)]
pub(super) struct Items {
    /// How many there are.
    all: u64,
    /// Those under way, by index.
    pub(super) open: BTreeMap<u64, Tally>,
    succeeded: u64,
    failed: u64,
    skipped: u64,
}

impl Tally {
    /// Of a task that starts.
    pub(super) fn since(at: Option<Timestamp>) -> Self {
        Self {
            at,
            ..Self::default()
        }
    }

    /// Milliseconds from its start to a moment, if both are known.
    pub(super) fn until(&self, at: Option<Timestamp>) -> Option<u64> {
        Some(at?.millis_since(self.at?))
    }

    /// A model is asked.
    pub(super) fn ask(&mut self, data: &Value) {
        self.calls += 1;
        let group = text::line(data["group"].as_str().unwrap_or_default());
        self.doing = match data["purpose"].as_str() {
            Some("reflect") => {
                self.reflections += 1;
                "reflects".to_owned()
            }
            Some("repair") => {
                self.repairs += 1;
                "repairs its draft".to_owned()
            }
            _ => format!("asks {group}"),
        };
    }

    /// A model answered, or will not.
    pub(super) fn answered(&mut self, data: &Value) {
        self.doing.clear();
        if data["error"].is_null() {
            self.model = model(data);
        }
        self.used(data);
    }

    /// What a runtime says it used that reports nothing but its end.
    pub(super) fn claimed(&mut self, data: &Value) {
        self.doing.clear();
        let metrics = &data["metrics"];
        let number = |name: &str| metrics[name].as_u64().unwrap_or_default();
        self.calls += number("llm_calls");
        self.reflections += number("reflect_calls");
        if let Some(model) = metrics["model"].as_str().filter(|model| !model.is_empty()) {
            self.model = model.to_owned();
        }
        self.used(metrics);
    }

    /// Flags it raised.
    pub(super) fn flag(&mut self, data: &Value) {
        if data["field"] == "ktsu_flags" {
            let flags = data["value"].as_array().map(Vec::as_slice);
            let flags = flags.unwrap_or_default().iter().filter_map(Value::as_str);
            self.flags = flags.map(str::to_owned).collect();
        }
    }

    /// Whether a person wants to see it though it went well.
    pub(super) fn is_flagged(&self) -> bool {
        !self.flags.is_empty()
    }

    /// What it came to; nothing if no model was asked.
    pub(super) fn words(&self) -> String {
        let calls = match self.calls {
            0 => String::new(),
            calls => agents::calls(calls, self.tokens, self.reflections, self.repairs),
        };
        let cost = match self.cost_micro_usd {
            0 => String::new(),
            cost => text::cost(cost),
        };
        agents::joined([
            text::line(&self.model).into_owned(),
            calls,
            agents::tools(self.tools),
            cost,
            agents::flags(self.flags.iter().map(String::as_str)),
        ])
    }

    fn used(&mut self, data: &Value) {
        let number = |name: &str| data[name].as_u64().unwrap_or_default();
        self.tokens.0 = self.tokens.0.saturating_add(number("tokens_in"));
        self.tokens.1 = self.tokens.1.saturating_add(number("tokens_out"));
        let cost = number("cost_micro_usd");
        self.cost_micro_usd = self.cost_micro_usd.saturating_add(cost);
    }
}

impl Items {
    /// So many items, none of them started.
    pub(super) fn of(all: u64) -> Self {
        Self {
            all,
            ..Self::default()
        }
    }

    /// An item has ended: `item.completed` or `item.failed`.
    pub(super) fn end(&mut self, index: u64, failed: bool, skipped: bool) -> Option<Tally> {
        match (failed, skipped) {
            (true, _) => self.failed += 1,
            (false, true) => self.skipped += 1,
            (false, false) => self.succeeded += 1,
        }
        self.open.remove(&index)
    }

    /// How far they are: `12/24, 4 running`.
    pub(super) fn progress(&self) -> String {
        let ended = self.succeeded + self.failed + self.skipped;
        match self.open.len() {
            0 => format!("{ended}/{}", self.all),
            open => format!("{ended}/{}, {open} running", self.all),
        }
    }

    /// How they ended, those that never started among the skipped (decision R4).
    pub(super) fn words(&self) -> String {
        let skipped = self.all.saturating_sub(self.succeeded + self.failed);
        agents::items(self.succeeded, self.failed, skipped)
    }
}

/// A model's answer in words: `p/m 812+200 tokens $0.0012 1.2 s`.
pub(super) fn reply(data: &Value) -> String {
    let number = |name: &str| data[name].as_u64().unwrap_or_default();
    let tokens = agents::tokens((number("tokens_in"), number("tokens_out")));
    format!(
        "{} {tokens} {} {}",
        text::line(&model(data)),
        text::cost(number("cost_micro_usd")),
        text::duration(number("duration_ms"))
    )
}

fn model(data: &Value) -> String {
    let text = |name: &str| data[name].as_str().unwrap_or_default();
    format!("{}/{}", text("provider"), text("model"))
}
