//! The shape of `kit.yaml`.

use super::FieldType::{Note, Text};
use super::{MapShape, NAME, VERSION, optional};

/// The whole file.
pub const KIT: MapShape = MapShape::new(
    "kit.yaml",
    &[
        optional("default", Text).doc("The workflow or world that runs when none is named"),
        optional("description", Note).doc("For readers"),
        optional("name", NAME).doc("The kit's name; otherwise that of its folder"),
        optional("version", VERSION).doc("Semantic version, in quotes"),
    ],
);
