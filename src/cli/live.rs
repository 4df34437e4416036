//! The live view of a run.
//!
//! A terminal shows a line for each finished step, children indented below the step that calls
//! them, and a last line that is redrawn with the current activity. Everything else gets one plain
//! line per notable event, in a format that stays the same between versions: the end of a step or
//! an item, a model's reply, a reflection, a repair, a tool call and its result, approvals and
//! their decisions, a lost worker.

mod tally;
mod tools;
mod waits;

use std::time::Instant;

use ktsu_ledger::Timestamp;
use serde_json::Value;

use self::tally::{Items, Tally};
use self::tools::OpenCalls;
use self::waits::Waits;
use super::layout::{columns, fit};
use super::output::{BAD, DIM, GOOD, WARN, is_live, note, note_sheet, painted, transient};
use super::symbols::Symbols;
use super::table::Terminal;
use super::{agents, text};

/// Names are padded to this many columns.
const NAME_COLUMNS: usize = 22;
/// Where a step is takes this many columns of the last line.
const PATH_COLUMNS: usize = 40;
/// How many steps the last line names.
const MAX_STEPS_NAMED: usize = 4;

/// The state of the view: what was printed and what is running.
pub(super) struct Live {
    terminal: bool,
    running: Vec<Running>,
    /// What all model calls cost, in millionths of a US dollar.
    cost_micro_usd: u64,
    /// Calls of tools that are under way.
    tools: OpenCalls,
    /// How long running steps have waited for people.
    waits: Waits,
    /// Where lines go.
    out: Box<dyn Fn(&str)>,
    /// The output device, queried for every line because a terminal may change its size.
    sheet: fn() -> Terminal,
}

struct Running {
    scope: String,
    step: String,
    at: Option<Timestamp>,
    since: Instant,
    /// The webhook call and its status.
    call: String,
    /// What its agents do and use.
    tally: Tally,
    /// For a fan-out.
    items: Option<Items>,
}

/// How a step ended.
struct StepEnd<'a> {
    mark: fn(Symbols) -> String,
    word: &'a str,
    detail: String,
}

impl Live {
    /// A view on standard error.
    pub(super) fn new() -> Self {
        Self {
            terminal: is_live(),
            running: Vec::new(),
            cost_micro_usd: 0,
            tools: OpenCalls::default(),
            waits: Waits::default(),
            out: Box::new(note),
            sheet: note_sheet,
        }
    }

