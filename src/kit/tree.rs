//! Everything a workflow calls, for `ktsu workflow tree`.

use ktsu_ledger::event::plan::{AgentPlan, Plan, StepWork};
use serde::Serialize;
use termtree::{GlyphPalette, Tree};

use super::Kit;
use super::builtin::text;
use super::reference::split;
use super::servers::ServerUse;

/// A workflow, agent or tool server, and what it calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TreeNode {
    /// Relative to the kit.
    pub path: String,
    /// `workflow`, `agent` or `server`.
    pub kind: &'static str,
    /// Of servers: the tools an agent may call, and what the server says of its calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<PermittedTools>,
    /// In file order, each once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<TreeNode>,
}

/// The tools of a server that an agent may call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PermittedTools {
    /// The server's own name.
    pub name: String,
    /// Semantic version.
    pub version: String,
    /// True if its calls change something that lasts.
    pub stateful: bool,
    /// Names, and beginnings of names, that both files allow.
    pub allowlist: Vec<String>,
}

/// The tree below the root of a plan of a kit. Plans have no cycles.
pub fn branch(kit: &Kit, plan: &Plan) -> TreeNode {
    workflow(kit, plan, &plan.root)
}

fn workflow(kit: &Kit, plan: &Plan, path: &str) -> TreeNode {
    let mut children: Vec<TreeNode> = Vec::new();
    for step in plan
        .workflows
        .get(path)
        .into_iter()
        .flat_map(|one| &one.steps)
    {
        let child = match &step.work {
            StepWork::Agent(agent) => TreeNode {
                path: called(agent),
                kind: "agent",
                tools: None,
                children: {
                    let invoked = agent.may_invoke.values();
                    let invoked = invoked.map(|one| workflow(kit, plan, &one.child.workflow));
                    servers(kit, &agent.file)
                        .into_iter()
                        .chain(invoked)
                        .collect()
                },
            },
            StepWork::Workflow(child) => workflow(kit, plan, &child.workflow),
            StepWork::Transform(_) | StepWork::Webhook(_) => continue,
        };
        if !children.contains(&child) {
            children.push(child);
        }
    }
    TreeNode {
        path: path.to_owned(),
        kind: "workflow",
        tools: None,
        children,
    }
}

/// The servers an agent uses.
fn servers(kit: &Kit, agent: &str) -> Vec<TreeNode> {
    let uses = kit.uses.get(agent).map(Vec::as_slice).unwrap_or_default();
    let server = |one: &ServerUse| {
        let server = kit.servers.get(&one.server)?;
        Some(TreeNode {
            path: one.server.clone(),
            kind: "server",
            tools: Some(PermittedTools {
                name: server.name.clone(),
                version: server.version.clone(),
                stateful: server.stateful,
                allowlist: one.allowlist.patterns().map(str::to_owned).collect(),
            }),
            children: Vec::new(),
        })
    };
    uses.iter().filter_map(server).collect()
}

/// The file of an agent with the version the step asks for, if it asks for one.
fn called(agent: &AgentPlan) -> String {
    match split(&agent.agent) {
        (_, Some(version)) if text(&agent.file).is_none() => format!("{}@{version}", agent.file),
        (_, Some(_) | None) => agent.file.clone(),
    }
}

impl TreeNode {
    /// Drawn with these lines.
    pub fn text(&self, lines: GlyphPalette) -> String {
        self.drawn(lines).to_string()
    }

    fn drawn(&self, lines: GlyphPalette) -> Tree<String> {
        let leaves = self.children.iter().map(|child| child.drawn(lines));
        let stateful = self.tools.as_ref().is_some_and(|tools| tools.stateful);
        let kind = self.kind;
        let words = match stateful {
            true => format!("{} ({kind}, stateful)", self.path),
            false => format!("{} ({kind})", self.path),
        };
        Tree::new(words).with_leaves(leaves).with_glyphs(lines)
    }
}
