//! The shape of a rules file.

use super::read::{MAX_COUNT, MAX_DELAY_MS};
use ktsu_config::shape::{FieldType, KeyShape, MapShape};

/// The whole file.
pub const RULES: MapShape = MapShape::new(
    "the rules file",
    &[
        KeyShape::new(
            "default",
            FieldType::Map(&DEFAULT),
            "Answers what no rule does",
        ),
        KeyShape::new(
            "rules",
            FieldType::List(&FieldType::Map(&RULE)),
            "The first that matches answers",
        )
        .required(),
        KeyShape::new(
            "values",
            FieldType::Each(&FieldType::Map(&VALUE)),
            "Made of each request, in this order",
        ),
    ],
);

const DELAY_MS: KeyShape = KeyShape::new(
    "delay_ms",
    FieldType::Either(&[FieldType::Number(0.0, MAX_DELAY_MS), FieldType::Map(&DELAY)]),
    "Before the reply",
);
const ERROR: KeyShape = KeyShape::new("error", FieldType::Map(&FAILS), "Fails instead");
const REPLY: KeyShape = KeyShape::new("reply", FieldType::Any, "Template tree, sent as JSON");
const TOOL_CALLS: KeyShape = KeyShape::new(
    "tool_calls",
    FieldType::List(&FieldType::Map(&TOOL_CALL)),
    "Asks for these tools, in order",
);
const TEXT: KeyShape = KeyShape::new("text", FieldType::Text, "Template, sent as it is");
const USED: KeyShape = KeyShape::new(
    "usage",
    FieldType::Map(&USAGE),
    "Otherwise a token for every four characters",
);

/// A pattern, or several of which all must be found; a number is the pattern of its digits.
const PATTERNS: FieldType = FieldType::Each(&FieldType::Either(&[
    FieldType::Text,
    FieldType::Integer(0, MAX_COUNT),
    FieldType::List(&FieldType::Either(&[
        FieldType::Text,
        FieldType::Integer(0, MAX_COUNT),
    ])),
]));

pub(super) const RULE: MapShape = MapShape::new(
    "the rule",
    &[
        DELAY_MS,
        KeyShape::new("description", FieldType::Note, "For readers"),
        ERROR,
        KeyShape::new("name", FieldType::Note, "For readers"),
        REPLY,
        TEXT,
        KeyShape::new(
            "times",
            FieldType::Integer(1, MAX_COUNT),
            "Matches so often and no more",
        ),
        TOOL_CALLS,
        KeyShape::new("unless", PATTERNS, "None of these may be found"),
        USED,
        KeyShape::new("when", PATTERNS, "All of these must be found"),
    ],
)
.any_of(&ANSWERS);

pub(super) const DEFAULT: MapShape = MapShape::new(
    "the default",
    &[DELAY_MS, ERROR, REPLY, TEXT, TOOL_CALLS, USED],
)
.any_of(&ANSWERS);

/// What a rule can answer with.
const ANSWERS: [&str; 4] = ["error", "reply", "text", "tool_calls"];

pub(super) const TOOL_CALL: MapShape = MapShape::new(
    "the tool call",
    &[
        KeyShape::new("arguments", FieldType::Any, "Template tree; {} by default"),
        KeyShape::new("id", FieldType::Text, "Template; call_N by default"),
        KeyShape::new("name", FieldType::Text, "Template: the tool's name").required(),
    ],
);

pub(super) const VALUE: MapShape = MapShape::new(
    "the value",
    &[
        KeyShape::new(
            "cases",
            FieldType::List(&FieldType::Map(&CASE)),
            "The value of the first that is found",
        ),
        KeyShape::new(
            "from",
            FieldType::Text,
            "A part of the request, or an earlier value",
        )
        .required(),
        KeyShape::new("json", FieldType::Flag, "Reads what was found as JSON"),
        KeyShape::new("otherwise", FieldType::Any, "Where no case is found"),
        KeyShape::new("pattern", FieldType::Text, "Regular expression"),
    ],
);

pub(super) const CASE: MapShape = MapShape::new(
    "the case",
    &[
        KeyShape::new("match", FieldType::Text, "Regular expression").required(),
        KeyShape::new("value", FieldType::Any, "What it means"),
    ],
);

const COUNT: FieldType = FieldType::Integer(0, MAX_COUNT);

pub(super) const USAGE: MapShape = MapShape::new(
    "usage",
    &[
        KeyShape::new("tokens_in", COUNT, "Of the request"),
        KeyShape::new("tokens_out", COUNT, "Of the reply"),
    ],
);

pub(super) const DELAY: MapShape = MapShape::new(
    "delay_ms",
    &[
        KeyShape::new(
            "fixed",
            FieldType::Number(0.0, MAX_DELAY_MS),
            "Milliseconds",
        ),
        KeyShape::new(
            "per_character",
            FieldType::Number(0.0, 1_000.0),
            "Milliseconds, of the reply",
        ),
    ],
);

pub(super) const FAILS: MapShape = MapShape::new(
    "the error",
    &[
        KeyShape::new("code", FieldType::Text, "A code of the gateway"),
        KeyShape::new("message", FieldType::Text, "What the provider says"),
        KeyShape::new(
            "retryable",
            FieldType::Flag,
            "Otherwise as the code or status means it",
        ),
        KeyShape::new(
            "status",
            FieldType::Integer(300, 599),
            "HTTP status of the provider",
        ),
        KeyShape::new(
            "times",
            FieldType::Integer(1, MAX_COUNT),
            "Fails so often, then replies",
        ),
        KeyShape::new(
            "usage",
            FieldType::Map(&USAGE),
            "What the failed call used; nothing by default",
        ),
    ],
)
.one_of(&[&["code", "status"]]);
