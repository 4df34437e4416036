//! The live view of a run.
//!
//! A terminal shows a line for each finished step, children indented below the step that calls
//! them, and a last line that is redrawn with the current activity. Everything else gets one plain
//! line per notable event, in a format that stays the same between versions: the end of a step or
//! an item, a model's reply, a reflection, a repair, a tool call and its result, approvals and
//! their decisions, a lost worker.

mod gaps;
mod responders;
mod tally;
mod tools;
mod waits;

use std::time::Instant;

use ktsu_ledger::event::{
    AgentEvent, ItemEvent, Purpose, ReservedEvaluated, RunEvent, StepEvent, WebhookEvent,
    WorkerEvent,
};
use ktsu_ledger::{Event, Frame, Timestamp};
use ktsu_projections::calls::CallHistory;
use ktsu_projections::lineage::item_name;
use ktsu_projections::step_name::path_in;

use self::responders::WaitingResponders;
use self::tally::{Items, TaskTally};
use self::tools::ToolNote;
use self::waits::Waits;
use super::layout::{columns, fit};
use super::output::{BAD, DIM, GOOD, WARN, is_live, note, note_sheet, painted, transient};
use super::symbols::Symbols;
use super::terminal::Terminal;
use super::{agents, text};

/// Names are padded to this many columns.
const NAME_COLUMNS: usize = 22;
/// The most columns of the last line for the path of a step.
const PATH_COLUMNS: usize = 40;
/// The most steps that the last line names.
const MAX_STEPS_NAMED: usize = 4;

/// The state of the view: what was printed and what is running.
pub(super) struct Live {
    terminal: bool,
    running: Vec<Running>,
    /// The cost of all model calls, in millionths of a US dollar.
    cost_micro_usd: u64,
    /// The tool calls so far.
    calls: CallHistory,
    /// The time that running steps have waited for people.
    waits: Waits,
    /// The moment of the last frame, and whether a branch was made with it.
    last: Option<(Timestamp, bool)>,
    /// Responders that wait before they look at something.
    responders: WaitingResponders,
    /// The function that lines are passed to.
    out: Box<dyn Fn(&str)>,
    /// The output device, queried for every line because a terminal may change its size.
    sheet: fn() -> Terminal,
}

struct Running {
    scope: String,
    step: String,
    at: Timestamp,
    since: Instant,
    /// The webhook call and its status.
    call: String,
    /// The activity and usage of its agents.
    tally: TaskTally,
    /// For a fan-out.
    items: Option<Items>,
}

/// The step, or the item, that a frame is about.
#[derive(Clone, Copy)]
struct LiveTask<'a> {
    scope: &'a str,
    step: &'a str,
    item: Option<u32>,
}

impl<'a> LiveTask<'a> {
    fn of(frame: &'a Frame) -> Option<Self> {
        let (step, item) = frame.event.task()?;
        let scope = &frame.scope;
        Some(Self { scope, step, item })
    }
}

