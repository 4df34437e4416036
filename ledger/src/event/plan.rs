//! The persisted definition of a run: what `run.created` carries, with every edge resolved.
//!
//! Persisted, keep stable. A plan is the resolved form of the workflow files: child workflows are
//! inlined under the path of their file, defaults are filled in, expressions and templates remain
//! source text (bare JMESPath, `{{ }}` templates). It depends only on the files, never on the
//! environment, so its digest identifies the definition (seed 000, invariants 12 and 13).
//!
//! Format 1: as declared here. Optional members are absent when empty.

mod approval;
mod child;
mod suspend;
pub mod world;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::canonical::CanonicalJson;
use crate::id::covers;
pub use approval::{ApprovalPolicy, ApprovalTimeout, OnReject, ReviewPolicy, TimeoutBehavior};
pub use child::{ChildPlan, InvokePlan, Webhooks};
pub use suspend::{ResumePlan, SuspendPolicy};
use world::WorldPlan;

/// The version of this format.
pub const FORMAT: u32 = 1;

/// A whole definition: the root workflow and every workflow it reaches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// By path relative to the kit folder, with forward slashes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub agents: BTreeMap<String, Arc<AgentFile>>,
    /// [`FORMAT`].
    pub format: u32,
    /// The key of the root in `workflows`.
    pub root: String,
    /// By path relative to the kit folder, with forward slashes.
    ///
    /// Shared: everything that is made from a definition holds these, and copies none of them.
    pub workflows: BTreeMap<String, Arc<WorkflowPlan>>,
    /// The worlds that a run of this definition loads, by path relative to the kit folder, which is
    /// also their order.
    ///
    /// A definition with worlds has a root workflow like any other: that of a file, or, where worlds
    /// run on their own, one without steps that has the path, name and version of a world.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub worlds: BTreeMap<String, Arc<WorldPlan>>,
}

/// One workflow file (`spec` A2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkflowPlan {
    /// Environment variables the workflow declares (root workflows only).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<Variable>,
    /// The authentication of callers of `POST /invoke`, if they need any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invoke: Option<InvokeAuth>,
    /// The name, equal to the file's name without `.workflow.yaml`.
    pub name: String,
    /// The plan of the workflow's own output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<OutputPlan>,
    /// The JSON Schema of the params.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<CanonicalJson>,
    /// Budgets and time.
    #[serde(default, skip_serializing_if = "Policy::is_empty")]
    pub policy: Policy,
    /// In file order.
    pub steps: Vec<StepPlan>,
    /// Semantic version.
    pub version: String,
    /// Its visibility: whether it can be invoked from outside.
    pub visibility: Visibility,
    /// The child's half of the dual opt-in (seed 000, invariant 31).
    pub webhooks: Webhooks,
}

/// The callers that may start a workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Visibility {
    /// `POST /invoke` reaches it.
    Root,
    /// Only a workflow step reaches it (seed 000, invariant 30).
    SubWorkflow,
}

/// A declared environment variable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variable {
    /// The value where the environment has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// As in `{{ env.NAME }}`.
    pub name: String,
    /// A secret's value is never recorded.
    pub secret: bool,
}

/// `invoke.auth`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvokeAuth {
    /// The name of the header that carries the secret.
    pub header: String,
    /// The form of the secret, with `Bearer ` before it or without.
    pub scheme: AuthScheme,
    /// A template that resolves through a secret variable.
    pub secret: String,
}

/// The form of a secret in a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuthScheme {
    /// `Bearer SECRET`.
    Bearer,
    /// `SECRET`.
    Raw,
}

/// `output:` of a workflow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputPlan {
    /// An object of templates; absent: the output of the last completed step in file order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map: Option<CanonicalJson>,
    /// JSON Schema of the output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<CanonicalJson>,
}

/// `model_policy:`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Millionths of a US dollar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_budget_micro_usd: Option<u64>,
    /// Replaces every group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force_group: Option<String>,
    /// Replaces single groups.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub group_map: BTreeMap<String, String>,
    /// The time that a run may take, in milliseconds from `run.created`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// The treatment of a call to a model without a price, if there is a budget.
    #[serde(default, skip_serializing_if = "Unpriced::is_refused")]
    pub unpriced: Unpriced,
}

/// The treatment of a call without a known price under a budget (decision F4).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unpriced {
    /// It is refused: `budget_unpriced`.
    #[default]
    Refuse,
    /// It is made, and counts as free.
    Allow,
}

impl Unpriced {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde passes a reference"
    )]
    fn is_refused(&self) -> bool {
        *self == Self::Refuse
    }
}

impl Policy {
    /// The group used in place of another (`spec` A9).
    pub fn group<'a>(&'a self, wanted: &'a str) -> &'a str {
        let mapped = self.group_map.get(wanted).map(String::as_str);
        self.force_group.as_deref().or(mapped).unwrap_or(wanted)
    }

