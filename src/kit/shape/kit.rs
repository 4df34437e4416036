//! The shape of `kit.yaml`.

use super::{FieldType, KeyShape, MapShape, NAME, VERSION};

/// The whole file.
pub const KIT: MapShape = MapShape::new(
    "kit.yaml",
    &[
        KeyShape::new(
            "default",
            FieldType::Text,
            "The workflow that runs when none is named",
        ),
        KeyShape::new("description", FieldType::Note, "For readers"),
        KeyShape::new("name", NAME, "The kit's name; otherwise that of its folder"),
        KeyShape::new("version", VERSION, "Semantic version, in quotes"),
    ],
);
