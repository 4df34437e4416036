//! What a workflow is made of: `ktsu workflow tree`.

use ktsu_ledger::event::plan::{AgentPlan, Plan, Work};
use serde::Serialize;
use termtree::Tree;

/// A workflow or agent and what it calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Branch {
    /// Relative to the kit.
    pub path: String,
    /// `workflow` or `agent`.
    pub kind: &'static str,
    /// In file order, each once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<Branch>,
}

/// The tree below the root of a plan. Plans have no cycles.
pub fn branch(plan: &Plan) -> Branch {
    workflow(plan, &plan.root)
}

fn workflow(plan: &Plan, path: &str) -> Branch {
    let mut children: Vec<Branch> = Vec::new();
    for step in plan
        .workflows
        .get(path)
        .into_iter()
        .flat_map(|one| &one.steps)
    {
        let child = match &step.work {
            Work::Agent(agent) => Branch {
                path: called(agent),
                kind: "agent",
                children: Vec::new(),
            },
            Work::Workflow(child) => workflow(plan, &child.workflow),
            Work::Transform(_) | Work::Webhook(_) => continue,
        };
        if !children.contains(&child) {
            children.push(child);
        }
    }
    Branch {
        path: path.to_owned(),
        kind: "workflow",
        children,
    }
}

/// The file of an agent with the version the step asks for, if it asks for one.
fn called(agent: &AgentPlan) -> String {
    match agent.agent.rsplit_once('@') {
        Some((_, version)) => format!("{}@{version}", agent.file),
        None => agent.file.clone(),
    }
}

impl Branch {
    /// Drawn with lines.
    pub fn text(&self) -> String {
        self.drawn().to_string()
    }

    fn drawn(&self) -> Tree<String> {
        let leaves = self.children.iter().map(Self::drawn);
        Tree::new(format!("{} ({})", self.path, self.kind)).with_leaves(leaves)
    }
}