    /// The same, with another group wherever `wanted` would be used.
    #[must_use]
    pub fn with_group(&self, wanted: &str, other: &str) -> Self {
        let mut changed = self.clone();
        let groups = changed.group_map.values_mut();
        let groups = groups.chain(changed.force_group.as_mut());
        groups
            .filter(|group| *group == wanted)
            .for_each(|group| other.clone_into(group));
        let own = changed.group_map.entry(wanted.to_owned());
        own.or_insert_with(|| other.to_owned());
        changed
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// One step of a pipeline (`spec` A3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepPlan {
    /// Bare JMESPath; falsy skips the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    /// Unique in its workflow.
    pub id: String,
    /// Positions in `steps` of what this step waits for, declared and inferred, ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<u32>,
    /// JSON Schema of the step's output (the air-lock).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<CanonicalJson>,
    /// A template of a few words about the step, for people who look at a run. It decides nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// The work of the step: exactly one of the four primitives (seed 000, invariant 20).
    pub work: StepWork,
}

impl StepPlan {
    /// Returns `true` if it runs only in place of a suspended step.
    pub fn is_on_resume(&self) -> bool {
        matches!(&self.work, StepWork::Agent(agent) if agent.on_resume)
    }

    /// Returns `true` if a suspended step of the same workflow may be resumed to it: it runs only
    /// then, and needs no more than that step.
    pub fn may_resume(&self, suspended: &Self) -> bool {
        self.is_on_resume() && self.needs_beyond(suspended).next().is_none()
    }

    /// The positions of the steps that it needs, and another does not.
    pub fn needs_beyond<'s>(&'s self, other: &'s Self) -> impl Iterator<Item = u32> + 's {
        let needs = self.needs.iter().copied();
        needs.filter(|need| !other.needs.contains(need))
    }

    /// The workflows that run inline in it: its own, or those that its agent may invoke.
    pub fn children(&self) -> impl Iterator<Item = &ChildPlan> {
        let (own, invoked) = match &self.work {
            StepWork::Workflow(child) => (Some(child), None),
            StepWork::Agent(agent) => (None, Some(&agent.may_invoke)),
            StepWork::Transform(_) | StepWork::Webhook(_) => (None, None),
        };
        let invoked = invoked.into_iter().flat_map(BTreeMap::values);
        own.into_iter().chain(invoked.map(|one| &one.child))
    }
}

/// The four pipeline primitives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StepWork {
    /// A model reasons.
    Agent(AgentPlan),
    /// Data is reshaped.
    Transform(TransformPlan),
    /// An HTTP endpoint is called.
    Webhook(WebhookPlan),
    /// Another workflow runs inline.
    Workflow(ChildPlan),
}

/// A transform step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransformPlan {
    /// Bare expressions, one an input: `step.fetch.items`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<String>,
    /// Applied in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ops: Vec<Op>,
}

/// The six transform operations (seed 000, invariant 23).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Op {
    /// First value of each key stays.
    Deduplicate {
        /// JMESPath on each element.
        field: String,
    },
    /// Keeps elements whose expression is truthy.
    Filter {
        /// JMESPath on each element.
        expr: String,
    },
    /// One level of nesting less.
    Flatten,
    /// Each element replaced.
    Map {
        /// JMESPath on each element.
        expr: String,
    },
    /// Folds the outputs of steps into the value.
    Merge {
        /// Bare expressions, usually step ids: `step.a`.
        from: Vec<String>,
    },
    /// Stable, nulls last.
    Sort {
        /// Largest first.
        descending: bool,
        /// JMESPath on each element.
        field: String,
    },
}

/// A webhook step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookPlan {
    /// A tree of templates; absent: an empty object is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<CanonicalJson>,
    /// Upper case.
    pub method: String,
    /// Fires for approvals only, never as an ordinary step.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_approval: bool,
    /// Declared attempts, if more than one (decision S5).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryPlan>,
    /// A template that resolves through a secret variable: what each sending is signed with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Milliseconds, counted from each sending.
    pub timeout_ms: u64,
    /// A template.
    pub url: String,
}

/// `retry:` of a webhook step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryPlan {
    /// The most times that it is sent, the first time included.
    pub attempts: u32,
    /// Milliseconds before the second sending; doubles with each further one.
    pub backoff_ms: u64,
    /// The failures that are worth another attempt.
    pub on: Vec<RetryOn>,
}

/// A kind of failure that may be retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryOn {
    /// An answer with status 429.
    RateLimited,
    /// An answer with status 500 to 599.
    ServerError,
    /// No answer within the time.
    Timeout,
    /// No connection, or one that broke before an answer.
    Unreachable,
}

/// An agent step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentPlan {
    /// The agent file as the step names it, version suffix included.
    pub agent: String,
    /// True if an earlier reply of the run may answer an identical model request of this step.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cache: bool,
    /// Millionths: 0.7 is 700000, so that the plan has no floats to compare.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence_threshold_millionths: Option<u32>,
    /// A key of [`Plan::agents`].
    pub file: String,
    /// Fan-out over an array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_each: Option<FanOut>,
    /// Overrides the agent's group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The most tokens of a reply.
    pub max_tokens: u32,
    /// Runs only in place of a suspended step that is resumed to it, never as an ordinary step.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_resume: bool,
    /// The workflows that its agent may invoke, by the names it has for them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub may_invoke: BTreeMap<String, InvokePlan>,
    /// An object of templates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<CanonicalJson>,
    /// The data that it may wait for, and then run again with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<ResumePlan>,
}

