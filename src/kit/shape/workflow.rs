//! The shape of `workflows/NAME.workflow.yaml`.

use super::FieldType::{
    Any, Each, Either, Flag, Integer, Keywords, List, Map, Note, Number, Pattern, Schema, Text,
};
use super::agent::{REVIEW, REVIEWERS};
use super::{
    ATTEMPTS, BACKOFF, DECLARED, DURATION, FAILURES, FieldType, HEADER, KeyShape, MapShape, NAME,
    PARAMS, SCHEME, SECONDS, TEMPLATE, VERSION, WEBHOOKS, optional, required,
};

/// The whole file.
pub const WORKFLOW: MapShape = MapShape::new(
    "the workflow",
    &[
        optional("description", Note).doc("For readers"),
        optional("env", List(&Map(&DECLARED)))
            .doc("Variables that expressions mention as env.NAME; root workflows only"),
        optional("invoke", Map(&INVOKE)).doc("What callers over HTTP must show"),
        required("kind", Keywords(&["workflow"])).doc("Always workflow"),
        optional("model_policy", Map(&POLICY)).doc("Bounds and model groups of a run"),
        required("name", NAME).doc("The name of the file without .workflow.yaml"),
        optional("output", Map(&OUTPUT)).doc("The result, where a workflow step calls this"),
        optional("params", Map(&PARAMS)).doc("What the workflow is given"),
        required("pipeline", List(&Map(&STEP))).doc("The steps, in any order"),
        required("version", VERSION).doc("Semantic version, in quotes if it looks like a number"),
        optional("visibility", Keywords(&["root", "sub-workflow"]))
            .doc("A sub-workflow is callable from workflows only; the default is root"),
        optional("webhooks", WEBHOOKS).doc("The child's half of the agreement to send webhooks"),
    ],
);

pub(crate) const INVOKE: MapShape = MapShape::new(
    "invoke",
    &[required("auth", Map(&AUTH)).doc("The secret that callers send")],
);

pub(crate) const AUTH: MapShape = MapShape::new(
    "invoke.auth",
    &[
        optional("header", HEADER).doc("The name of the header; Authorization by default"),
        optional("scheme", SCHEME).doc("bearer by default"),
        required("secret", TEMPLATE).doc("\"{{ env.NAME }}\", a secret variable"),
    ],
);

pub(crate) const POLICY: MapShape = MapShape::new(
    "model_policy",
    &[
        optional("cache", Flag)
            .doc("Whether an earlier reply of the run answers an identical model request"),
        optional("cost_budget_usd", Number(0.0, 1_000_000.0))
            .doc("What the model calls of a run may cost"),
        optional("force_group", Text).doc("The model group of every call"),
        optional("group_map", Each(&Text)).doc("Model groups by the name agents use"),
        optional("timeout_s", SECONDS).doc("How long a run may take"),
        optional("unpriced", Keywords(&["allow", "refuse"]))
            .doc("Under a budget, calls to models without a price; refuse by default"),
    ],
);

pub(crate) const OUTPUT: MapShape = MapShape::new(
    "output",
    &[
        // Known, so that its reader can say what to write instead.
        optional("from", Any).doc("Does not exist: use map"),
        optional("map", Each(&Any)).doc("Templates by the name of the field"),
        optional("schema", Schema).doc("JSON Schema of the result"),
    ],
);

/// The four primitives (seed 000, invariant 20).
pub(crate) const PRIMITIVES: [&str; 4] = ["agent", "transform", "webhook", "workflow"];

const ID: FieldType = Pattern("^[A-Za-z_][A-Za-z0-9_-]{0,63}$");

pub(crate) const STEP: MapShape = MapShape::new(
    "the step",
    &[
        optional("agent", Text).doc("Path of an agent file; @1.2.0 behind it pins the version"),
        optional("commands", Map(&STEP_COMMANDS))
            .doc("Which commands of its agent its outcomes may have; all by default")
            .with(&["agent"]),
        optional("condition", Text).doc("Expression; where it is false the step is skipped"),
        optional("confidence_threshold", Number(0.0, 1.0))
            .doc("The least ktsu_confidence that passes; 0 is off")
            .with(&["agent"]),
        optional("depends_on", List(&ID)).doc("Steps to wait for, beside those mentioned"),
        optional("description", Note).doc("For readers"),
        optional("for_each", Map(&FOR_EACH))
            .doc("One call for each element of an array")
            .with(&["agent"]),
        required("id", ID).doc("Its name in expressions"),
        optional("input", Each(&Any))
            .doc("Another name of params")
            .with(&["workflow"]),
        optional("may_invoke", Each(&Either(&[Text, Map(&MAY_INVOKE)])))
            .doc("Workflows that its agent may run by commands, by the names it has for them")
            .with(&["agent"]),
        optional("model", Map(&MODEL))
            .doc("Another group than the agent's")
            .with(&["agent"]),
        optional("on", Keywords(&["approval", "resume"]))
            .doc("approval: the webhook fires for approvals only; resume: the agent runs only in place of a suspended step that names this one")
            .with(&["agent", "webhook"]),
        optional("output", Map(&STEP_OUTPUT)).doc("What the output must be"),
        optional("params", Each(&Any))
            .doc("Templates by the name of the param")
            .with(&["agent", "workflow"]),
        optional("resume", Map(&RESUME))
            .doc("What data it may wait for: its params then see resume.checkpoint and resume.data")
            .with(&["agent"]),
        optional("retry", Map(&RETRY))
            .doc("When to send again")
            .with(&["webhook"]),
        optional("summary", Text)
            .doc("Template of a few words about the step, shown to people who look at a run"),
        optional("transform", Map(&TRANSFORM)).doc("Shapes data, without a model"),
        optional("webhook", Map(&WEBHOOK)).doc("Sends an HTTP request"),
        optional("webhooks", WEBHOOKS)
            .doc("The parent's half of the agreement")
            .with(&["workflow"]),
        optional("workflow", Text).doc("Path of another workflow file"),
    ],
)
.one_of(&[&PRIMITIVES]);

