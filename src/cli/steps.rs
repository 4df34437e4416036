//! The steps of a run as a tree, with what they called and the children they ran.

use ktsu_ledger::event::CallAttempt;
use ktsu_projections::envelope::{AgentRemarks, ErrorView, ShownStatus, UsageView};
use ktsu_projections::run::{RunStatus, StepStatus};

use super::envelope::{mark, paused};
use super::layout::Column;
use super::output::{
    BAD, BOLD, DIM, line, painted, row as cut_line, sheet, symbols, words as print_words,
};
use super::step_row::{StepRow, branch};
use super::table::{FailureReason, Rows};
use super::{agents, text, world_tree};
use ktsu_history::steps::{ItemTimeline, RunTimeline, StepTimeline, TimelineEntry};
use ktsu_history::webhooks::WebhookRequest;

/// The limit of a webhook's body on a terminal.
const MAX_BODY_CHARS: usize = 1000;
/// From this many items on, those in a row that went as they should share a row.
const MAX_ORDINARY_ITEMS: usize = 24;

/// Prints a run.
pub(super) fn print(run: &RunTimeline) {
    let words = format!(
        "{} {} {}",
        mark(run.status.as_str()),
        painted(
            BOLD,
            &text::line(&format!("{} {}", run.workflow, run.version))
        ),
        run.status,
    );
    let id = painted(DIM, &text::line(&run.run_id));
    sheet().beside(&words, &id).iter().for_each(|one| {
        line(one);
    });
    if let Some(word) = &run.steered.paused {
        paused(word);
    }
    let mut rows = Vec::new();
    steps(&run.steps, "", &mut rows);
    if let Some(world) = &run.world {
        rows.extend(world_tree::rows(world));
    }
    let mut table = Rows::open(&[
        Column::name("STEP").at_least(28),
        Column::whole("TYPE").spare(3),
        Column::whole("START").right().spare(5),
        Column::whole("TIME").right().spare(2),
        Column::whole("COST").right().spare(4),
        Column::text("NOTE").spare(1),
    ]);
    for row in &rows {
        table.push(row.cells());
    }
    let wrong = rows.iter().enumerate().filter(|(_, row)| row.wrong);
    let reasons = wrong.map(|(position, row)| FailureReason {
        row: position,
        name: row.name.clone(),
        words: text::line(&row.note).into_owned(),
    });
    table.print_with(&reasons.collect::<Vec<_>>());
    let totals = &run.totals;
    let asked = match totals.llm_calls {
        0 => String::new(),
        _ => format!(", {}", calls_of(totals)),
    };
    let steps = count_of(run, &rows);
    cut_line(&painted(
        DIM,
        &format!(
            "{steps} in {}{}, {}{}",
            text::duration(totals.duration_ms),
            match totals.waited_ms {
                0 => String::new(),
                ms => format!(", {}", text::waited(ms)),
            },
            text::cost(totals.cost_micro_usd),
            asked
        ),
    ));
    if let Some(error) = &run.error {
        let place = error.step.as_deref().map(|step| format!(" in step {step}"));
        let words = format!("{}: {}", error.code, error.message);
        let words = text::line(&words);
        let place = place.unwrap_or_default();
        let place = text::line(&place);
        print_words(&format!("{}{place}: {words}", painted(BAD, "error")), 2);
    }
}

/// The number of steps, and of events and reactions in a world.
fn count_of(run: &RunTimeline, rows: &[StepRow]) -> String {
    let of_world = run.world.as_ref().map_or(0, |world| world.tree.len());
    let steps = rows.iter().filter(|row| !row.kind.is_empty());
    let steps = steps.count().saturating_sub(of_world);
    let steps = text::count(steps, "step");
    let Some(world) = &run.world else {
        return steps;
    };
    let count = |count: u64, what| text::count(usize::try_from(count).unwrap_or(usize::MAX), what);
    let world = agents::joined([
        count(world.events, "world event"),
        count(world.reactions, "reaction"),
    ]);
    match run.steps.is_empty() {
        true => world,
        false => agents::joined([steps, world]),
    }
}

