//! The shape of `ktsu.lock.yaml`.

use ktsu_ledger::event::lock::FORMAT;

use crate::shape::{FieldType, KeyShape, MapShape, VERSION};

/// The whole file.
pub const LOCK: MapShape = MapShape::new(
    "the lock",
    &[
        KeyShape::new(
            "entries",
            FieldType::List(&FieldType::Map(&ENTRY)),
            "Every file with a version",
        )
        .required(),
        KeyShape::new(
            "format",
            FieldType::Integer(FORMAT as i64, FORMAT as i64),
            "Of this file",
        )
        .required(),
        KeyShape::new(
            "prices",
            FieldType::Map(&PRICES),
            "What costs were counted by",
        )
        .required(),
    ],
);

const DIGEST: FieldType = FieldType::Pattern("^[0-9a-f]{64}$");

pub(super) const ENTRY: MapShape = MapShape::new(
    "the entry",
    &[
        KeyShape::new("definition", DIGEST, "What a root workflow resolves to"),
        KeyShape::new("digest", DIGEST, "BLAKE3 of the file").required(),
        KeyShape::new(
            "kind",
            FieldType::Keywords(&["agent", "server", "workflow"]),
            "What it is",
        )
        .required(),
        KeyShape::new("path", FieldType::Text, "From the kit's folder").required(),
        KeyShape::new(
            "tools",
            FieldType::Each(&DIGEST),
            "Digests of a server's tools, where known",
        ),
        KeyShape::new("version", VERSION, "As the file says").required(),
    ],
);

pub(super) const PRICES: MapShape = MapShape::new(
    "prices",
    &[
        KeyShape::new("digest", DIGEST, "Of the table").required(),
        KeyShape::new("version", FieldType::Text, "Of the table").required(),
    ],
);
