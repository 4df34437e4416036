//! The shape of `agents/NAME.agent.yaml`.

use super::server::ACCESS;
use super::{FieldType, Key, NAME, PARAMS, Shape, VERSION};

/// The whole file.
pub const AGENT: Shape = Shape::new(
    "the agent",
    &[
        Key::new("description", FieldType::Note, "For readers"),
        Key::new(
            "max_turns",
            FieldType::Whole(0, 1_000),
            "Model calls at the most; 10 by default",
        ),
        Key::new(
            "model",
            FieldType::Form("\\S"),
            "A model group of gateway.yaml",
        )
        .required(),
        Key::new("name", NAME, "Its name").required(),
        Key::new("output", FieldType::Map(&OUTPUT), "What it answers").required(),
        Key::new(
            "params",
            FieldType::Map(&PARAMS),
            "What it is given; it sees nothing else",
        ),
        Key::new("prompt", FieldType::Map(&PROMPT), "What the model is told").required(),
        Key::new(
            "servers",
            FieldType::List(&FieldType::Map(&SERVER)),
            "The tool servers it uses",
        ),
        Key::new("version", VERSION, "Semantic version; 0.0.0 without one"),
    ],
);

pub(crate) const OUTPUT: Shape = Shape::new(
    "the agent's output",
    &[Key::new("schema", FieldType::Schema, "JSON Schema of an object").required()],
);

pub(crate) const PROMPT: Shape = Shape::new(
    "prompt",
    &[
        Key::new(
            "reflect",
            FieldType::Form("\\S"),
            "Template: looks at the draft once more",
        ),
        Key::new("system", FieldType::Text, "Static instructions").required(),
        Key::new("user", FieldType::Text, "Template over params"),
    ],
);

/// A server as an agent uses it.
pub(crate) const SERVER: Shape = Shape::new(
    "the server",
    &[
        Key::new(
            "access",
            FieldType::Map(&ACCESS),
            "The tools it may call; all by default",
        ),
        Key::new("name", FieldType::Text, "The server's name").required(),
        Key::new(
            "params",
            FieldType::Each(&FieldType::Text),
            "Texts over the agent's params",
        ),
        Key::new(
            "path",
            FieldType::Text,
            "Its file; without one it stands in servers.yaml",
        ),
    ],
);
