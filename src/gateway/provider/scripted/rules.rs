//! Rules: which reply a request gets.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use regex::Regex;
use serde_json::Value;

use super::super::{ProviderCall, ProviderReply};
use super::calls::{self, ScriptedToolCall};
use super::estimated;
use super::template::{ScriptTemplate, ScriptTree, ScriptValues};
use crate::error::GatewayError;
use ktsu_contract::gateway::{AttemptUsage, ChatMessage};

/// A script's rules, in file order.
#[derive(Debug, Default)]
pub(super) struct Rules {
    pub(super) values: Vec<NamedValue>,
    pub(super) rules: Vec<ScriptRule>,
    pub(super) default: Option<ScriptRule>,
}

/// A value that is made of a request before any rule is asked.
#[derive(Debug)]
pub(super) struct NamedValue {
    pub(super) name: String,
    pub(super) from: Source,
    pub(super) make: ValueRule,
}

/// The rule by which a value is made.
#[derive(Debug)]
pub(super) enum ValueRule {
    /// The capture of a pattern, perhaps read as JSON.
    Pattern { pattern: Regex, json: bool },
    /// The value of the first case that matches.
    Cases {
        cases: Vec<(Regex, Value)>,
        otherwise: Value,
    },
}

/// A part of the request that patterns look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    /// Any message.
    Any,
    /// A name: of a part of the request, or of a value.
    Name(String),
    /// The number of the turn.
    Turn,
}

/// The parts of a request that have names.
pub(super) const PARTS: [&str; 9] = [
    "assistant",
    "group",
    "model",
    "system",
    "tool",
    "tool_error",
    "tools",
    "turn",
    "user",
];
/// The parts that patterns must match as a whole: names and numbers, not texts.
pub(super) const WHOLE: [&str; 3] = ["group", "model", "turn"];
/// Names that templates know beside parts, values and captures.
pub(super) const TEMPLATE_NAMES: [&str; 2] = ["count", "results"];

/// The turn as patterns see it; templates see a number, and can mention no name with a space.
const TURN_IN_DIGITS: &str = "turn in digits";

/// One rule.
#[derive(Debug, Default)]
pub(super) struct ScriptRule {
    pub(super) when: Vec<Matcher>,
    pub(super) unless: Vec<Matcher>,
    /// Number of times that it may match.
    pub(super) times: Option<u64>,
    pub(super) matched: AtomicU64,
    pub(super) delay: Delay,
    pub(super) error: Option<ScriptedFailure>,
    pub(super) reply: Option<ReplyBody>,
    pub(super) tool_calls: Vec<ScriptedToolCall>,
    pub(super) tokens_in: Option<u64>,
    pub(super) tokens_out: Option<u64>,
}

/// A pattern and what it looks at.
#[derive(Debug)]
pub(super) struct Matcher {
    pub(super) source: Source,
    pub(super) pattern: Regex,
}

/// The time that an answer takes.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Delay {
    pub(super) fixed: Duration,
    pub(super) per_character: Duration,
}

/// An answer that is an error.
#[derive(Debug)]
pub(super) struct ScriptedFailure {
    pub(super) failure: GatewayError,
    /// Number of matches of the rule that fail like this, from the first on; all of them if there
    /// is no number.
    pub(super) times: Option<u64>,
}

/// The text of a reply.
#[derive(Debug)]
pub(super) enum ReplyBody {
    Json(ScriptTree),
    Text(ScriptTemplate),
}

/// The answer of the script, and the delay before it.
#[derive(Debug)]
pub(super) struct ScriptedOutcome {
    pub(super) delay: Duration,
    pub(super) result: Result<ProviderReply, GatewayError>,
}

impl Rules {
    /// The answer of the first rule that matches, or the default.
    pub(super) fn answer(&self, call: &ProviderCall) -> Option<ScriptedOutcome> {
        let mut names = parts(call);
        for value in &self.values {
            let made = value.make(call, &names);
            names.insert(value.name.clone(), made);
        }
        let found = self.rules.iter().find_map(|rule| rule.take(call, &names));
        let taken = found.or_else(|| self.default.as_ref()?.take(call, &names));
        taken.map(|taken| taken.outcome(call))
    }
}

fn parts(call: &ProviderCall) -> ScriptValues {
    let last = |role: &str| {
        let mut messages = call.messages.iter().rev();
        let found = messages.find(|message| message.role == role);
        found.map_or(Value::Null, |message| Value::from(message.content.clone()))
    };
    let of = |role: &'static str| {
        call.messages
            .iter()
            .filter(move |message| message.role == role)
    };
    let system: Vec<&str> = of("system")
        .map(|message| message.content.as_str())
        .collect();
    let turn = of("assistant").count() + 1;
    let tools = call.tools.iter().map(|tool| tool.name.as_str());
    let tools: Vec<&str> = tools.collect();
    ScriptValues::from([
        ("assistant".to_owned(), last("assistant")),
        ("group".to_owned(), Value::from(call.group.clone())),
        ("model".to_owned(), Value::from(call.model.clone())),
        ("results".to_owned(), calls::results(&call.messages)),
        ("system".to_owned(), Value::from(system.join("\n"))),
        ("tool".to_owned(), calls::returned(&call.messages, false)),
        (
            "tool_error".to_owned(),
            calls::returned(&call.messages, true),
        ),
        ("tools".to_owned(), Value::from(tools.join("\n"))),
        ("turn".to_owned(), Value::from(turn)),
        (TURN_IN_DIGITS.to_owned(), Value::from(turn.to_string())),
        ("user".to_owned(), last("user")),
    ])
}

