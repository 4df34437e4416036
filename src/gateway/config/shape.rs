//! The shape of `gateway.yaml`, and of providers wherever they stand.

use crate::kit::shape::{DECLARED, Key, Of, SECONDS, Shape};

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
            Of::Either(&[Of::Map(&OPENAI), Of::Map(&SCRIPTED)]),
            "As the type needs it",
        )
        .required(),
        Key::new("name", Of::Form("^[^/]+$"), "Its part of provider/model-id").required(),
        Key::new("type", Of::Words(&["openai", "scripted"]), "What it speaks").required(),
    ],
);

pub(super) const OPENAI: Shape = Shape::new(
    "the config of an openai provider",
    &[
        Key::new("api_key", Of::Text, "\"{{ env.NAME }}\"").required(),
        Key::new("base_url", Of::Text, "Where /chat/completions is").required(),
        Key::new("timeout_s", SECONDS, "Of one call; 120 by default"),
    ],
);

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
        Key::new(
            "strategy",
            Of::Words(&["round_robin"]),
            "The models take turns",
        ),
    ],
);

const USD: Of = Of::Number(0.0, 1_000_000.0);

pub(super) const PRICE: Shape = Shape::new(
    "the price",
    &[
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
pub(super) const OUTPUT: [&str; 2] = ["output_per_million_usd", "output_per_million"];
