//! The shape of `workflows/NAME.workflow.yaml`.

use super::{
    ATTEMPTS, BACKOFF, DECLARED, FAILURES, FieldType, HEADER, Key, NAME, PARAMS, SCHEME, SECONDS,
    Shape, TEMPLATE, VERSION, WEBHOOKS,
};

/// The whole file.
pub const WORKFLOW: Shape = Shape::new(
    "the workflow",
    &[
        Key::new("description", FieldType::Note, "For readers"),
        Key::new(
            "env",
            FieldType::List(&FieldType::Map(&DECLARED)),
            "Variables that expressions mention as env.NAME; root workflows only",
        ),
        Key::new(
            "invoke",
            FieldType::Map(&INVOKE),
            "What callers over HTTP must show",
        ),
        Key::new("kind", FieldType::Words(&["workflow"]), "Always workflow").required(),
        Key::new(
            "model_policy",
            FieldType::Map(&POLICY),
            "Bounds and model groups of a run",
        ),
        Key::new("name", NAME, "The name of the file without .workflow.yaml").required(),
        Key::new(
            "output",
            FieldType::Map(&OUTPUT),
            "The result, where a workflow step calls this",
        ),
        Key::new(
            "params",
            FieldType::Map(&PARAMS),
            "What the workflow is given",
        ),
        Key::new(
            "pipeline",
            FieldType::List(&FieldType::Map(&STEP)),
            "The steps, in any order",
        )
        .required(),
        Key::new(
            "version",
            VERSION,
            "Semantic version, in quotes if it looks like a number",
        )
        .required(),
        Key::new(
            "visibility",
            FieldType::Words(&["root", "sub-workflow"]),
            "A sub-workflow is callable from workflows only; the default is root",
        ),
        Key::new(
            "webhooks",
            WEBHOOKS,
            "The child's half of the agreement to send webhooks",
        ),
    ],
);

pub(crate) const INVOKE: Shape = Shape::new(
    "invoke",
    &[Key::new(
        "auth",
        FieldType::Map(&AUTH),
        "The secret that callers send",
    )
    .required()],
);

pub(crate) const AUTH: Shape = Shape::new(
    "invoke.auth",
    &[
        Key::new(
            "header",
            HEADER,
            "The name of the header; Authorization by default",
        ),
        Key::new("scheme", SCHEME, "bearer by default"),
        Key::new("secret", TEMPLATE, "\"{{ env.NAME }}\", a secret variable").required(),
    ],
);

pub(crate) const POLICY: Shape = Shape::new(
    "model_policy",
    &[
        Key::new(
            "cost_budget_usd",
            FieldType::Number(0.0, 1_000_000.0),
            "What the model calls of a run may cost",
        ),
        Key::new(
            "force_group",
            FieldType::Text,
            "The model group of every call",
        ),
        Key::new(
            "group_map",
            FieldType::Each(&FieldType::Text),
            "Model groups by the name agents use",
        ),
        Key::new("timeout_s", SECONDS, "How long a run may take"),
        Key::new(
            "unpriced",
            FieldType::Words(&["allow", "refuse"]),
            "Under a budget, calls to models without a price; refuse by default",
        ),
    ],
);

pub(crate) const OUTPUT: Shape = Shape::new(
    "output",
    &[
        // Known, so that its reader can say what to write instead.
        Key::new("from", FieldType::Any, "Does not exist: use map"),
        Key::new(
            "map",
            FieldType::Each(&FieldType::Any),
            "Templates by the name of the field",
        ),
        Key::new("schema", FieldType::Schema, "JSON Schema of the result"),
    ],
);

/// The four primitives (seed 000, invariant 20).
pub(crate) const PRIMITIVES: [&str; 4] = ["agent", "transform", "webhook", "workflow"];

const ID: FieldType = FieldType::Form("^[A-Za-z_][A-Za-z0-9_-]{0,63}$");

pub(crate) const STEP: Shape = Shape::new(
    "the step",
    &[
        Key::new(
            "agent",
            FieldType::Text,
            "Path of an agent file; @1.2.0 behind it pins the version",
        ),
        Key::new(
            "condition",
            FieldType::Text,
            "Expression; where it is false the step is skipped",
        ),
        Key::new(
            "confidence_threshold",
            FieldType::Number(0.0, 1.0),
            "The least ktsu_confidence that passes; 0 is off",
        )
        .with(&["agent"]),
        Key::new(
            "depends_on",
            FieldType::List(&ID),
            "Steps to wait for, beside those mentioned",
        ),
        Key::new("description", FieldType::Note, "For readers"),
        Key::new(
            "for_each",
            FieldType::Map(&FOR_EACH),
            "One call for each element of an array",
        )
        .with(&["agent"]),
        Key::new("id", ID, "Its name in expressions").required(),
        Key::new(
            "input",
            FieldType::Each(&FieldType::Any),
            "Another name of params",
        )
        .with(&["workflow"]),
        Key::new(
            "model",
            FieldType::Map(&MODEL),
            "Another group than the agent's",
        )
        .with(&["agent"]),
        Key::new(
            "on",
            FieldType::Words(&["approval"]),
            "Fires for approvals only",
        )
        .with(&["webhook"]),
        Key::new(
            "output",
            FieldType::Map(&STEP_OUTPUT),
            "What the output must be",
        ),
        Key::new(
            "params",
            FieldType::Each(&FieldType::Any),
            "Templates by the name of the param",
        )
        .with(&["agent", "workflow"]),
        Key::new("retry", FieldType::Map(&RETRY), "When to send again").with(&["webhook"]),
        Key::new(
            "transform",
            FieldType::Map(&TRANSFORM),
            "Shapes data, without a model",
        ),
        Key::new("webhook", FieldType::Map(&WEBHOOK), "Sends an HTTP request"),
        Key::new("webhooks", WEBHOOKS, "The parent's half of the agreement").with(&["workflow"]),
        Key::new("workflow", FieldType::Text, "Path of another workflow file"),
    ],
)
.one_of(&[&PRIMITIVES]);

