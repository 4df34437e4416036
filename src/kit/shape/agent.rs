//! The shape of `agents/NAME.agent.yaml`.

use super::FieldType::{
    Each, Either, Flag, Integer, Keywords, List, Map, Note, Pattern, Schema, Text,
};
use super::server::{ACCESS, MAX_APPROVERS};
use super::{DURATION, FieldType, MapShape, NAME, PARAMS, VERSION, optional, required};

/// The whole file.
pub const AGENT: MapShape = MapShape::new(
    "the agent",
    &[
        optional("commands", Map(&COMMANDS)).doc("What it may command besides its output"),
        optional("description", Note).doc("For readers"),
        optional("max_turns", Integer(0, 1_000)).doc("Model calls at the most; 10 by default"),
        required("model", Pattern("\\S")).doc("A model group of gateway.yaml"),
        required("name", NAME).doc("Its name"),
        required("output", Map(&OUTPUT)).doc("What it answers"),
        optional("params", Map(&PARAMS)).doc("What it is given; it sees nothing else"),
        required("prompt", Map(&PROMPT)).doc("The prompt of the model"),
        optional("servers", List(&Map(&SERVER))).doc("The tool servers it uses"),
        optional("version", VERSION).doc("Semantic version; 0.0.0 without one"),
    ],
);

pub(crate) const COMMANDS: MapShape = MapShape::new(
    "commands",
    &[
        optional("emit", List(&Pattern("\\S")))
            .doc("Topics that it may publish: claim.verified, claim.* or *"),
        optional("invoke", List(&Pattern("\\S")))
            .doc("What it may run of that which a step offers in may_invoke: verify, verify* or *"),
        optional("review", Either(&[Flag, Map(&REVIEW)]))
            .doc("It may ask for a person's review of its output, before that counts"),
        optional("suspend", Either(&[Flag, Map(&SUSPEND)]))
            .doc("It may suspend its step until data are there; the step then runs again"),
    ],
);

/// The people who give the data that a step waits for, and their time.
pub(crate) const SUSPEND: MapShape = MapShape::new(
    "suspend",
    &[
        optional("on_timeout", Keywords(&["fail"])).doc("What the end of that time does: fail"),
        optional("roles", FieldType::Filled(&Keywords(&REVIEWERS))).doc(
            "Roles of which a person needs one to give the data; approver and admin by default",
        ),
        optional("timeout", DURATION).doc("How long the step waits; 168h, a week, by default"),
    ],
);

/// The people who review an output, and their time.
pub(crate) const REVIEW: MapShape = MapShape::new(
    "review",
    &[
        optional("not_by_proposer", Flag).doc("The principal that started the run may not approve"),
        optional("quorum", Integer(1, MAX_APPROVERS))
            .doc("How many different people have to approve; 1 by default"),
        optional("roles", FieldType::Filled(&Keywords(&REVIEWERS)))
            .doc("Roles of which a person needs one to decide; approver and admin by default"),
        optional("timeout", DURATION).doc("How long a decision may take; 168h, a week, by default"),
        optional("timeout_behavior", Keywords(&["fail", "reject"]))
            .doc("What the end of that time does; fail by default"),
    ],
);

/// The roles that decide.
pub(crate) const REVIEWERS: [&str; 3] = ["operator", "approver", "admin"];

pub(crate) const OUTPUT: MapShape = MapShape::new(
    "the agent's output",
    &[required("schema", Schema).doc("JSON Schema of an object")],
);

pub(crate) const PROMPT: MapShape = MapShape::new(
    "prompt",
    &[
        optional("reflect", Pattern("\\S")).doc("Template: looks at the draft once more"),
        required("system", Text).doc("Static instructions"),
        optional("user", Text).doc("Template over params"),
    ],
);

/// A server as an agent uses it.
pub(crate) const SERVER: MapShape = MapShape::new(
    "the server",
    &[
        optional("access", Map(&ACCESS)).doc("The tools it may call; all by default"),
        required("name", Text).doc("The server's name"),
        optional("params", Each(&Text)).doc("Texts over the agent's params"),
        optional("path", Text).doc("Its file; without one it is defined in servers.yaml"),
    ],
);
