//! The shape of `gateway.yaml`, and of providers wherever they stand.

use crate::kit::shape::{ATTEMPTS, BACKOFF, DECLARED, DURATION, FAILURES, Key, Of, SECONDS, Shape};

/// The whole file.
pub(crate) const GATEWAY: Shape = Shape::new(
    "gateway.yaml",
    &[
        Key::new(
            "env",
            Of::List(&Of::Map(&DECLARED)),
            "Variables that providers mention",
        ),
        Key::new(
            "model_groups",
            Of::List(&Of::Map(&GROUP)),
            "What agents name as their model",
        ),
        Key::new("providers", Of::List(&Of::Map(&PROVIDER)), "Who answers"),
    ],
);

pub(crate) const PROVIDER: Shape = Shape::new(
    "the provider",
    &[
        Key::new(
            "config",
            Of::Either(&[Of::Map(&ANTHROPIC), Of::Map(&OPENAI), Of::Map(&SCRIPTED)]),
            "As the type needs it",
        )
        .required(),
        Key::new("name", Of::Form("^[^/]+$"), "Its part of provider/model-id").required(),
        Key::new(
            "rate_limit",
            Of::Map(&RATE_LIMIT),
            "Who comes too early waits, in order",
        ),
        Key::new("type", Of::Words(&TYPES), "What it speaks").required(),
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
            Of::Whole(1, MOST_CALLS),
            "Calls under way at once",
        ),
        Key::new(
            "requests_per_minute",
            Of::Whole(1, MOST_CALLS),
            "Calls that begin within any minute",
        ),
    ],
)
.any_of(&["concurrent", "requests_per_minute"]);

pub(super) const ANTHROPIC: Shape = Shape::new(
    "the config of an anthropic provider",
    &[
        Key::new("api_key", Of::Text, "\"{{ env.NAME }}\"").required(),
        Key::new(
            "base_url",
            Of::Text,
            "Where /v1/messages is; https://api.anthropic.com by default",
        ),
        Key::new("timeout_s", SECONDS, "Of one call; 120 by default"),
    ],
);

pub(super) const OPENAI: Shape = Shape::new(
    "the config of an openai provider",
    &[
        Key::new("api_key", Of::Text, "\"{{ env.NAME }}\"").required(),
        Key::new("base_url", Of::Text, "Where /chat/completions is").required(),
        Key::new(
            "max_tokens_as",
            Of::Words(&MAX_TOKENS_AS),
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
        Key::new("replies_from", Of::Text, "Path of a recorded run"),
        Key::new("rules", Of::Text, "Path of a rules file"),
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
            Of::Number(0.0, 2.0),
            "For requests that give none",
        ),
        Key::new(
            "models",
            Of::List(&Of::Form("^[^/]+/.+$")),
            "provider/model-id, at least one",
        )
        .required(),
        Key::new("name", Of::Form("."), "What agents write as model").required(),
        Key::new(
            "pricing",
            Of::List(&Of::Map(&PRICE)),
            "What its models cost",
        ),
        Key::new("retry", Of::Map(&RETRY), "When to ask again"),
        Key::new(
            "strategy",
            Of::Words(&STRATEGIES),
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

const USD: Of = Of::Number(0.0, 1_000_000.0);

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
        Key::new("model", Of::Text, "The id after the provider's name").required(),
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
