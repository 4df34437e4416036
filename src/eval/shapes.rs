//! The shape of a spec: its keys, for the reader and for editors.

use ktsu_config::shape::FieldType::{
    Any, Each, Either, Filled, Flag, Integer, Keywords, List, Map, Note, Number, Schema, Text,
};
use ktsu_config::shape::{DURATION, FieldType, KeyShape, MapShape, NAME, optional, required};

use crate::answers::ENTRIES;
use crate::suite::MAX_REPLICAS;

/// The largest weight.
pub(crate) const MAX_WEIGHT: f64 = 1e9;

/// A file of checks: `NAME.eval.yaml`.
pub const EVAL: MapShape = MapShape::new(
    "the file",
    &[
        optional("agent", Any).doc("Not used by ktsu check"),
        optional("audit", Any).doc("Not used by ktsu check"),
        optional("base", Any).doc("Not used by ktsu check"),
        optional("description", Note).doc("For readers"),
        optional("determinism", Any).doc("Not used by ktsu check"),
        optional("effects", Keywords(&EFFECTS))
            .doc("Whether webhooks of scenarios are sent: execute; ktsu eval run needs it"),
        optional("extends", Any).doc("Not used by ktsu check"),
        optional("fixtures", Any).doc("Not used by ktsu check"),
        optional("forbidden", List(&Map(&FORBIDDEN)))
            .doc("Frames that must not be there, each a gate of weight 1"),
        optional("id", Any).doc("Not used by ktsu check"),
        optional("invariants", Each(&Map(&INVARIANT))).doc("What has to hold, by name"),
        optional("limits", Map(&LIMITS)).doc("How long and how dear runs may be"),
        optional("matrix", Each(&List(&Any)))
            .doc("Values of params and model groups; a scenario for each combination: params.tone: [plain, formal], model.fast: [fast, strong]"),
        optional("network", Any).doc("Not used by ktsu check"),
        optional("parallelism", Any).doc("Not used by ktsu check"),
        optional("people", ENTRIES)
            .doc("Answers to what waits for people; the first that fits counts"),
        optional("replicas", REPLICAS).doc("How often each scenario runs; 1 by default"),
        optional("resources", Any).doc("Not used by ktsu check"),
        optional("scoring", Map(&SCORING)).doc("When the run passes"),
        optional("secrets", Any).doc("Not used by ktsu check"),
        optional("services", Any)
            .doc("Programs beside each run of ktsu eval run: files: {type: mcp, command: [PROGRAM]}, db: {type: postgres, init: [schema.sql]}, mail: {type: http_mock, record: true}"),
        optional("setup", Any).doc("Not used by ktsu check"),
        optional("subject", Map(&SUBJECT)).doc("What ktsu eval run runs"),
        optional("task", Any).doc("Not used by ktsu check"),
        optional("version", Any).doc("Not used by ktsu check"),
        optional("workspace", Map(&WORKSPACE_FOLDER)).doc("The folder of each run of ktsu eval run"),
    ],
)
.any_of(&["invariants", "forbidden"]);

/// The limits of the runs of a suite.
pub(crate) const LIMITS: MapShape = MapShape::new(
    "limits",
    &[
        optional("cost_usd", Number(0.0, MAX_WEIGHT))
            .doc("No further run begins once those of the suite have cost so much"),
        optional("timeout", DURATION).doc("How long a run may take; a longer one is an error"),
    ],
)
.any_of(&["cost_usd", "timeout"]);

/// The subject of a suite.
pub(crate) const SUBJECT: MapShape = MapShape::new(
    "the subject",
    &[
        optional("goal", Text).doc("The param goal of the workflow"),
        optional("params", Each(&Any)).doc("The params of the workflow"),
        optional("run", Text).doc("A run that was recorded before, instead of a workflow"),
        optional("workflow", NAME).doc("The workflow; the default one of the kit if absent"),
    ],
);