/// The end of a step.
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
            calls: CallHistory::default(),
            waits: Waits::default(),
            last: None,
            responders: WaitingResponders::default(),
            out: Box::new(note),
            sheet: note_sheet,
        }
    }

    /// Applies a frame.
    pub(super) fn apply(&mut self, frame: &Frame) {
        self.leave_out(frame);
        self.waits.apply(frame);
        for words in self.responders.apply(frame) {
            if !self.terminal {
                self.print(&words);
            }
        }
        let call = tools::note(&mut self.calls, frame);
        if let Event::Run(event) = &frame.event {
            return self.run(frame, event);
        }
        let Some(task) = LiveTask::of(frame) else {
            return;
        };
        match &frame.event {
            Event::Step(event) => self.step(task, frame.at, event),
            Event::Item(event) => self.item(task, frame.at, event),
            Event::Agent(event) => {
                self.agent(task, event);
                self.tool(task, call);
            }
            Event::Worker(WorkerEvent::Lost(lost)) => {
                let words = format!("lost its worker: {}", tools::word(&lost.reason));
                self.print_notable(task, &words);
            }
            Event::Worker(WorkerEvent::Dispatched(sent)) if sent.attempt > 1 => {
                self.print_notable(task, &format!("attempt {}", sent.attempt));
            }
            Event::Webhook(event) => self.webhook(task, event),
            _ => {}
        }
    }

    fn step(&mut self, task: LiveTask<'_>, at: Timestamp, event: &StepEvent) {
        match event {
            StepEvent::Started(started) => self.running.push(Running {
                scope: task.scope.to_owned(),
                step: task.step.to_owned(),
                at,
                since: Instant::now(),
                call: String::new(),
                tally: TaskTally::default(),
                items: started.items.map(u64::from).map(Items::of),
            }),
            StepEvent::ReservedEvaluated(evaluated) => self.flagged(task, evaluated),
            StepEvent::Completed(_) => self.end(task, at, &StepEnd::complete()),
            StepEvent::Skipped(skipped) => {
                let reason = skipped.reason.as_str();
                let words = match &skipped.detail {
                    Some(detail) => format!("{reason}: {detail}"),
                    None => reason.to_owned(),
                };
                self.end(task, at, &StepEnd::skipped(words));
            }
            StepEvent::Failed(failed) => {
                self.end(task, at, &StepEnd::failed(&failed.code, &failed.message));
            }
            // It begins again, with the data that it waited for.
            StepEvent::Reset(_) => {
                let own = |one: &Running| one.scope == task.scope && one.step == task.step;
                self.running.retain(|one| !own(one));
            }
            _ => {}
        }
    }

    fn webhook(&mut self, task: LiveTask<'_>, event: &WebhookEvent) {
        let call = self.running(task).map(|running| &mut running.call);
        match (event, call) {
            (WebhookEvent::Sent(sent), Some(call)) => {
                *call = format!("{} {}", sent.method, sent.target);
            }
            (WebhookEvent::Delivered(answer), Some(call)) => {
                *call = format!("{call} -> {}", answer.status.unwrap_or_default());
            }
            (WebhookEvent::Failed(answer), _) => {
                let why = match (answer.status, &answer.code) {
                    (Some(status), _) => format!("status {status}"),
                    (None, Some(code)) => code.clone(),
                    (None, None) => "no answer".to_owned(),
                };
                let words = format!("sending {} failed: {why}", answer.sending);
                self.print_notable(task, &words);
            }
            _ => {}
        }
    }

    /// Draws the last line again.
    pub(super) fn tick(&self) {
        if !self.terminal {
            return;
        }
        if self.running.is_empty() && self.responders.is_empty() {
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
                let named = path_in(&running.scope, &running.step);
                let named = fit(&text::line(&named), PATH_COLUMNS, ellipsis);
                match running.activity() {
                    doing if doing.is_empty() => format!("{named} {took}"),
                    doing => format!("{named} {doing}, {took}"),
                }
            });
        let waiting = self.responders.words();
        let named = named.chain(waiting).collect::<Vec<_>>().join("; ");
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

    fn running(&mut self, task: LiveTask<'_>) -> Option<&mut Running> {
        let mut running = self.running.iter_mut().rev();
        running.find(|running| running.scope == task.scope && running.step == task.step)
    }

    /// Something about a task: it counts for its item and for its step.
    fn each(&mut self, task: LiveTask<'_>, change: impl Fn(&mut TaskTally)) {
        let Some(running) = self.running(task) else {
            return;
        };
        if let (Some(item), Some(items)) = (task.item, &mut running.items)
            && let Some(tally) = items.open.get_mut(&item)
        {
            change(tally);
        }
        change(&mut running.tally);
    }

    /// Records flags, of an item or of the step.
    fn flagged(&mut self, task: LiveTask<'_>, evaluated: &ReservedEvaluated) {
        let Some(running) = self.running(task) else {
            return;
        };
        let tally = match (task.item, &mut running.items) {
            (Some(item), Some(items)) => items.open.get_mut(&item),
            _ => Some(&mut running.tally),
        };
        if let Some(tally) = tally {
            tally.flag(evaluated);
        }
    }

    fn item(&mut self, task: LiveTask<'_>, at: Timestamp, event: &ItemEvent) {
        let items = self
            .running(task)
            .and_then(|running| running.items.as_mut());
        let Some(items) = items else {
            return;
        };
        let end = match event {
            ItemEvent::Started(started) => {
                items.open.insert(started.item, TaskTally::since(at));
                return;
            }
            ItemEvent::Completed(done) => match &done.skipped {
                Some(why) => StepEnd::skipped(why.clone()),
                None => StepEnd::complete(),
            },
            ItemEvent::Failed(failed) => StepEnd::failed(&failed.code, &failed.message),
        };
        let tally = items.end(event.item(), end.word).unwrap_or_default();
        // A terminal counts what went as it should.
        if self.terminal && end.word == "complete" && !tally.is_flagged() {
            return;
        }
        let waited = self.waits.of(task.scope, task.step, task.item);
        let took = tally.until(at).map(|whole| whole.saturating_sub(waited));
        let words = [
            text::line(&end.detail).into_owned(),
            tally.words(),
            text::waited(waited),
        ];
        let detail = agents::joined(words);
        let name = item_name(task.step, task.item);
        self.print_end(task.scope, &name, took, &end, &detail);
    }

    fn agent(&mut self, task: LiveTask<'_>, event: &AgentEvent) {
        match event {
            AgentEvent::Request(request) => {
                self.each(task, |tally| tally.ask(request));
                if request.purpose == Purpose::Repair {
                    self.print_in_pipe(task, "repairs its draft");
                }
            }
            AgentEvent::Response(answer) => {
                self.each(task, |tally| tally.answered(answer));
                self.spend(answer.cost_micro_usd);
                match &answer.error {
                    None => self.print_in_pipe(task, &format!("replied {}", tally::reply(answer))),
                    Some(error) => {
                        let words = format!("got no reply: {}: {}", error.code, error.message);
                        self.print_notable(task, &words);
                    }
                }
            }
            AgentEvent::ReflectStarted(_) => {
                self.each(task, |tally| tally.doing = "reflects".to_owned());
                self.print_in_pipe(task, "reflects");
            }
            AgentEvent::BudgetExhausted(exhausted) => {
                let spent = text::cost(exhausted.cost_micro_usd);
                let limit = text::cost(exhausted.limit_micro_usd);
                self.print_notable(task, &format!("budget exhausted: {spent} of {limit} spent"));
            }
            AgentEvent::Finished(finished) => {
                let metrics = finished.metrics.clone().unwrap_or_default();
                self.each(task, |tally| tally.claimed(&metrics));
                self.spend(metrics.cost_micro_usd);
            }
            _ => {}
        }
    }

    fn tool(&mut self, task: LiveTask<'_>, note: Option<ToolNote>) {
        let Some(note) = note else {
            return;
        };
        self.each(task, |tally| {
            tally.tools += u64::from(note.is_call);
            tally.doing.clone_from(&note.doing);
        });
        match note.matters {
            true => self.print_notable(task, &note.line),
            false => self.print_in_pipe(task, &note.line),
        }
    }

    fn spend(&mut self, cost_micro_usd: u64) {
        self.cost_micro_usd = self.cost_micro_usd.saturating_add(cost_micro_usd);
    }

    /// A line that only a pipe gets: a terminal has it in its last line.
    fn print_in_pipe(&self, task: LiveTask<'_>, words: &str) {
        if !self.terminal {
            self.print_notable(task, words);
        }
    }

    fn print_notable(&self, task: LiveTask<'_>, words: &str) {
        let name = item_name(task.step, task.item);
        let words = text::line(words);
        if self.terminal {
            let named = format!("{:<1$}", text::line(&name), NAME_COLUMNS);
            let indent = indent(task.scope);
            let words = format!("{indent}{} {named} {words}", painted(WARN, "!"));
            self.print_whole(&words, indent.len() + 2);
        } else {
            let path = path_in(task.scope, &name);
            self.print(&format!("{} {words}", subject(&path)));
        }
    }

    /// An inline child that starts, or a person's command about the whole run.
    fn run(&mut self, frame: &Frame, event: &RunEvent) {
        let (word, by, from, reason) = match event {
            RunEvent::Started(_) if !frame.scope.is_empty() => return self.enter(&frame.scope),
            RunEvent::Paused(command) => ("paused", &command.by, None, &command.reason),
            RunEvent::Cancelled(command) => ("cancelled", &command.by, None, &command.reason),
            RunEvent::Resumed(word) => ("resumed", &word.by, word.from.as_ref(), &word.reason),
            _ => return,
        };
        let from = from.map(|step| format!(" from {step}")).unwrap_or_default();
        let reason = reason.as_ref().map(|reason| format!(": {reason}"));
        let next = match word {
            "paused" => format!(" (to continue: ktsu resume {})", frame.stream.name()),
            _ => String::new(),
        };
        let (by, reason) = (&by.id, reason.unwrap_or_default());
        let words = format!("run {word}{from} by {by}{reason}{next}");
        let words = text::line(&words);
        match self.terminal {
            true => self.print_whole(&format!("  {} {words}", painted(WARN, "!")), 4),
            false => self.print(&words),
        }
    }

    fn end(&mut self, task: LiveTask<'_>, at: Timestamp, end: &StepEnd<'_>) {
        let LiveTask { scope, step, .. } = task;
        let mut all = self.running.iter();
        let known = all.rposition(|running| running.scope == scope && running.step == step);
        let running = known.map(|place| self.running.remove(place));
        let waited = self.waits.end(scope, step);
        let took = running.as_ref();
        let took = took.map(|running| at.millis_since(running.at).saturating_sub(waited));
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
            let named = path_in(scope, name);
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
    /// The activity of the step; empty if there is nothing to add to its name.
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

    fn failed(code: &str, message: &str) -> Self {
        Self {
            mark: |symbols| painted(BAD, symbols.bad()),
            word: "failed",
            detail: format!("{code}: {message}"),
        }
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

/// The subject of a line: a step by its path, or the responder that asked.
fn subject(path: &str) -> String {
    let asked = path.strip_prefix('@').filter(|rest| !rest.contains('/'));
    match asked.and_then(|asked| asked.split_once('.')) {
        Some((responder, _)) => format!("responder {}", text::line(responder)),
        None => format!("step {}", text::line(path)),
    }
}

#[cfg(test)]
mod tests;
