//! Reads the rules file, and reports every fault with its location.

mod response;

use std::path::Path;
use std::time::Duration;

use regex::{Regex, RegexBuilder};
use serde_json::Value;

use super::rules::{
    Delay, Matcher, NamedValue, PARTS, Rules, ScriptRule, ScriptedFailure, Source, TEMPLATE_NAMES,
    ValueRule, WHOLE,
};
use super::shape::{self, MAX_COUNT, MAX_DELAY_MS};
use super::template::is_of_a_name;
use crate::error::{Code, GatewayError};
use ktsu_config::fault::{Fault, FaultCode, Faults};
use ktsu_config::read::{self, ConfigReader, Fields};
use ktsu_config::shape::MapShape;
use ktsu_config::yaml::{YamlNode, YamlValue};
use ktsu_contract::gateway::AttemptUsage;

/// Reads a rules file.
pub(super) fn load(real: &Path, shown: &Path, faults: &mut Faults) -> Option<Rules> {
    let text = read::source(real, shown, faults)?;
    let node = read::tree(&text, shown, faults)?;
    let mut reader = ConfigReader::new(shown, &text);
    let rules = rules(&mut reader, &node);
    let sound = reader.faults.is_empty();
    faults.faults.append(&mut reader.faults);
    rules.filter(|_| sound)
}

