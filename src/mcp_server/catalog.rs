//! The tools: their names, what they are for, and what they take. The schemas that agents see and
//! the checks of what they send come from the same list.

use ktsu_projections::reviews::is_review_id;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Map, Value, json};

use super::access::{ANY_TOOL, ToolRoute};
use super::inputs::{InputKind, InputSpec, MAX_NUMBER};
use ktsu_codes::nearest;

/// The longest run id, or place in a run, that is looked up.
const MAX_ID_CHARS: usize = 256;
/// The longest name of a kit or a workflow.
const MAX_NAME_CHARS: usize = 256;
/// The longest goal, in characters.
const MAX_GOAL_CHARS: usize = 64 * 1024;
/// The longest reason, as everywhere.
const MAX_REASON_CHARS: usize = 4096;
/// The longest result of a call in doubt, in characters.
const MAX_RESULT_CHARS: usize = 256 * 1024;
/// The longest idempotency key; the engine adds a few characters.
const MAX_KEY_CHARS: usize = 200;
/// The longest time a tool waits for the end of a run, in seconds.
const MAX_WAIT_SECONDS: u64 = 600;
/// The most objects and relations, or approvals, on a page.
const MAX_PAGE: u64 = 1000;

/// A tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AgentTool {
    StartRun,
    InvokeWorkflow,
    QueryWorld,
    GetEnvelope,
    ForkRun,
    DiffBranches,
    ExplainTrace,
    ListApprovals,
    DecideApproval,
    ResumeStep,
    VerifyRun,
}

/// The route of a decision on a review.
const DECIDE_REVIEW: ToolRoute = ("POST", "/runs/{id}/steps/{step}/review/decide");

/// The effect of a tool on the outside.
#[derive(Clone, Copy)]
enum Effect {
    /// It changes nothing.
    Reads,
    /// It adds to the ledger alone.
    Adds,
    /// Webhooks may be sent and tools be called.
    Acts,
}

/// The presentation of a tool.
struct Entry {
    tool: AgentTool,
    name: &'static str,
    title: &'static str,
    /// The route that it ends at: who may call this may use the tool.
    route: ToolRoute,
    effect: Effect,
    description: &'static str,
    inputs: &'static [InputSpec],
}

const RUN_ID: InputSpec = InputSpec::required(
    "run_id",
    InputKind::Text(MAX_ID_CHARS),
    "The run or branch: its id, or a unique beginning or end of it.",
);
const WAIT_SECONDS: InputSpec = InputSpec::optional(
    "wait_seconds",
    InputKind::Number(0, MAX_WAIT_SECONDS),
    "How long to wait for the end of the run; 30 if absent. A run that takes longer continues.",
);
const REASON: InputSpec = InputSpec::optional(
    "reason",
    InputKind::Text(MAX_REASON_CHARS),
    "Why; it is recorded.",
);

