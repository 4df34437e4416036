//! The shape of a rules file.

use super::read::{LONGEST_MS, MOST};
use ktsu_config::shape::{FieldType, Key, Shape};

/// The whole file.
pub const RULES: Shape = Shape::new(
    "the rules file",
    &[
        Key::new(
            "default",
            FieldType::Map(&DEFAULT),
            "Answers what no rule does",
        ),
        Key::new(
            "rules",
            FieldType::List(&FieldType::Map(&RULE)),
            "The first that matches answers",
        )
        .required(),
        Key::new(
            "values",
            FieldType::Each(&FieldType::Map(&VALUE)),
            "Made of each request, in this order",
        ),
    ],
);

const DELAY_MS: Key = Key::new(
    "delay_ms",
    FieldType::Either(&[FieldType::Number(0.0, LONGEST_MS), FieldType::Map(&DELAY)]),
    "Before the reply",
);
const ERROR: Key = Key::new("error", FieldType::Map(&FAILS), "Fails instead");
const REPLY: Key = Key::new("reply", FieldType::Any, "Template tree, sent as JSON");
const TOOL_CALLS: Key = Key::new(
    "tool_calls",
    FieldType::List(&FieldType::Map(&TOOL_CALL)),
    "Asks for these tools, in order",
);
const TEXT: Key = Key::new("text", FieldType::Text, "Template, sent as it is");
const USED: Key = Key::new(
    "usage",
    FieldType::Map(&USAGE),
    "Otherwise a token for every four characters",
);

/// A pattern, or several of which all must be found; a number is the pattern of its digits.
const PATTERNS: FieldType = FieldType::Each(&FieldType::Either(&[
    FieldType::Text,
    FieldType::Whole(0, MOST),
    FieldType::List(&FieldType::Either(&[
        FieldType::Text,
        FieldType::Whole(0, MOST),
    ])),
]));

pub(super) const RULE: Shape = Shape::new(
    "the rule",
    &[
        DELAY_MS,
        Key::new("description", FieldType::Note, "For readers"),
        ERROR,
        Key::new("name", FieldType::Note, "For readers"),
        REPLY,
        TEXT,
        Key::new(
            "times",
            FieldType::Whole(1, MOST),
            "Matches so often and no more",
        ),
        TOOL_CALLS,
        Key::new("unless", PATTERNS, "None of these may be found"),
        USED,
        Key::new("when", PATTERNS, "All of these must be found"),
    ],
)
.any_of(&ANSWERS);

pub(super) const DEFAULT: Shape = Shape::new(
    "the default",
    &[DELAY_MS, ERROR, REPLY, TEXT, TOOL_CALLS, USED],
)
.any_of(&ANSWERS);

/// What a rule can answer with.
const ANSWERS: [&str; 4] = ["error", "reply", "text", "tool_calls"];

pub(super) const TOOL_CALL: Shape = Shape::new(
    "the tool call",
    &[
        Key::new("arguments", FieldType::Any, "Template tree; {} by default"),
        Key::new("id", FieldType::Text, "Template; call_N by default"),
        Key::new("name", FieldType::Text, "Template: the tool's name").required(),
    ],
);

pub(super) const VALUE: Shape = Shape::new(
    "the value",
    &[
        Key::new(
            "cases",
            FieldType::List(&FieldType::Map(&CASE)),
            "The value of the first that is found",
        ),
        Key::new(
            "from",
            FieldType::Text,
            "A part of the request, or an earlier value",
        )
        .required(),
        Key::new("json", FieldType::Flag, "Reads what was found as JSON"),
        Key::new("otherwise", FieldType::Any, "Where no case is found"),
        Key::new("pattern", FieldType::Text, "Regular expression"),
    ],
);

pub(super) const CASE: Shape = Shape::new(
    "the case",
    &[
        Key::new("match", FieldType::Text, "Regular expression").required(),
        Key::new("value", FieldType::Any, "What it means"),
    ],
);

const COUNT: FieldType = FieldType::Whole(0, MOST);

pub(super) const USAGE: Shape = Shape::new(
    "usage",
    &[
        Key::new("tokens_in", COUNT, "Of the request"),
        Key::new("tokens_out", COUNT, "Of the reply"),
    ],
);

pub(super) const DELAY: Shape = Shape::new(
    "delay_ms",
    &[
        Key::new("fixed", FieldType::Number(0.0, LONGEST_MS), "Milliseconds"),
        Key::new(
            "per_character",
            FieldType::Number(0.0, 1_000.0),
            "Milliseconds, of the reply",
        ),
    ],
);

pub(super) const FAILS: Shape = Shape::new(
    "the error",
    &[
        Key::new("code", FieldType::Text, "A code of the gateway"),
        Key::new("message", FieldType::Text, "What the provider says"),
        Key::new(
            "retryable",
            FieldType::Flag,
            "Otherwise as the code or status means it",
        ),
        Key::new(
            "status",
            FieldType::Whole(300, 599),
            "HTTP status of the provider",
        ),
        Key::new(
            "times",
            FieldType::Whole(1, MOST),
            "Fails so often, then replies",
        ),
        Key::new(
            "usage",
            FieldType::Map(&USAGE),
            "What the failed call used; nothing by default",
        ),
    ],
)
.one_of(&[&["code", "status"]]);
