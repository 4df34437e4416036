//! The shape of `kit.yaml`.

use super::{Key, NAME, Of, Shape, VERSION};

/// The whole file.
pub(crate) const KIT: Shape = Shape::new(
    "kit.yaml",
    &[
        Key::new(
            "default",
            Of::Text,
            "The workflow that runs when none is named",
        ),
        Key::new("description", Of::Note, "For readers"),
        Key::new("name", NAME, "The kit's name; otherwise that of its folder"),
        Key::new("version", VERSION, "Semantic version, in quotes"),
    ],
);