    /// Takes a frame.
    pub(super) fn take(&mut self, frame: &Value) {
        let scope = text_of(&frame["scope"]);
        let data = &frame["data"];
        let step = text_of(&data["step"]);
        let at = frame["at"].as_str().and_then(|at| at.parse().ok());
        let seq = frame["seq"].as_u64().unwrap_or_default();
        let kind = frame["type"].as_str().unwrap_or_default();
        self.waits.take(scope, kind, seq, at, data);
        match kind {
            "run.started" if !scope.is_empty() => self.enter(scope),
            "run.paused" | "run.resumed" | "run.cancelled" => self.steered(frame),
            "step.started" => self.running.push(Running {
                scope: scope.to_owned(),
                step: step.to_owned(),
                at,
                since: Instant::now(),
                call: String::new(),
                tally: Tally::default(),
                items: data["items"].as_u64().map(Items::of),
            }),
            kind @ ("item.started" | "item.completed" | "item.failed") => {
                self.item(scope, step, at, kind, data);
            }
            kind if kind.starts_with("llm.") || kind.starts_with("agent.") => {
                self.agent(scope, step, kind, data);
            }
            kind if kind.starts_with("tool.") || kind.starts_with("approval.") => {
                self.tool(scope, step, kind, seq, data);
            }
            "reserved.evaluated" => self.flagged(scope, step, data),
            "reflect.started" => {
                self.each(scope, step, data, |tally| {
                    tally.doing = "reflects".to_owned()
                });
                self.print_in_pipe(scope, step, data, "reflects");
            }
            "budget.exhausted" => {
                let money = |name: &str| text::cost(data[name].as_u64().unwrap_or_default());
                let (spent, limit) = (money("cost_micro_usd"), money("limit_micro_usd"));
                let words = format!("budget exhausted: {spent} of {limit} spent");
                self.print_notable(scope, step, data, &words);
            }
            "worker.lost" => {
                let words = format!("lost its worker: {}", text_of(&data["reason"]));
                self.print_notable(scope, step, data, &words);
            }
            "worker.dispatched" if data["attempt"].as_u64() > Some(1) => {
                let attempt = data["attempt"].as_u64().unwrap_or_default();
                self.print_notable(scope, step, data, &format!("attempt {attempt}"));
            }
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
            "step.completed" => self.end(scope, step, at, &StepEnd::complete()),
            "step.skipped" => {
                let words = match data["detail"].as_str() {
                    Some(detail) => format!("{}: {detail}", text_of(&data["reason"])),
                    None => text_of(&data["reason"]).to_owned(),
                };
                self.end(scope, step, at, &StepEnd::skipped(words));
            }
            "step.failed" => {
                let words = format!("{}: {}", text_of(&data["code"]), text_of(&data["message"]));
                self.end(scope, step, at, &StepEnd::failed(words));
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
        transient(&painted(DIM, &self.progress_line()));
    }

    /// The activity line, one column shorter than the terminal, because a full line may wrap.
    fn progress_line(&self) -> String {
        let sheet = (self.sheet)();
        let ellipsis = sheet.symbols.ellipsis();
        let named = self
            .running
            .iter()
            .rev()
            .take(MAX_STEPS_NAMED)
            .map(|running| {
                let took = text::duration(millis(running.since));
                let named = path(&running.scope, &running.step);
                let named = fit(&text::line(&named), PATH_COLUMNS, ellipsis);
                match running.activity() {
                    doing if doing.is_empty() => format!("{named} {took}"),
                    doing => format!("{named} {doing}, {took}"),
                }
            });
        let named = named.collect::<Vec<_>>().join("; ");
        let cost = match self.cost_micro_usd {
            0 => String::new(),
            cost => format!("  {}", text::cost(cost)),
        };
        let width = sheet.width.unwrap_or(80).saturating_sub(1);
        let room = width.saturating_sub(columns(ellipsis) + 3 + columns(&cost));
        let words = format!(
            "  {ellipsis} {}{cost}",
            fit(&text::line(&named), room, ellipsis)
        );
        fit(&words, width, "")
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
        self.print(&format!(
            "{}{} {}",
            indent(outer),
            painted(DIM, self.symbols().going()),
            text::line(step)
        ));
    }

    fn running(&mut self, scope: &str, step: &str) -> Option<&mut Running> {
        let mut running = self.running.iter_mut().rev();
        running.find(|one| one.scope == scope && one.step == step)
    }

    fn call(&mut self, scope: &str, step: &str, change: impl FnOnce(&mut Running)) {
        self.running(scope, step).map(change).unwrap_or_default();
    }

    /// Something about a task: it counts for its item and for its step.
    fn each(&mut self, scope: &str, step: &str, data: &Value, change: impl Fn(&mut Tally)) {
        let Some(running) = self.running(scope, step) else {
            return;
        };
        match (data["item"].as_u64(), &mut running.items) {
            (Some(item), Some(items)) => {
                if let Some(tally) = items.open.get_mut(&item) {
                    change(tally);
                }
                change(&mut running.tally);
            }
            _ => change(&mut running.tally),
        }
    }

    /// Records flags of an item.
    fn flagged(&mut self, scope: &str, step: &str, data: &Value) {
        let Some(running) = self.running(scope, step) else {
            return;
        };
        match (data["item"].as_u64(), &mut running.items) {
            (Some(item), Some(items)) => {
                if let Some(tally) = items.open.get_mut(&item) {
                    tally.flag(data);
                }
            }
            _ => running.tally.flag(data),
        }
    }

    fn item(&mut self, scope: &str, step: &str, at: Option<Timestamp>, kind: &str, data: &Value) {
        let Some(running) = self.running(scope, step) else {
            return;
        };
        let (Some(items), Some(index)) = (&mut running.items, data["item"].as_u64()) else {
            return;
        };
        if kind == "item.started" {
            items.open.insert(index, Tally::since(at));
            return;
        }
        let skipped = data["skipped"].as_str();
        let tally = items.end(index, kind == "item.failed", skipped.is_some());
        let tally = tally.unwrap_or_default();
        let end = match (kind, skipped) {
            ("item.failed", _) => {
                let words = format!("{}: {}", text_of(&data["code"]), text_of(&data["message"]));
                StepEnd::failed(words)
            }
            (_, Some(why)) => StepEnd::skipped(why.to_owned()),
            (_, None) => StepEnd::complete(),
        };
        // A terminal counts what went as it should.
        if self.terminal && end.word == "complete" && !tally.is_flagged() {
            return;
        }
        let waited = self.waits.of(scope, step, Some(index));
        let took = tally.until(at).map(|whole| whole.saturating_sub(waited));
        let words = [
            text::line(&end.detail).into_owned(),
            tally.words(),
            text::waited(waited),
        ];
        let detail = agents::joined(words);
        self.print_end(scope, &format!("{step}.{index}"), took, &end, &detail);
    }

    fn agent(&mut self, scope: &str, step: &str, kind: &str, data: &Value) {
        match kind {
            "llm.request" => {
                self.each(scope, step, data, |tally| tally.ask(data));
                if data["purpose"] == "repair" {
                    self.print_in_pipe(scope, step, data, "repairs its draft");
                }
            }
            "llm.response" => {
                self.each(scope, step, data, |tally| tally.answered(data));
                self.spend(&data["cost_micro_usd"]);
                let error = &data["error"];
                if error.is_null() {
                    let words = format!("replied {}", tally::reply(data));
                    self.print_in_pipe(scope, step, data, &words);
                } else {
                    let text = |name: &str| text_of(&error[name]);
                    let words = format!("got no reply: {}: {}", text("code"), text("message"));
                    self.print_notable(scope, step, data, &words);
                }
            }
            "agent.finished" => {
                self.each(scope, step, data, |tally| tally.claimed(data));
                self.spend(&data["metrics"]["cost_micro_usd"]);
            }
            _ => {}
        }
    }

    fn tool(&mut self, scope: &str, step: &str, kind: &str, seq: u64, data: &Value) {
        let Some(word) = self.tools.take(kind, seq, data) else {
            return;
        };
        self.each(scope, step, data, |tally| {
            tally.tools += u64::from(word.is_call);
            tally.doing.clone_from(&word.doing);
        });
        match word.matters {
            true => self.print_notable(scope, step, data, &word.line),
            false => self.print_in_pipe(scope, step, data, &word.line),
        }
    }

    fn spend(&mut self, cost: &Value) {
        let cost = cost.as_u64().unwrap_or_default();
        self.cost_micro_usd = self.cost_micro_usd.saturating_add(cost);
    }

    /// A line that only a pipe gets: a terminal has it in its last line.
    fn print_in_pipe(&self, scope: &str, step: &str, data: &Value, words: &str) {
        if !self.terminal {
            self.print_notable(scope, step, data, words);
        }
    }

    fn print_notable(&self, scope: &str, step: &str, data: &Value, words: &str) {
        let index = data["item"].as_u64().map(|item| format!(".{item}"));
        let name = format!("{step}{}", index.unwrap_or_default());
        let words = text::line(words);
        if self.terminal {
            let named = format!("{:<1$}", text::line(&name), NAME_COLUMNS);
            let indent = indent(scope);
            let words = format!("{indent}{} {named} {words}", painted(WARN, "!"));
            self.print_whole(&words, indent.len() + 2);
        } else {
            self.print(&format!("step {} {words}", text::line(&path(scope, &name))));
        }
    }

    /// Prints that a person paused, resumed or cancelled the run.
    fn steered(&self, frame: &Value) {
        let data = &frame["data"];
        let kind = text_of(&frame["type"]);
        let word = kind.strip_prefix("run.").unwrap_or(kind);
        let from = data["from"].as_str().map(|step| format!(" from {step}"));
        let reason = data["reason"].as_str().map(|reason| format!(": {reason}"));
        let (_, run) = text_of(&frame["stream"])
            .split_once(':')
            .unwrap_or_default();
        let next = match word {
            "paused" => format!(" (to go on: ktsu resume {run})"),
            _ => String::new(),
        };
        let (from, reason) = (from.unwrap_or_default(), reason.unwrap_or_default());
        let by = text_of(&data["by"]["id"]);
        let words = format!("run {word}{from} by {by}{reason}{next}");
        let words = text::line(&words);
        match self.terminal {
            true => self.print_whole(&format!("  {} {words}", painted(WARN, "!")), 4),
            false => self.print(&words),
        }
    }

    fn sending_failed(&mut self, scope: &str, step: &str, data: &Value) {
        let why = match (data["status"].as_u64(), data["code"].as_str()) {
            (Some(status), _) => format!("status {status}"),
            (None, Some(code)) => code.to_owned(),
            (None, None) => "no answer".to_owned(),
        };
        let sending = data["sending"].as_u64().unwrap_or_default();
        let words = format!("sending {sending} failed: {why}");
        self.print_notable(scope, step, &Value::Null, &words);
    }

    fn end(&mut self, scope: &str, step: &str, at: Option<Timestamp>, end: &StepEnd<'_>) {
        let known = self
            .running
            .iter()
            .rposition(|one| one.scope == scope && one.step == step);
        let running = known.map(|place| self.running.remove(place));
        let waited = self.waits.end(scope, step);
        let took = running
            .as_ref()
            .and_then(|running| Some(at?.millis_since(running.at?).saturating_sub(waited)));
        let came = running.map(|running| running.summary()).unwrap_or_default();
        let detail = match end.detail.is_empty() {
            true => text::line(&came.call).into_owned(),
            false => text::line(&end.detail).into_owned(),
        };
        let detail = agents::joined([detail, came.items, came.agent, text::waited(waited)]);
        self.print_end(scope, step, took, end, &detail);
    }

    /// The line of an end; `detail` is clean.
    fn print_end(
        &self,
        scope: &str,
        name: &str,
        took: Option<u64>,
        end: &StepEnd<'_>,
        detail: &str,
    ) {
        let took = took.map(text::duration).unwrap_or_default();
        let words = if self.terminal {
            let width = NAME_COLUMNS.saturating_sub(2 * depth(scope));
            let detail = painted(DIM, detail);
            format!(
                "{}{} {:<width$} {took:>9}  {detail}",
                indent(scope),
                (end.mark)(self.symbols()),
                text::line(name)
            )
        } else {
            let named = path(scope, name);
            format!("step {} {} {took} {detail}", text::line(&named), end.word).replace("  ", " ")
        };
        match end.word {
            "failed" => self.print_whole(words.trim_end(), indent(scope).len() + 2),
            _ => self.print(words.trim_end()),
        }
    }

    /// Words that are not cut: on a terminal they go on below, indented.
    fn print_whole(&self, words: &str, indent: usize) {
        if !self.terminal {
            return (self.out)(words);
        }
        transient("");
        for one in (self.sheet)().folded(words, indent) {
            (self.out)(&one);
        }
    }

    fn print(&self, words: &str) {
        if !self.terminal {
            return (self.out)(words);
        }
        transient("");
        (self.out)(&(self.sheet)().fit(words));
    }

    fn symbols(&self) -> Symbols {
        (self.sheet)().symbols
    }
}

/// The result of a step, already cleaned for the terminal.
#[derive(Default)]
struct StepSummary {
    call: String,
    items: String,
    agent: String,
}

impl Running {
    /// What the step is doing; empty if there is nothing to add to its name.
    fn activity(&self) -> String {
        match &self.items {
            Some(items) => items.progress(),
            None => self.tally.doing.clone(),
        }
    }

    fn summary(self) -> StepSummary {
        StepSummary {
            items: self.items.map(|items| items.words()).unwrap_or_default(),
            agent: self.tally.words(),
            call: self.call,
        }
    }
}

impl StepEnd<'_> {
    fn complete() -> Self {
        Self {
            mark: |symbols| painted(GOOD, symbols.good()),
            word: "complete",
            detail: String::new(),
        }
    }

    fn skipped(reason: String) -> Self {
        Self {
            mark: |symbols| painted(DIM, symbols.skipped()),
            word: "skipped",
            detail: reason,
        }
    }

    fn failed(words: String) -> Self {
        Self {
            mark: |symbols| painted(BAD, symbols.bad()),
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

#[cfg(test)]
mod tests;