pub(crate) const STEP_OUTPUT: Shape = Shape::new(
    "the step's output",
    &[Key::new("schema", FieldType::Schema, "JSON Schema of the output").required()],
);

pub(crate) const MODEL: Shape = Shape::new(
    "model",
    &[
        Key::new("group", FieldType::Text, "A model group of gateway.yaml"),
        Key::new(
            "max_tokens",
            FieldType::Whole(1, 10_000_000),
            "Of a reply; 1024 by default",
        ),
    ],
);

pub(crate) const FOR_EACH: Shape = Shape::new(
    "for_each",
    &[
        Key::new(
            "concurrency",
            FieldType::Whole(0, 1_000_000),
            "At once; 0 is all",
        ),
        Key::new("from", FieldType::Text, "Expression that gives an array").required(),
        Key::new(
            "max_failures",
            FieldType::Whole(-1, 1_000_000),
            "To be borne; -1 is any number",
        ),
        Key::new(
            "max_items",
            FieldType::Whole(0, 1_000_000),
            "The first so many",
        ),
    ],
);

const METHODS: FieldType = FieldType::Words(&[
    "GET", "POST", "PUT", "PATCH", "DELETE", "get", "post", "put", "patch", "delete",
]);

pub(crate) const WEBHOOK: Shape = Shape::new(
    "the webhook",
    &[
        Key::new(
            "body",
            FieldType::Any,
            "Template tree, sent as JSON; {} by default",
        ),
        Key::new("method", METHODS, "POST by default"),
        Key::new("retry", FieldType::Map(&RETRY), "When to send again"),
        Key::new(
            "secret",
            TEMPLATE,
            "\"{{ env.NAME }}\", a secret variable: sendings are signed with it",
        ),
        Key::new("timeout_s", SECONDS, "Of one sending; 30 by default"),
        Key::new(
            "url",
            FieldType::Text,
            "Template that begins with http:// or https://",
        )
        .required(),
    ],
);

pub(crate) const RETRY: Shape = Shape::new(
    "retry",
    &[
        ATTEMPTS,
        BACKOFF,
        Key::new(
            "on",
            FAILURES,
            "What is tried again; all but rate_limited by default",
        ),
    ],
);

pub(crate) const TRANSFORM: Shape = Shape::new(
    "the transform",
    &[
        Key::new(
            "inputs",
            FieldType::List(&FieldType::Either(&[
                FieldType::Text,
                FieldType::Map(&INPUT),
            ])),
            "Steps or expressions; several are merged",
        ),
        Key::new(
            "ops",
            FieldType::List(&FieldType::Map(&OP)),
            "What is done, one after another",
        ),
    ],
);

pub(crate) const INPUT: Shape = Shape::new(
    "the input",
    &[Key::new("from", FieldType::Text, "A step or an expression").required()],
);

const OP: Shape = Shape::new(
    "the op",
    &[
        Key::new(
            "deduplicate",
            FieldType::Map(&DEDUPLICATE),
            "Keeps the first of each key",
        ),
        Key::new(
            "filter",
            FieldType::Map(&FILTER),
            "Keeps elements for which expr is true",
        ),
        Key::new("flatten", FieldType::Map(&FLATTEN), "One level less"),
        Key::new("map", FieldType::Map(&MAP), "One result an element"),
        Key::new(
            "merge",
            FieldType::List(&FieldType::Text),
            "Merges the outputs of these steps",
        ),
        Key::new(
            "sort",
            FieldType::Map(&SORT),
            "Stable; null and missing last",
        ),
    ],
)
.one_of(&[&["deduplicate", "filter", "flatten", "map", "merge", "sort"]]);

pub(crate) const DEDUPLICATE: Shape = Shape::new(
    "deduplicate",
    &[Key::new("field", FieldType::Text, "Expression over the element").required()],
);

pub(crate) const FILTER: Shape = Shape::new("filter", &EXPR);
pub(crate) const MAP: Shape = Shape::new("map", &EXPR);
pub(crate) const FLATTEN: Shape = Shape::new("flatten", &[]);
const EXPR: [Key; 1] =
    [Key::new("expr", FieldType::Text, "Expression over the element").required()];

pub(crate) const SORT: Shape = Shape::new(
    "sort",
    &[
        Key::new("field", FieldType::Text, "Expression over the element").required(),
        Key::new(
            "order",
            FieldType::Words(&["asc", "desc"]),
            "asc by default",
        ),
    ],
);