/// The limits that a step sets to the commands of its agent.
pub(crate) const STEP_COMMANDS: MapShape = MapShape::new(
    "the step's commands",
    &[
        optional("emit", List(&Text)).doc("Only these topics, of those that the agent declares"),
        optional("review", Either(&[Flag, Map(&REVIEW)]))
            .doc("false: no reviews; a policy: what it asks for beside that of the agent"),
        optional("suspend", Flag).doc("false: the outcome cannot suspend the step"),
    ],
);

/// The data that a suspended step waits for.
pub(crate) const RESUME: MapShape = MapShape::new(
    "resume",
    &[
        optional("on_timeout", Keywords(&["fail"])).doc("What the end of that time does: fail"),
        optional("roles", FieldType::Filled(&Keywords(&REVIEWERS)))
            .doc("Roles of which a person needs one to give the data, in place of the agent's"),
        optional("schema", Schema).doc("JSON Schema of the data; any by default"),
        optional("timeout", DURATION).doc("How long it waits, in place of what the agent says"),
    ],
);

pub(crate) const STEP_OUTPUT: MapShape = MapShape::new(
    "the step's output",
    &[required("schema", Schema).doc("JSON Schema of the output")],
);

pub(crate) const MAY_INVOKE: MapShape = MapShape::new(
    "the entry of may_invoke",
    &[
        optional("concurrency", Integer(1, 1_000)).doc("At once, of one command; 4 by default"),
        optional("max_items", Integer(1, 10_000))
            .doc("Inputs of one command at the most; 100 by default"),
        optional("webhooks", WEBHOOKS).doc("The parent's half of the agreement"),
        required("workflow", Text).doc("Path of another workflow file"),
    ],
);

pub(crate) const MODEL: MapShape = MapShape::new(
    "model",
    &[
        optional("group", Text).doc("A model group of gateway.yaml"),
        optional("max_tokens", Integer(1, 10_000_000)).doc("Of a reply; 1024 by default"),
    ],
);

pub(crate) const FOR_EACH: MapShape = MapShape::new(
    "for_each",
    &[
        optional("concurrency", Integer(0, 1_000_000)).doc("At once; 0 is all"),
        required("from", Text).doc("Expression that gives an array"),
        optional("max_failures", Integer(-1, 1_000_000)).doc("To be borne; -1 is any number"),
        optional("max_items", Integer(0, 1_000_000)).doc("The first so many"),
    ],
);

const METHODS: FieldType = Keywords(&[
    "GET", "POST", "PUT", "PATCH", "DELETE", "get", "post", "put", "patch", "delete",
]);

pub(crate) const WEBHOOK: MapShape = MapShape::new(
    "the webhook",
    &[
        optional("body", Any).doc("Template tree, sent as JSON; {} by default"),
        optional("method", METHODS).doc("POST by default"),
        optional("retry", Map(&RETRY)).doc("When to send again"),
        optional("secret", TEMPLATE)
            .doc("\"{{ env.NAME }}\", a secret variable: sendings are signed with it"),
        optional("timeout_s", SECONDS).doc("Of one sending; 30 by default"),
        required("url", Text).doc("Template that begins with http:// or https://"),
    ],
);

pub(crate) const RETRY: MapShape = MapShape::new(
    "retry",
    &[
        ATTEMPTS,
        BACKOFF,
        optional("on", FAILURES).doc("What is tried again; all but rate_limited by default"),
    ],
);

pub(crate) const TRANSFORM: MapShape = MapShape::new(
    "the transform",
    &[
        optional("inputs", List(&Either(&[Text, Map(&INPUT)])))
            .doc("Steps or expressions; several are merged"),
        optional("ops", List(&Map(&OP))).doc("What is done, one after another"),
    ],
);

pub(crate) const INPUT: MapShape = MapShape::new(
    "the input",
    &[required("from", Text).doc("A step or an expression")],
);

const OP: MapShape = MapShape::new(
    "the op",
    &[
        optional("deduplicate", Map(&DEDUPLICATE)).doc("Keeps the first of each key"),
        optional("filter", Map(&FILTER)).doc("Keeps elements for which expr is true"),
        optional("flatten", Map(&FLATTEN)).doc("One level less"),
        optional("map", Map(&MAP)).doc("One result an element"),
        optional("merge", List(&Text)).doc("Merges the outputs of these steps"),
        optional("sort", Map(&SORT)).doc("Stable; null and missing last"),
    ],
)
.one_of(&[&["deduplicate", "filter", "flatten", "map", "merge", "sort"]]);

pub(crate) const DEDUPLICATE: MapShape = MapShape::new(
    "deduplicate",
    &[required("field", Text).doc("Expression over the element")],
);

pub(crate) const FILTER: MapShape = MapShape::new("filter", &EXPR);
pub(crate) const MAP: MapShape = MapShape::new("map", &EXPR);
pub(crate) const FLATTEN: MapShape = MapShape::new("flatten", &[]);
const EXPR: [KeyShape; 1] = [required("expr", Text).doc("Expression over the element")];

pub(crate) const SORT: MapShape = MapShape::new(
    "sort",
    &[
        required("field", Text).doc("Expression over the element"),
        optional("order", Keywords(&["asc", "desc"])).doc("asc by default"),
    ],
);
