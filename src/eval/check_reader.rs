//! Reads a single check.

use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::read::{ConfigReader, Fields, rounded};
use ktsu_config::shape::MapShape;
use ktsu_config::yaml::{YamlNode, YamlValue};
use ktsu_workflow::expression::Expression;

use crate::conditions::OutputCheck;
use crate::field_reader::{
    conditions, limits, missing_one, only_one, pattern, refuse, shaped, text, value,
};
use crate::filter::{self, FrameFilter, GLOB_KEYS};
use crate::glob::{Glob, MAX_GLOB_BYTES};
use crate::http_mock_reader;
use crate::judge_reader;
use crate::program_reader;
use crate::programs::{CommandCheck, CustomCheck, SqlCheck};
use crate::shapes;
use crate::spec::{CheckKind, Content, CountRange, ToolPattern, ToolUse, TraceCheck};

/// The most globs of a list of tools.
const MAX_TOOLS: usize = 200;

/// The value that is checked if no expression is given.
const OUTPUT: &str = "output";

/// The types that are checked.
const TYPES: [(&str, &MapShape); 11] = [
    ("output", &shapes::OUTPUT),
    ("trace", &shapes::TRACE),
    ("forbidden", &shapes::FORBIDDEN_CHECK),
    ("file_exists", &shapes::FILE_EXISTS),
    ("file_absent", &shapes::FILE_ABSENT),
    ("file_content", &shapes::FILE_CONTENT),
    ("command_exit", &shapes::COMMAND_EXIT),
    ("custom", &shapes::CUSTOM),
    ("llm_as_judge", &shapes::LLM_AS_JUDGE),
    ("sql", &shapes::SQL),
    ("http_mock_assertions", &shapes::HTTP_MOCK),
];

