//! `ktsu validate`: checks a kit and reports every problem with its location.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ktsu_ledger::event::plan::{Plan, Visibility};
use ktsu_projections::envelope::step_kind;
use serde_json::json;

use super::folder::Folder;
use super::location::environment_of_process;
use super::lock::tools::list_what_answers;
use super::lock::warn;
use super::output::{
    BAD, GOOD, exit_code, is_coloured, line, note_dim, note_sheet, painted, print_json, symbols,
};
use super::{Common, Failure, text};
use ktsu_config::fault::{Fault, Faults, Severity};
use ktsu_config::render;
use ktsu_kit::{FileKind, Kit};
use ktsu_opening::environment::{environment_file, must_be_file, process_environment};
use ktsu_opening::kit::{from_here, no_kit};
use ktsu_project::{self as project, CheckWith, CheckedProject};

/// What `validate` takes.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    folder: Folder,
    /// The environment file [default: KTSU_ENV, otherwise the nearest environments/local.env.yaml,
    /// from the kit upward]
    #[arg(long, value_name = "FILE", conflicts_with = "no_env")]
    env: Option<PathBuf>,
    /// Checks the kit alone, and not whether variables have values
    #[arg(long)]
    no_env: bool,
    /// Prints the steps of every workflow as a Mermaid graph
    #[arg(long)]
    graph: bool,
    /// Refuses a kit that differs from its ktsu.lock.yaml
    #[arg(long)]
    locked: bool,
    /// Asks the kit's tool servers for their tools, and warns of allowlists that do not match them
    #[arg(long, conflicts_with = "no_env")]
    tools: bool,
}

/// Checks a kit.
pub(super) async fn run(common: &Common, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let dir = arguments.folder.path();
    if !dir.is_dir() {
        return Err(no_kit(&dir));
    }
    let environment = arguments.environment(&dir);
    if let Some(path) = &environment {
        must_be_file(path)?;
    }
    let under = match &environment {
        Some(path) => CheckWith::File(path),
        None if arguments.no_env => CheckWith::Nothing,
        None => CheckWith::Process,
    };
    let judged = project::check(&dir, under, &process_environment(), arguments.locked);
    let sound = judged.is_sound();
    let CheckedProject { kit, faults, unset } = judged;
    let listed = match (&kit, arguments.tools && sound) {
        (Some(kit), true) => Some(list_what_answers(kit, environment.as_deref()).await?),
        (_, _) => None,
    };
    let (tools, silent) = listed.unwrap_or_default();
    let silent: Vec<_> = silent
        .iter()
        .map(|(path, why)| (path, why.to_string()))
        .collect();
    if common.json {
        let workflows = kit.iter().flat_map(|kit| &kit.workflows);
        let body = json!({
            "valid": sound,
            "kit": kit.as_ref().map(|kit| kit.name.clone()),
            "workflows": workflows.map(|(name, one)| json!({
                "name": name,
                "path": one.path,
                "sub_workflow": one.visibility == Visibility::SubWorkflow,
                "graph": arguments.graph.then(|| mermaid(&one.definition.plan)),
            })).collect::<Vec<_>>(),
            "faults": render::json(&faults),
            "environment": unset,
            "tools": arguments.tools.then(|| json!({
                "left_out": tools.warnings.left_out,
                "unmatched": tools.warnings.unmatched,
                "unreachable": silent.iter().map(|(path, why)| json!({"path": path, "reason": why})).collect::<Vec<_>>(),
            })),
            "environment_file": environment.as_ref().map(|path| path.display().to_string()),
        });
        print_json(&body)?;
    } else if arguments.graph && sound {
        graphs(kit.as_ref());
    } else {
        print_faults(&dir, &faults, &unset);
        warn(&tools.warnings);
        for (path, why) in &silent {
            note_dim(&format!("  {}: {}", text::line(path), text::line(why)));
        }
        line(&summary(&dir, kit.as_ref(), &faults, &unset));
        if !unset.is_empty() {
            hint(environment.as_deref());
        }
    }
    Ok(exit_code(sound))
}

impl Arguments {
    /// The environment file that `run` would use.
    fn environment(&self, dir: &Path) -> Option<PathBuf> {
        let named = self.env.clone().or_else(environment_of_process);
        match self.no_env {
            true => None,
            false => environment_file(named.as_deref(), dir),
        }
    }
}

/// Prints everything that a check found, and the verdict.
pub(super) fn print_check(dir: &Path, checked: &CheckedProject) {
    let CheckedProject { kit, faults, unset } = checked;
    print_faults(dir, faults, unset);
    line(&summary(dir, kit.as_ref(), faults, unset));
}

fn print_faults(dir: &Path, faults: &Faults, unset: &[String]) {
    let shown = render::by_file(&from_here(faults, dir), is_coloured());
    for one in text::clean_coloured(&shown).lines() {
        let is_ours = anstream::adapter::strip_str(one)
            .to_string()
            .starts_with("help:");
        match is_ours {
            true => line(&symbols().words(one)),
            false => line(one),
        };
    }
    for words in unset {
        line(&format!(
            "{}: {}\n",
            painted(BAD, "error"),
            text::line(words)
        ));
    }
}

