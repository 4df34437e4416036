//! The shapes of `servers/NAME.server.yaml` and of `servers.yaml`.

use super::{DURATION, FieldType, HEADER, KeyShape, MapShape, NAME, SCHEME, TEMPLATE, VERSION};

/// The most people that may have to approve.
pub(crate) const MAX_APPROVERS: i64 = 10;

/// One server, in a file of its own or as an entry of the list.
pub const SERVER: MapShape = MapShape::new(
    "the server",
    &[
        KeyShape::new(
            "access",
            FieldType::Map(&ACCESS),
            "The tools it offers to anybody; all by default",
        ),
        KeyShape::new(
            "auth",
            FieldType::Map(&AUTH),
            "How callers prove themselves",
        ),
        KeyShape::new("description", FieldType::Note, "For readers"),
        KeyShape::new(
            "kind",
            FieldType::Keywords(&["tool-server"]),
            "May be left out",
        ),
        KeyShape::new("name", NAME, "Its name").required(),
        KeyShape::new(
            "params",
            FieldType::Each(&FieldType::Map(&PARAM)),
            "What it wants to know",
        ),
        KeyShape::new(
            "stateful",
            FieldType::Flag,
            "Its calls change something that lasts",
        ),
        KeyShape::new(
            "timeout",
            DURATION,
            "How long a call may take, up to an hour; 60s by default",
        ),
        KeyShape::new(
            "url",
            FieldType::Pattern("^\\s*[Hh][Tt][Tt][Pp][Ss]?:"),
            "Where it is",
        )
        .required(),
        KeyShape::new("version", VERSION, "Semantic version; 0.0.0 without one"),
    ],
);

/// The central list.
pub const SERVERS: MapShape = MapShape::new(
    "servers.yaml",
    &[
        KeyShape::new("kind", FieldType::Keywords(&["servers"]), "May be left out"),
        KeyShape::new(
            "servers",
            FieldType::List(&FieldType::Map(&SERVER)),
            "Tool servers of others",
        ),
    ],
);

pub(crate) const PARAM: MapShape = MapShape::new(
    "the param",
    &[
        KeyShape::new(
            "default",
            FieldType::Text,
            "The value where an agent gives none",
        ),
        KeyShape::new("description", FieldType::Note, "For readers"),
        KeyShape::new("secret", FieldType::Flag, "Takes a secret and nothing else"),
    ],
);

pub(crate) const AUTH: MapShape = MapShape::new(
    "auth",
    &[
        KeyShape::new("header", HEADER, "Authorization by default"),
        KeyShape::new("scheme", SCHEME, "bearer by default"),
        KeyShape::new(
            "secret",
            TEMPLATE,
            "\"{{ params.NAME }}\", a secret param of this server",
        )
        .required(),
    ],
);

pub(crate) const ACCESS: MapShape = MapShape::new(
    "access",
    &[KeyShape::new(
        "allowlist",
        FieldType::List(&FieldType::Either(&[TOOLS, FieldType::Map(&GATED)])),
        "What may be called",
    )
    .required()],
);

/// A name, the beginning of one with a star behind it, or a star.
const TOOLS: FieldType =
    FieldType::Pattern("^([A-Za-z0-9._/:-]{1,128}|[A-Za-z0-9._/:-]{0,127}\\*)$");

pub(crate) const GATED: MapShape = MapShape::new(
    "the entry",
    &[
        KeyShape::new("name", TOOLS, "Which tools").required(),
        KeyShape::new(
            "require_approval",
            FieldType::Map(&APPROVAL),
            "A person is asked first",
        ),
    ],
);

pub(crate) const APPROVAL: MapShape = MapShape::new(
    "require_approval",
    &[
        KeyShape::new(
            "not_by_proposer",
            FieldType::Flag,
            "Whoever started the run may not approve",
        ),
        KeyShape::new(
            "on_reject",
            FieldType::Keywords(&["fail", "recover"]),
            "What a refusal does; fail by default",
        ),
        KeyShape::new(
            "quorum",
            FieldType::Integer(1, MAX_APPROVERS),
            "How many different people have to approve; 1 by default",
        ),
        KeyShape::new(
            "timeout",
            FieldType::Either(&[
                FieldType::Integer(0, 0),
                FieldType::Pattern("^0$"),
                DURATION,
            ]),
            "How long to wait; for ever by default",
        ),
        KeyShape::new(
            "timeout_behavior",
            FieldType::Keywords(&["fail", "reject"]),
            "What the end of the wait does; required with a timeout",
        ),
    ],
);