/// The folder of each run.
pub(crate) const WORKSPACE_FOLDER: MapShape = MapShape::new(
    "the workspace",
    &[
        optional("from", Text)
            .doc("The folder that each run gets a copy of, from the folder of the spec; an empty one if absent"),
        OWN_LIMITS,
        optional("setup", Text).doc("What sh -c runs in it, once, before it is copied"),
    ],
);

/// A program beside each run that offers tools.
pub(crate) const TOOL_SERVICE: MapShape = MapShape::new(
    "the service",
    &[
        required("command", Filled(&Text))
            .doc("The program and its arguments, with {{ workspace }}, {{ program }} and {{ params.NAME }}"),
        optional("from", Text).doc("A folder that it can read, from the folder of the spec"),
        OWN_LIMITS,
        optional("servers", Filled(&Text))
            .doc("The tool servers of the kit that it is used in place of; the one of its name by default"),
        required("type", Keywords(&["mcp"])),
    ],
);

/// A database server beside each run.
pub(crate) const DATABASE_SERVICE: MapShape = MapShape::new(
    "the service",
    &[
        optional("env", Any).doc("Not used: the user has no password"),
        optional("image", Text).doc(
            "postgres, mysql or mariadb, with any version, in place of the type; what is installed runs",
        ),
        optional("init", Filled(&Text))
            .doc("Files of SQL that are run once, from the folder of the spec: [schema.sql]"),
        OWN_LIMITS,
        optional("type", Keywords(&["mariadb", "mysql", "postgres"]))
            .doc("postgres, or mysql, which is MariaDB"),
    ],
)
.any_of(&["image", "type"]);

/// An HTTP server beside each run that replies by rules.
pub(crate) const HTTP_MOCK_SERVICE: MapShape = MapShape::new(
    "the service",
    &[
        optional("record", Flag)
            .doc("Whether what it receives is kept, for checks; false by default"),
        optional("routes", Filled(&Map(&MOCK_ROUTE)))
            .doc("The first that fits a request replies; every request is accepted if absent"),
        required("type", Keywords(&["http_mock"])),
        optional("variables", Filled(&Text))
            .doc("Variables of the kit that have its URL in place of their values"),
    ],
);

/// A route: the requests that it fits, and the reply to them.
pub(crate) const MOCK_ROUTE: MapShape = MapShape::new(
    "the route",
    &[
        optional("body", Any).doc(
            "The body: text, or JSON. {{ request.json.to }} in it is a value of the request, {{ count }} how often the route has replied",
        ),
        optional("delay", DURATION).doc("How long the reply takes, at most 10m"),
        optional("fault", Keywords(&["close", "hang"]))
            .doc("In place of a reply: the connection is closed, or there never is one"),
        optional("headers", Each(&Text)).doc("The headers of the reply"),
        optional("method", Text).doc("The method: POST"),
        optional("path", Text).doc("The path without the query, in which * is any text: /orders/*"),
        optional("status", Integer(200, 599)).doc("The status; 200 by default"),
        optional("times", Integer(1, 1_000_000)).doc("How many requests it fits at most"),
    ],
);

/// The values of `effects`.
pub(crate) const EFFECTS: [&str; 2] = ["execute", "suppress"];

/// The keys of a file that only other commands use.
pub(crate) const UNUSED: [&str; 13] = [
    "agent",
    "audit",
    "base",
    "determinism",
    "extends",
    "fixtures",
    "network",
    "parallelism",
    "resources",
    "secrets",
    "services",
    "setup",
    "task",
];

pub(crate) const FORBIDDEN: MapShape = MapShape::new(
    "the forbidden entry",
    &[
        optional("name", NAME).doc("Its name in results; forbidden[N] if absent"),
        required("where", Map(&FILTER)).doc("The frames that must not be there"),
    ],
);

pub(crate) const SCORING: MapShape = MapShape::new(
    "scoring",
    &[
        optional("pass_threshold", Number(0.0, 1.0))
            .doc("The composite score at which the run passes; 1 by default"),
        optional(
            "replica_aggregation",
            Either(&[Keywords(&AGGREGATIONS), Map(&AGGREGATION)]),
        )
        .doc("How the verdicts of replicas are combined; all by default"),
    ],
);

