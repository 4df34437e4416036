//! The shapes of `servers/NAME.server.yaml` and of `servers.yaml`.

use super::FieldType::{Each, Either, Flag, Integer, Keywords, List, Map, Note, Pattern, Text};
use super::{
    DURATION, FieldType, HEADER, MapShape, NAME, SCHEME, TEMPLATE, VERSION, optional, required,
};

/// The most people that may have to approve.
pub(crate) const MAX_APPROVERS: i64 = 10;

/// One server, in a file of its own or as an entry of the list.
pub const SERVER: MapShape = MapShape::new(
    "the server",
    &[
        optional("access", Map(&ACCESS)).doc("The tools that it offers; all by default"),
        optional("auth", Map(&AUTH)).doc("How callers prove themselves"),
        optional("description", Note).doc("For readers"),
        optional("kind", Keywords(&["tool-server"])).doc("May be left out"),
        required("name", NAME).doc("Its name"),
        optional("params", Each(&Map(&PARAM))).doc("What it wants to know"),
        optional("stateful", Flag).doc("Its calls change something that lasts"),
        optional("timeout", DURATION)
            .doc("How long a call may take, up to an hour; 60s by default"),
        required("url", Pattern("^\\s*[Hh][Tt][Tt][Pp][Ss]?:")).doc("Where it is"),
        optional("version", VERSION).doc("Semantic version; 0.0.0 without one"),
    ],
);

/// The central list.
pub const SERVERS: MapShape = MapShape::new(
    "servers.yaml",
    &[
        optional("kind", Keywords(&["servers"])).doc("May be left out"),
        optional("servers", List(&Map(&SERVER))).doc("Tool servers of others"),
    ],
);

pub(crate) const PARAM: MapShape = MapShape::new(
    "the param",
    &[
        optional("default", Text).doc("The value where an agent gives none"),
        optional("description", Note).doc("For readers"),
        optional("secret", Flag).doc("Takes a secret and nothing else"),
    ],
);

pub(crate) const AUTH: MapShape = MapShape::new(
    "auth",
    &[
        optional("header", HEADER).doc("Authorization by default"),
        optional("scheme", SCHEME).doc("bearer by default"),
        required("secret", TEMPLATE).doc("\"{{ params.NAME }}\", a secret param of this server"),
    ],
);

pub(crate) const ACCESS: MapShape = MapShape::new(
    "access",
    &[required("allowlist", List(&Either(&[TOOLS, Map(&GATED)]))).doc("What may be called")],
);

/// A name, the beginning of one with a star behind it, or a star.
const TOOLS: FieldType = Pattern("^([A-Za-z0-9._/:-]{1,128}|[A-Za-z0-9._/:-]{0,127}\\*)$");

pub(crate) const GATED: MapShape = MapShape::new(
    "the entry",
    &[
        required("name", TOOLS).doc("Which tools"),
        optional("require_approval", Map(&APPROVAL)).doc("Calls that wait for a person's approval"),
    ],
);

const TIMEOUT: FieldType = Either(&[Integer(0, 0), Pattern("^0$"), DURATION]);

pub(crate) const APPROVAL: MapShape = MapShape::new(
    "require_approval",
    &[
        optional("not_by_proposer", Flag).doc("The principal that started the run may not approve"),
        optional("on_reject", Keywords(&["fail", "recover"]))
            .doc("What a refusal does; fail by default"),
        optional("quorum", Integer(1, MAX_APPROVERS))
            .doc("How many different people have to approve; 1 by default"),
        optional("timeout", TIMEOUT).doc("How long to wait; for ever by default"),
        optional("timeout_behavior", Keywords(&["fail", "reject"]))
            .doc("What the end of the wait does; required with a timeout"),
    ],
);
