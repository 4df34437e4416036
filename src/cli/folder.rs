//! Finds the kit a command works on: the given folder or `KTSU_PROJECT_DIR`.

use std::path::PathBuf;

use super::Failure;

/// The variable that names a kit's folder.
const VARIABLE: &str = "KTSU_PROJECT_DIR";

/// The kit of a command that takes its folder first.
#[derive(Debug, clap::Args)]
pub(super) struct Folder {
    /// The kit's folder [default: KTSU_PROJECT_DIR, otherwise the working directory]
    #[arg(value_name = "KIT")]
    kit: Option<PathBuf>,
    /// The kit's folder, in place of KIT
    #[arg(long, alias = "kit", value_name = "DIR", conflicts_with = "kit")]
    project_dir: Option<PathBuf>,
}

impl Folder {
    /// The folder that is meant.
    pub(super) fn path(&self) -> PathBuf {
        let named = self.kit.as_ref().or(self.project_dir.as_ref()).cloned();
        let named = named.or_else(of_process);
        named.unwrap_or_else(|| PathBuf::from("."))
    }
}

/// The folder that the process environment names.
pub(super) fn of_process() -> Option<PathBuf> {
    let named = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
    named.map(PathBuf::from)
}

/// The kit and the workflow of a command that is given `KIT [WORKFLOW]`. Where `--project-dir` names the
/// kit, the one word is the workflow.
pub(super) fn and_workflow(
    project_dir: Option<PathBuf>,
    first: Option<PathBuf>,
    second: Option<String>,
) -> Result<(PathBuf, Option<String>), Failure> {
    match (project_dir, first, second) {
        (Some(_), Some(_), Some(second)) => {
            let words = format!("unexpected argument {second:?}: --kit already names the kit");
            Err(Failure::could_not_run(words).hint("ktsu run --kit DIR [WORKFLOW]"))
        }
        (Some(dir), first, workflow) => {
            let first = first.map(|first| first.to_string_lossy().into_owned());
            Ok((dir, first.or(workflow)))
        }
        (None, Some(kit), workflow) => Ok((kit, workflow)),
        (None, None, workflow) => match of_process() {
            Some(dir) => Ok((dir, workflow)),
            None => Err(Failure::could_not_run(format!(
                "no kit given\n\n{}",
                super::usage_of("run")
            ))
            .hint(
                "ktsu run KIT, such as kits/hello; or set KTSU_PROJECT_DIR; for all options: ktsu \
                 run --help",
            )),
        },
    }
}
