//! The shapes of `servers/NAME.server.yaml` and of `servers.yaml`.

use crate::kit::approval::MOST_PEOPLE;

use super::{DURATION, HEADER, Key, NAME, Of, SCHEME, Shape, TEMPLATE, VERSION};

/// One server, in a file of its own or as an entry of the list.
pub(crate) const SERVER: Shape = Shape::new(
    "the server",
    &[
        Key::new(
            "access",
            Of::Map(&ACCESS),
            "The tools it offers to anybody; all by default",
        ),
        Key::new("auth", Of::Map(&AUTH), "How callers prove themselves"),
        Key::new("description", Of::Note, "For readers"),
        Key::new("kind", Of::Words(&["tool-server"]), "May be left out"),
        Key::new("name", NAME, "Its name").required(),
        Key::new(
            "params",
            Of::Each(&Of::Map(&PARAM)),
            "What it wants to know",
        ),
        Key::new(
            "stateful",
            Of::Flag,
            "Its calls change something that lasts",
        ),
        Key::new(
            "timeout",
            DURATION,
            "How long a call may take, up to an hour; 60s by default",
        ),
        Key::new(
            "url",
            Of::Form("^\\s*[Hh][Tt][Tt][Pp][Ss]?:"),
            "Where it is",
        )
        .required(),
        Key::new("version", VERSION, "Semantic version; 0.0.0 without one"),
    ],
);

/// The central list.
pub(crate) const SERVERS: Shape = Shape::new(
    "servers.yaml",
    &[
        Key::new("kind", Of::Words(&["servers"]), "May be left out"),
        Key::new(
            "servers",
            Of::List(&Of::Map(&SERVER)),
            "Tool servers of others",
        ),
    ],
);

pub(crate) const PARAM: Shape = Shape::new(
    "the param",
    &[
        Key::new("default", Of::Text, "The value where an agent gives none"),
        Key::new("description", Of::Note, "For readers"),
        Key::new("secret", Of::Flag, "Takes a secret and nothing else"),
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
        Of::List(&Of::Either(&[TOOLS, Of::Map(&GATED)])),
        "What may be called",
    )
    .required()],
);

/// A name, the beginning of one with a star behind it, or a star.
const TOOLS: Of = Of::Form("^([A-Za-z0-9._/:-]{1,128}|[A-Za-z0-9._/:-]{0,127}\\*)$");

pub(crate) const GATED: Shape = Shape::new(
    "the entry",
    &[
        Key::new("name", TOOLS, "Which tools").required(),
        Key::new(
            "require_approval",
            Of::Map(&APPROVAL),
            "A person is asked first",
        ),
    ],
);

pub(crate) const APPROVAL: Shape = Shape::new(
    "require_approval",
    &[
        Key::new(
            "not_by_proposer",
            Of::Flag,
            "Whoever started the run may not approve",
        ),
        Key::new(
            "on_reject",
            Of::Words(&["fail", "recover"]),
            "What a refusal does; fail by default",
        ),
        Key::new(
            "quorum",
            Of::Whole(1, MOST_PEOPLE),
            "How many different people have to approve; 1 by default",
        ),
        Key::new(
            "timeout",
            Of::Either(&[Of::Whole(0, 0), Of::Form("^0$"), DURATION]),
            "How long to wait; for ever by default",
        ),
        Key::new(
            "timeout_behavior",
            Of::Words(&["fail", "reject"]),
            "What the end of the wait does; required with a timeout",
        ),
    ],
);