const CATALOG: &[Entry] = &[
    Entry {
        tool: AgentTool::StartRun,
        name: "start_run",
        title: "Start a run of a kit",
        route: ("POST", "/invoke/{workflow}"),
        effect: Effect::Acts,
        description: "Starts a run of a kit with a goal, waits for its end for a limited time, and \
                      gives its events, objects and relations.",
        inputs: &[
            InputSpec::required(
                "kit",
                InputKind::Text(MAX_NAME_CHARS),
                "The name of a kit under kits/, or a path below the working directory. Dots and \
                 slashes are the same.",
            ),
            InputSpec::required(
                "goal",
                InputKind::Text(MAX_GOAL_CHARS),
                "What the run is for.",
            ),
            WAIT_SECONDS,
        ],
    },
    Entry {
        tool: AgentTool::InvokeWorkflow,
        name: "invoke_workflow",
        title: "Run a workflow",
        route: ("POST", "/invoke/{workflow}"),
        effect: Effect::Acts,
        description: "Runs a workflow with params, waits for its end for a limited time, and gives \
                      its status and output.",
        inputs: &[
            InputSpec::required("workflow", InputKind::Text(MAX_NAME_CHARS), "The workflow."),
            InputSpec::optional(
                "params",
                InputKind::Object,
                "The params, as the schema of the workflow wants them; {} if absent.",
            ),
            WAIT_SECONDS,
            InputSpec::optional(
                "idempotency_key",
                InputKind::Text(MAX_KEY_CHARS),
                "Calls with the same key and params start one run.",
            ),
        ],
    },
    Entry {
        tool: AgentTool::QueryWorld,
        name: "query_world",
        title: "Look at the world of a run",
        route: ("GET", "/runs/{id}/world"),
        effect: Effect::Reads,
        description: "Gives the objects and relations that the responders of a run have made. A \
                      world that does not fit into one answer has `next`: pass it as `from`, with \
                      the same `at`.",
        inputs: &[
            RUN_ID,
            InputSpec::optional(
                "at",
                InputKind::Number(0, MAX_NUMBER),
                "The frame after which the world is shown; the last one if absent.",
            ),
            InputSpec::optional(
                "from",
                InputKind::Number(0, MAX_NUMBER),
                "Where the page begins: `next` of the page before.",
            ),
            InputSpec::optional(
                "limit",
                InputKind::Number(1, MAX_PAGE),
                "How many objects and relations at the most; 200 if absent.",
            ),
        ],
    },
    Entry {
        tool: AgentTool::GetEnvelope,
        name: "get_envelope",
        title: "Get the result of a run",
        route: ("GET", "/runs/{id}/envelope"),
        effect: Effect::Reads,
        description: "Gives the status, params, steps, output, cost and error of a run, or one of \
                      its steps in full.",
        inputs: &[
            RUN_ID,
            InputSpec::optional(
                "step_id",
                InputKind::Text(MAX_ID_CHARS),
                "Only this step; STEP.INDEX for an item of a fan-out.",
            ),
        ],
    },
    Entry {
        tool: AgentTool::ForkRun,
        name: "fork_run",
        title: "Fork a run",
        route: ("POST", "/runs/{id}/fork"),
        effect: Effect::Adds,
        description: "Makes a branch that shares the first frames of a run. Nothing of the run \
                      changes, and the branch waits until somebody resumes it.",
        inputs: &[
            RUN_ID,
            InputSpec::required(
                "fork_at",
                InputKind::Number(0, MAX_NUMBER),
                "How many frames the branch shares with the run.",
            ),
        ],
    },
    Entry {
        tool: AgentTool::DiffBranches,
        name: "diff_branches",
        title: "Compare two runs",
        route: ("GET", "/diff"),
        effect: Effect::Reads,
        description: "Lists the objects and relations that differ between two runs or branches. Of \
                      runs without a world, completed steps are compared, as objects `step/ID`.",
        inputs: &[
            InputSpec::required(
                "run_a",
                InputKind::Text(MAX_ID_CHARS),
                "The first run or branch.",
            ),
            InputSpec::required(
                "run_b",
                InputKind::Text(MAX_ID_CHARS),
                "The one that it is compared with.",
            ),
        ],
    },
    Entry {
        tool: AgentTool::ExplainTrace,
        name: "explain_trace",
        title: "Explain why an event happened",
        route: ("GET", "/runs/{id}/trace"),
        effect: Effect::Reads,
        description: "Gives everything that an event of a run follows from, the event itself first.",
        inputs: &[
            InputSpec::required(
                "event_id",
                InputKind::Text(MAX_ID_CHARS),
                "The event: RUN#NUMBER, as in event_ids of start_run, or its number.",
            ),
            RUN_ID,
        ],
    },
    Entry {
        tool: AgentTool::ListApprovals,
        name: "list_approvals",
        title: "List approvals",
        route: ("GET", "/approvals"),
        effect: Effect::Reads,
        description: "Lists the tool calls and the outputs of steps that wait for a decision, the \
                      oldest first.",
        inputs: &[
            InputSpec::optional(
                "workflow",
                InputKind::Text(MAX_NAME_CHARS),
                "Only of runs of this workflow.",
            ),
            InputSpec::optional(
                "status",
                InputKind::Words(&["pending", "all"]),
                "`pending` if absent. `all`: those of the newest runs, whatever became of them.",
            ),
            InputSpec::optional(
                "limit",
                InputKind::Number(1, MAX_PAGE),
                "How many approvals, or for `all` runs, at the most; 50 if absent.",
            ),
            InputSpec::optional(
                "cursor",
                InputKind::Text(MAX_ID_CHARS),
                "Where the page begins: `next` of the page before.",
            ),
        ],
    },
    Entry {
        tool: AgentTool::DecideApproval,
        name: "decide_approval",
        title: "Decide on an approval",
        route: ("POST", "/runs/{id}/steps/{step}/approval/decide"),
        effect: Effect::Acts,
        description: "Approves or rejects a tool call, or the output of a step (a review), that \
                      waits for a decision. Refused unless the environment file allows it, and for \
                      runs that the caller has started.",
        inputs: &[
            RUN_ID,
            InputSpec::required(
                "step_id",
                InputKind::Text(MAX_ID_CHARS),
                "The step, as in the approval; STEP.INDEX for an item of a fan-out.",
            ),
            InputSpec::required(
                "decision",
                InputKind::Words(&["approved", "rejected", "happened"]),
                "`happened` is for a call in doubt that took effect, with its `result`.",
            ),
            InputSpec::optional(
                "approval_id",
                InputKind::Text(MAX_ID_CHARS),
                "Which: apr_ID, if several calls of the step wait, or rev_ID, always for a review.",
            ),
            InputSpec::optional(
                "digest",
                InputKind::Text(MAX_ID_CHARS),
                "The digest of the arguments that were reviewed: others are not decided on.",
            ),
            REASON,
            InputSpec::optional(
                "result",
                InputKind::Text(MAX_RESULT_CHARS),
                "With `happened`: what the call returned.",
            ),
            InputSpec::optional(
                "overlay",
                InputKind::Object,
                "Of a review that is approved: fields of the output, with the values that replace them.",
            ),
        ],
    },
    Entry {
        tool: AgentTool::ResumeStep,
        name: "resume_step",
        title: "Give a step its data",
        route: ("POST", "/runs/{id}/steps/{step}/resume"),
        effect: Effect::Acts,
        description: "Gives a step the data that it waits for (a suspension); the step then runs \
                      again with them. Refused unless the environment file allows agents to \
                      decide, and for runs that the caller has started.",
        inputs: &[
            RUN_ID,
            InputSpec::required(
                "step_id",
                InputKind::Text(MAX_ID_CHARS),
                "The step, as in the suspension that list_approvals lists.",
            ),
            InputSpec::required(
                "data",
                InputKind::Json,
                "The data, as the `schema` of the suspension asks for.",
            ),
            InputSpec::optional(
                "suspend_id",
                InputKind::Text(MAX_ID_CHARS),
                "Which: sus_ID; the one that waits if absent.",
            ),
            REASON,
        ],
    },
    Entry {
        tool: AgentTool::VerifyRun,
        name: "verify_run",
        title: "Verify the record of a run",
        route: ("POST", "/runs/{id}/replay"),
        effect: Effect::Reads,
        description: "Verifies the ledger as far as it concerns a run, byte by byte and hash by \
                      hash, and decides the run again from its recorded inputs.",
        inputs: &[RUN_ID],
    },
];

