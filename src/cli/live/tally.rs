//! The activity and usage of an agent step or an item.

use std::collections::BTreeMap;

use ktsu_ledger::Timestamp;
use ktsu_ledger::event::{ClaimedMetrics, LlmRequest, LlmResponse, Purpose, ReservedEvaluated};
use serde_json::Value;

use super::super::{agents, text};

/// An agent's task, or the sum of a step's tasks.
#[derive(Debug, Clone, Default)]
pub(super) struct TaskTally {
    /// The time at which it started.
    at: Option<Timestamp>,
    /// The activity: `asks careful`.
    pub(super) doing: String,
    calls: u64,
    tokens: (u64, u64),
    cost_micro_usd: u64,
    reflections: u64,
    repairs: u64,
    /// Calls that an earlier reply of the run answered.
    cached: u64,
    /// Calls of tools that were sent.
    pub(super) tools: u64,
    flags: Vec<String>,
    model: String,
}

/// The items of a fan-out.
#[derive(Debug, Clone, Default)]
pub(super) struct Items {
    /// The number of items.
    all: u64,
    /// Those under way, by index.
    pub(super) open: BTreeMap<u32, TaskTally>,
    succeeded: u64,
    failed: u64,
    skipped: u64,
}

impl TaskTally {
    /// Of a task that starts.
    pub(super) fn since(at: Timestamp) -> Self {
        Self {
            at: Some(at),
            ..Self::default()
        }
    }

    /// So much of the time since its start is none of its own.
    pub(super) fn leave_out(&mut self, ms: u64) {
        self.at = self.at.map(|at| at.plus_millis(ms));
    }

    /// Milliseconds from its start to a moment, if its start is known.
    pub(super) fn until(&self, at: Timestamp) -> Option<u64> {
        Some(at.millis_since(self.at?))
    }

    /// A model is asked.
    pub(super) fn ask(&mut self, request: &LlmRequest) {
        self.calls += 1;
        self.doing = match request.purpose {
            Purpose::Reflect => {
                self.reflections += 1;
                "reflects".to_owned()
            }
            Purpose::Repair => {
                self.repairs += 1;
                "repairs its draft".to_owned()
            }
            Purpose::Turn => format!("asks {}", text::line(&request.group)),
        };
    }

    /// A model answered, or will not.
    pub(super) fn answered(&mut self, answer: &LlmResponse) {
        self.doing.clear();
        if answer.error.is_none() {
            self.model = model(answer);
        }
        self.cached += u64::from(answer.repeats.is_some());
        self.used((answer.tokens_in, answer.tokens_out), answer.cost_micro_usd);
    }

    /// Adds the usage that a runtime claims which reports nothing but its end.
    pub(super) fn claimed(&mut self, metrics: &ClaimedMetrics) {
        self.doing.clear();
        self.calls += metrics.llm_calls;
        self.reflections += metrics.reflect_calls;
        if !metrics.model.is_empty() {
            self.model.clone_from(&metrics.model);
        }
        self.used(
            (metrics.tokens_in, metrics.tokens_out),
            metrics.cost_micro_usd,
        );
    }

    /// Flags it raised.
    pub(super) fn flag(&mut self, evaluated: &ReservedEvaluated) {
        if evaluated.field == "ktsu_flags" {
            let value = evaluated.value.to_value();
            let flags = value.as_array().map(Vec::as_slice).unwrap_or_default();
            let flags = flags.iter().filter_map(Value::as_str);
            self.flags = flags.map(str::to_owned).collect();
        }
    }

    /// Returns `true` if a person wants to see it though it went well.
    pub(super) fn is_flagged(&self) -> bool {
        !self.flags.is_empty()
    }

    /// The usage in words, with the flags.
    pub(super) fn words(&self) -> String {
        let calls = match self.calls {
            0 => String::new(),
            calls => agents::calls(
                calls,
                self.tokens,
                (self.reflections, self.repairs, self.cached),
            ),
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

    fn used(&mut self, (tokens_in, tokens_out): (u64, u64), cost_micro_usd: u64) {
        self.tokens.0 = self.tokens.0.saturating_add(tokens_in);
        self.tokens.1 = self.tokens.1.saturating_add(tokens_out);
        self.cost_micro_usd = self.cost_micro_usd.saturating_add(cost_micro_usd);
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

    /// An item has ended, `failed`, `skipped` or `complete`.
    pub(super) fn end(&mut self, index: u32, word: &str) -> Option<TaskTally> {
        match word {
            "failed" => self.failed += 1,
            "skipped" => self.skipped += 1,
            _ => self.succeeded += 1,
        }
        self.open.remove(&index)
    }

    /// The progress of the items: `12/24, 4 running`.
    pub(super) fn progress(&self) -> String {
        let ended = self.succeeded + self.failed + self.skipped;
        match self.open.len() {
            0 => format!("{ended}/{}", self.all),
            open => format!("{ended}/{}, {open} running", self.all),
        }
    }

    /// The counts of items by how they ended, those that never started among the skipped (decision
    /// R4).
    pub(super) fn words(&self) -> String {
        let skipped = self.all.saturating_sub(self.succeeded + self.failed);
        agents::items(self.succeeded, self.failed, skipped)
    }
}

/// A model's answer in words: `p/m 812+200 tokens $0.0012 1.2 s`.
pub(super) fn reply(answer: &LlmResponse) -> String {
    if let Some(seq) = answer.repeats {
        return format!(
            "{} from the cache, as in frame {seq}",
            text::line(&model(answer))
        );
    }
    format!(
        "{} {} {} {}",
        text::line(&model(answer)),
        agents::tokens((answer.tokens_in, answer.tokens_out)),
        text::cost(answer.cost_micro_usd),
        text::duration(answer.duration_ms)
    )
}

fn model(answer: &LlmResponse) -> String {
    format!("{}/{}", answer.provider, answer.model)
}
