//! Reactions to what was asked: `then`, as of the reply.

use std::collections::BTreeMap;

use jmespath::{Rcvar, Variable};
use ktsu_ledger::event::{ResponderCompleted, ResponderFailed, SkippedEntry, TaskKind, WorldEvent};
use ktsu_ledger::{CanonicalJson, Cause};
use ktsu_projections::world::TaskContext;
use serde_json::Value;

use super::ask::{ReplyEnd, evaluate};
use super::look_up::look_up;
use super::names::ResponderNames;
use super::output::Maker;
use super::verdict::{self, Evaluated};
use super::{Response, Stage};
use crate::definition::{CompiledAsk, CompiledResponder, CompiledResponse};
use crate::expression::{EvaluationError, from_value, null};
use crate::failure_text::clipped;

/// The reaction of a responder to a reply, from an entry of `then` on; behind the last,
/// `responder.completed`.
pub(super) fn react(
    stage: &Stage<'_>,
    (task, outcome): (&TaskContext, &CanonicalJson),
    from: u32,
) -> Response {
    let maker = Maker {
        context: stage.context,
        head: stage.head,
        responder: Some(&task.responder),
        cause: vec![Cause::Here(stage.trigger.seq)],
        key: Some(&stage.trigger.key),
        trigger: Some(task.trigger.seq),
    };
    let fail = |code: &str, message: &str| {
        Response::Failed(Box::new(maker.draft(WorldEvent::Failed(ResponderFailed {
            address: Some(task.address.to_string()),
            code: code.to_owned(),
            entry: None,
            item: task.item,
            message: clipped(message.to_owned()),
            responder: task.responder.to_string(),
        }))))
    };
    let outcome = outcome.to_value();
    let found = stage.context.worlds.responder(&task.responder);
    let Some((_, responder)) = found else {
        return fail(
            "expression_failed",
            "the responder is not in the definition any more",
        );
    };
    let end = match &responder.work {
        CompiledResponse::Ask(ask) => evaluate(ask, &outcome, stage.context.rules).end,
        CompiledResponse::Run { .. } | CompiledResponse::Emit(_) => {
            ReplyEnd::Output(outcome.get("output").cloned().unwrap_or_default())
        }
    };
    let output = match end {
        ReplyEnd::Output(output) => output,
        ReplyEnd::Failed { code, message } => return fail(&code, &message),
        ReplyEnd::Skipped(reason) => {
            let entries = u32::try_from(responder.then.len()).unwrap_or(u32::MAX);
            let skipped = (0..entries).map(|entry| SkippedEntry {
                entry,
                reason: reason.clone(),
            });
            let done = completed(task, skipped.collect());
            return Response::Frame(Box::new(maker.draft(done)));
        }
    };
    match reacted(stage, &maker, (task, responder), &output, from) {
        Ok(response) => response,
        Err(error) => fail("expression_failed", &error.message),
    }
}

fn reacted(
    stage: &Stage<'_>,
    maker: &Maker<'_>,
    (task, responder): (&TaskContext, &CompiledResponder),
    output: &Value,
    from: u32,
) -> Result<Response, EvaluationError> {
    let context = stage.context;
    // The trigger is the one that the question followed from; the world is the one of the reply.
    let names = ResponderNames::of_trigger(context, &task.trigger, stage.world);
    let found = look_up(responder, &names, stage.world, context.rules)?;
    let reply = reply_value(responder, task.kind, output);
    let names = names
        .with_locals(&found)
        .with_item(item(stage, task, responder), task.item.unwrap_or_default())
        .with_reply(&reply);
    let mut made: BTreeMap<String, Rcvar> = BTreeMap::new();
    for (at, entry) in (0u32..).zip(&responder.then) {
        if at < from && entry.as_name.is_none() {
            continue;
        }
        let one = maker.make(entry, (None, at), &names.with_locals(&made));
        let one = match one {
            Ok(one) => one,
            Err(_) if at < from => None,
            Err(refused) => return Ok(maker.refuse((None, at), Some(&task.address), refused)),
        };
        let Some(one) = one else {
            continue;
        };
        if let Some(event) = one.event.filter(|_| at >= from) {
            return Ok(Response::Frame(Box::new(maker.draft(event))));
        }
        if let Some(name) = &entry.as_name {
            made.insert(name.clone(), one.shown);
        }
    }
    let guards = (0u32..).zip(&responder.then);
    let skipped = guards.filter_map(|(entry, plan)| {
        let names = names.with_locals(&made);
        let error = plan.when.as_ref()?.evaluate(&names).err()?;
        let reason = clipped(error.message);
        Some(SkippedEntry { entry, reason })
    });
    let done = completed(task, skipped.collect());
    Ok(Response::Frame(Box::new(maker.draft(done))))
}

/// `responder.completed`.
fn completed(task: &TaskContext, skipped: Vec<SkippedEntry>) -> WorldEvent {
    WorldEvent::Completed(ResponderCompleted {
        address: task.address.to_string(),
        responder: task.responder.to_string(),
        skipped,
    })
}

/// `reply {output, text}` of a model, or `result` of a workflow.
fn reply_value(
    responder: &CompiledResponder,
    kind: TaskKind,
    output: &Value,
) -> (&'static str, Rcvar) {
    if kind == TaskKind::Run {
        return ("result", from_value(output));
    }
    let has_schema = matches!(
        &responder.work,
        CompiledResponse::Ask(CompiledAsk {
            output: Some(_),
            ..
        })
    );
    let text = match output {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let value = match has_schema {
        true => from_value(output),
        false => null(),
    };
    let members = BTreeMap::from([
        ("output".to_owned(), value),
        ("text".to_owned(), Rcvar::new(Variable::String(text))),
    ]);
    ("reply", Rcvar::new(Variable::Object(members)))
}

/// The item that the question was for: of the list as of its trigger.
fn item(stage: &Stage<'_>, task: &TaskContext, responder: &CompiledResponder) -> Option<Rcvar> {
    let at = task.item?;
    let asked = Stage {
        context: stage.context,
        trigger: &task.trigger,
        world: &task.world,
        head: stage.head,
    };
    match verdict::evaluate(&asked, responder) {
        Evaluated::Fired(evaluation) => evaluation.item(at),
        Evaluated::False
        | Evaluated::Failed(_)
        | Evaluated::ItemsFailed(_)
        | Evaluated::Postponed => None,
    }
}
