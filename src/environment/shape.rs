//! The shape of `environments/NAME.env.yaml`.

use super::limits::{
    MAX_ACTIVE_RUNS, MAX_BODY_BYTES, MAX_CONNECTIONS, MAX_RETENTION_DAYS, MAX_TRACE_WORK,
};
use ktsu_config::shape::FieldType::{
    Any, Each, Either, Flag, Integer, Keywords, List, Map, Pattern, Text,
};
use ktsu_config::shape::{DURATION, FieldType, MapShape, NAME, VARIABLE, optional, required};
use ktsu_delivery::retry::MAX_ATTEMPTS;

/// The whole file.
pub const ENVIRONMENT: MapShape = MapShape::new(
    "the environment",
    &[
        optional("egress", Map(&EGRESS)).doc("Private addresses that may be reached"),
        optional("evidence", Map(&EVIDENCE)).doc("Who keeps checkpoints, and their key"),
        optional("ledger", Text).doc("Path of the ledger"),
        optional("limits", Map(&LIMITS)).doc("How much an engine takes on"),
        optional("listen", Map(&LISTEN)).doc("Where services listen"),
        optional("mcp", Map(&MCP)).doc("What ktsu mcp lets other agents do"),
        optional("name", Text).doc("Otherwise that of the file"),
        optional("principals", List(&Map(&PRINCIPAL))).doc("Who may ask, and what"),
        optional("providers", List(&Each(&Any))).doc("Replace providers of gateway.yaml by name"),
        optional("receiver", Map(&RECEIVER)).doc("A local receiver of webhooks"),
        optional("retention", Map(&RETENTION))
            .doc("How long ended runs are kept; for ever if absent"),
        optional("servers", Each(&Map(&SERVER))).doc("Where each tool server is"),
        optional("state", Map(&STATE)).doc("Another way to write ledger"),
        optional("subscriptions", List(&Map(&SUBSCRIPTION))).doc("Who is sent which frames"),
        optional("tls", Map(&TLS)).doc("What services show of themselves, and whom they trust"),
        optional("variables", Each(&Text)).doc("Values; the process environment goes before"),
    ],
);

pub(super) const EGRESS: MapShape = MapShape::new(
    "egress",
    &[required("allow", List(&Text)).doc("Hosts, addresses, ranges")],
);

pub(super) const EVIDENCE: MapShape = MapShape::new(
    "evidence",
    &[
        optional("signing_key", Pattern(".")).doc("Path of the key, from this file's folder"),
        optional("witness", Pattern(".")).doc("file:PATH, command:… or a URL"),
    ],
);

pub(super) const LIMITS: MapShape = MapShape::new(
    "limits",
    &[
        optional("active_runs", Integer(1, MAX_ACTIVE_RUNS as i64)).doc("Runs under way at once"),
        optional("body_bytes", Integer(1024, MAX_BODY_BYTES as i64))
            .doc("Bytes of a request's body"),
        optional("connections", Integer(1, MAX_CONNECTIONS as i64)).doc("Connections at once"),
        optional("trace_work", Integer(1000, MAX_TRACE_WORK as i64))
            .doc("Work of an answer to a trace over HTTP, in units of about a microsecond"),
    ],
);

const ADDRESS: FieldType = Pattern(":[0-9]+$");

pub(super) const LISTEN: MapShape = MapShape::new(
    "listen",
    &[
        optional("gateway", ADDRESS)
            .doc("ADDRESS:PORT; beyond loopback with principals and tls only"),
        optional("orchestrator", ADDRESS).doc("ADDRESS:PORT; beyond loopback with principals only"),
        optional("runtime", ADDRESS)
            .doc("ADDRESS:PORT; beyond loopback with principals and tls only"),
    ],
);

pub(super) const MCP: MapShape = MapShape::new(
    "mcp",
    &[optional("decide", Flag).doc("Whether they may decide on approvals; false if absent")],
);

/// A secret, named and never written out.
const REFERENCE: FieldType = Either(&[
    Map(&VALUE),
    Pattern("^\\s*\\{\\{\\s*env\\.[A-Za-z_][A-Za-z0-9_]{0,63}\\s*\\}\\}\\s*$"),
]);

pub(super) const VALUE: MapShape = MapShape::new(
    "the reference",
    &[required("env", VARIABLE).doc("The variable that holds it")],
);

const ROLE: FieldType = Keywords(&[
    "viewer",
    "operator",
    "approver",
    "auditor",
    "admin",
    "runtime",
    "orchestrator",
]);

pub(super) const PRINCIPAL: MapShape = MapShape::new(
    "the principal",
    &[
        required("name", NAME).doc("As frames record it"),
        required("roles", List(&ROLE)).doc("What it may do"),
        optional("secrets", Each(&REFERENCE)).doc("Values of its own for secret variables"),
        required("token", REFERENCE).doc("{env: VARIABLE}"),
    ],
);

pub(super) const RECEIVER: MapShape = MapShape::new(
    "receiver",
    &[required("variable", Text).doc("Gets the receiver's URL")],
);

const DAYS: FieldType = Integer(1, MAX_RETENTION_DAYS);

pub(super) const RETENTION: MapShape = MapShape::new(
    "retention",
    &[
        optional("complete_days", DAYS).doc("For runs that are complete"),
        optional("failed_days", DAYS).doc("For runs that failed or were cancelled"),
    ],
);

pub(super) const SERVER: MapShape = MapShape::new(
    "the server",
    &[required("url", Pattern("^\\s*[Hh][Tt][Tt][Pp][Ss]?:")).doc("Where it is")],
);

pub(super) const SUBSCRIPTION: MapShape = MapShape::new(
    "the subscription",
    &[
        optional("attempts", Integer(1, MAX_ATTEMPTS as i64)).doc("Before a frame is dead; 30"),
        optional("backoff", DURATION).doc("After the first attempt; 1s"),
        required("name", NAME).doc("Its id"),
        optional("pattern", Either(&[Text, List(&Text)])).doc("run.completed, object.* or *"),
        required("secret", REFERENCE).doc("{env: VARIABLE}; signs what is sent"),
        optional("topics", Either(&[Text, List(&Text)]))
            .doc("Instead of pattern: topics to receive, such as claim.verified, claim.* or *"),
        required("url", Pattern("^\\s*[Hh][Tt][Tt][Pp][Ss]?:")).doc("Where frames go"),
    ],
)
.one_of(&[&["pattern", "topics"]]);

pub(super) const TLS: MapShape = MapShape::new(
    "tls",
    &[
        optional("authority", Pattern("."))
            .doc("PEM file of the authority to trust; those of the machine if absent"),
        optional("certificate", Pattern("."))
            .doc("PEM file of the certificate, from this file's folder"),
        optional("clients", Flag)
            .doc("Whether callers must show certificates of the authority; false if absent"),
        optional("key", Pattern(".")).doc("PEM file of the private key"),
    ],
);

pub(super) const STATE: MapShape = MapShape::new(
    "state",
    &[
        required("driver", Keywords(&["sqlite"])).doc("The one there is"),
        required("dsn", Pattern(".")).doc("Path of the ledger"),
    ],
);