impl AgentTool {
    /// The tool of this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        let found = CATALOG.iter().find(|entry| entry.name == name);
        found.map(|entry| entry.tool)
    }

    /// The route that it ends at, whose roles are its own.
    pub(super) fn route(self) -> ToolRoute {
        let found = CATALOG.iter().find(|entry| entry.tool == self);
        found.map_or(ANY_TOOL, |entry| entry.route)
    }

    /// The route that a call ends at: a decision on a review has one of its own.
    pub(super) fn route_of(self, sent: &Map<String, Value>) -> ToolRoute {
        let id = sent.get("approval_id").and_then(Value::as_str);
        match self {
            Self::DecideApproval if id.is_some_and(is_review_id) => DECIDE_REVIEW,
            tool => tool.route(),
        }
    }

    /// The inputs that it takes.
    pub(super) fn inputs(self) -> &'static [InputSpec] {
        let found = CATALOG.iter().find(|entry| entry.tool == self);
        found.map_or(&[], |entry| entry.inputs)
    }

    /// A tool with a similar name.
    pub(super) fn similar(name: &str) -> Option<&'static str> {
        nearest(name, CATALOG.iter().map(|entry| entry.name))
    }
}

/// All tools, as agents see them.
pub(super) fn tools() -> Vec<Tool> {
    CATALOG.iter().map(described).collect()
}

