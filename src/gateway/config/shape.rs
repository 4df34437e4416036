//! The shape of `gateway.yaml`, and of providers wherever they stand.

use ktsu_config::shape::{
    ATTEMPTS, BACKOFF, DECLARED, DURATION, FAILURES, FieldType, Key, SECONDS, Shape,
};

/// The whole file.
pub const GATEWAY: Shape = Shape::new(
    "gateway.yaml",
    &[
        Key::new(
            "env",
            FieldType::List(&FieldType::Map(&DECLARED)),
            "Variables that providers mention",
        ),
        Key::new(
            "model_groups",
            FieldType::List(&FieldType::Map(&GROUP)),
            "What agents name as their model",
        ),
        Key::new(
            "providers",
            FieldType::List(&FieldType::Map(&PROVIDER)),
            "Who answers",
        ),
    ],
);

pub(crate) const PROVIDER: Shape = Shape::new(
    "the provider",
    &[
        Key::new(
            "config",
            FieldType::Either(&[
                FieldType::Map(&ANTHROPIC),
                FieldType::Map(&OPENAI),
                FieldType::Map(&SCRIPTED),
            ]),
            "As the type needs it",
        )
        .required(),
        Key::new(
            "name",
            FieldType::Form("^[^/]+$"),
            "Its part of provider/model-id",
        )
        .required(),
        Key::new(
            "rate_limit",
            FieldType::Map(&RATE_LIMIT),
            "Who comes too early waits, in order",
        ),
        Key::new("type", FieldType::Words(&TYPES), "What it speaks").required(),
    ],
);

/// What a provider can speak.
pub(super) const TYPES: [&str; 3] = ["anthropic", "openai", "scripted"];

/// The most calls a limit can be about.
pub(super) const MOST_CALLS: i64 = 100_000;

pub(super) const RATE_LIMIT: Shape = Shape::new(
    "rate_limit",
    &[
        Key::new(
            "concurrent",
            FieldType::Whole(1, MOST_CALLS),
            "Calls under way at once",
        ),
        Key::new(
            "requests_per_minute",
            FieldType::Whole(1, MOST_CALLS),
            "Calls that begin within any minute",
        ),
    ],
)
.any_of(&["concurrent", "requests_per_minute"]);

pub(super) const ANTHROPIC: Shape = Shape::new(
    "the config of an anthropic provider",
    &[
        Key::new("api_key", FieldType::Text, "\"{{ env.NAME }}\"").required(),
        Key::new(
            "base_url",
            FieldType::Text,
            "Where /v1/messages is; https://api.anthropic.com by default",
        ),
        Key::new("timeout_s", SECONDS, "Of one call; 120 by default"),
    ],
);

pub(super) const OPENAI: Shape = Shape::new(
    "the config of an openai provider",
    &[
        Key::new("api_key", FieldType::Text, "\"{{ env.NAME }}\"").required(),
        Key::new("base_url", FieldType::Text, "Where /chat/completions is").required(),
        Key::new(
            "max_tokens_as",
            FieldType::Words(&MAX_TOKENS_AS),
            "What newer models call it; max_tokens by default",
        ),
        Key::new("timeout_s", SECONDS, "Of one call; 120 by default"),
    ],
);

/// What the bound of a reply's tokens can be called.
pub(super) const MAX_TOKENS_AS: [&str; 2] = ["max_completion_tokens", "max_tokens"];

pub(super) const SCRIPTED: Shape = Shape::new(
    "the config of a scripted provider",
    &[
        Key::new("replies_from", FieldType::Text, "Path of a recorded run"),
        Key::new("rules", FieldType::Text, "Path of a rules file"),
    ],
)
.any_of(&["replies_from", "rules"]);

pub(super) const GROUP: Shape = Shape::new(
    "the model group",
    &[
        Key::new(
            "deadline",
            DURATION,
            "Of a whole call, pauses included; 5m by default",
        ),
        Key::new(
            "default_temperature",
            FieldType::Number(0.0, 2.0),
            "For requests that give none",
        ),
        Key::new(
            "models",
            FieldType::List(&FieldType::Form("^[^/]+/.+$")),
            "provider/model-id, at least one",
        )
        .required(),
        Key::new("name", FieldType::Form("."), "What agents write as model").required(),
        Key::new(
            "pricing",
            FieldType::List(&FieldType::Map(&PRICE)),
            "What its models cost",
        ),
        Key::new("retry", FieldType::Map(&RETRY), "When to ask again"),
        Key::new(
            "strategy",
            FieldType::Words(&STRATEGIES),
            "Which model is asked; round_robin by default",
        ),
    ],
);

/// How a group can choose.
pub(super) const STRATEGIES: [&str; 3] = ["cost_optimized", "fallback", "round_robin"];

pub(super) const RETRY: Shape = Shape::new(
    "retry",
    &[
        ATTEMPTS,
        BACKOFF,
        Key::new(
            "on",
            FAILURES,
            "What is tried again; all of them by default",
        ),
    ],
);

const USD: FieldType = FieldType::Number(0.0, 1_000_000.0);

pub(super) const PRICE: Shape = Shape::new(
    "the price",
    &[
        Key::new(
            "cached_input_per_million",
            USD,
            "Another name of cached_input_per_million_usd",
        ),
        Key::new(
            "cached_input_per_million_usd",
            USD,
            "For what the provider had read before; as input by default",
        ),
        Key::new(
            "input_per_million",
            USD,
            "Another name of input_per_million_usd",
        ),
        Key::new(
            "input_per_million_usd",
            USD,
            "US dollars, at most 6 decimals",
        ),
        Key::new("model", FieldType::Text, "The id after the provider's name").required(),
        Key::new(
            "output_per_million",
            USD,
            "Another name of output_per_million_usd",
        ),
        Key::new(
            "output_per_million_usd",
            USD,
            "US dollars, at most 6 decimals",
        ),
    ],
)
.one_of(&[&INPUT, &OUTPUT]);

/// Names of prices, the one with its unit and the plain.
pub(super) const INPUT: [&str; 2] = ["input_per_million_usd", "input_per_million"];
pub(super) const CACHED: [&str; 2] = ["cached_input_per_million_usd", "cached_input_per_million"];
pub(super) const OUTPUT: [&str; 2] = ["output_per_million_usd", "output_per_million"];