/// Reads a check.
pub(crate) fn check(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<CheckKind> {
    let fields = reader.open_map(node, "the check")?;
    let kind = reader.required(&fields, "type", "the check")?;
    let word = reader.string(kind, "type")?;
    let Some((_, shape)) = TYPES.iter().find(|(name, _)| *name == word) else {
        return unknown_type(reader, kind, word);
    };
    let fields = shaped(reader, node, shape)?;
    Some(match word {
        "output" => CheckKind::Output(Box::new(output(reader, &fields)?)),
        "trace" => CheckKind::Trace(Box::new(trace(reader, &fields)?)),
        "forbidden" => CheckKind::Forbidden(filter(reader, fields.get("where")?)?),
        "file_exists" => CheckKind::FileExists(path(reader, &fields)?),
        "file_absent" => CheckKind::FileAbsent(path(reader, &fields)?),
        "command_exit" => CheckKind::CommandExit(Box::new(CommandCheck {
            limits: limits(reader, &fields)?,
            ..program_reader::command(reader, &fields)?
        })),
        "custom" => CheckKind::Custom(Box::new(CustomCheck {
            limits: limits(reader, &fields)?,
            ..program_reader::custom(reader, &fields)?
        })),
        "llm_as_judge" => {
            let before = reader.faults.len();
            let rubric = fields.read("rubric", |node| shaped(reader, node, &shapes::RUBRIC));
            let check = judge_reader::judge(reader, &fields, rubric.as_ref())?;
            (reader.faults.len() == before).then(|| CheckKind::Judge(Box::new(check)))?
        }
        "sql" => CheckKind::Sql(Box::new(SqlCheck {
            service: text(reader, &fields, "service")?,
            query: program_reader::query(reader, &fields)?,
            // Null is a value.
            equals: match fields.key("equals") {
                Some(_) => value(reader, &fields, "equals")?,
                None => return missing_one(reader, &fields, &["equals"], "the check"),
            },
            limits: limits(reader, &fields)?,
        })),
        "http_mock_assertions" => {
            CheckKind::HttpMock(Box::new(http_mock_reader::check(reader, &fields)?))
        }
        _ => CheckKind::FileContent(Box::new(content(reader, &fields)?)),
    })
}

fn unknown_type<T>(reader: &mut ConfigReader<'_>, node: &YamlNode, word: &str) -> Option<T> {
    let known: Vec<&str> = TYPES.iter().map(|(name, _)| *name).collect();
    let words = format!("there is no type of checks {word:?}");
    let fault = Fault::new(FaultCode::BadValue, node.place, words);
    let otherwise = format!("known types: {}", known.join(", "));
    reader.reject(fault.suggest_or(word, known, otherwise))
}

/// Reads a filter of frames.
pub(crate) fn filter(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<FrameFilter> {
    let fields = shaped(reader, node, &shapes::FILTER)?;
    let before = reader.faults.len();
    let mut filter = FrameFilter::default();
    for key in GLOB_KEYS.into_iter().chain(["expr"]) {
        let Some(node) = fields.get(key) else {
            continue;
        };
        if let Some(text) = globs(reader, node, key)
            && let Err(error) = filter.add(key, &text)
        {
            refuse(reader, node, key == "expr", error);
        }
    }
    if filter.cost() == 1 && reader.faults.len() == before {
        return missing_one(reader, &fields, &shapes::FILTER.names(), "the filter");
    }
    (reader.faults.len() == before).then_some(filter)
}

/// The text of a condition; a list of globs is joined with commas.
fn globs(reader: &mut ConfigReader<'_>, node: &YamlNode, key: &str) -> Option<String> {
    match &node.data {
        YamlValue::List(items) if key != "expr" => {
            let texts = items.iter().map(|item| glob_text(reader, item, key));
            let texts: Option<Vec<String>> = texts.collect();
            texts.map(|texts| texts.join(","))
        }
        _ => glob_text(reader, node, key),
    }
}

fn glob_text(reader: &mut ConfigReader<'_>, node: &YamlNode, key: &str) -> Option<String> {
    match &node.data {
        YamlValue::Number(number) if key == "item" => Some(number.to_string()),
        _ => reader.string(node, key).map(str::to_owned),
    }
}

fn expression(
    reader: &mut ConfigReader<'_>,
    fields: &Fields<'_>,
    name: &str,
) -> Option<Expression> {
    let node = fields.get(name)?;
    let text = reader.string(node, name)?;
    match filter::expression(text) {
        Ok(expression) => Some(expression),
        Err(error) => {
            refuse(reader, node, true, error);
            None
        }
    }
}

fn output(reader: &mut ConfigReader<'_>, fields: &Fields<'_>) -> Option<OutputCheck> {
    let expression = match fields.get("expr") {
        Some(_) => expression(reader, fields, "expr"),
        None => filter::expression(OUTPUT).ok(),
    };
    conditions(reader, fields, expression)
}

fn trace(reader: &mut ConfigReader<'_>, fields: &Fields<'_>) -> Option<TraceCheck> {
    let key = only_one(reader, fields, &shapes::TRACE_KEYS, "the check")?;
    let node = reader.required(fields, key, "the check")?;
    if shapes::WITH_WHERE.contains(&key) {
        let matching = reader.required(fields, "where", "the check")?;
        let matching = filter(reader, matching)?;
        return of_matches(reader, fields, (key, node), matching);
    }
    if let Some(place) = fields.key("where") {
        let words = format!("where does not go with {key}");
        reader.fault(Fault::new(FaultCode::MisplacedKey, place, words));
    }
    Some(match key {
        "no_tool_without_approval" => TraceCheck::ApprovedTools(approved_tools(reader, node)?),
        "tools_used" => TraceCheck::ToolsUsed(tools_used(reader, node)?),
        "cost_usd" => TraceCheck::Cost(cost(reader, node)?),
        "model_calls" => TraceCheck::ModelCalls(count(reader, node)?),
        _ => {
            let fields = shaped(reader, node, &shapes::LONGEST)?;
            let most = fields.read("max", |node| reader.duration(node, "max"))?;
            TraceCheck::Duration(most)
        }
    })
}

/// The condition on the frames that match.
fn of_matches(
    reader: &mut ConfigReader<'_>,
    fields: &Fields<'_>,
    (key, node): (&str, &YamlNode),
    matching: FrameFilter,
) -> Option<TraceCheck> {
    Some(match key {
        "count" => TraceCheck::Count(matching, count(reader, node)?),
        "before" => TraceCheck::Before(matching, filter(reader, node)?),
        "after" => TraceCheck::After(matching, filter(reader, node)?),
        "all" => TraceCheck::All(matching, expression(reader, fields, "all")?),
        _ => {
            if !reader.flag(node, "none")? {
                return reader.bad_value(node, "none can only be true");
            }
            TraceCheck::None(matching)
        }
    })
}

fn count(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<CountRange> {
    let fields = shaped(reader, node, &shapes::COUNT)?;
    let mut bound = |name: &str| {
        let node = fields.get(name)?;
        let bound = reader.integer(node, name, 0, i64::MAX)?;
        u64::try_from(bound).ok()
    };
    let range = CountRange {
        min: bound("min"),
        max: bound("max"),
        equals: bound("equals"),
    };
    bounded(reader, &fields, range, shapes::COUNT.any_of, "the count")
}

fn cost(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<CountRange> {
    let fields = shaped(reader, node, &shapes::COST)?;
    let mut bound = |name: &str, inwards: fn(f64) -> f64| {
        let node = fields.get(name)?;
        let dollars = reader.number(node, name, 0.0, shapes::MAX_WEIGHT)?;
        Some(micro_dollars(dollars, inwards))
    };
    let range = CountRange {
        min: bound("min", f64::ceil),
        max: bound("max", f64::floor),
        equals: None,
    };
    bounded(reader, &fields, range, shapes::COST.any_of, "cost_usd")
}

/// An amount in US dollars as millionths of one, at most.
pub fn micro_usd(dollars: f64) -> u64 {
    micro_dollars(dollars, f64::floor)
}

/// Millionths of a dollar; what is between two of them is rounded so that the bound is kept.
fn micro_dollars(dollars: f64, inwards: fn(f64) -> f64) -> u64 {
    /// Decimals are not exact in binary: so near, a whole number is meant.
    const NEAR: f64 = 1e-4;
    let exact = dollars * 1e6;
    let whole = exact.round();
    rounded(match (exact - whole).abs() < NEAR {
        true => whole,
        false => inwards(exact),
    })
}

/// A range with at least one bound that can be met.
fn bounded(
    reader: &mut ConfigReader<'_>,
    fields: &Fields<'_>,
    range: CountRange,
    keys: &[&str],
    what: &str,
) -> Option<CountRange> {
    if !keys.iter().any(|key| fields.get(key).is_some()) {
        return missing_one(reader, fields, keys, what);
    }
    if let (Some(min), Some(max)) = (range.min, range.max)
        && min > max
    {
        let place = fields.key("min").unwrap_or(fields.place);
        let words = format!("{what} has a min above its max");
        return reader.reject(Fault::new(FaultCode::BadValue, place, words));
    }
    Some(range)
}

fn approved_tools(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<ToolPattern> {
    let name = "no_tool_without_approval";
    match &node.data {
        YamlValue::Bool(true) => Some(ToolPattern(Glob::new("*"))),
        YamlValue::Bool(false) => {
            reader.bad_value(node, format!("{name} is true, or a pattern of tools"))
        }
        _ => Some(ToolPattern(tool(reader, node, name)?)),
    }
}

fn tools_used(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<ToolUse> {
    let fields = shaped(reader, node, &shapes::TOOLS_USED)?;
    let keys = shapes::TOOLS_USED.any_of;
    if !keys.iter().any(|key| fields.get(key).is_some()) {
        return missing_one(reader, &fields, keys, "tools_used");
    }
    let only = fields.read("only", |node| tools(reader, node, "only"));
    let all_of = fields.read("all_of", |node| tools(reader, node, "all_of"));
    let none_of = fields.read("none_of", |node| tools(reader, node, "none_of"));
    Some(ToolUse {
        only,
        all_of: all_of.unwrap_or_default(),
        none_of: none_of.unwrap_or_default(),
    })
}

fn tools(reader: &mut ConfigReader<'_>, node: &YamlNode, name: &str) -> Option<Vec<Glob>> {
    let items = reader.list(node, name)?;
    if items.len() > MAX_TOOLS {
        return reader.bad_value(node, format!("{name} has more than {MAX_TOOLS} tools"));
    }
    let tools = items.iter().map(|item| tool(reader, item, name));
    tools.collect()
}

fn tool(reader: &mut ConfigReader<'_>, node: &YamlNode, name: &str) -> Option<Glob> {
    let text = reader.string(node, name)?;
    match text.len() {
        1..=MAX_GLOB_BYTES => Some(Glob::new(text)),
        _ => {
            let words = format!("{name} needs patterns of 1 to {MAX_GLOB_BYTES} bytes");
            reader.bad_value(node, words)
        }
    }
}

fn content(reader: &mut ConfigReader<'_>, fields: &Fields<'_>) -> Option<Content> {
    let before = reader.faults.len();
    let keys = shapes::FILE_CONTENT.any_of;
    if !keys.iter().any(|key| fields.get(key).is_some()) {
        return missing_one(reader, fields, keys, "the check");
    }
    let content = Content {
        path: path(reader, fields)?,
        contains: text(reader, fields, "contains"),
        not_contains: text(reader, fields, "not_contains"),
        pattern: pattern(reader, fields),
    };
    (reader.faults.len() == before).then_some(content)
}

/// A path that stays in the workspace.
fn path(reader: &mut ConfigReader<'_>, fields: &Fields<'_>) -> Option<String> {
    let node = fields.get("path")?;
    let text = reader.string(node, "path")?;
    let leads_out = text.starts_with('/') || text.split('/').any(|part| part == "..");
    if text.is_empty() || leads_out || text.contains(['\0', '\\']) {
        let words = "path must be relative to the workspace, and stay within it";
        let fault = Fault::new(FaultCode::BadValue, node.place, words);
        return reader.reject(fault.hint("path: out/report.json, for instance"));
    }
    Some(text.to_owned())
}