/// Children are as deep as workflows are nested, which the kit bounds.
fn steps(all: &[StepTimeline], lines: &str, rows: &mut Vec<StepRow>) {
    for (position, step) in all.iter().enumerate() {
        let (here, below) = branch(lines, position + 1 == all.len());
        rows.push(step_row(step, here));
        let children = step.child.as_ref().map_or(&[][..], |child| &child.steps);
        let groups = groups(&step.items);
        let shown: Vec<&TimelineEntry> = step.calls.iter().filter(|call| !call.is_plain).collect();
        for (position, call) in shown.iter().enumerate() {
            let last = position + 1 == shown.len()
                && children.is_empty()
                && groups.is_empty()
                && step.invoked.is_empty();
            call_rows(call, &below, last, rows);
        }
        for (position, group) in groups.iter().enumerate() {
            let last =
                position + 1 == groups.len() && children.is_empty() && step.invoked.is_empty();
            items(group, &below, last, rows);
        }
        for (position, run) in step.invoked.iter().enumerate() {
            let (here, below) = branch(&below, position + 1 == step.invoked.len());
            rows.push(invoked_row(run, here));
            steps(&run.steps, &below, rows);
        }
        steps(children, &below, rows);
    }
}

/// The row of a workflow that a command ran: `verify.0`.
fn invoked_row(run: &RunTimeline, lines: String) -> StepRow {
    let name = run.run_id.rsplit('/').next().unwrap_or_default();
    StepRow {
        lines,
        mark: mark(run.status.as_str()),
        name: text::line(name).into_owned(),
        kind: "workflow".to_owned(),
        start: start(Some(run.after_ms)),
        time: match run.status {
            RunStatus::Running | RunStatus::Waiting => "-".to_owned(),
            RunStatus::Pending | RunStatus::Complete | RunStatus::Failed | RunStatus::Cancelled => {
                text::duration(run.totals.duration_ms)
            }
        },
        cost: cost(run.totals.cost_micro_usd),
        wrong: run.error.is_some(),
        note: end_text(run.error.as_ref(), None, run.status.as_str()),
    }
}

/// Items that share a row, in order.
fn groups(items: &[ItemTimeline]) -> Vec<&[ItemTimeline]> {
    if items.len() <= MAX_ORDINARY_ITEMS {
        return items.chunks(1).collect();
    }
    let alike = |one: &ItemTimeline, other: &ItemTimeline| is_ordinary(one) && is_ordinary(other);
    items.chunk_by(alike).collect()
}

/// Returns `true` if an item completed with nothing notable.
fn is_ordinary(item: &ItemTimeline) -> bool {
    let shown = item.calls.iter().filter(|call| !call.is_plain).count();
    let one_model = item.calls.iter().all(|call| attempts(call).is_empty());
    let one_call = shown <= 1 && one_model;
    item.status == ShownStatus::Own(StepStatus::Complete)
        && item.attempt <= 1
        && item.said.flags.is_empty()
        && one_call
}

fn items(group: &[ItemTimeline], lines: &str, last: bool, rows: &mut Vec<StepRow>) {
    let (here, below) = branch(lines, last);
    let [item] = group else {
        return rows.extend(group_row(group, here));
    };
    let shown: Vec<&TimelineEntry> = item.calls.iter().filter(|call| !call.is_plain).collect();
    let mut row = item_row(item, here);
    // A single call is shown in the item's row.
    if let [call] = shown.as_slice()
        && call.answer.is_some()
        && attempts(call).is_empty()
    {
        row.note = agents::joined([row.note, call_note(call)]);
        return rows.push(row);
    }
    rows.push(row);
    for (position, call) in shown.iter().enumerate() {
        let last = position + 1 == shown.len();
        call_rows(call, &below, last, rows);
    }
}

/// A call; its attempts get rows if there were several or one failed.
fn call_rows(call: &TimelineEntry, lines: &str, last: bool, rows: &mut Vec<StepRow>) {
    let (here, below) = branch(lines, last);
    rows.push(call_row(call, here));
    let attempts = attempts(call);
    for (position, attempt) in attempts.iter().enumerate() {
        let last = position + 1 == attempts.len();
        rows.push(attempt_row(attempt, branch(&below, last).0));
    }
}