/// The first text of a source that a pattern is found in.
fn found<'h>(
    pattern: &Regex,
    source: &Source,
    call: &'h ProviderCall,
    names: &'h ScriptValues,
) -> Option<regex::Captures<'h>> {
    match source {
        Source::Any => {
            let mut messages = call.messages.iter();
            messages.find_map(|message| pattern.captures(&message.content))
        }
        Source::Name(name) => pattern.captures(names.get(name)?.as_str()?),
        Source::Turn => pattern.captures(names.get(TURN_IN_DIGITS)?.as_str()?),
    }
}

impl NamedValue {
    fn make(&self, call: &ProviderCall, names: &ScriptValues) -> Value {
        match &self.make {
            ValueRule::Pattern { pattern, json } => {
                let captures = found(pattern, &self.from, call, names);
                let text = captures.and_then(|captures| {
                    let named = captures.name("value").or_else(|| captures.get(1));
                    named.or_else(|| captures.get(0)).map(|text| text.as_str())
                });
                match text {
                    Some(text) if *json => serde_json::from_str(text).unwrap_or_default(),
                    Some(text) => Value::from(text),
                    None => Value::Null,
                }
            }
            ValueRule::Cases { cases, otherwise } => {
                let mut cases = cases.iter();
                let case =
                    cases.find(|(pattern, _)| found(pattern, &self.from, call, names).is_some());
                case.map_or(otherwise, |(_, value)| value).clone()
            }
        }
    }
}

/// A rule that matched, with the names it knows.
struct MatchedRule<'r> {
    rule: &'r ScriptRule,
    count: u64,
    names: ScriptValues,
}

impl ScriptRule {
    /// Takes the request if every pattern is found and the rule is not used up.
    fn take(&self, call: &ProviderCall, names: &ScriptValues) -> Option<MatchedRule<'_>> {
        let mut names = names.clone();
        for matcher in &self.when {
            let captures = found(&matcher.pattern, &matcher.source, call, &names)?;
            let captured: Vec<(String, Value)> = matcher
                .pattern
                .capture_names()
                .flatten()
                .filter_map(|name| Some((name.to_owned(), captures.name(name)?.as_str().into())))
                .collect();
            names.extend(captured);
        }
        let denies =
            |matcher: &Matcher| found(&matcher.pattern, &matcher.source, call, &names).is_some();
        if self.unless.iter().any(denies) {
            return None;
        }
        let left = |matched: u64| self.times.is_none_or(|times| matched < times);
        let next = |matched: u64| left(matched).then(|| matched.saturating_add(1));
        let counted = self
            .matched
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let count = counted.ok()?.saturating_add(1);
        names.insert("count".to_owned(), Value::from(count));
        Some(MatchedRule {
            rule: self,
            count,
            names,
        })
    }
}

impl MatchedRule<'_> {
    fn outcome(&self, call: &ProviderCall) -> ScriptedOutcome {
        let rule = self.rule;
        let fails = rule.error.as_ref();
        let fails = fails.filter(|fails| fails.times.is_none_or(|times| self.count <= times));
        if let Some(fails) = fails {
            return ScriptedOutcome {
                delay: rule.delay.fixed,
                result: Err(fails.failure.clone()),
            };
        }
        let content = match &rule.reply {
            Some(ReplyBody::Json(tree)) => tree.fill(&self.names).to_string(),
            Some(ReplyBody::Text(template)) => template.text(&self.names),
            None => String::new(),
        };
        let tool_calls = calls::fill(&rule.tool_calls, &self.names, &call.messages);
        let written = content.chars().count() + calls::written(&tool_calls);
        let per_character = u32::try_from(written).unwrap_or(u32::MAX);
        ScriptedOutcome {
            delay: rule.delay.fixed + rule.delay.per_character.saturating_mul(per_character),
            result: Ok(ProviderReply {
                used: AttemptUsage {
                    tokens_in: rule.tokens_in.unwrap_or_else(|| estimated(asked(call))),
                    tokens_out: rule.tokens_out.unwrap_or_else(|| estimated(written)),
                    ..AttemptUsage::default()
                },
                content,
                tool_calls,
            }),
        }
    }
}

/// Number of characters that a request has: its messages, and the tools it offers.
fn asked(call: &ProviderCall) -> usize {
    let message = |message: &ChatMessage| {
        message.content.chars().count() + calls::written(&message.tool_calls)
    };
    let messages: usize = call.messages.iter().map(message).sum();
    let tools = call.tools.iter().map(|tool| {
        let schema = tool.input_schema.to_string();
        tool.name.chars().count() + tool.description.chars().count() + schema.chars().count()
    });
    messages + tools.sum::<usize>()
}