/// The aggregations of the verdicts of replicas that have a number.
pub(crate) const AGGREGATION: MapShape = MapShape::new(
    "replica_aggregation",
    &[
        optional("at_least", REPLICAS).doc("So many replicas pass"),
        optional("pass_at", Map(&ESTIMATE)).doc("The estimated probability that one of k passes"),
        optional("pass_hat", Map(&ESTIMATE)).doc("The estimated probability that all of k pass"),
    ],
)
.one_of(&[&["at_least", "pass_at", "pass_hat"]]);

pub(crate) const ESTIMATE: MapShape = MapShape::new(
    "the estimate",
    &[
        required("k", REPLICAS).doc("How many are drawn"),
        required("threshold", Number(0.0, 1.0)).doc("The probability at which the scenario passes"),
    ],
);

const REPLICAS: FieldType = Integer(1, MAX_REPLICAS as i64);

/// The aggregations of the verdicts of replicas that need no number.
pub(crate) const AGGREGATIONS: [&str; 4] = ["all", "any", "majority", "mean"];

pub(crate) const INVARIANT: MapShape = MapShape::new(
    "the invariant",
    &[
        required(
            "check",
            Either(&[
                Map(&OUTPUT),
                Map(&TRACE),
                Map(&FORBIDDEN_CHECK),
                Map(&FILE_EXISTS),
                Map(&FILE_ABSENT),
                Map(&FILE_CONTENT),
                Map(&COMMAND_EXIT),
                Map(&SQL),
                Map(&HTTP_MOCK),
                Map(&CUSTOM),
                Map(&LLM_AS_JUDGE),
            ]),
        )
        .doc("How it is checked"),
        optional("description", Note).doc("What has to hold, for readers"),
        optional("gate", Flag)
            .doc("Whether a score below 1 makes the composite 0; false by default"),
        optional("weight", Number(0.0, MAX_WEIGHT))
            .doc("How much it counts in the composite; 1 by default"),
    ],
);

/// A filter of frames. Its values may also be lists, one entry of which has to fit.
pub(crate) const FILTER: MapShape = MapShape::new(
    "the filter",
    &[
        optional("actor", GLOBS).doc("Who appended it: principal:*"),
        optional("expr", Text)
            .doc("JMESPath over the frame, with the fields of its call as `call`"),
        optional("item", Either(&[GLOBS, Integer(0, u32::MAX as i64)]))
            .doc("The item of a fan-out, from 0"),
        optional("model", GLOBS).doc("The model of its call"),
        optional("scope", GLOBS).doc("The inline child; empty for the run itself"),
        optional("server", GLOBS).doc("The tool server of its call"),
        optional("status", GLOBS).doc("approved, rejected, ok, error, not_sent, …"),
        optional("step", GLOBS).doc("The step; with a slash, its path within the run"),
        optional("tool", GLOBS).doc("The tool of its call: pay, pay_*, bank__pay"),
        optional("type", GLOBS).doc("The type of the frame: tool.called, tool.*"),
    ],
);

const GLOBS: FieldType = Either(&[Text, Filled(&Text)]);

const EXPRESSION: KeyShape =
    optional("expr", Text).doc("JMESPath over the whole envelope; `output` if absent");

pub(crate) const OUTPUT: MapShape = MapShape::new(
    "the check",
    &[
        optional("contains", Any).doc("A part of the text, or an element of the list"),
        optional("equals", Any).doc("What the value is"),
        EXPRESSION,
        optional("max", Number(f64::MIN, f64::MAX)).doc("The largest number"),
        optional("min", Number(f64::MIN, f64::MAX)).doc("The least number"),
        optional("not_equals", Any).doc("What the value is not"),
        optional("pattern", Text).doc("A regular expression that matches within the text"),
        optional("schema", Schema).doc("A JSON Schema that the value fits"),
        required("type", Keywords(&["output"])),
    ],
);

