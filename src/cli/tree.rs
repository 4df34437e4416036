//! `ktsu workflow tree`: everything a workflow calls.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};
use termtree::GlyphPalette;

use super::output::{print_json, row, symbols};
use super::symbols::Symbols;
use super::{Common, Failure, text};
use ktsu_kit::builtin;
use ktsu_kit::tree::{TreeNode, branch};
use ktsu_opening::files::unreadable;
use ktsu_opening::kit::load_kit;

/// What `workflow` takes.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Arguments {
    /// Shows the workflows and agents that a workflow calls, and what those call
    Tree {
        /// A workflow file of a kit: KIT/workflows/NAME.workflow.yaml; or a NAME, with --project-dir
        file: PathBuf,
        /// The kit's folder, if FILE is not relative to the working directory
        #[arg(long, value_name = "DIR", alias = "kit", env = "KTSU_PROJECT_DIR")]
        project_dir: Option<PathBuf>,
    },
}

/// Prints a tree.
pub(super) fn run(common: &Common, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let Arguments::Tree { file, project_dir } = arguments;
    let file = &named(file, project_dir.as_deref());
    let full = file.canonicalize();
    let full = full.map_err(|error| unreadable(file, &error))?;
    let outside = || {
        let words = format!("{} is not a workflow of a kit", file.display());
        Failure::could_not_run(words)
            .hint("workflows are in the folder workflows/ of a kit, as NAME.workflow.yaml")
    };
    let root = full
        .ancestors()
        .find(|folder| folder.file_name().is_some_and(|name| name == "workflows"))
        .and_then(Path::parent)
        .ok_or_else(outside)?;
    let kit = load_kit(root)?;
    let found = kit
        .workflows
        .values()
        .find(|one| kit.root.join(&one.path) == full);
    let tree = branch(&kit, &found.ok_or_else(outside)?.definition.plan);
    if common.json {
        print_json(&whole(&kit.root, &tree))?;
    } else {
        for one in text::clean(&tree.text(color_variables(symbols()))).lines() {
            row(one);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The lines of the tree.
fn color_variables(symbols: Symbols) -> GlyphPalette {
    match symbols {
        Symbols::Unicode => GlyphPalette::new(),
        Symbols::Ascii => GlyphPalette {
            middle_item: "|",
            last_item: "`",
            item_indent: "-- ",
            middle_skip: "|",
            last_skip: " ",
            skip_indent: "   ",
        },
    }
}

/// The given file, otherwise a file of the kit, otherwise the file of a workflow with that name.
fn named(file: &Path, project_dir: Option<&Path>) -> PathBuf {
    let Some(dir) = project_dir.filter(|_| !file.is_file()) else {
        return file.to_owned();
    };
    let within = dir.join(file);
    let name = format!("{}.workflow.yaml", file.display());
    let workflow = dir.join("workflows").join(name);
    match within.is_file() || !workflow.is_file() {
        true => within,
        false => workflow,
    }
}

/// With whole paths, for programs that are somewhere else.
fn whole(root: &Path, branch: &TreeNode) -> Value {
    // An agent of this program is no file.
    let path = match builtin::text(&branch.path) {
        Some(_) => branch.path.clone(),
        None => root.join(&branch.path).display().to_string(),
    };
    let mut value = json!({"kind": branch.kind, "path": path});
    if let Some(tools) = &branch.tools {
        value["name"] = json!(tools.name);
        value["version"] = json!(tools.version);
        value["stateful"] = json!(tools.stateful);
        value["allowlist"] = json!(tools.allowlist);
    }
    if !branch.children.is_empty() {
        let children = branch.children.iter().map(|child| whole(root, child));
        value["children"] = children.collect();
    }
    value
}
