//! The panel of a step of a definition: when it runs, what it is given, what it asks, and what it may do.

use ktsu_ledger::CanonicalJson;
use ktsu_ledger::event::plan::{
    AgentFile, AgentPlan, ApprovalPolicy, ApprovalTimeout, OnReject, Op, RetryOn, ReviewPolicy,
    ServerPlan, StepPlan, StepWork, SuspendPolicy, TransformPlan, WebhookPlan, Webhooks,
};
use maud::{Markup, html};

use crate::kit_steps::{group_of, host_of, needs_of, place_of, what_of};
use crate::kit_view::WorkflowPage;
use crate::text::Verbatim;
use crate::units::{counted, duration, size};
use crate::value::{defined_schema, defined_text, defined_value};

/// The most characters of a value in the panel.
const MAX_IN_PANEL: usize = 2_000;
/// The most rows of a list.
const MAX_ROWS: usize = 200;

/// A step of a workflow, in a page of the workflow.
pub(crate) struct DefinedPanel<'p> {
    /// The page.
    pub(crate) page: &'p WorkflowPage<'p>,
    /// The step.
    pub(crate) step: &'p StepPlan,
}

/// The panel of a step.
pub(crate) fn defined_panel(shown: &DefinedPanel<'_>) -> Markup {
    let (page, step) = (shown.page, shown.step);
    let workflow = page.workflow;
    let needs: Vec<&str> = needs_of(workflow, step).collect();
    let line = page.lines.get(&step.id);
    html! {
        h2 { (Verbatim(&step.id)) }
        p class="kind" { (Verbatim(what_of(page.plan, step))) }
        @if let Some(line) = line {
            p class="id" { (Verbatim(page.path)) ":" (line) }
        }
        h3 { "When it runs" }
        @if let Some(condition) = &step.condition { p { "if " (defined_code(condition)) } }
        @if needs.is_empty() { p { "at the beginning" } }
        @else {
            p {
                "after "
                @for (at, need) in needs.iter().take(MAX_ROWS).enumerate() {
                    @if at > 0 { ", " }
                    a href=(page.select(need)) { (Verbatim(need)) }
                }
                @if needs.len() > MAX_ROWS { " and " (needs.len() - MAX_ROWS) " more" }
            }
        }
        @if let Some(place) = place_of(step) { p { (place) } }
        @if let Some(summary) = &step.summary {
            h3 { "Summary on its bar" }
            (text(shown, "summary", summary))
        }
        @match &step.work {
            StepWork::Agent(agent) => (agent_of(shown, agent)),
            StepWork::Transform(transform) => (transform_of(shown, transform)),
            StepWork::Webhook(webhook) => (webhook_of(shown, webhook)),
            StepWork::Workflow(child) => {
                h3 { "Workflow" }
                p { (called(page, &child.workflow)) ", " (webhooks(child.webhooks)) }
                (inputs(shown, "params", child.params.as_ref()))
            }
        }
        @if let Some(own) = &step.schema {
            h3 { "Schema of its output" }
            (schema(shown, "schema", own))
        }
        p class="pages" { a href=(page.select("")) { "Close" } }
    }
}

/// The name of a workflow that is called, with a link to its page.
pub(crate) fn called(page: &WorkflowPage<'_>, key: &str) -> Markup {
    let plan = page.plan.workflows.get(key);
    let name = plan.map_or(key, |plan| &plan.name);
    html! {
        @match page.linked.get(key) {
            Some(known) => a href=(page.other(known)) { (Verbatim(name)) },
            None => (Verbatim(name)),
        }
        @if let Some(plan) = plan { " " (Verbatim(&plan.version)) }
    }
}

fn webhooks(webhooks: Webhooks) -> &'static str {
    match webhooks {
        Webhooks::Execute => "whose webhooks are sent if it agrees",
        Webhooks::Suppress => "whose webhooks are not sent",
    }
}

/// A schema, which everybody sees who sees the page.
fn schema(shown: &DefinedPanel<'_>, name: &str, schema: &CanonicalJson) -> Markup {
    let all = shown.page.all_of(&shown.step.id, name);
    defined_schema(schema, MAX_IN_PANEL, all.as_deref())
}

/// A value that those see who may read frames; others see how long it is.
fn inputs(shown: &DefinedPanel<'_>, name: &str, value: Option<&CanonicalJson>) -> Markup {
    html! {
        @if let Some(value) = value {
            h3 { "Inputs" }
            @let all = shown.page.all_of(&shown.step.id, name);
            @if shown.page.closed.is_some() { (length(value.as_str())) }
            @else { (defined_value(value.as_str(), MAX_IN_PANEL, all.as_deref())) }
        }
    }
}

