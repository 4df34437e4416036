//! The steps of a definition as its graph draws them: what each is, not what became of it.

use ktsu_history::skeleton::FoldedItems;
use ktsu_ledger::event::plan::{AgentPlan, Plan, StepPlan, StepWork, WorkflowPlan};
use ktsu_projections::envelope::step_kind;

use crate::graph_step::GraphStep;
use crate::text::beginning;
use crate::units::counted;

/// The most characters of an expression in the words of a box.
const MAX_EXPRESSION: usize = 200;

/// The most characters of a URL that are looked at for its host.
const MAX_URL: usize = 1_000;

/// A step of a definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DefinedStep {
    id: String,
    needs: Vec<String>,
    lines: Vec<String>,
    kind: &'static str,
    asks_people: bool,
}

/// The steps of a workflow of a plan, in file order.
pub(crate) fn defined_steps(plan: &Plan, workflow: &WorkflowPlan) -> Vec<DefinedStep> {
    let steps = workflow.steps.iter();
    let steps = steps.map(|step| DefinedStep::of(plan, workflow, step));
    steps.collect()
}

/// The ids of the steps that a step waits for.
pub(crate) fn needs_of<'w>(
    workflow: &'w WorkflowPlan,
    step: &'w StepPlan,
) -> impl Iterator<Item = &'w str> {
    let needs = step.needs.iter();
    let needs = needs.filter_map(|at| workflow.steps.get(usize::try_from(*at).ok()?));
    needs.map(|step| step.id.as_str())
}

/// The model group of a step, after the policy of the root had its say.
pub(crate) fn group_of<'p>(plan: &'p Plan, agent: &'p AgentPlan) -> Option<&'p str> {
    let wanted = agent.group.as_deref();
    let wanted = wanted.or_else(|| Some(plan.agents.get(&agent.file)?.group.as_str()))?;
    let root = plan.workflows.get(&plan.root);
    Some(root.map_or(wanted, |root| root.policy.group(wanted)))
}

/// The host of a URL, or the template that it begins with; without who is named before an `@`.
pub(crate) fn host_of(url: &str) -> &str {
    let (url, _) = beginning(url, MAX_URL);
    let outside = |at: usize| {
        let before = url.get(..at).unwrap_or_default();
        before.matches("{{").count() == before.matches("}}").count()
    };
    let schemes = url.match_indices("://");
    let mut schemes = schemes.filter(|(at, _)| outside(*at));
    let start = schemes.next().map_or(0, |(at, mark)| at + mark.len());
    let ends = url.match_indices(['/', '?', '#']);
    let mut ends = ends.filter(|(at, _)| *at >= start && outside(*at));
    let end = ends.next().map_or(url.len(), |(at, _)| at);
    let users = url.match_indices('@');
    let mut users = users.filter(|(at, _)| (start..end).contains(at) && outside(*at));
    let start = users.next_back().map_or(start, |(at, _)| at + 1);
    url.get(start..end).unwrap_or_default()
}

/// What people may be asked in a step, in words.
pub(crate) fn asked_of_people(plan: &Plan, step: &StepPlan) -> Vec<&'static str> {
    let StepWork::Agent(agent) = &step.work else {
        return Vec::new();
    };
    let Some(file) = plan.agents.get(&agent.file) else {
        return Vec::new();
    };
    let mut rules = file.servers.iter().flat_map(|server| &server.tools);
    let commands = file.commands.as_ref();
    let asked = [
        (
            rules.any(|rule| rule.approval.is_some()),
            "approval of calls",
        ),
        (
            commands.is_some_and(|one| one.review.is_some()),
            "review of its outcome",
        ),
        (
            commands.is_some_and(|one| one.suspend.is_some()),
            "data from people",
        ),
    ];
    let asked = asked.into_iter().filter(|(is_asked, _)| *is_asked);
    asked.map(|(_, words)| words).collect()
}

/// What a step is: `agent herald · std`, `POST example.com`, `workflow page`.
pub(crate) fn what_of(plan: &Plan, step: &StepPlan) -> String {
    match &step.work {
        StepWork::Agent(agent) => {
            let file = plan.agents.get(&agent.file);
            let name = file.map_or(agent.agent.as_str(), |file| &file.name);
            match group_of(plan, agent) {
                Some(group) => format!("agent {name} · {group}"),
                None => format!("agent {name}"),
            }
        }
        StepWork::Transform(transform) => match transform.ops.len() as u64 {
            0 => "transform".to_owned(),
            ops => format!("transform, {}", counted(ops, "operation")),
        },
        StepWork::Webhook(webhook) => format!("{} {}", webhook.method, host_of(&webhook.url)),
        StepWork::Workflow(child) => {
            let called = plan.workflows.get(&child.workflow);
            let name = called.map_or(child.workflow.as_str(), |called| &called.name);
            format!("workflow {name}")
        }
    }
}

