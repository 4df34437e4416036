//! The questions of responders in the definition of a recompute: a world whose responders ask what was
//! asked, and make nothing of it.
//!
//! One responder stands for all questions of a responder of the run, and goes through their recorded
//! messages. So a question is asked as it was, with the same roles, limits and schema; and where it
//! stands among its like says which of the run it is.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;

use ktsu_ledger::event::plan::world::{
    AskPlan, ForEachPlan, MessagePlan, OnError, ResponderPlan, ResponderWork, WorldBudget,
    WorldPlan,
};
use ktsu_projections::world::TriggerKey;
use serde_json::{Map, Value, json};

use super::{RecordedAsk, RecordedRun};
use crate::expression::MAX_RESULT;
use crate::respond::MAX_TASKS;
use crate::world::GOAL_OBJECT;

/// The param that holds the questions: `{NAME: [{step, messages}]}`.
pub(super) const ASKS: &str = "asks";

/// The most characters of a name that a number follows: names have 64.
const MAX_STEM: usize = 48;

/// The most bytes of messages that a responder goes through, unless one question has more: half of
/// what an expression may come to.
const MAX_GROUP_BYTES: usize = MAX_RESULT / 2;

/// The world of the questions, and what it needs.
pub(super) struct PlannedQuestions {
    /// Its file.
    pub(super) path: String,
    /// The world.
    pub(super) world: WorldPlan,
    /// The goal, whose object the questions follow from.
    pub(super) goal: String,
    /// The param [`ASKS`].
    pub(super) params: Value,
}

/// Questions that one responder asks.
struct QuestionGroup<'a> {
    name: String,
    responder: &'a ResponderPlan,
    ask: &'a AskPlan,
    asks: Vec<&'a RecordedAsk>,
    bytes: usize,
}

/// Plans these questions; nothing if there are none.
pub(super) fn plan(recorded: &RecordedRun, asks: &[&RecordedAsk]) -> Option<PlannedQuestions> {
    let mut groups: Vec<QuestionGroup<'_>> = Vec::new();
    let mut names = BTreeSet::new();
    for ask in asks {
        // A branch may have changed how a responder asks.
        let alike = |group: &&mut QuestionGroup<'_>| {
            group.ask == &ask.ask
                && group.responder.name == ask.responder.name
                && group.asks.len() < MAX_TASKS
                && group.bytes + bytes(ask) <= MAX_GROUP_BYTES
        };
        if let Some(group) = groups.iter_mut().find(alike) {
            group.bytes += bytes(ask);
            group.asks.push(ask);
            continue;
        }
        let name = unique(&ask.responder.name, &names);
        names.insert(name.clone());
        groups.push(QuestionGroup {
            name,
            responder: &ask.responder,
            ask: &ask.ask,
            asks: vec![ask],
            bytes: bytes(ask),
        });
    }
    let recorded_budget = recorded.world_budget.unwrap_or_default();
    let world = WorldPlan {
        budget: WorldBudget {
            // What is asked is counted already.
            max_events: u64::from(u32::MAX),
            ..recorded_budget
        },
        edges: Vec::new(),
        goal: None,
        name: "recompute".to_owned(),
        objects: BTreeMap::new(),
        relations: BTreeMap::new(),
        responders: groups.iter().map(responder).collect(),
        version: recorded.version.clone(),
    };
    let params = groups.iter().map(|group| {
        let asks = group.asks.iter();
        let asks = asks.map(|ask| json!({"step": ask.address, "messages": ask.messages}));
        (group.name.clone(), Value::Array(asks.collect()))
    });
    let params: Map<String, Value> = params.collect();
    (!groups.is_empty()).then(|| PlannedQuestions {
        path: "worlds/recompute.world.yaml".to_owned(),
        world,
        goal: format!("recompute of {}", recorded.stream.name()),
        params: Value::Object(params),
    })
}

/// The address that the question at a place of a responder has in a recompute.
pub(super) fn address(responder: &str, place: u32) -> String {
    TriggerKey::goal(0).address(responder, Some(place))
}

/// About what a question takes as text.
fn bytes(ask: &RecordedAsk) -> usize {
    let messages = json!([ask.address, ask.messages]);
    messages.to_string().len()
}

fn responder(group: &QuestionGroup<'_>) -> ResponderPlan {
    let messages = group.ask.messages.iter().enumerate();
    let messages = messages.map(|(at, message)| MessagePlan {
        content: format!("{{{{ item.messages[{at}] }}}}"),
        role: message.role,
    });
    let ask = AskPlan {
        messages: messages.collect(),
        ..group.ask.clone()
    };
    ResponderPlan {
        after_ms: None,
        changed: Vec::new(),
        concurrency: group.responder.concurrency,
        for_each: Some(ForEachPlan::From(format!(
            "params.{ASKS}.\"{}\"",
            group.name
        ))),
        name: group.name.clone(),
        on: vec!["object.created".to_owned()],
        // An answer that fails says nothing about the others.
        on_error: OnError::Continue,
        publish: None,
        then: Vec::new(),
        types: vec![GOAL_OBJECT.to_owned()],
        when: None,
        lookups: Vec::new(),
        work: ResponderWork::Ask(ask),
    }
}

/// A name for a responder that no other has.
fn unique(name: &str, taken: &BTreeSet<String>) -> String {
    let short = name.get(..MAX_STEM).unwrap_or(name);
    let numbered = (2..).map(|number| format!("{short}-{number}"));
    let mut free = iter::once(name.to_owned())
        .chain(numbered)
        .filter(|name| !taken.contains(name));
    free.next().unwrap_or_default()
}