/// A text that those see who may read frames; others see how long it is.
fn text(shown: &DefinedPanel<'_>, name: &str, text: &str) -> Markup {
    let all = shown.page.all_of(&shown.step.id, name);
    match shown.page.closed {
        Some(_) => length(text),
        None => defined_text(text, MAX_IN_PANEL, all.as_deref()),
    }
}

fn length(text: &str) -> Markup {
    html! { p class="dim" { (size(text.len())) ", not shown to you" } }
}

fn agent_of(shown: &DefinedPanel<'_>, agent: &AgentPlan) -> Markup {
    let page = shown.page;
    let file = page.plan.agents.get(&agent.file);
    html! {
        @if let Some(each) = &agent.for_each {
            h3 { "For each item" }
            p { "of " (defined_code(&each.from)) }
            p class="dim" {
                @match each.concurrency { 0 => "all at once", some => { (some) " at once" } }
                @if let Some(most) = each.max_items { ", at most " (counted(u64::from(most), "item")) }
                @match each.max_failures {
                    -1 => ", any number may fail",
                    0 => ", none may fail",
                    most => { ", " (most) " may fail" }
                }
            }
        }
        h3 { "Agent" }
        p { (Verbatim(&agent.agent)) }
        @if !agent.agent.starts_with(&agent.file) { p class="id" { (Verbatim(&agent.file)) } }
        p class="dim" {
            @if let Some(group) = group_of(page.plan, agent) { "model group " (Verbatim(group)) ", " }
            "at most " (counted(u64::from(agent.max_tokens), "token")) " a reply"
            @if let Some(file) = file { ", " (counted(u64::from(file.max_turns), "turn")) }
            @if agent.cache { ", equal requests are answered once" }
            @if let Some(least) = agent.confidence_threshold_millionths {
                ", confidence " (f64::from(least) / 1e6) " or more"
            }
        }
        @if let Some(closed) = &page.closed { p class="dim" { (Verbatim(closed)) } }
        @if let Some(file) = file {
            h3 { "System prompt" }
            (text(shown, "system", &file.prompt.system))
            @if let Some(user) = &file.prompt.user { h3 { "User prompt" } (text(shown, "user", user)) }
            @if let Some(reflect) = &file.prompt.reflect { h3 { "Prompt of the review of its draft" } (text(shown, "reflect", reflect)) }
        }
        (inputs(shown, "params", agent.params.as_ref()))
        @if let Some(file) = file {
            (tools(&file.servers))
            (commands(page, agent, file))
            h3 { "Schema of the output of the agent" }
            (schema(shown, "output", &file.output))
        }
    }
}

/// The tools that an agent may call, with the approvals that they require.
fn tools(servers: &[ServerPlan]) -> Markup {
    html! {
        @if !servers.is_empty() {
            h3 { "Tools" }
            @for server in servers.iter().take(MAX_ROWS) {
                p {
                    (Verbatim(&server.name)) " " (Verbatim(&server.version))
                    span class="dim" {
                        @if !server.url.is_empty() { " at " (Verbatim(host_of(&server.url))) }
                        @if server.stateful { ", changes what lasts" }
                        @if let Some(ms) = server.timeout_ms { ", within " (duration(ms)) }
                    }
                }
                table class="calls" {
                    tbody {
                        @for rule in server.tools.iter().take(MAX_ROWS) {
                            tr {
                                td class="id" { (Verbatim(&rule.pattern)) }
                                td {
                                    @match &rule.approval {
                                        Some(policy) => (approval_in_words(policy)),
                                        None => span class="dim" { "without approval" },
                                    }
                                }
                            }
                        }
                        @if server.tools.len() > MAX_ROWS { tr { td colspan="2" { "and " (server.tools.len() - MAX_ROWS) " more" } } }
                    }
                }
            }
            @if servers.len() > MAX_ROWS { p { "and " (counted((servers.len() - MAX_ROWS) as u64, "server")) " more" } }
        }
    }
}

/// An approval policy in words.
fn approval_in_words(policy: &ApprovalPolicy) -> String {
    let mut words = people(policy.quorum, policy.not_by_proposer);
    if let Some(timeout) = &policy.timeout {
        words.push_str(&until(timeout));
    }
    words.push_str(match policy.on_reject {
        OnReject::Fail => "; a rejection fails the step",
        OnReject::Recover => "; the agent continues after a rejection",
    });
    words
}

fn people(quorum: u32, not_by_proposer: bool) -> String {
    let mut words = format!("needs {}", counted(u64::from(quorum), "approval"));
    if not_by_proposer {
        words.push_str(", not by who started the run");
    }
    words
}

