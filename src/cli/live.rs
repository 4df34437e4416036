//! A run while it goes.
//!
//! A terminal gets a line per step as it ends, children indented below the step that calls them,
//! and one last line, drawn again and again, with what is going on. Everything else gets one plain
//! line per step, which stays the same from one version to the next.

use std::time::Instant;

use ktsu_ledger::Timestamp;
use serde_json::Value;

use super::output::{BAD, DIM, GOOD, ODD, is_live, note, painted, transient};
use super::text;

/// Names are padded to this many columns.
const NAMES: usize = 22;
/// How many steps the last line names.
const NAMED: usize = 4;

/// What has been shown, and what is going on.
pub(super) struct Live {
    terminal: bool,
    running: Vec<Running>,
}

struct Running {
    scope: String,
    step: String,
    at: Option<Timestamp>,
    since: Instant,
    /// What its call came to.
    call: String,
}

/// How a step ended.
struct End<'a> {
    mark: String,
    word: &'a str,
    detail: String,
}

impl Live {
    /// A view on standard error.
    pub(super) fn new() -> Self {
        Self {
            terminal: is_live(),
            running: Vec::new(),
        }
    }

    /// Takes a frame.
    pub(super) fn take(&mut self, frame: &Value) {
        let scope = text_of(&frame["scope"]);
        let data = &frame["data"];
        let step = text_of(&data["step"]);
        let at = frame["at"].as_str().and_then(|at| at.parse().ok());
        match frame["type"].as_str().unwrap_or_default() {
            "run.started" if !scope.is_empty() => self.enter(scope),
            "step.started" => self.running.push(Running {
                scope: scope.to_owned(),
                step: step.to_owned(),
                at,
                since: Instant::now(),
                call: String::new(),
            }),
            "webhook.sent" => {
                let call = format!("{} {}", text_of(&data["method"]), text_of(&data["target"]));
                self.call(scope, step, |running| running.call = call);
            }
            "webhook.delivered" => {
                let status = data["status"].as_u64().unwrap_or_default();
                self.call(scope, step, |running| {
                    running.call = format!("{} -> {status}", running.call);
                });
            }
            "webhook.failed" => self.sending_failed(scope, step, data),
            "step.completed" => self.end(scope, step, at, &End::complete()),
            "step.skipped" => {
                let reason = text_of(&data["reason"]).to_owned();
                self.end(scope, step, at, &End::skipped(reason));
            }
            "step.failed" => {
                let words = format!("{}: {}", text_of(&data["code"]), text_of(&data["message"]));
                self.end(scope, step, at, &End::failed(words));
            }
            _ => {}
        }
    }

    /// Draws the last line again.
    pub(super) fn tick(&self) {
        if !self.terminal {
            return;
        }
        if self.running.is_empty() {
            return transient("");
        }
        let named = self.running.iter().rev().take(NAMED).map(|running| {
            let took = text::duration(millis(running.since));
            format!(
                "{} {took}",
                text::short(&path(&running.scope, &running.step), 40)
            )
        });
        let named = named.collect::<Vec<_>>().join(", ");
        transient(&painted(DIM, &format!("  … {}", text::short(&named, 76))));
    }

    /// Takes the last line away.
    pub(super) fn finish(&self) {
        if self.terminal {
            transient("");
        }
    }

    /// A child begins: its caller is named above its steps.
    fn enter(&self, scope: &str) {
        if !self.terminal {
            return;
        }
        let (outer, step) = scope.rsplit_once('/').unwrap_or(("", scope));
        self.say(&format!(
            "{}{} {}",
            indent(outer),
            painted(DIM, "▸"),
            text::line(step)
        ));
    }

    fn call(&mut self, scope: &str, step: &str, change: impl FnOnce(&mut Running)) {
        let mut running = self.running.iter_mut().rev();
        let running = running.find(|one| one.scope == scope && one.step == step);
        running.map(change).unwrap_or_default();
    }

    fn sending_failed(&mut self, scope: &str, step: &str, data: &Value) {
        let why = match (data["status"].as_u64(), data["code"].as_str()) {
            (Some(status), _) => format!("status {status}"),
            (None, Some(code)) => code.to_owned(),
            (None, None) => "no answer".to_owned(),
        };
        let sending = data["sending"].as_u64().unwrap_or_default();
        let words = format!("sending {sending} failed: {why}");
        let words = text::line(&words);
        if self.terminal {
            let named = format!("{:<1$}", text::line(step), NAMES);
            self.say(&format!(
                "{}{} {named} {words}",
                indent(scope),
                painted(ODD, "!")
            ));
        } else {
            self.say(&format!("step {} {words}", text::line(&path(scope, step))));
        }
    }

    fn end(&mut self, scope: &str, step: &str, at: Option<Timestamp>, end: &End<'_>) {
        let known = self
            .running
            .iter()
            .rposition(|one| one.scope == scope && one.step == step);
        let running = known.map(|place| self.running.remove(place));
        let took = running
            .as_ref()
            .and_then(|running| Some(at?.millis_since(running.at?)))
            .map(text::duration)
            .unwrap_or_default();
        let call = running.map(|running| running.call).unwrap_or_default();
        let detail = if end.detail.is_empty() {
            text::line(&call).into_owned()
        } else {
            text::short(&end.detail, 300)
        };
        let words = if self.terminal {
            let width = NAMES.saturating_sub(2 * depth(scope));
            let detail = painted(DIM, &detail);
            format!(
                "{}{} {:<width$} {took:>9}  {detail}",
                indent(scope),
                end.mark,
                text::line(step)
            )
        } else {
            let named = path(scope, step);
            format!("step {} {} {took} {detail}", text::line(&named), end.word).replace("  ", " ")
        };
        self.say(words.trim_end());
    }

    fn say(&self, words: &str) {
        if self.terminal {
            transient("");
        }
        note(words);
    }
}

impl End<'_> {
    fn complete() -> Self {
        Self {
            mark: painted(GOOD, "✓"),
            word: "complete",
            detail: String::new(),
        }
    }

    fn skipped(reason: String) -> Self {
        Self {
            mark: painted(DIM, "–"),
            word: "skipped",
            detail: reason,
        }
    }

    fn failed(words: String) -> Self {
        Self {
            mark: painted(BAD, "✗"),
            word: "failed",
            detail: words,
        }
    }
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn path(scope: &str, step: &str) -> String {
    if scope.is_empty() {
        step.to_owned()
    } else {
        format!("{scope}/{step}")
    }
}

fn depth(scope: &str) -> usize {
    if scope.is_empty() {
        0
    } else {
        scope.matches('/').count() + 1
    }
}

fn indent(scope: &str) -> String {
    " ".repeat(2 + 2 * depth(scope))
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}
