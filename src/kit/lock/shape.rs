//! The shape of `ktsu.lock.yaml`.

use ktsu_ledger::event::lock::FORMAT;

use crate::shape::FieldType::{Each, Integer, Keywords, List, Map, Pattern, Text};
use crate::shape::{FieldType, MapShape, VERSION, optional, required};

/// The whole file.
pub const LOCK: MapShape = MapShape::new(
    "the lock",
    &[
        required("entries", List(&Map(&ENTRY))).doc("Every file with a version"),
        required("format", Integer(FORMAT as i64, FORMAT as i64)).doc("Of this file"),
        required("prices", Map(&PRICES)).doc("What costs were counted by"),
    ],
);

const DIGEST: FieldType = Pattern("^[0-9a-f]{64}$");

pub(super) const ENTRY: MapShape = MapShape::new(
    "the entry",
    &[
        optional("definition", DIGEST).doc("What a root workflow resolves to"),
        required("digest", DIGEST).doc("BLAKE3 of the file"),
        required("kind", Keywords(&["agent", "server", "workflow", "world"])).doc("What it is"),
        required("path", Text).doc("From the kit's folder"),
        optional("tools", Each(&DIGEST)).doc("Digests of a server's tools, where known"),
        required("version", VERSION).doc("As the file says"),
    ],
);

pub(super) const PRICES: MapShape = MapShape::new(
    "prices",
    &[
        required("digest", DIGEST).doc("Of the table"),
        required("version", Text).doc("Of the table"),
    ],
);
