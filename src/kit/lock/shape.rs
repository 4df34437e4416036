//! The shape of `ktsu.lock.yaml`.

use ktsu_ledger::event::lock::FORMAT;

use crate::shape::{FieldType, Key, Shape, VERSION};

/// The whole file.
pub const LOCK: Shape = Shape::new(
    "the lock",
    &[
        Key::new(
            "entries",
            FieldType::List(&FieldType::Map(&ENTRY)),
            "Every file with a version",
        )
        .required(),
        Key::new(
            "format",
            FieldType::Whole(FORMAT as i64, FORMAT as i64),
            "Of this file",
        )
        .required(),
        Key::new(
            "prices",
            FieldType::Map(&PRICES),
            "What costs were counted by",
        )
        .required(),
    ],
);

const DIGEST: FieldType = FieldType::Form("^[0-9a-f]{64}$");

pub(super) const ENTRY: Shape = Shape::new(
    "the entry",
    &[
        Key::new("definition", DIGEST, "What a root workflow resolves to"),
        Key::new("digest", DIGEST, "BLAKE3 of the file").required(),
        Key::new(
            "kind",
            FieldType::Words(&["agent", "server", "workflow"]),
            "What it is",
        )
        .required(),
        Key::new("path", FieldType::Text, "From the kit's folder").required(),
        Key::new(
            "tools",
            FieldType::Each(&DIGEST),
            "Digests of a server's tools, where known",
        ),
        Key::new("version", VERSION, "As the file says").required(),
    ],
);

pub(super) const PRICES: Shape = Shape::new(
    "prices",
    &[
        Key::new("digest", DIGEST, "Of the table").required(),
        Key::new("version", FieldType::Text, "Of the table").required(),
    ],
);