/// An agent file (`spec` A10).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentFile {
    /// The commands that it may give besides its output; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commands: Option<AgentCommands>,
    /// The model group; the gateway decides everything else (seed 000, invariant 17).
    pub group: String,
    /// Turns of the loop at the most.
    pub max_turns: u32,
    /// The name.
    pub name: String,
    /// JSON Schema of the output.
    pub output: CanonicalJson,
    /// JSON Schema of the params; `secret: true` marks one that no prompt may show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<CanonicalJson>,
    /// The prompt for the model.
    pub prompt: Prompt,
    /// The tool servers it uses, by the names it has for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<ServerPlan>,
    /// Semantic version; `0.0.0` where the file has none (decision K2).
    pub version: String,
}

/// `commands:` of an agent file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentCommands {
    /// The topics it may emit: whole ones, beginnings followed by `.*`, or `*`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub emit: Vec<String>,
    /// The workflows that it may invoke, of those that a step offers: names, beginnings followed by
    /// `*`, or `*`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub invoke: Vec<String>,
    /// The policy on an outcome that asks for a review; absent: it may not ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review: Option<ReviewPolicy>,
    /// The policy on the data that a suspended step waits for; absent: it may not suspend its step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<SuspendPolicy>,
}

impl AgentCommands {
    /// Returns `true` if it may invoke what a step offers under this name.
    pub fn may_invoke(&self, name: &str) -> bool {
        self.invoke.iter().any(|pattern| covers(pattern, name))
    }
}

/// `prompt:` of an agent file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prompt {
    /// A template over `params`, for the one more look at a draft.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reflect: Option<String>,
    /// Static text.
    pub system: String,
    /// A template over `params`; absent: the params that are not secret, as a JSON object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// A tool server, as one agent uses it (seed 000, invariants 2-5).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerPlan {
    /// The authentication of callers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<ServerAuth>,
    /// The server's own name, which environments know it by, where the agent calls it otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared: Option<String>,
    /// The place of its declaration: `servers/NAME.server.yaml`, `servers.yaml#NAME`, or
    /// `ktsu/NAME` for one that comes with ktsu.
    pub file: String,
    /// The agent's name for it.
    pub name: String,
    /// The params it receives when a session begins.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, ServerParam>,
    /// True if its calls change something that lasts (seed 000, invariant 1).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stateful: bool,
    /// The timeout of a call, if its file sets one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// The tools that may be called: those that the server's file and the agent's both allow
    /// (decision K5).
    pub tools: Vec<ToolRule>,
    /// Its URL, unless the environment overrides it; empty for a built-in server.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// Semantic version.
    pub version: String,
}

impl ServerPlan {
    /// Returns `true` if a tool may be called at all: exact names, byte by byte (seed 000,
    /// invariant 5).
    pub fn permits(&self, tool: &str) -> bool {
        self.tools.iter().any(|rule| rule.covers(tool))
    }

    /// Returns `true` if its answers are about the run that calls it: it comes with ktsu, and reads
    /// what the steps before the calling one came to.
    pub fn reads_its_run(&self) -> bool {
        self.file == "ktsu/envelope"
    }

    /// The name it has for itself.
    pub fn own_name(&self) -> &str {
        self.declared.as_ref().unwrap_or(&self.name)
    }

    /// The approval that a tool requires, if any. The most specific rule comes first, and includes
    /// what the wider ones require.
    pub fn approval(&self, tool: &str) -> Option<&ApprovalPolicy> {
        let mut rules = self.tools.iter().filter(|rule| rule.covers(tool));
        rules.find_map(|rule| rule.approval.as_ref())
    }
}

/// The authentication of a caller of a tool server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerAuth {
    /// The header.
    pub header: String,
    /// The server's param that provides the value.
    pub param: String,
    /// The form of the value, with `Bearer ` before it or without.
    pub scheme: AuthScheme,
}

/// A param of a tool server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerParam {
    /// The value if the template gives none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// True if its value is never recorded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub secret: bool,
    /// A template over the agent's params; or, where the agent gives none, the default as a literal.
    pub value: String,
}

/// An entry of an allowlist, with the approval it requires.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolRule {
    /// The approval required before a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalPolicy>,
    /// A name, the beginning of one and a star, or a star.
    pub pattern: String,
}

impl ToolRule {
    /// Returns `true` if it is about this tool.
    pub fn covers(&self, tool: &str) -> bool {
        covers(&self.pattern, tool)
    }
}

/// `for_each:` of an agent step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FanOut {
    /// The number of items that run at once; 0: all.
    pub concurrency: u32,
    /// Bare JMESPath that gives an array.
    pub from: String,
    /// The number of failures that are borne; -1: any number.
    pub max_failures: i64,
    /// The most items that are taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_items: Option<u32>,
}
