//! The shape of `gateway.yaml`, and of providers in either kind of file.

use ktsu_config::shape::FieldType::{Either, Integer, Keywords, List, Map, Number, Pattern, Text};
use ktsu_config::shape::{
    ATTEMPTS, BACKOFF, DECLARED, DURATION, FAILURES, FieldType, MapShape, SECONDS, optional,
    required,
};

/// The whole file.
pub const GATEWAY: MapShape = MapShape::new(
    "gateway.yaml",
    &[
        optional("env", List(&Map(&DECLARED))).doc("Variables that providers mention"),
        optional("model_groups", List(&Map(&GROUP))).doc("What agents name as their model"),
        optional("providers", List(&Map(&PROVIDER))).doc("Who answers"),
    ],
);

pub(crate) const PROVIDER: MapShape = MapShape::new(
    "the provider",
    &[
        required(
            "config",
            Either(&[Map(&ANTHROPIC), Map(&OPENAI), Map(&SCRIPTED)]),
        )
        .doc("As the type needs it"),
        required("name", Pattern("^[^/]+$")).doc("Its part of provider/model-id"),
        optional("rate_limit", Map(&RATE_LIMIT)).doc("Who comes too early waits, in order"),
        required("type", Keywords(&TYPES)).doc("What it speaks"),
    ],
);

/// The types that a provider can have.
pub(super) const TYPES: [&str; 3] = ["anthropic", "openai", "scripted"];

/// The most calls a limit can be about.
pub(super) const MAX_CALLS: i64 = 100_000;

pub(super) const RATE_LIMIT: MapShape = MapShape::new(
    "rate_limit",
    &[
        optional("concurrent", Integer(1, MAX_CALLS)).doc("Calls under way at once"),
        optional("requests_per_minute", Integer(1, MAX_CALLS))
            .doc("Calls that begin within any minute"),
    ],
)
.any_of(&["concurrent", "requests_per_minute"]);

pub(super) const ANTHROPIC: MapShape = MapShape::new(
    "the config of an anthropic provider",
    &[
        required("api_key", Text).doc("\"{{ env.NAME }}\""),
        optional("base_url", Text)
            .doc("Where /v1/messages is; https://api.anthropic.com by default"),
        optional("timeout_s", SECONDS).doc("Of one call; 120 by default"),
    ],
);

pub(super) const OPENAI: MapShape = MapShape::new(
    "the config of an openai provider",
    &[
        required("api_key", Text).doc("\"{{ env.NAME }}\""),
        required("base_url", Text).doc("Where /chat/completions is"),
        optional("max_tokens_as", Keywords(&MAX_TOKENS_AS))
            .doc("What newer models call it; max_tokens by default"),
        optional("timeout_s", SECONDS).doc("Of one call; 120 by default"),
    ],
);

/// The names that the bound of a reply's tokens can have.
pub(super) const MAX_TOKENS_AS: [&str; 2] = ["max_completion_tokens", "max_tokens"];

pub(super) const SCRIPTED: MapShape = MapShape::new(
    "the config of a scripted provider",
    &[
        optional("replies_from", Text).doc("Path of a recorded run"),
        optional("rules", Text).doc("Path of a rules file"),
    ],
)
.any_of(&["replies_from", "rules"]);

pub(super) const GROUP: MapShape = MapShape::new(
    "the model group",
    &[
        optional("deadline", DURATION).doc("Of a whole call, pauses included; 5m by default"),
        optional("default_temperature", Number(0.0, 2.0)).doc("For requests that give none"),
        required("models", List(&Pattern("^[^/]+/.+$"))).doc("provider/model-id, at least one"),
        required("name", Pattern(".")).doc("What agents write as model"),
        optional("pricing", List(&Map(&PRICE))).doc("What its models cost"),
        optional("retry", Map(&RETRY)).doc("When to ask again"),
        optional("strategy", Keywords(&STRATEGIES))
            .doc("How a model is chosen; round_robin by default"),
    ],
);

/// The strategies by which a group can choose.
pub(super) const STRATEGIES: [&str; 3] = ["cost_optimized", "fallback", "round_robin"];

pub(super) const RETRY: MapShape = MapShape::new(
    "retry",
    &[
        ATTEMPTS,
        BACKOFF,
        optional("on", FAILURES).doc("What is tried again; all of them by default"),
    ],
);

const USD: FieldType = Number(0.0, 1_000_000.0);

pub(super) const PRICE: MapShape = MapShape::new(
    "the price",
    &[
        optional("cached_input_per_million", USD)
            .doc("Another name of cached_input_per_million_usd"),
        optional("cached_input_per_million_usd", USD)
            .doc("For what the provider had read before; as input by default"),
        optional("input_per_million", USD).doc("Another name of input_per_million_usd"),
        optional("input_per_million_usd", USD).doc("US dollars, at most 6 decimals"),
        required("model", Text).doc("The id after the provider's name"),
        optional("output_per_million", USD).doc("Another name of output_per_million_usd"),
        optional("output_per_million_usd", USD).doc("US dollars, at most 6 decimals"),
    ],
)
.one_of(&[&INPUT, &OUTPUT]);

/// Names of prices, the one with its unit and the plain.
pub(super) const INPUT: [&str; 2] = ["input_per_million_usd", "input_per_million"];
pub(super) const CACHED: [&str; 2] = ["cached_input_per_million_usd", "cached_input_per_million"];
pub(super) const OUTPUT: [&str; 2] = ["output_per_million_usd", "output_per_million"];
