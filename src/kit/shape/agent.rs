//! The shape of `agents/NAME.agent.yaml`.

use super::server::ACCESS;
use super::{FieldType, KeyShape, MapShape, NAME, PARAMS, VERSION};

/// The whole file.
pub const AGENT: MapShape = MapShape::new(
    "the agent",
    &[
        KeyShape::new("description", FieldType::Note, "For readers"),
        KeyShape::new(
            "max_turns",
            FieldType::Integer(0, 1_000),
            "Model calls at the most; 10 by default",
        ),
        KeyShape::new(
            "model",
            FieldType::Pattern("\\S"),
            "A model group of gateway.yaml",
        )
        .required(),
        KeyShape::new("name", NAME, "Its name").required(),
        KeyShape::new("output", FieldType::Map(&OUTPUT), "What it answers").required(),
        KeyShape::new(
            "params",
            FieldType::Map(&PARAMS),
            "What it is given; it sees nothing else",
        ),
        KeyShape::new("prompt", FieldType::Map(&PROMPT), "What the model is told").required(),
        KeyShape::new(
            "servers",
            FieldType::List(&FieldType::Map(&SERVER)),
            "The tool servers it uses",
        ),
        KeyShape::new("version", VERSION, "Semantic version; 0.0.0 without one"),
    ],
);

pub(crate) const OUTPUT: MapShape = MapShape::new(
    "the agent's output",
    &[KeyShape::new("schema", FieldType::Schema, "JSON Schema of an object").required()],
);

pub(crate) const PROMPT: MapShape = MapShape::new(
    "prompt",
    &[
        KeyShape::new(
            "reflect",
            FieldType::Pattern("\\S"),
            "Template: looks at the draft once more",
        ),
        KeyShape::new("system", FieldType::Text, "Static instructions").required(),
        KeyShape::new("user", FieldType::Text, "Template over params"),
    ],
);

/// A server as an agent uses it.
pub(crate) const SERVER: MapShape = MapShape::new(
    "the server",
    &[
        KeyShape::new(
            "access",
            FieldType::Map(&ACCESS),
            "The tools it may call; all by default",
        ),
        KeyShape::new("name", FieldType::Text, "The server's name").required(),
        KeyShape::new(
            "params",
            FieldType::Each(&FieldType::Text),
            "Texts over the agent's params",
        ),
        KeyShape::new(
            "path",
            FieldType::Text,
            "Its file; without one it stands in servers.yaml",
        ),
    ],
);
