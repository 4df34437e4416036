//! The page of the kit that an engine serves: its workflows, and what is wrong with its files.

use std::collections::BTreeSet;

use ktsu_ledger::event::plan::{Plan, Visibility, WorkflowPlan};
use maud::{Markup, html};

use crate::frame::{PagePlace, Section, SignedIn, page, segment};
use crate::kit_faults::{ShownCheck, check_of};
use crate::text::Verbatim;
use crate::units::counted;

/// The most workflows in the list.
const MAX_WORKFLOWS: usize = 500;
/// The most names in a cell.
const MAX_NAMES: usize = 8;

/// The kit that an engine serves.
#[derive(Debug, Clone, PartialEq)]
pub struct KitPage<'k> {
    /// The principal that looks at it.
    pub by: SignedIn,
    /// The name of the kit; none if the engine serves none.
    pub name: Option<String>,
    /// The workflows that the principal may see.
    pub workflows: Vec<ShownWorkflow<'k>>,
    /// The last check of the files, if they are watched.
    pub check: Option<ShownCheck>,
}

/// A workflow in the list of those of a kit.
#[derive(Debug, Clone, PartialEq)]
pub struct ShownWorkflow<'k> {
    /// The name by which it is invoked.
    pub name: &'k str,
    /// The workflow with all that it reaches.
    pub plan: &'k Plan,
    /// Its own description.
    pub description: Option<String>,
    /// The model groups that it may use.
    pub groups: BTreeSet<String>,
    /// True if it is a world that runs on its own.
    pub is_world: bool,
    /// True if it runs where none is named.
    pub is_default: bool,
    /// True if the header is shown that it requires.
    pub shows_header: bool,
}

impl<'k> ShownWorkflow<'k> {
    fn root(&self) -> Option<&'k WorkflowPlan> {
        self.plan.workflows.get(&self.plan.root).map(AsRef::as_ref)
    }

    /// The names of the tool servers that it may call.
    fn servers(&self) -> BTreeSet<&'k str> {
        let agents = self.plan.agents.values();
        let servers = agents.flat_map(|agent| &agent.servers);
        servers.map(|server| server.own_name()).collect()
    }
}

/// How a workflow is invoked, in words.
pub(crate) fn invoked(shown: &ShownWorkflow<'_>) -> String {
    let Some(root) = shown.root() else {
        return String::new();
    };
    match (root.visibility, &root.invoke) {
        (Visibility::SubWorkflow, _) => "called by workflows".to_owned(),
        (Visibility::Root, Some(auth)) if shown.shows_header => {
            format!("POST /invoke/{}, header {}", shown.name, auth.header)
        }
        (Visibility::Root, _) => format!("POST /invoke/{}", shown.name),
    }
}

/// The page of a kit.
pub fn kit_page(shown: &KitPage<'_>) -> String {
    let body = html! {
        div data-live="kit" data-part="head" {
            div class="head" {
                h1 { @match &shown.name { Some(name) => { "Kit " (Verbatim(name)) } None => "Kit" } }
                @if shown.check.as_ref().map_or(shown.name.is_some(), |check| check.is_loaded) {
                    p class="dim" { (counted(shown.workflows.len() as u64, "workflow")) }
                }
            }
            @if let Some(check) = &shown.check { (check_of(check)) }
        }
        div data-part="workflows" {
            @match (&shown.name, &shown.check) {
                (None, _) => (no_kit()),
                (_, Some(check)) if !check.is_loaded => {},
                _ => (workflows(&shown.workflows)),
            }
        }
    };
    page(PagePlace::TOP, Section::Kit, "Kit", &shown.by, &body)
}

fn no_kit() -> Markup {
    html! {
        div class="answer" {
            p { "This engine serves no kit: it shows what is recorded, and starts no run." }
            p { code { "ktsu dev KIT" } " serves the kit in a folder while it is being written, and " code { "ktsu start KIT" } " runs it." }
        }
    }
}

fn workflows(all: &[ShownWorkflow<'_>]) -> Markup {
    html! {
        @if all.is_empty() { p class="empty" { "The kit has no workflow that is shown to you." } }
        @else {
            div class="scroll" tabindex="0" role="region" aria-label="Workflows" {
                table class="runs kit" {
                    thead {
                        tr {
                            th scope="col" { "Workflow" }
                            th scope="col" { "Invoked by" }
                            th scope="col" class="number" { "Steps" }
                            th scope="col" { "Agents" }
                            th scope="col" { "Model groups" }
                            th scope="col" { "Tool servers" }
                            th scope="col" { "Worlds" }
                        }
                    }
                    tbody { @for one in all.iter().take(MAX_WORKFLOWS) { (row(one)) } }
                }
            }
            @if all.len() > MAX_WORKFLOWS {
                p class="dim" { "and " (counted((all.len() - MAX_WORKFLOWS) as u64, "workflow")) " more" }
            }
        }
    }
}

fn row(one: &ShownWorkflow<'_>) -> Markup {
    let root = one.root();
    let plan = one.plan;
    html! {
        tr {
            td {
                a href=(PagePlace::TOP.link(&format!("kit/{}", segment(one.name)))) { (Verbatim(one.name)) }
                @if let Some(root) = root { " " span class="dim" { (Verbatim(&root.version)) } }
                @if one.is_default { " " span class="dim" { "(default)" } }
                @if let Some(description) = &one.description { p class="dim" { (Verbatim(description)) } }
            }
            td class="id" { (Verbatim(invoked(one))) }
            td class="number" { @if one.is_world { "–" } @else { (root.map_or(0, |root| root.steps.len())) } }
            td { (names(plan.agents.values().map(|agent| agent.name.as_str()))) }
            td { (names(one.groups.iter().map(String::as_str))) }
            td { (names(one.servers().into_iter())) }
            td { (names(plan.worlds.values().map(|world| world.name.as_str()))) }
        }
    }
}

/// The first of some names, and how many more there are.
fn names<'n>(all: impl Iterator<Item = &'n str>) -> Markup {
    let all: BTreeSet<&str> = all.collect();
    let shown: Vec<&str> = all.iter().take(MAX_NAMES).copied().collect();
    html! {
        @if all.is_empty() { span class="dim" { "–" } }
        (Verbatim(shown.join(", ")))
        @if all.len() > MAX_NAMES { " and " (all.len() - MAX_NAMES) " more" }
    }
}