pub(crate) const TRACE: MapShape = MapShape::new(
    "the check",
    &[
        optional("after", Map(&FILTER)).doc("Every match comes after the last match of this"),
        optional("all", Text).doc("JMESPath that is true of every match"),
        optional("before", Map(&FILTER)).doc("Every match comes before the first match of this"),
        optional("cost_usd", Map(&COST)).doc("What the run cost, in US dollars"),
        optional("count", Map(&COUNT)).doc("How many frames match"),
        optional("duration", Map(&LONGEST)).doc("From the first frame to the last"),
        optional("model_calls", Map(&COUNT)).doc("How many model calls there are"),
        optional("no_tool_without_approval", Either(&[Flag, Text]))
            .doc("Every call of these tools was approved before it was sent; true: of all"),
        optional("none", Flag).doc("true: no frame matches"),
        optional("tools_used", Map(&TOOLS_USED)).doc("Which tools were called"),
        required("type", Keywords(&["trace"])),
        optional("where", Map(&FILTER))
            .doc("The frames that it is about")
            .with(&WITH_WHERE),
    ],
)
.one_of(&[&TRACE_KEYS]);

/// The conditions on the frames that `where` selects.
pub(crate) const WITH_WHERE: [&str; 5] = ["count", "none", "before", "after", "all"];

/// The conditions of a `trace` check, one of which is given.
pub(crate) const TRACE_KEYS: [&str; 10] = [
    "count",
    "none",
    "before",
    "after",
    "all",
    "no_tool_without_approval",
    "tools_used",
    "cost_usd",
    "model_calls",
    "duration",
];

const COUNT_BOUND: FieldType = Integer(0, i64::MAX);

pub(crate) const COUNT: MapShape = MapShape::new(
    "the count",
    &[
        optional("equals", COUNT_BOUND).doc("Exactly so many"),
        optional("max", COUNT_BOUND).doc("The most"),
        optional("min", COUNT_BOUND).doc("The least"),
    ],
)
.any_of(&["equals", "max", "min"]);

pub(crate) const COST: MapShape = MapShape::new(
    "cost_usd",
    &[
        optional("max", Number(0.0, MAX_WEIGHT)).doc("The most"),
        optional("min", Number(0.0, MAX_WEIGHT)).doc("The least"),
    ],
)
.any_of(&["max", "min"]);

pub(crate) const LONGEST: MapShape = MapShape::new(
    "duration",
    &[required("max", DURATION).doc("The longest: 5m")],
);

pub(crate) const TOOLS_USED: MapShape = MapShape::new(
    "tools_used",
    &[
        optional("all_of", List(&Text)).doc("Each of these was called"),
        optional("none_of", List(&Text)).doc("None of these was called"),
        optional("only", List(&Text)).doc("No others were called"),
    ],
)
.any_of(&["all_of", "none_of", "only"]);

pub(crate) const FORBIDDEN_CHECK: MapShape = MapShape::new(
    "the check",
    &[
        required("type", Keywords(&["forbidden"])),
        required("where", Map(&FILTER)).doc("The frames that must not be there"),
    ],
);

const PATH: KeyShape = required("path", Text).doc("The file, within the workspace");

pub(crate) const FILE_EXISTS: MapShape = MapShape::new(
    "the check",
    &[PATH, required("type", Keywords(&["file_exists"]))],
);

pub(crate) const FILE_ABSENT: MapShape = MapShape::new(
    "the check",
    &[PATH, required("type", Keywords(&["file_absent"]))],
);

pub(crate) const FILE_CONTENT: MapShape = MapShape::new(
    "the check",
    &[
        optional("contains", Text).doc("Text that the file has"),
        optional("not_contains", Text).doc("Text that the file does not have"),
        PATH,
        optional("pattern", Text).doc("A regular expression that matches within the file"),
        required("type", Keywords(&["file_content"])),
    ],
)
.any_of(&["contains", "not_contains", "pattern"]);