fn described(entry: &Entry) -> Tool {
    let (reads, acts) = match entry.effect {
        Effect::Reads => (true, false),
        Effect::Adds => (false, false),
        Effect::Acts => (false, true),
    };
    let hints = ToolAnnotations::with_title(entry.title)
        .read_only(reads)
        .destructive(acts)
        .idempotent(reads)
        .open_world(acts);
    Tool::new(entry.name, entry.description, schema(entry.inputs))
        .with_title(entry.title)
        .with_annotations(hints)
}

fn schema(inputs: &[InputSpec]) -> JsonObject {
    let properties: Map<String, Value> = inputs
        .iter()
        .map(|input| (input.name.to_owned(), input.schema()))
        .collect();
    let required: Vec<&str> = inputs
        .iter()
        .filter(|input| input.is_required)
        .map(|input| input.name)
        .collect();
    let mut schema = Map::new();
    schema.insert("type".to_owned(), json!("object"));
    schema.insert("properties".to_owned(), Value::Object(properties));
    schema.insert("required".to_owned(), json!(required));
    schema.insert("additionalProperties".to_owned(), json!(false));
    schema
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Method;
    use ktsu_api::routes::policy::{self, AccessPolicy};

    #[test]
    fn every_tool_has_one_name_and_describes_what_it_takes() {
        let tools = tools();
        assert_eq!(tools.len(), 11);
        for (tool, entry) in tools.iter().zip(CATALOG) {
            assert_eq!(AgentTool::named(&tool.name), Some(entry.tool));
            let schema = tool.schema_as_json_value();
            let properties = schema["properties"].as_object().unwrap();
            assert_eq!(properties.len(), entry.inputs.len(), "{}", tool.name);
            for (name, property) in properties {
                assert!(property["description"].is_string(), "{}: {name}", tool.name);
            }
        }
        assert_eq!(AgentTool::named("format_disk"), None);
    }

    #[test]
    fn the_page_says_who_may_use_a_tool_as_the_table_of_routes_does() {
        let page = include_str!("../../docs/mcp.md");
        for entry in CATALOG {
            let (method, path) = entry.route;
            let policy = policy::of(&Method::from_bytes(method.as_bytes()).unwrap(), path);
            let Some(AccessPolicy::Roles(roles)) = policy else {
                panic!("{}: {policy:?}", entry.name);
            };
            let roles: Vec<_> = roles.iter().map(|role| role.as_str()).collect();
            let roles = roles.join(", ");
            let row = format!("| `{}` | `{method} {path}` | {roles} |", entry.name);
            assert!(page.contains(&row), "docs/mcp.md has no {row}");
        }
    }

    #[test]
    fn a_decision_on_a_review_has_the_roles_of_its_own_route() {
        let of = |id: Value| {
            let mut sent = Map::new();
            sent.insert("approval_id".to_owned(), id);
            AgentTool::DecideApproval.route_of(&sent)
        };
        let call = AgentTool::DecideApproval.route();
        assert_eq!(of(json!("rev_0")), DECIDE_REVIEW);
        for other in [json!("apr_0"), json!(7), json!(null)] {
            assert_eq!(of(other), call);
        }
        let (method, path) = DECIDE_REVIEW;
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        assert!(matches!(
            policy::of(&method, path),
            Some(AccessPolicy::Roles(_))
        ));
        let page = include_str!("../../docs/mcp.md");
        assert!(page.contains(&format!("`POST {path}`")));
        for tool in [AgentTool::StartRun, AgentTool::ListApprovals] {
            let mut sent = Map::new();
            sent.insert("approval_id".to_owned(), json!("rev_0"));
            assert_eq!(tool.route_of(&sent), tool.route());
        }
    }

    #[test]
    fn tools_that_read_say_so_and_only_those_that_act_may_destroy() {
        let hints = |name: &str| {
            let tool = tools().into_iter().find(|tool| tool.name == name).unwrap();
            let hints = tool.annotations.unwrap();
            (
                hints.read_only_hint.unwrap(),
                hints.destructive_hint.unwrap(),
            )
        };
        assert_eq!(hints("query_world"), (true, false));
        assert_eq!(hints("fork_run"), (false, false));
        assert_eq!(hints("decide_approval"), (false, true));
    }
}
