//! The shape of `kit.yaml`.

use super::{FieldType, Key, NAME, Shape, VERSION};

/// The whole file.
pub const KIT: Shape = Shape::new(
    "kit.yaml",
    &[
        Key::new(
            "default",
            FieldType::Text,
            "The workflow that runs when none is named",
        ),
        Key::new("description", FieldType::Note, "For readers"),
        Key::new("name", NAME, "The kit's name; otherwise that of its folder"),
        Key::new("version", VERSION, "Semantic version, in quotes"),
    ],
);
