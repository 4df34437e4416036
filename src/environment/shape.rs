//! The shape of `environments/NAME.env.yaml`.

use super::settings::{MAX_ACTIVE_RUNS, MAX_BODY_BYTES, MAX_CONNECTIONS};
use ktsu_config::shape::{FieldType, KeyShape, MapShape, NAME, VARIABLE};

/// The whole file.
pub const ENVIRONMENT: MapShape = MapShape::new(
    "the environment",
    &[
        KeyShape::new(
            "egress",
            FieldType::Map(&EGRESS),
            "Private addresses that may be reached",
        ),
        KeyShape::new(
            "evidence",
            FieldType::Map(&EVIDENCE),
            "Who keeps checkpoints, and their key",
        ),
        KeyShape::new("ledger", FieldType::Text, "Path of the ledger"),
        KeyShape::new(
            "limits",
            FieldType::Map(&LIMITS),
            "How much an engine takes on",
        ),
        KeyShape::new("listen", FieldType::Map(&LISTEN), "Where services listen"),
        KeyShape::new("name", FieldType::Text, "Otherwise that of the file"),
        KeyShape::new(
            "principals",
            FieldType::List(&FieldType::Map(&PRINCIPAL)),
            "Who may ask, and what",
        ),
        KeyShape::new(
            "providers",
            FieldType::List(&FieldType::Each(&FieldType::Any)),
            "Replace providers of gateway.yaml by name",
        ),
        KeyShape::new(
            "receiver",
            FieldType::Map(&RECEIVER),
            "A local receiver of webhooks",
        ),
        KeyShape::new(
            "retention",
            FieldType::Map(&RETENTION),
            "Judged, and followed by nobody yet",
        ),
        KeyShape::new(
            "servers",
            FieldType::Each(&FieldType::Map(&SERVER)),
            "Where each tool server is",
        ),
        KeyShape::new(
            "state",
            FieldType::Map(&STATE),
            "Another way to write ledger",
        ),
        KeyShape::new(
            "variables",
            FieldType::Each(&FieldType::Text),
            "Values; the process environment goes before",
        ),
    ],
);

pub(super) const EGRESS: MapShape = MapShape::new(
    "egress",
    &[KeyShape::new(
        "allow",
        FieldType::List(&FieldType::Text),
        "Hosts, addresses, ranges",
    )
    .required()],
);

pub(super) const EVIDENCE: MapShape = MapShape::new(
    "evidence",
    &[
        KeyShape::new(
            "signing_key",
            FieldType::Pattern("."),
            "Path of the key, from this file's folder",
        ),
        KeyShape::new(
            "witness",
            FieldType::Pattern("."),
            "file:PATH, command:… or a URL",
        ),
    ],
);

pub(super) const LIMITS: MapShape = MapShape::new(
    "limits",
    &[
        KeyShape::new(
            "active_runs",
            FieldType::Integer(1, MAX_ACTIVE_RUNS as i64),
            "Runs under way at once",
        ),
        KeyShape::new(
            "body_bytes",
            FieldType::Integer(1024, MAX_BODY_BYTES as i64),
            "Bytes of a request's body",
        ),
        KeyShape::new(
            "connections",
            FieldType::Integer(1, MAX_CONNECTIONS as i64),
            "Connections at once",
        ),
    ],
);

const ADDRESS: FieldType = FieldType::Pattern(":[0-9]+$");

pub(super) const LISTEN: MapShape = MapShape::new(
    "listen",
    &[
        KeyShape::new("gateway", ADDRESS, "ADDRESS:PORT, on loopback"),
        KeyShape::new(
            "orchestrator",
            ADDRESS,
            "ADDRESS:PORT; beyond loopback with principals only",
        ),
        KeyShape::new("runtime", ADDRESS, "ADDRESS:PORT, on loopback"),
    ],
);

/// A secret, named and never written out.
const REFERENCE: FieldType = FieldType::Either(&[
    FieldType::Map(&VALUE),
    FieldType::Pattern("^\\s*\\{\\{\\s*env\\.[A-Za-z_][A-Za-z0-9_]{0,63}\\s*\\}\\}\\s*$"),
]);

pub(super) const VALUE: MapShape = MapShape::new(
    "the reference",
    &[KeyShape::new("env", VARIABLE, "The variable that holds it").required()],
);

const ROLE: FieldType = FieldType::Keywords(&[
    "viewer", "operator", "approver", "auditor", "admin", "runtime",
]);

pub(super) const PRINCIPAL: MapShape = MapShape::new(
    "the principal",
    &[
        KeyShape::new("name", NAME, "As frames record it").required(),
        KeyShape::new("roles", FieldType::List(&ROLE), "What it may do").required(),
        KeyShape::new(
            "secrets",
            FieldType::Each(&REFERENCE),
            "Values of its own for secret variables",
        ),
        KeyShape::new("token", REFERENCE, "{env: VARIABLE}").required(),
    ],
);

pub(super) const RECEIVER: MapShape = MapShape::new(
    "receiver",
    &[KeyShape::new("variable", FieldType::Text, "Gets the receiver's URL").required()],
);

const DAYS: FieldType = FieldType::Integer(1, 36_500);

pub(super) const RETENTION: MapShape = MapShape::new(
    "retention",
    &[
        KeyShape::new("complete_days", DAYS, "For runs that are complete"),
        KeyShape::new("failed_days", DAYS, "For runs that failed"),
    ],
);

pub(super) const SERVER: MapShape = MapShape::new(
    "the server",
    &[KeyShape::new(
        "url",
        FieldType::Pattern("^\\s*[Hh][Tt][Tt][Pp][Ss]?:"),
        "Where it is",
    )
    .required()],
);

pub(super) const STATE: MapShape = MapShape::new(
    "state",
    &[
        KeyShape::new(
            "driver",
            FieldType::Keywords(&["sqlite"]),
            "The one there is",
        )
        .required(),
        KeyShape::new("dsn", FieldType::Pattern("."), "Path of the ledger").required(),
    ],
);
