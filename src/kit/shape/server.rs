//! The shapes of `servers/NAME.server.yaml` and of `servers.yaml`.

use crate::approval::MOST_PEOPLE;

use super::{DURATION, FieldType, HEADER, Key, NAME, SCHEME, Shape, TEMPLATE, VERSION};

/// One server, in a file of its own or as an entry of the list.
pub const SERVER: Shape = Shape::new(
    "the server",
    &[
        Key::new(
            "access",
            FieldType::Map(&ACCESS),
            "The tools it offers to anybody; all by default",
        ),
        Key::new(
            "auth",
            FieldType::Map(&AUTH),
            "How callers prove themselves",
        ),
        Key::new("description", FieldType::Note, "For readers"),
        Key::new(
            "kind",
            FieldType::Words(&["tool-server"]),
            "May be left out",
        ),
        Key::new("name", NAME, "Its name").required(),
        Key::new(
            "params",
            FieldType::Each(&FieldType::Map(&PARAM)),
            "What it wants to know",
        ),
        Key::new(
            "stateful",
            FieldType::Flag,
            "Its calls change something that lasts",
        ),
        Key::new(
            "timeout",
            DURATION,
            "How long a call may take, up to an hour; 60s by default",
        ),
        Key::new(
            "url",
            FieldType::Form("^\\s*[Hh][Tt][Tt][Pp][Ss]?:"),
            "Where it is",
        )
        .required(),
        Key::new("version", VERSION, "Semantic version; 0.0.0 without one"),
    ],
);

/// The central list.
pub const SERVERS: Shape = Shape::new(
    "servers.yaml",
    &[
        Key::new("kind", FieldType::Words(&["servers"]), "May be left out"),
        Key::new(
            "servers",
            FieldType::List(&FieldType::Map(&SERVER)),
            "Tool servers of others",
        ),
    ],
);

pub(crate) const PARAM: Shape = Shape::new(
    "the param",
    &[
        Key::new(
            "default",
            FieldType::Text,
            "The value where an agent gives none",
        ),
        Key::new("description", FieldType::Note, "For readers"),
        Key::new("secret", FieldType::Flag, "Takes a secret and nothing else"),
    ],
);

pub(crate) const AUTH: Shape = Shape::new(
    "auth",
    &[
        Key::new("header", HEADER, "Authorization by default"),
        Key::new("scheme", SCHEME, "bearer by default"),
        Key::new(
            "secret",
            TEMPLATE,
            "\"{{ params.NAME }}\", a secret param of this server",
        )
        .required(),
    ],
);

pub(crate) const ACCESS: Shape = Shape::new(
    "access",
    &[Key::new(
        "allowlist",
        FieldType::List(&FieldType::Either(&[TOOLS, FieldType::Map(&GATED)])),
        "What may be called",
    )
    .required()],
);

/// A name, the beginning of one with a star behind it, or a star.
const TOOLS: FieldType = FieldType::Form("^([A-Za-z0-9._/:-]{1,128}|[A-Za-z0-9._/:-]{0,127}\\*)$");

pub(crate) const GATED: Shape = Shape::new(
    "the entry",
    &[
        Key::new("name", TOOLS, "Which tools").required(),
        Key::new(
            "require_approval",
            FieldType::Map(&APPROVAL),
            "A person is asked first",
        ),
    ],
);

pub(crate) const APPROVAL: Shape = Shape::new(
    "require_approval",
    &[
        Key::new(
            "not_by_proposer",
            FieldType::Flag,
            "Whoever started the run may not approve",
        ),
        Key::new(
            "on_reject",
            FieldType::Words(&["fail", "recover"]),
            "What a refusal does; fail by default",
        ),
        Key::new(
            "quorum",
            FieldType::Whole(1, MOST_PEOPLE),
            "How many different people have to approve; 1 by default",
        ),
        Key::new(
            "timeout",
            FieldType::Either(&[FieldType::Whole(0, 0), FieldType::Form("^0$"), DURATION]),
            "How long to wait; for ever by default",
        ),
        Key::new(
            "timeout_behavior",
            FieldType::Words(&["fail", "reject"]),
            "What the end of the wait does; required with a timeout",
        ),
    ],
);