fn attempts(call: &TimelineEntry) -> &[CallAttempt] {
    let answer = call.answer.as_ref();
    answer.map_or(&[], |answer| answer.attempts.as_slice())
}

/// Many items in one row; none if there are none.
fn group_row(group: &[ItemTimeline], lines: String) -> Option<StepRow> {
    let (first, last) = (group.first()?, group.last()?);
    let sum = |of: fn(&UsageView) -> u64| group.iter().map(|item| of(&item.metrics)).sum::<u64>();
    let tokens = (sum(|used| used.tokens_in), sum(|used| used.tokens_out));
    let calls = agents::calls(
        sum(|used| used.llm_calls),
        tokens,
        (
            sum(|used| used.reflect_calls),
            sum(|used| used.repair_calls),
            sum(|used| used.cached_calls),
        ),
    );
    let count = u64::try_from(group.len()).unwrap_or(u64::MAX);
    Some(StepRow {
        lines,
        mark: mark("complete"),
        name: text::line(&format!(
            "{} {} {}",
            first.id,
            symbols().ellipsis(),
            last.id
        ))
        .into_owned(),
        start: start(first.after_ms),
        cost: cost(sum(|used| used.cost_micro_usd)),
        note: agents::joined([agents::items(count, 0, 0), calls]),
        ..StepRow::default()
    })
}

fn item_row(item: &ItemTimeline, lines: String) -> StepRow {
    let mut note = end_text(
        item.error.as_ref(),
        item.skip_reason.as_ref(),
        item.status.as_str(),
    );
    if item.attempt > 1 {
        note = agents::joined([format!("attempt {}", item.attempt), note]);
    }
    let note = agents::joined([note, text::waited(item.metrics.waited_ms)]);
    StepRow {
        lines,
        mark: mark(item.status.as_str()),
        name: text::line(&item.id).into_owned(),
        kind: String::new(),
        start: start(item.after_ms),
        time: match item.status {
            ShownStatus::Own(StepStatus::Running) => "-".to_owned(),
            ShownStatus::Own(_) | ShownStatus::PendingApproval => {
                text::duration(item.metrics.duration_ms)
            }
        },
        cost: cost(item.metrics.cost_micro_usd),
        wrong: item.error.is_some(),
        note: agents::joined([note, reply_text(&item.said, item.reflected)]),
    }
}

fn call_row(call: &TimelineEntry, lines: String) -> StepRow {
    let answer = call.answer.as_ref();
    StepRow {
        lines,
        mark: painted(DIM, symbols().dot()),
        name: text::line(&call.kind).into_owned(),
        kind: String::new(),
        start: format!("+{}", text::duration(call.after_ms)),
        time: answer.map_or_else(String::new, |answer| text::duration(answer.duration_ms)),
        cost: answer.map_or_else(String::new, |answer| cost(answer.cost_micro_usd)),
        note: call_note(call),
        wrong: answer.is_some_and(|answer| answer.error.is_some())
            || call
                .request
                .as_ref()
                .is_some_and(|one| one.problem.is_some()),
    }
}

/// One attempt at a model.
fn attempt_row(attempt: &CallAttempt, lines: String) -> StepRow {
    let used = &attempt.usage;
    StepRow {
        lines,
        mark: painted(DIM, symbols().dot()),
        name: text::line(&attempt.model).into_owned(),
        time: text::duration(attempt.duration_ms),
        cost: cost(used.cost_micro_usd),
        note: agents::joined([
            attempt.status.clone(),
            agents::tokens((used.tokens_in, used.tokens_out)),
        ]),
        wrong: attempt.status != "ok",
        ..StepRow::default()
    }
}

fn call_note(call: &TimelineEntry) -> String {
    if let Some(request) = &call.request {
        return request_note(request);
    }
    let Some(answer) = &call.answer else {
        return call.detail.clone();
    };
    let came = match &answer.error {
        Some(error) => error.clone(),
        None => format!(
            "{} {}",
            answer.model,
            agents::tokens((answer.tokens_in, answer.tokens_out))
        ),
    };
    match answer.asked.as_str() {
        "" => came,
        asked => format!("{asked}: {came}"),
    }
}

