//! The shape of `workflows/NAME.workflow.yaml`.

use super::{
    ATTEMPTS, BACKOFF, DECLARED, FAILURES, FieldType, HEADER, KeyShape, MapShape, NAME, PARAMS,
    SCHEME, SECONDS, TEMPLATE, VERSION, WEBHOOKS,
};

/// The whole file.
pub const WORKFLOW: MapShape = MapShape::new(
    "the workflow",
    &[
        KeyShape::new("description", FieldType::Note, "For readers"),
        KeyShape::new(
            "env",
            FieldType::List(&FieldType::Map(&DECLARED)),
            "Variables that expressions mention as env.NAME; root workflows only",
        ),
        KeyShape::new(
            "invoke",
            FieldType::Map(&INVOKE),
            "What callers over HTTP must show",
        ),
        KeyShape::new(
            "kind",
            FieldType::Keywords(&["workflow"]),
            "Always workflow",
        )
        .required(),
        KeyShape::new(
            "model_policy",
            FieldType::Map(&POLICY),
            "Bounds and model groups of a run",
        ),
        KeyShape::new("name", NAME, "The name of the file without .workflow.yaml").required(),
        KeyShape::new(
            "output",
            FieldType::Map(&OUTPUT),
            "The result, where a workflow step calls this",
        ),
        KeyShape::new(
            "params",
            FieldType::Map(&PARAMS),
            "What the workflow is given",
        ),
        KeyShape::new(
            "pipeline",
            FieldType::List(&FieldType::Map(&STEP)),
            "The steps, in any order",
        )
        .required(),
        KeyShape::new(
            "version",
            VERSION,
            "Semantic version, in quotes if it looks like a number",
        )
        .required(),
        KeyShape::new(
            "visibility",
            FieldType::Keywords(&["root", "sub-workflow"]),
            "A sub-workflow is callable from workflows only; the default is root",
        ),
        KeyShape::new(
            "webhooks",
            WEBHOOKS,
            "The child's half of the agreement to send webhooks",
        ),
    ],
);

pub(crate) const INVOKE: MapShape = MapShape::new(
    "invoke",
    &[KeyShape::new(
        "auth",
        FieldType::Map(&AUTH),
        "The secret that callers send",
    )
    .required()],
);

pub(crate) const AUTH: MapShape = MapShape::new(
    "invoke.auth",
    &[
        KeyShape::new(
            "header",
            HEADER,
            "The name of the header; Authorization by default",
        ),
        KeyShape::new("scheme", SCHEME, "bearer by default"),
        KeyShape::new("secret", TEMPLATE, "\"{{ env.NAME }}\", a secret variable").required(),
    ],
);

pub(crate) const POLICY: MapShape = MapShape::new(
    "model_policy",
    &[
        KeyShape::new(
            "cost_budget_usd",
            FieldType::Number(0.0, 1_000_000.0),
            "What the model calls of a run may cost",
        ),
        KeyShape::new(
            "force_group",
            FieldType::Text,
            "The model group of every call",
        ),
        KeyShape::new(
            "group_map",
            FieldType::Each(&FieldType::Text),
            "Model groups by the name agents use",
        ),
        KeyShape::new("timeout_s", SECONDS, "How long a run may take"),
        KeyShape::new(
            "unpriced",
            FieldType::Keywords(&["allow", "refuse"]),
            "Under a budget, calls to models without a price; refuse by default",
        ),
    ],
);

pub(crate) const OUTPUT: MapShape = MapShape::new(
    "output",
    &[
        // Known, so that its reader can say what to write instead.
        KeyShape::new("from", FieldType::Any, "Does not exist: use map"),
        KeyShape::new(
            "map",
            FieldType::Each(&FieldType::Any),
            "Templates by the name of the field",
        ),
        KeyShape::new("schema", FieldType::Schema, "JSON Schema of the result"),
    ],
);

/// The four primitives (seed 000, invariant 20).
pub(crate) const PRIMITIVES: [&str; 4] = ["agent", "transform", "webhook", "workflow"];

const ID: FieldType = FieldType::Pattern("^[A-Za-z_][A-Za-z0-9_-]{0,63}$");

pub(crate) const STEP: MapShape = MapShape::new(
    "the step",
    &[
        KeyShape::new(
            "agent",
            FieldType::Text,
            "Path of an agent file; @1.2.0 behind it pins the version",
        ),
        KeyShape::new(
            "condition",
            FieldType::Text,
            "Expression; where it is false the step is skipped",
        ),
        KeyShape::new(
            "confidence_threshold",
            FieldType::Number(0.0, 1.0),
            "The least ktsu_confidence that passes; 0 is off",
        )
        .with(&["agent"]),
        KeyShape::new(
            "depends_on",
            FieldType::List(&ID),
            "Steps to wait for, beside those mentioned",
        ),
        KeyShape::new("description", FieldType::Note, "For readers"),
        KeyShape::new(
            "for_each",
            FieldType::Map(&FOR_EACH),
            "One call for each element of an array",
        )
        .with(&["agent"]),
        KeyShape::new("id", ID, "Its name in expressions").required(),
        KeyShape::new(
            "input",
            FieldType::Each(&FieldType::Any),
            "Another name of params",
        )
        .with(&["workflow"]),
        KeyShape::new(
            "model",
            FieldType::Map(&MODEL),
            "Another group than the agent's",
        )
        .with(&["agent"]),
        KeyShape::new(
            "on",
            FieldType::Keywords(&["approval"]),
            "Fires for approvals only",
        )
        .with(&["webhook"]),
        KeyShape::new(
            "output",
            FieldType::Map(&STEP_OUTPUT),
            "What the output must be",
        ),
        KeyShape::new(
            "params",
            FieldType::Each(&FieldType::Any),
            "Templates by the name of the param",
        )
        .with(&["agent", "workflow"]),
        KeyShape::new("retry", FieldType::Map(&RETRY), "When to send again").with(&["webhook"]),
        KeyShape::new(
            "transform",
            FieldType::Map(&TRANSFORM),
            "Shapes data, without a model",
        ),
        KeyShape::new("webhook", FieldType::Map(&WEBHOOK), "Sends an HTTP request"),
        KeyShape::new("webhooks", WEBHOOKS, "The parent's half of the agreement")
            .with(&["workflow"]),
        KeyShape::new("workflow", FieldType::Text, "Path of another workflow file"),
    ],
)
.one_of(&[&PRIMITIVES]);