pub(crate) const COMMAND_EXIT: MapShape = MapShape::new(
    "the check",
    &[
        required("command", Text).doc("What sh -c runs in the workspace"),
        optional("exit_code", Integer(0, 255)).doc("The exit code; 0 by default"),
        OWN_LIMITS,
        required("type", Keywords(&["command_exit"])),
    ],
);

const OWN_LIMITS: KeyShape = optional("limits", Map(&PROGRAM_LIMITS)).doc("What it may take");

/// The limits of a program of a check.
pub(crate) const PROGRAM_LIMITS: MapShape = MapShape::new(
    "limits",
    &[
        optional("disk_mb", Integer(1, 100_000))
            .doc("MiB by which the workspace may grow; 1024 by default"),
        optional("memory_mb", Integer(16, 1_000_000)).doc("MiB of memory; 2048 by default"),
        optional("processes", Integer(1, 10_000)).doc("Processes at a time; 512 by default"),
        optional("time", DURATION).doc("From start to end, at most 1h; 10m by default"),
    ],
);

/// The longest that a program of a check may run, in milliseconds.
pub(crate) const MAX_PROGRAM_MS: u64 = 3_600_000;

pub(crate) const SQL: MapShape = MapShape::new(
    "the check",
    &[
        optional("equals", Any).doc("The first column of the first row, which may be null"),
        OWN_LIMITS,
        required("query", Text).doc("The query, a single one that reads"),
        required("service", Text).doc("The name of a service of the type postgres"),
        required("type", Keywords(&["sql"])),
    ],
)
.any_of(&["equals"]);

pub(crate) const HTTP_MOCK: MapShape = MapShape::new(
    "the check",
    &[
        required("assertions", Filled(&Map(&ASSERTION))).doc("Each must hold"),
        required("service", Text)
            .doc("The name of a service of the type http_mock with record: true"),
        required("type", Keywords(&["http_mock_assertions"])),
    ],
);

pub(crate) const ASSERTION: MapShape = MapShape::new(
    "the assertion",
    &[
        optional("contains", Any).doc("A part of the text, or an element of the list"),
        optional("equals", Any).doc("What the field is"),
        required("field", Text)
            .doc("request_count, last_request.body, last_request.json.to, requests[0].headers, …"),
        optional("filters", Each(&Any)).doc(
            "The requests that count: method, path, headers, and members of a body that is JSON",
        ),
        optional("max", Number(f64::MIN, f64::MAX)).doc("The largest number"),
        optional("min", Number(f64::MIN, f64::MAX)).doc("The least number"),
        optional("not_equals", Any).doc("What the field is not"),
    ],
)
.any_of(&["contains", "equals", "max", "min", "not_equals"]);

pub(crate) const CUSTOM: MapShape = MapShape::new(
    "the check",
    &[
        OWN_LIMITS,
        optional("runs_in", Keywords(&["host", "sandbox"]))
            .doc("host, beside the workspace, which it can only read; or sandbox, within it. host by default"),
        required("script", Text).doc("The file, from the folder of the spec"),
        required("type", Keywords(&["custom"])),
    ],
);

pub(crate) const LLM_AS_JUDGE: MapShape = MapShape::new(
    "the check",
    &[
        required("criteria", Text).doc("What is evaluated"),
        optional("input_from", Text)
            .doc("agent_output, stdout, workspace or SERVICE.FIELD; agent_output by default"),
        required("model", Text).doc("The model group of the judge"),
        optional("pass_threshold", Number(0.0, 1.0)).doc("The score that passes; 0.5 by default"),
        optional("prompt_template", Text).doc("The prompt, in place of the usual one"),
        optional("rubric", Map(&RUBRIC)).doc("What passes and what fails, for the judge"),
        optional("samples", Integer(1, 100)).doc("How often the judge is asked; the median counts"),
        optional("temperature", Number(0.0, 2.0)).doc("0 by default"),
        required("type", Keywords(&["llm_as_judge"])),
    ],
);

pub(crate) const RUBRIC: MapShape = MapShape::new(
    "the rubric",
    &[
        optional("fail", Text).doc("What fails"),
        optional("pass", Text).doc("What passes"),
    ],
);
