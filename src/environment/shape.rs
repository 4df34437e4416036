//! The shape of `environments/NAME.env.yaml`.

use super::settings::{MOST_BODY, MOST_CONNECTIONS, MOST_RUNS};
use ktsu_config::shape::{FieldType, Key, NAME, Shape, VARIABLE};

/// The whole file.
pub const ENVIRONMENT: Shape = Shape::new(
    "the environment",
    &[
        Key::new(
            "egress",
            FieldType::Map(&EGRESS),
            "Private addresses that may be reached",
        ),
        Key::new(
            "evidence",
            FieldType::Map(&EVIDENCE),
            "Who keeps checkpoints, and their key",
        ),
        Key::new("ledger", FieldType::Text, "Path of the ledger"),
        Key::new(
            "limits",
            FieldType::Map(&LIMITS),
            "How much an engine takes on",
        ),
        Key::new("listen", FieldType::Map(&LISTEN), "Where services listen"),
        Key::new("name", FieldType::Text, "Otherwise that of the file"),
        Key::new(
            "principals",
            FieldType::List(&FieldType::Map(&PRINCIPAL)),
            "Who may ask, and what",
        ),
        Key::new(
            "providers",
            FieldType::List(&FieldType::Each(&FieldType::Any)),
            "Replace providers of gateway.yaml by name",
        ),
        Key::new(
            "receiver",
            FieldType::Map(&RECEIVER),
            "A local receiver of webhooks",
        ),
        Key::new(
            "retention",
            FieldType::Map(&RETENTION),
            "Judged, and followed by nobody yet",
        ),
        Key::new(
            "servers",
            FieldType::Each(&FieldType::Map(&SERVER)),
            "Where each tool server is",
        ),
        Key::new(
            "state",
            FieldType::Map(&STATE),
            "Another way to write ledger",
        ),
        Key::new(
            "variables",
            FieldType::Each(&FieldType::Text),
            "Values; the process environment goes before",
        ),
    ],
);

pub(super) const EGRESS: Shape = Shape::new(
    "egress",
    &[Key::new(
        "allow",
        FieldType::List(&FieldType::Text),
        "Hosts, addresses, ranges",
    )
    .required()],
);

pub(super) const EVIDENCE: Shape = Shape::new(
    "evidence",
    &[
        Key::new(
            "signing_key",
            FieldType::Form("."),
            "Path of the key, from this file's folder",
        ),
        Key::new(
            "witness",
            FieldType::Form("."),
            "file:PATH, command:… or a URL",
        ),
    ],
);

pub(super) const LIMITS: Shape = Shape::new(
    "limits",
    &[
        Key::new(
            "active_runs",
            FieldType::Whole(1, MOST_RUNS as i64),
            "Runs under way at once",
        ),
        Key::new(
            "body_bytes",
            FieldType::Whole(1024, MOST_BODY as i64),
            "Bytes of a request's body",
        ),
        Key::new(
            "connections",
            FieldType::Whole(1, MOST_CONNECTIONS as i64),
            "Connections at once",
        ),
    ],
);

const ADDRESS: FieldType = FieldType::Form(":[0-9]+$");

pub(super) const LISTEN: Shape = Shape::new(
    "listen",
    &[
        Key::new("gateway", ADDRESS, "ADDRESS:PORT, on loopback"),
        Key::new(
            "orchestrator",
            ADDRESS,
            "ADDRESS:PORT; beyond loopback with principals only",
        ),
        Key::new("runtime", ADDRESS, "ADDRESS:PORT, on loopback"),
    ],
);

/// A secret, named and never written out.
const REFERENCE: FieldType = FieldType::Either(&[
    FieldType::Map(&VALUE),
    FieldType::Form("^\\s*\\{\\{\\s*env\\.[A-Za-z_][A-Za-z0-9_]{0,63}\\s*\\}\\}\\s*$"),
]);

pub(super) const VALUE: Shape = Shape::new(
    "the reference",
    &[Key::new("env", VARIABLE, "The variable that holds it").required()],
);

const ROLE: FieldType = FieldType::Words(&[
    "viewer", "operator", "approver", "auditor", "admin", "runtime",
]);

pub(super) const PRINCIPAL: Shape = Shape::new(
    "the principal",
    &[
        Key::new("name", NAME, "As frames record it").required(),
        Key::new("roles", FieldType::List(&ROLE), "What it may do").required(),
        Key::new(
            "secrets",
            FieldType::Each(&REFERENCE),
            "Values of its own for secret variables",
        ),
        Key::new("token", REFERENCE, "{env: VARIABLE}").required(),
    ],
);

pub(super) const RECEIVER: Shape = Shape::new(
    "receiver",
    &[Key::new("variable", FieldType::Text, "Gets the receiver's URL").required()],
);

const DAYS: FieldType = FieldType::Whole(1, 36_500);

pub(super) const RETENTION: Shape = Shape::new(
    "retention",
    &[
        Key::new("complete_days", DAYS, "For runs that are complete"),
        Key::new("failed_days", DAYS, "For runs that failed"),
    ],
);

pub(super) const SERVER: Shape = Shape::new(
    "the server",
    &[Key::new(
        "url",
        FieldType::Form("^\\s*[Hh][Tt][Tt][Pp][Ss]?:"),
        "Where it is",
    )
    .required()],
);

pub(super) const STATE: Shape = Shape::new(
    "state",
    &[
        Key::new("driver", FieldType::Words(&["sqlite"]), "The one there is").required(),
        Key::new("dsn", FieldType::Form("."), "Path of the ledger").required(),
    ],
);
