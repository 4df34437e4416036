//! The shape of `gateway.yaml`, and of providers in either kind of file.

use ktsu_config::shape::{
    ATTEMPTS, BACKOFF, DECLARED, DURATION, FAILURES, FieldType, KeyShape, MapShape, SECONDS,
};

/// The whole file.
pub const GATEWAY: MapShape = MapShape::new(
    "gateway.yaml",
    &[
        KeyShape::new(
            "env",
            FieldType::List(&FieldType::Map(&DECLARED)),
            "Variables that providers mention",
        ),
        KeyShape::new(
            "model_groups",
            FieldType::List(&FieldType::Map(&GROUP)),
            "What agents name as their model",
        ),
        KeyShape::new(
            "providers",
            FieldType::List(&FieldType::Map(&PROVIDER)),
            "Who answers",
        ),
    ],
);

pub(crate) const PROVIDER: MapShape = MapShape::new(
    "the provider",
    &[
        KeyShape::new(
            "config",
            FieldType::Either(&[
                FieldType::Map(&ANTHROPIC),
                FieldType::Map(&OPENAI),
                FieldType::Map(&SCRIPTED),
            ]),
            "As the type needs it",
        )
        .required(),
        KeyShape::new(
            "name",
            FieldType::Pattern("^[^/]+$"),
            "Its part of provider/model-id",
        )
        .required(),
        KeyShape::new(
            "rate_limit",
            FieldType::Map(&RATE_LIMIT),
            "Who comes too early waits, in order",
        ),
        KeyShape::new("type", FieldType::Keywords(&TYPES), "What it speaks").required(),
    ],
);

/// What a provider can speak.
pub(super) const TYPES: [&str; 3] = ["anthropic", "openai", "scripted"];

/// The most calls a limit can be about.
pub(super) const MAX_CALLS: i64 = 100_000;

pub(super) const RATE_LIMIT: MapShape = MapShape::new(
    "rate_limit",
    &[
        KeyShape::new(
            "concurrent",
            FieldType::Integer(1, MAX_CALLS),
            "Calls under way at once",
        ),
        KeyShape::new(
            "requests_per_minute",
            FieldType::Integer(1, MAX_CALLS),
            "Calls that begin within any minute",
        ),
    ],
)
.any_of(&["concurrent", "requests_per_minute"]);

pub(super) const ANTHROPIC: MapShape = MapShape::new(
    "the config of an anthropic provider",
    &[
        KeyShape::new("api_key", FieldType::Text, "\"{{ env.NAME }}\"").required(),
        KeyShape::new(
            "base_url",
            FieldType::Text,
            "Where /v1/messages is; https://api.anthropic.com by default",
        ),
        KeyShape::new("timeout_s", SECONDS, "Of one call; 120 by default"),
    ],
);

pub(super) const OPENAI: MapShape = MapShape::new(
    "the config of an openai provider",
    &[
        KeyShape::new("api_key", FieldType::Text, "\"{{ env.NAME }}\"").required(),
        KeyShape::new("base_url", FieldType::Text, "Where /chat/completions is").required(),
        KeyShape::new(
            "max_tokens_as",
            FieldType::Keywords(&MAX_TOKENS_AS),
            "What newer models call it; max_tokens by default",
        ),
        KeyShape::new("timeout_s", SECONDS, "Of one call; 120 by default"),
    ],
);

/// What the bound of a reply's tokens can be called.
pub(super) const MAX_TOKENS_AS: [&str; 2] = ["max_completion_tokens", "max_tokens"];

pub(super) const SCRIPTED: MapShape = MapShape::new(
    "the config of a scripted provider",
    &[
        KeyShape::new("replies_from", FieldType::Text, "Path of a recorded run"),
        KeyShape::new("rules", FieldType::Text, "Path of a rules file"),
    ],
)
.any_of(&["replies_from", "rules"]);

pub(super) const GROUP: MapShape = MapShape::new(
    "the model group",
    &[
        KeyShape::new(
            "deadline",
            DURATION,
            "Of a whole call, pauses included; 5m by default",
        ),
        KeyShape::new(
            "default_temperature",
            FieldType::Number(0.0, 2.0),
            "For requests that give none",
        ),
        KeyShape::new(
            "models",
            FieldType::List(&FieldType::Pattern("^[^/]+/.+$")),
            "provider/model-id, at least one",
        )
        .required(),
        KeyShape::new(
            "name",
            FieldType::Pattern("."),
            "What agents write as model",
        )
        .required(),
        KeyShape::new(
            "pricing",
            FieldType::List(&FieldType::Map(&PRICE)),
            "What its models cost",
        ),
        KeyShape::new("retry", FieldType::Map(&RETRY), "When to ask again"),
        KeyShape::new(
            "strategy",
            FieldType::Keywords(&STRATEGIES),
            "Which model is asked; round_robin by default",
        ),
    ],
);

/// How a group can choose.
pub(super) const STRATEGIES: [&str; 3] = ["cost_optimized", "fallback", "round_robin"];

pub(super) const RETRY: MapShape = MapShape::new(
    "retry",
    &[
        ATTEMPTS,
        BACKOFF,
        KeyShape::new(
            "on",
            FAILURES,
            "What is tried again; all of them by default",
        ),
    ],
);

const USD: FieldType = FieldType::Number(0.0, 1_000_000.0);

pub(super) const PRICE: MapShape = MapShape::new(
    "the price",
    &[
        KeyShape::new(
            "cached_input_per_million",
            USD,
            "Another name of cached_input_per_million_usd",
        ),
        KeyShape::new(
            "cached_input_per_million_usd",
            USD,
            "For what the provider had read before; as input by default",
        ),
        KeyShape::new(
            "input_per_million",
            USD,
            "Another name of input_per_million_usd",
        ),
        KeyShape::new(
            "input_per_million_usd",
            USD,
            "US dollars, at most 6 decimals",
        ),
        KeyShape::new("model", FieldType::Text, "The id after the provider's name").required(),
        KeyShape::new(
            "output_per_million",
            USD,
            "Another name of output_per_million_usd",
        ),
        KeyShape::new(
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