fn rules(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<Rules> {
    let fields = reader.shaped(node, &shape::RULES)?;
    let mut rules = Rules::default();
    if let Some(node) = fields.get("values") {
        values(reader, node, &mut rules.values);
    }
    let names = ValueNames::of(&rules.values);
    if let Some(node) = fields.get("rules") {
        let list = reader.list(node, "rules").unwrap_or_default();
        let read = list
            .iter()
            .filter_map(|node| rule(reader, node, &names, &shape::RULE));
        rules.rules = read.collect();
    }
    if let Some(node) = fields.get("default") {
        rules.default = rule(reader, node, &names, &shape::DEFAULT);
    }
    Some(rules)
}

/// The names that patterns may look at, and those that templates may mention.
struct ValueNames {
    sources: Vec<String>,
}

impl ValueNames {
    fn of(values: &[NamedValue]) -> Self {
        let values = values.iter().map(|value| value.name.clone());
        let parts = PARTS.iter().map(|&part| part.to_owned());
        Self {
            sources: parts.chain(values).collect(),
        }
    }

    fn keys(&self) -> Vec<&str> {
        let any = std::iter::once("any");
        any.chain(self.sources.iter().map(String::as_str)).collect()
    }
}

fn values(reader: &mut ConfigReader<'_>, node: &YamlNode, values: &mut Vec<NamedValue>) {
    if reader.open_map(node, "values").is_none() {
        return;
    }
    let YamlValue::Map(members) = &node.data else {
        return;
    };
    for (key, node) in members {
        let taken = ["any"]
            .iter()
            .chain(&PARTS)
            .chain(&TEMPLATE_NAMES)
            .any(|part| *part == key.text);
        if taken || key.text.is_empty() || !key.text.chars().all(is_of_a_name) {
            let words = format!("{:?} cannot be the name of a value", key.text);
            reader.fault(Fault::new(FaultCode::BadValue, key.place, words));
        }
        let names = ValueNames::of(values);
        if let Some((from, make)) = value(reader, node, &names) {
            let name = key.text.clone();
            values.push(NamedValue { name, from, make });
        }
    }
}

fn value(
    reader: &mut ConfigReader<'_>,
    node: &YamlNode,
    names: &ValueNames,
) -> Option<(Source, ValueRule)> {
    let fields = reader.shaped(node, &shape::VALUE)?;
    let from = fields.read("from", |node| source(reader, node, names));
    let make = match (fields.get("pattern"), fields.get("cases")) {
        (Some(node), None) => {
            let json = fields.read("json", |node| reader.flag(node, "json"));
            let json = json.unwrap_or(false);
            pattern(reader, node, "pattern").map(|pattern| ValueRule::Pattern { pattern, json })
        }
        (None, Some(node)) => {
            let list = reader.list(node, "cases").unwrap_or_default();
            let cases = list.iter().filter_map(|node| case(reader, node)).collect();
            let otherwise = fields
                .get("otherwise")
                .map(YamlNode::to_value)
                .unwrap_or_default();
            Some(ValueRule::Cases { cases, otherwise })
        }
        (Some(_), Some(_)) | (None, None) => {
            reader.bad_value(node, "a value has either \"pattern\" or \"cases\"")
        }
    };
    Some((from?, make?))
}

fn source(reader: &mut ConfigReader<'_>, node: &YamlNode, names: &ValueNames) -> Option<Source> {
    let text = reader.string(node, "from")?;
    let known = names.keys();
    if !known.contains(&text) {
        let words = format!("there is nothing called {text:?} here");
        let fault = Fault::new(FaultCode::BadValue, node.place, words);
        return reader.reject(fault.hint(format!("known: {}", known.join(", "))));
    }
    Some(named(text))
}

fn named(text: &str) -> Source {
    match text {
        "any" => Source::Any,
        "turn" => Source::Turn,
        name => Source::Name(name.to_owned()),
    }
}

fn case(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<(Regex, Value)> {
    let fields = reader.shaped(node, &shape::CASE)?;
    let value = fields
        .get("value")
        .map(YamlNode::to_value)
        .unwrap_or_default();
    let node = fields.get("match")?;
    Some((pattern(reader, node, "match")?, value))
}

fn pattern(reader: &mut ConfigReader<'_>, node: &YamlNode, what: &str) -> Option<Regex> {
    let text = reader.string(node, what)?;
    compiled(reader, node, text)
}

fn compiled(reader: &mut ConfigReader<'_>, node: &YamlNode, text: &str) -> Option<Regex> {
    match RegexBuilder::new(text).size_limit(1 << 20).build() {
        Ok(pattern) => Some(pattern),
        Err(error) => {
            let said = error.to_string();
            let said = said.lines().last().unwrap_or_default();
            let said = said.trim_start_matches("error: ");
            reader.bad_value(node, format!("not a valid regular expression: {said}"))
        }
    }
}

fn rule(
    reader: &mut ConfigReader<'_>,
    node: &YamlNode,
    names: &ValueNames,
    of: &MapShape,
) -> Option<ScriptRule> {
    let fields = reader.shaped(node, of)?;
    let when = fields.get("when").map(|node| matchers(reader, node, names));
    let unless = fields
        .get("unless")
        .map(|node| matchers(reader, node, names));
    let when = when.unwrap_or_default();
    let count = |reader: &mut ConfigReader<'_>, fields: &Fields<'_>, key: &str, least: i64| {
        let whole = reader.integer(fields.get(key)?, key, least, MAX_COUNT)?;
        u64::try_from(whole).ok()
    };
    let usage = fields.read("usage", |node| reader.shaped(node, &shape::USAGE));
    let tokens = |reader: &mut ConfigReader<'_>, key: &str| count(reader, usage.as_ref()?, key, 0);
    let (tokens_in, tokens_out) = (tokens(reader, "tokens_in"), tokens(reader, "tokens_out"));
    let error = fields.read("error", |node| fails(reader, node));
    let reply = response::body(reader, &fields, &response::mentionable(names, &when));
    let tool_calls = response::tool_calls(reader, &fields, &response::mentionable(names, &when));
    let answers = ["reply", "text", "tool_calls"];
    if answers.iter().all(|key| fields.get(key).is_none()) {
        let always = error.as_ref().is_some_and(|error| error.times.is_none());
        if !always && fields.get("error").is_none_or(|_| error.is_some()) {
            let words = "a rule needs \"reply\", \"text\", \"tool_calls\" or an \"error\" without \"times\"";
            reader.fault(Fault::new(FaultCode::MissingKey, fields.place, words));
        }
    }
    Some(ScriptRule {
        unless: unless.unwrap_or_default(),
        times: count(reader, &fields, "times", 1),
        delay: delay(reader, &fields),
        when,
        error,
        reply,
        tool_calls,
        tokens_in,
        tokens_out,
        ..ScriptRule::default()
    })
}

fn matchers(reader: &mut ConfigReader<'_>, node: &YamlNode, names: &ValueNames) -> Vec<Matcher> {
    let mut matchers = Vec::new();
    let known = names.keys();
    let Some(fields) = reader.map(node, "the conditions", &known) else {
        return matchers;
    };
    for name in known {
        let Some(node) = fields.get(name) else {
            continue;
        };
        let several = match &node.data {
            YamlValue::List(items) => items.as_slice(),
            _ => std::slice::from_ref(node),
        };
        for node in several {
            let text = match &node.data {
                YamlValue::Number(number) => number.to_string(),
                _ => match reader.string(node, name) {
                    Some(text) => text.to_owned(),
                    None => continue,
                },
            };
            // Names of groups and models are compared as a whole, texts are searched.
            let text = match WHOLE.contains(&name) {
                true => format!("^(?:{text})$"),
                false => text,
            };
            let pattern = compiled(reader, node, &text);
            let source = named(name);
            matchers.extend(pattern.map(|pattern| Matcher { source, pattern }));
        }
    }
    matchers
}

fn delay(reader: &mut ConfigReader<'_>, fields: &Fields<'_>) -> Delay {
    let Some(node) = fields.get("delay_ms") else {
        return Delay::default();
    };
    let milliseconds = |number: Option<f64>| Duration::from_secs_f64(number.unwrap_or(0.0) / 1e3);
    if matches!(node.data, YamlValue::Number(_)) {
        let fixed = reader.number(node, "delay_ms", 0.0, MAX_DELAY_MS);
        return Delay {
            fixed: milliseconds(fixed),
            per_character: Duration::ZERO,
        };
    }
    let Some(fields) = reader.shaped(node, &shape::DELAY) else {
        return Delay::default();
    };
    let mut part = |key: &str, most: f64| {
        let node = fields.get(key);
        milliseconds(node.and_then(|node| reader.number(node, key, 0.0, most)))
    };
    Delay {
        fixed: part("fixed", MAX_DELAY_MS),
        per_character: part("per_character", 1_000.0),
    }
}

fn fails(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<ScriptedFailure> {
    let fields = reader.shaped(node, &shape::FAILS)?;
    let message = fields.read("message", |node| reader.string(node, "message"));
    let message = message.unwrap_or_default();
    let retryable = fields.read("retryable", |node| reader.flag(node, "retryable"));
    let times = fields.read("times", |node| reader.integer(node, "times", 1, MAX_COUNT));
    let failure = match (fields.get("status"), fields.get("code")) {
        (Some(node), None) => {
            let status = reader.integer(node, "status", 300, 599)?;
            GatewayError::upstream(u16::try_from(status).unwrap_or(500), message)
        }
        (None, Some(node)) => {
            let code: Code = reader.keyword(node, "code", Code::WORDS)?;
            let said = if message.is_empty() {
                code.text()
            } else {
                message
            };
            GatewayError::new(code, said)
        }
        (Some(_), Some(_)) | (None, None) => {
            return reader.bad_value(node, "an error has either \"status\" or \"code\"");
        }
    };
    let usage = fields.read("usage", |node| reader.shaped(node, &shape::USAGE));
    let mut tokens = |key: &str| {
        let node = usage.as_ref()?.get(key)?;
        u64::try_from(reader.integer(node, key, 0, MAX_COUNT)?).ok()
    };
    let used = AttemptUsage {
        tokens_in: tokens("tokens_in").unwrap_or_default(),
        tokens_out: tokens("tokens_out").unwrap_or_default(),
        ..AttemptUsage::default()
    };
    Some(ScriptedFailure {
        failure: GatewayError {
            retryable: retryable.unwrap_or(failure.retryable),
            ..failure.having_used(used)
        },
        times: times.and_then(|times| u64::try_from(times).ok()),
    })
}