/// Prints where values come from, and how not to ask for them.
fn hint(environment: Option<&Path>) {
    let file = match environment {
        Some(path) => format!("set it in {}", text::line(&path.display().to_string())),
        None => "name a file with values: --env FILE".to_owned(),
    };
    let ellipsis = note_sheet().symbols.ellipsis();
    note_dim(&format!(
        "  export NAME={ellipsis}, or {file}; to check the kit alone: --no-env"
    ));
}

fn summary(dir: &Path, kit: Option<&Kit>, faults: &Faults, unset: &[String]) -> String {
    let is_error = |fault: &&Fault| fault.severity == Severity::Error;
    let errors = faults.faults.iter().filter(is_error).count();
    let warnings = faults.faults.len() - errors;
    let errors = errors + unset.len();
    let what = match kit {
        Some(kit) => format!("kit {}: {}", kit.name, counted(kit)),
        None => format!("{}", dir.display()),
    };
    let verdict = match (kit, errors) {
        (Some(_), 0) => painted(GOOD, "valid"),
        _ => painted(BAD, "not valid"),
    };
    let found = match (errors, warnings) {
        (0, 0) => String::new(),
        (0, _) => format!(" ({})", text::count(warnings, "warning")),
        (_, 0) => format!(" ({})", text::count(errors, "error")),
        _ => format!(
            " ({}, {})",
            text::count(errors, "error"),
            text::count(warnings, "warning")
        ),
    };
    format!("{}, {verdict}{found}", text::line(&what))
}

/// `1 workflow, 1 world`. Worlds that can be run by themselves stand among the workflows, too.
fn counted(kit: &Kit) -> String {
    let worlds = kit.files.iter().filter(|file| file.kind == FileKind::World);
    let worlds = worlds.count();
    let workflows = kit.workflows.values().filter(|one| !one.is_world()).count();
    match (workflows, worlds) {
        (workflows, 0) => text::count(workflows, "workflow"),
        (0, worlds) => text::count(worlds, "world"),
        (workflows, worlds) => format!(
            "{}, {}",
            text::count(workflows, "workflow"),
            text::count(worlds, "world")
        ),
    }
}

fn graphs(kit: Option<&Kit>) {
    for (_, workflow) in kit.iter().flat_map(|kit| &kit.workflows) {
        line(&format!("%% {}", text::line(&workflow.path)));
        for one in text::clean(&mermaid(&workflow.definition.plan)).lines() {
            line(one);
        }
        line("");
    }
}

/// The steps of a workflow and the edges between them.
fn mermaid(plan: &Plan) -> String {
    let mut out = "graph TD\n".to_owned();
    let root = plan.workflows.get(&plan.root);
    let steps = root.map(|root| root.steps.as_slice()).unwrap_or_default();
    let ids: Vec<&str> = steps.iter().map(|step| step.id.as_str()).collect();
    let nodes: Vec<String> = (0..ids.len()).map(|place| node(&ids, place)).collect();
    for (step, node) in steps.iter().zip(&nodes) {
        let kind = step_kind(&step.work);
        out.push_str(&format!("    {node}[\"{} [{kind}]\"]\n", step.id));
    }
    for (step, node) in steps.iter().zip(&nodes) {
        let needed = step.needs.iter();
        let needed = needed.filter_map(|place| nodes.get(usize::try_from(*place).ok()?));
        for before in needed {
            out.push_str(&format!("    {before} --> {node}\n"));
        }
    }
    out
}

/// Words that Mermaid reads as its own where a node's name is expected.
const MERMAID_KEYWORDS: &str = "\
    _blank _parent _self _top call class classdef click default direction end flowchart graph \
    href interpolate linkstyle style subgraph";

/// The name of a step's node: its id, unless Mermaid reads that as something else. Words end for it
/// at a hyphen, and two hyphens are an edge.
fn node(ids: &[&str], place: usize) -> String {
    let id = ids.get(place).copied().unwrap_or_default();
    let is_word = id.split('-').any(|part| {
        let part = part.to_ascii_lowercase();
        part.is_empty() || MERMAID_KEYWORDS.split(' ').any(|word| word == part)
    });
    if !is_word {
        return id.to_owned();
    }
    let mut name = format!("n{place}");
    while ids.contains(&name.as_str()) {
        name.push('_');
    }
    name
}

#[cfg(test)]
mod tests {
    use super::node;

    #[test]
    fn no_id_is_read_by_mermaid_as_something_else() {
        let ids = [
            "fetch-news",
            "end",
            "a--b",
            "x-",
            "end-of-day",
            "n1",
            "Graph",
        ];
        let names: Vec<String> = (0..ids.len()).map(|place| node(&ids, place)).collect();
        assert_eq!(names, ["fetch-news", "n1_", "n2", "n3", "n4", "n1", "n6"]);
    }
}