/// `POST https://…, signed: {…}`, in a pipe whole.
fn request_note(request: &WebhookRequest) -> String {
    let url = request.url.as_deref().unwrap_or_default();
    let url = text::line(url);
    let signed = match request.is_signed() {
        true => ", signed",
        false => "",
    };
    let body = request.body.as_ref().map(|body| body.as_str());
    let body = match (body, request.body_bytes) {
        (Some(body), _) if sheet().width.is_some() => {
            format!(": {}", text::short(body, MAX_BODY_CHARS))
        }
        (Some(body), _) => format!(": {}", text::line(body)),
        (None, Some(bytes)) => format!(": {bytes} bytes"),
        (None, None) => String::new(),
    };
    let problem = request.problem.as_ref();
    let problem = problem.map_or_else(String::new, |problem| format!(" ({problem})"));
    format!("{} {url}{signed}{problem}{body}", request.method)
}

/// The remarks that an agent reported next to its output: flags, reflection, confidence.
fn reply_text(remarks: &AgentRemarks, reflected: bool) -> String {
    let confidence = remarks.confidence.as_ref();
    agents::joined([
        if reflected { "reflected" } else { "" }.to_owned(),
        confidence.map_or_else(String::new, |one| {
            format!("confidence {}", text::line(one.as_str()))
        }),
        agents::flags(remarks.flags.iter().map(String::as_str)),
    ])
}

/// The reason why a step or an item failed or was skipped, or its status if it is not complete.
fn end_text(error: Option<&ErrorView>, skipped: Option<&String>, status: &str) -> String {
    match (error, skipped) {
        (Some(error), _) => format!("{}: {}", error.code, error.message),
        (None, Some(reason)) => format!("skipped: {reason}"),
        (None, None) if status == "complete" => String::new(),
        (None, None) => status.to_owned(),
    }
}

fn calls_of(used: &UsageView) -> String {
    agents::calls(
        used.llm_calls,
        (used.tokens_in, used.tokens_out),
        (used.reflect_calls, used.repair_calls, used.cached_calls),
    )
}

fn start(after_ms: Option<u64>) -> String {
    after_ms.map_or_else(|| "-".to_owned(), |ms| format!("+{}", text::duration(ms)))
}

fn cost(micro_usd: u64) -> String {
    match micro_usd {
        0 => "-".to_owned(),
        cost => text::cost(cost),
    }
}

fn step_row(step: &StepTimeline, lines: String) -> StepRow {
    let ended = step.status.is_end();
    let mut note = end_text(
        step.error.as_ref(),
        step.skip_reason.as_ref(),
        step.status.as_str(),
    );
    if let Some(counts) = step.counts {
        let of = agents::items(
            counts.succeeded.into(),
            counts.failed.into(),
            counts.skipped.into(),
        );
        note = agents::joined([note, of]);
    }
    let reflected = step.reflected.unwrap_or(false) && step.counts.is_none();
    note = agents::joined([note, reply_text(&step.said, reflected)]);
    note = agents::joined([note, text::waited(step.metrics.waited_ms)]);
    if !step.after.is_empty() {
        let after = format!("after {}", step.after.join(", "));
        note = if note.is_empty() {
            after
        } else {
            format!("{note} ({after})")
        };
    }
    if let Some(other) = &step.resume_step {
        note = agents::joined([format!("by {other}"), note]);
    }
    if step.attempt > 1 {
        note = agents::joined([format!("attempt {}", step.attempt), note]);
    }
    StepRow {
        lines,
        mark: mark(step.status.as_str()),
        name: text::line(&step.id).into_owned(),
        kind: step.kind.clone(),
        start: start(step.after_ms),
        time: if ended && (step.skip_reason.is_none() || step.metrics.llm_calls > 0) {
            text::duration(step.metrics.duration_ms)
        } else {
            "-".to_owned()
        },
        cost: cost(step.metrics.cost_micro_usd),
        wrong: step.error.is_some(),
        note,
    }
}
