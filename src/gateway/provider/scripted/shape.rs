//! The shape of a rules file.

use ktsu_config::shape::FieldType::{
    Any, Each, Either, Flag, Integer, List, Map, Note, Number, Text,
};
use ktsu_config::shape::{FieldType, KeyShape, MapShape, optional, required};

/// The longest delay, in milliseconds.
pub(super) const MAX_DELAY_MS: f64 = 600_000.0;
/// The greatest number of times or tokens that may be given.
pub(super) const MAX_COUNT: i64 = 1_000_000_000_000;

/// The whole file.
pub const RULES: MapShape = MapShape::new(
    "the rules file",
    &[
        optional("default", Map(&DEFAULT)).doc("Answers what no rule does"),
        required("rules", List(&Map(&RULE))).doc("The first that matches answers"),
        optional("values", Each(&Map(&VALUE))).doc("Made of each request, in this order"),
    ],
);

const DELAY_MS: KeyShape = optional(
    "delay_ms",
    Either(&[Number(0.0, MAX_DELAY_MS), Map(&DELAY)]),
)
.doc("Before the reply");
const ERROR: KeyShape = optional("error", Map(&FAILS)).doc("Fails instead");
const REPLY: KeyShape = optional("reply", Any).doc("Template tree, sent as JSON");
const TOOL_CALLS: KeyShape =
    optional("tool_calls", List(&Map(&TOOL_CALL))).doc("Asks for these tools, in order");
const TEXT: KeyShape = optional("text", Text).doc("Template, sent as it is");
const USED: KeyShape =
    optional("usage", Map(&USAGE)).doc("Otherwise a token for every four characters");

/// A pattern, or several of which all must be found; a number is the pattern of its digits.
const PATTERNS: FieldType = Each(&Either(&[
    Text,
    Integer(0, MAX_COUNT),
    List(&Either(&[Text, Integer(0, MAX_COUNT)])),
]));

pub(super) const RULE: MapShape = MapShape::new(
    "the rule",
    &[
        DELAY_MS,
        optional("description", Note).doc("For readers"),
        ERROR,
        optional("name", Note).doc("For readers"),
        REPLY,
        TEXT,
        optional("times", Integer(1, MAX_COUNT)).doc("Matches so often and no more"),
        TOOL_CALLS,
        optional("unless", PATTERNS).doc("None of these may be found"),
        USED,
        optional("when", PATTERNS).doc("All of these must be found"),
    ],
)
.any_of(&ANSWERS);

pub(super) const DEFAULT: MapShape = MapShape::new(
    "the default",
    &[DELAY_MS, ERROR, REPLY, TEXT, TOOL_CALLS, USED],
)
.any_of(&ANSWERS);

/// The members with which a rule can answer.
const ANSWERS: [&str; 4] = ["error", "reply", "text", "tool_calls"];

pub(super) const TOOL_CALL: MapShape = MapShape::new(
    "the tool call",
    &[
        optional("arguments", Any).doc("Template tree; {} by default"),
        optional("id", Text).doc("Template; call_N by default"),
        required("name", Text).doc("Template: the tool's name"),
    ],
);

pub(super) const VALUE: MapShape = MapShape::new(
    "the value",
    &[
        optional("cases", List(&Map(&CASE))).doc("The value of the first that is found"),
        required("from", Text).doc("A part of the request, or an earlier value"),
        optional("json", Flag).doc("Reads what was found as JSON"),
        optional("otherwise", Any).doc("Where no case is found"),
        optional("pattern", Text).doc("Regular expression"),
    ],
);

pub(super) const CASE: MapShape = MapShape::new(
    "the case",
    &[
        required("match", Text).doc("Regular expression"),
        optional("value", Any).doc("What it means"),
    ],
);

const COUNT: FieldType = Integer(0, MAX_COUNT);

pub(super) const USAGE: MapShape = MapShape::new(
    "usage",
    &[
        optional("tokens_in", COUNT).doc("Of the request"),
        optional("tokens_out", COUNT).doc("Of the reply"),
    ],
);

pub(super) const DELAY: MapShape = MapShape::new(
    "delay_ms",
    &[
        optional("fixed", Number(0.0, MAX_DELAY_MS)).doc("Milliseconds"),
        optional("per_character", Number(0.0, 1_000.0)).doc("Milliseconds, of the reply"),
    ],
);

pub(super) const FAILS: MapShape = MapShape::new(
    "the error",
    &[
        optional("code", Text).doc("A code of the gateway"),
        optional("message", Text).doc("What the provider says"),
        optional("retryable", Flag).doc("Otherwise as the code or status means it"),
        optional("status", Integer(300, 599)).doc("HTTP status of the provider"),
        optional("times", Integer(1, MAX_COUNT)).doc("Fails so often, then replies"),
        optional("usage", Map(&USAGE)).doc("What the failed call used; nothing by default"),
    ],
)
.one_of(&[&["code", "status"]]);
