//! The shape of `ktsu.lock.yaml`.

use ktsu_ledger::event::lock::FORMAT;

use crate::kit::shape::{Key, Of, Shape, VERSION};

/// The whole file.
pub(crate) const LOCK: Shape = Shape::new(
    "the lock",
    &[
        Key::new(
            "entries",
            Of::List(&Of::Map(&ENTRY)),
            "Every file with a version",
        )
        .required(),
        Key::new(
            "format",
            Of::Whole(FORMAT as i64, FORMAT as i64),
            "Of this file",
        )
        .required(),
        Key::new("prices", Of::Map(&PRICES), "What costs were counted by").required(),
    ],
);

const DIGEST: Of = Of::Form("^[0-9a-f]{64}$");

pub(super) const ENTRY: Shape = Shape::new(
    "the entry",
    &[
        Key::new("definition", DIGEST, "What a root workflow resolves to"),
        Key::new("digest", DIGEST, "BLAKE3 of the file").required(),
        Key::new(
            "kind",
            Of::Words(&["agent", "server", "workflow"]),
            "What it is",
        )
        .required(),
        Key::new("path", Of::Text, "From the kit's folder").required(),
        Key::new(
            "tools",
            Of::Each(&DIGEST),
            "Digests of a server's tools, where known",
        ),
        Key::new("version", VERSION, "As the file says").required(),
    ],
);

pub(super) const PRICES: Shape = Shape::new(
    "prices",
    &[
        Key::new("digest", DIGEST, "Of the table").required(),
        Key::new("version", Of::Text, "Of the table").required(),
    ],
);