pub(crate) const STEP_OUTPUT: MapShape = MapShape::new(
    "the step's output",
    &[KeyShape::new("schema", FieldType::Schema, "JSON Schema of the output").required()],
);

pub(crate) const MODEL: MapShape = MapShape::new(
    "model",
    &[
        KeyShape::new("group", FieldType::Text, "A model group of gateway.yaml"),
        KeyShape::new(
            "max_tokens",
            FieldType::Integer(1, 10_000_000),
            "Of a reply; 1024 by default",
        ),
    ],
);

pub(crate) const FOR_EACH: MapShape = MapShape::new(
    "for_each",
    &[
        KeyShape::new(
            "concurrency",
            FieldType::Integer(0, 1_000_000),
            "At once; 0 is all",
        ),
        KeyShape::new("from", FieldType::Text, "Expression that gives an array").required(),
        KeyShape::new(
            "max_failures",
            FieldType::Integer(-1, 1_000_000),
            "To be borne; -1 is any number",
        ),
        KeyShape::new(
            "max_items",
            FieldType::Integer(0, 1_000_000),
            "The first so many",
        ),
    ],
);

const METHODS: FieldType = FieldType::Keywords(&[
    "GET", "POST", "PUT", "PATCH", "DELETE", "get", "post", "put", "patch", "delete",
]);

pub(crate) const WEBHOOK: MapShape = MapShape::new(
    "the webhook",
    &[
        KeyShape::new(
            "body",
            FieldType::Any,
            "Template tree, sent as JSON; {} by default",
        ),
        KeyShape::new("method", METHODS, "POST by default"),
        KeyShape::new("retry", FieldType::Map(&RETRY), "When to send again"),
        KeyShape::new(
            "secret",
            TEMPLATE,
            "\"{{ env.NAME }}\", a secret variable: sendings are signed with it",
        ),
        KeyShape::new("timeout_s", SECONDS, "Of one sending; 30 by default"),
        KeyShape::new(
            "url",
            FieldType::Text,
            "Template that begins with http:// or https://",
        )
        .required(),
    ],
);

pub(crate) const RETRY: MapShape = MapShape::new(
    "retry",
    &[
        ATTEMPTS,
        BACKOFF,
        KeyShape::new(
            "on",
            FAILURES,
            "What is tried again; all but rate_limited by default",
        ),
    ],
);

pub(crate) const TRANSFORM: MapShape = MapShape::new(
    "the transform",
    &[
        KeyShape::new(
            "inputs",
            FieldType::List(&FieldType::Either(&[
                FieldType::Text,
                FieldType::Map(&INPUT),
            ])),
            "Steps or expressions; several are merged",
        ),
        KeyShape::new(
            "ops",
            FieldType::List(&FieldType::Map(&OP)),
            "What is done, one after another",
        ),
    ],
);

pub(crate) const INPUT: MapShape = MapShape::new(
    "the input",
    &[KeyShape::new("from", FieldType::Text, "A step or an expression").required()],
);

const OP: MapShape = MapShape::new(
    "the op",
    &[
        KeyShape::new(
            "deduplicate",
            FieldType::Map(&DEDUPLICATE),
            "Keeps the first of each key",
        ),
        KeyShape::new(
            "filter",
            FieldType::Map(&FILTER),
            "Keeps elements for which expr is true",
        ),
        KeyShape::new("flatten", FieldType::Map(&FLATTEN), "One level less"),
        KeyShape::new("map", FieldType::Map(&MAP), "One result an element"),
        KeyShape::new(
            "merge",
            FieldType::List(&FieldType::Text),
            "Merges the outputs of these steps",
        ),
        KeyShape::new(
            "sort",
            FieldType::Map(&SORT),
            "Stable; null and missing last",
        ),
    ],
)
.one_of(&[&["deduplicate", "filter", "flatten", "map", "merge", "sort"]]);

pub(crate) const DEDUPLICATE: MapShape = MapShape::new(
    "deduplicate",
    &[KeyShape::new("field", FieldType::Text, "Expression over the element").required()],
);

pub(crate) const FILTER: MapShape = MapShape::new("filter", &EXPR);
pub(crate) const MAP: MapShape = MapShape::new("map", &EXPR);
pub(crate) const FLATTEN: MapShape = MapShape::new("flatten", &[]);
const EXPR: [KeyShape; 1] =
    [KeyShape::new("expr", FieldType::Text, "Expression over the element").required()];

pub(crate) const SORT: MapShape = MapShape::new(
    "sort",
    &[
        KeyShape::new("field", FieldType::Text, "Expression over the element").required(),
        KeyShape::new(
            "order",
            FieldType::Keywords(&["asc", "desc"]),
            "asc by default",
        ),
    ],
);