/// When a step runs, where it is not just one of the plan.
pub(crate) fn place_of(step: &StepPlan) -> Option<&'static str> {
    match &step.work {
        StepWork::Agent(agent) if agent.on_resume => Some("runs in place of a suspended step"),
        StepWork::Webhook(webhook) if webhook.on_approval => {
            Some("sent when approval is asked for")
        }
        StepWork::Agent(_)
        | StepWork::Webhook(_)
        | StepWork::Transform(_)
        | StepWork::Workflow(_) => None,
    }
}

fn in_short(expression: &str) -> String {
    let one_line = expression.split_whitespace().collect::<Vec<_>>().join(" ");
    match beginning(&one_line, MAX_EXPRESSION) {
        (_, 0) => one_line,
        (start, _) => format!("{start}…"),
    }
}

impl DefinedStep {
    fn of(plan: &Plan, workflow: &WorkflowPlan, step: &StepPlan) -> Self {
        let asked = asked_of_people(plan, step);
        let mut lines = vec![step.id.clone(), what_of(plan, step)];
        if let StepWork::Agent(agent) = &step.work {
            let each = agent.for_each.as_ref();
            lines.extend(each.map(|each| format!("for each of {}", in_short(&each.from))));
        }
        let condition = step.condition.as_deref();
        lines.extend(condition.map(|condition| format!("if {}", in_short(condition))));
        lines.extend(place_of(step).map(str::to_owned));
        if !asked.is_empty() {
            lines.push(format!("may wait for {}", asked.join(", ")));
        }
        Self {
            id: step.id.clone(),
            needs: needs_of(workflow, step).map(str::to_owned).collect(),
            lines,
            kind: step_kind(&step.work),
            asks_people: !asked.is_empty(),
        }
    }
}

impl GraphStep for DefinedStep {
    fn path(&self) -> &str {
        &self.id
    }

    fn needs(&self) -> &[String] {
        &self.needs
    }

    fn lines(&self) -> Vec<String> {
        self.lines.clone()
    }

    fn words(&self) -> String {
        let mut all = self.lines.clone();
        if !self.needs.is_empty() {
            all.push(format!("after {}", self.needs.join(", ")));
        }
        all.join(", ")
    }

    fn class(&self) -> &'static str {
        match (self.kind, self.asks_people) {
            (_, true) => "asks",
            ("agent", false) => "model",
            ("webhook", false) => "sends",
            _ => "plan",
        }
    }

    fn sign(&self) -> &'static str {
        match (self.kind, self.asks_people) {
            (_, true) => "◆",
            ("agent", false) => "✦",
            ("webhook", false) => "↗",
            ("workflow", false) => "▣",
            _ => "ƒ",
        }
    }

    fn is_plain(&self) -> bool {
        self.kind == "transform"
    }

    fn has_begun(&self) -> bool {
        true
    }

    fn items(&self) -> &[Self] {
        &[]
    }

    fn folded(&self) -> Option<FoldedItems> {
        None
    }

    fn children(&self) -> impl Iterator<Item = (String, &[Self])> {
        std::iter::empty()
    }

    fn sum(count: u64, _: u64) -> Vec<String> {
        vec![format!("{} more", counted(count, "step"))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_a_webhook_is_shown_without_who_is_named_before_it() {
        for (url, host) in [
            ("https://example.com/a?b", "example.com"),
            ("https://ada:secret@example.com:8080/a", "example.com:8080"),
            (
                "{{ env.RECEIVER_URL }}/pages/{{ params.team }}",
                "{{ env.RECEIVER_URL }}",
            ),
            ("https://{{ env.HOST }}/x", "{{ env.HOST }}"),
            ("https://example.com/{{ step.a.b }}/x", "example.com"),
            ("https://example.com?a={{ params.b }}", "example.com"),
            (
                "{{ params.receiver || 'http://a/b' }}/x",
                "{{ params.receiver || 'http://a/b' }}",
            ),
            ("example.com", "example.com"),
            ("", ""),
        ] {
            assert_eq!(host_of(url), host, "{url}");
        }
    }
}
