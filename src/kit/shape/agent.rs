//! The shape of `agents/NAME.agent.yaml`.

use super::server::ACCESS;
use super::{Key, NAME, Of, PARAMS, Shape, VERSION};

/// The whole file.
pub(crate) const AGENT: Shape = Shape::new(
    "the agent",
    &[
        Key::new("description", Of::Note, "For readers"),
        Key::new(
            "max_turns",
            Of::Whole(0, 1_000),
            "Model calls at the most; 10 by default",
        ),
        Key::new("model", Of::Form("\\S"), "A model group of gateway.yaml").required(),
        Key::new("name", NAME, "Its name").required(),
        Key::new("output", Of::Map(&OUTPUT), "What it answers").required(),
        Key::new(
            "params",
            Of::Map(&PARAMS),
            "What it is given; it sees nothing else",
        ),
        Key::new("prompt", Of::Map(&PROMPT), "What the model is told").required(),
        Key::new(
            "servers",
            Of::List(&Of::Map(&SERVER)),
            "The tool servers it uses",
        ),
        Key::new("version", VERSION, "Semantic version; 0.0.0 without one"),
    ],
);

pub(crate) const OUTPUT: Shape = Shape::new(
    "the agent's output",
    &[Key::new("schema", Of::Schema, "JSON Schema of an object").required()],
);

pub(crate) const PROMPT: Shape = Shape::new(
    "prompt",
    &[
        Key::new(
            "reflect",
            Of::Form("\\S"),
            "Template: looks at the draft once more",
        ),
        Key::new("system", Of::Text, "Static instructions").required(),
        Key::new("user", Of::Text, "Template over params"),
    ],
);

/// A server as an agent uses it.
pub(crate) const SERVER: Shape = Shape::new(
    "the server",
    &[
        Key::new(
            "access",
            Of::Map(&ACCESS),
            "The tools it may call; all by default",
        ),
        Key::new("name", Of::Text, "The server's name").required(),
        Key::new(
            "params",
            Of::Each(&Of::Text),
            "Texts over the agent's params",
        ),
        Key::new(
            "path",
            Of::Text,
            "Its file; without one it stands in servers.yaml",
        ),
    ],
);