fn until(timeout: &ApprovalTimeout) -> String {
    let behavior = timeout.behavior.as_str();
    format!(", within {}, else: {behavior}", duration(timeout.ms))
}

fn review_in_words(policy: &ReviewPolicy) -> String {
    let roles = roles_in_words(&policy.roles);
    let people = people(policy.quorum, policy.not_by_proposer);
    format!("{people}{roles}{}", until(&policy.timeout))
}

fn suspend_in_words(policy: &SuspendPolicy) -> String {
    let roles = roles_in_words(&policy.roles);
    format!("waits at most {}{roles}", duration(policy.timeout_ms))
}

fn roles_in_words(roles: &[String]) -> String {
    match roles.is_empty() {
        true => String::new(),
        false => format!(", by {}", roles.join(" or ")),
    }
}

/// The commands that an agent may give besides its output.
fn commands(page: &WorkflowPage<'_>, agent: &AgentPlan, file: &AgentFile) -> Markup {
    html! {
        @if let Some(commands) = &file.commands {
            h3 { "Commands" }
            dl class="tree" {
                @if !commands.emit.is_empty() { div { dt { "emit" } dd { (Verbatim(commands.emit.join(", "))) } } }
                @if !agent.may_invoke.is_empty() {
                    div {
                        dt { "invoke" }
                        dd {
                            @for (name, one) in agent.may_invoke.iter().filter(|(name, _)| commands.may_invoke(name)).take(MAX_ROWS) {
                                p {
                                    (Verbatim(name)) ": " (called(page, &one.child.workflow))
                                    span class="dim" { ", at most " (counted(u64::from(one.max_items), "input")) }
                                }
                            }
                        }
                    }
                }
                @if let Some(review) = &commands.review { div { dt { "review" } dd { (Verbatim(review_in_words(review))) } } }
                @if let Some(suspend) = &commands.suspend {
                    div { dt { "suspend" } dd { (Verbatim(suspend_in_words(&suspend.narrowed(agent.resume.as_ref())))) } }
                }
            }
        }
    }
}

fn transform_of(shown: &DefinedPanel<'_>, transform: &TransformPlan) -> Markup {
    html! {
        @if !transform.inputs.is_empty() {
            h3 { "Inputs" }
            (text(shown, "inputs", &transform.inputs.join("\n")))
        }
        @if !transform.ops.is_empty() {
            h3 { "Operations" }
            ol { @for op in transform.ops.iter().take(MAX_ROWS) { li { (operation(op)) } } }
            @if transform.ops.len() > MAX_ROWS { p { "and " (transform.ops.len() - MAX_ROWS) " more" } }
        }
    }
}

fn operation(op: &Op) -> Markup {
    let (name, expression) = match op {
        Op::Deduplicate { field } => ("deduplicate by ", field.clone()),
        Op::Filter { expr } => ("filter ", expr.clone()),
        Op::Flatten => ("flatten", String::new()),
        Op::Map { expr } => ("map ", expr.clone()),
        Op::Merge { from } => ("merge ", from.join(", ")),
        Op::Sort { descending, field } if *descending => ("sort down by ", field.clone()),
        Op::Sort { field, .. } => ("sort by ", field.clone()),
    };
    html! { (name) @if !expression.is_empty() { (defined_code(&expression)) } }
}

fn defined_code(expression: &str) -> Markup {
    let (start, left_out) = crate::text::beginning(expression, MAX_IN_PANEL);
    html! {
        code { (Verbatim(start)) }
        @if left_out > 0 { " … " span class="dim" { (size(expression.len())) } }
    }
}

fn webhook_of(shown: &DefinedPanel<'_>, webhook: &WebhookPlan) -> Markup {
    html! {
        h3 { "Webhook" }
        p { (Verbatim(&webhook.method)) " " (Verbatim(host_of(&webhook.url))) }
        p class="dim" {
            "an answer within " (duration(webhook.timeout_ms))
            @if webhook.secret.is_some() { ", signed" }
            @if let Some(retry) = &webhook.retry {
                ", at most " (counted(u64::from(retry.attempts), "attempt")) ", from " (duration(retry.backoff_ms)) " apart, after "
                (retry.on.iter().map(retried).collect::<Vec<_>>().join(", "))
            }
        }
        @if let Some(closed) = &shown.page.closed { p class="dim" { (Verbatim(closed)) } }
        h3 { "URL" }
        (text(shown, "url", &webhook.url))
        (inputs(shown, "body", webhook.body.as_ref()))
    }
}

fn retried(on: &RetryOn) -> &'static str {
    match on {
        RetryOn::RateLimited => "status 429",
        RetryOn::ServerError => "status 500 to 599",
        RetryOn::Timeout => "no answer in time",
        RetryOn::Unreachable => "no connection",
    }
}
