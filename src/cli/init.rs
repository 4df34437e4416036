//! `ktsu init`: a new kit that validates, runs and tests itself without a key.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;

use super::output::{line, note, note_commands, print_json};
use super::{Common, Failure, text};
use ktsu_opening::files::unwritable;
use ktsu_opening::quoting::quoted;

/// What `init` takes.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The folder, created if it does not exist; the kit is named after it
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// Adds invariants for `ktsu check`: evals/NAME.eval.yaml
    #[arg(long)]
    eval: bool,
}

/// The placeholder for the kit's name in the files and in their names.
const NAME: &str = "{{NAME}}";

/// The files of a new kit, by path.
const FILES: [(&str, &str); 10] = [
    (".gitignore", include_str!("starter/gitignore")),
    ("README.md", include_str!("starter/README.md")),
    (
        "agents/clerk.agent.yaml",
        include_str!("starter/agent.yaml"),
    ),
    (
        "baselines/answer.baseline.json",
        include_str!("starter/baseline.json"),
    ),
    (
        "environments/local.env.yaml",
        include_str!("starter/environment.yaml"),
    ),
    (
        "examples/default.json",
        include_str!("starter/default.json"),
    ),
    ("gateway.yaml", include_str!("starter/gateway.yaml")),
    ("kit.yaml", include_str!("starter/kit.yaml")),
    (
        "scripted/replies.yaml",
        include_str!("starter/replies.yaml"),
    ),
    (
        "workflows/{{NAME}}.workflow.yaml",
        include_str!("starter/workflow.yaml"),
    ),
];

/// The file that `--eval` adds, with its text.
const EVAL: (&str, &str) = (
    "evals/{{NAME}}.eval.yaml",
    include_str!("starter/eval.yaml"),
);

/// Makes a kit, or nothing at all.
pub(super) fn run(common: &Common, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let dir = &arguments.dir;
    std::fs::create_dir_all(dir).map_err(|error| unwritable(dir, &error))?;
    let name = name_of(dir);
    let eval = arguments.eval.then_some(&EVAL);
    let files: Vec<(String, String)> = FILES
        .iter()
        .chain(eval)
        .map(|(path, text)| (path.replace(NAME, &name), text.replace(NAME, &name)))
        .collect();
    for (path, _) in &files {
        must_be_free(dir, path)?;
    }
    let mut written = Vec::new();
    for (path, text) in &files {
        if let Err(error) = create(&dir.join(path), text) {
            // Half a kit would be in the way of the next attempt.
            written.iter().for_each(|path: &PathBuf| {
                let _ = std::fs::remove_file(path);
            });
            return Err(unwritable(&dir.join(path), &error));
        }
        written.push(dir.join(path));
    }
    let eval = eval.map(|(path, _)| path.replace(NAME, &name));
    let next = next(dir, eval.as_deref());
    if common.json {
        let paths: Vec<&String> = files.iter().map(|(path, _)| path).collect();
        let body = json!({
            "kit": name,
            "dir": dir.display().to_string(),
            "files": paths,
            "next": next.iter().map(|(command, _)| command).collect::<Vec<_>>(),
        });
        return print_json(&body);
    }
    for (path, _) in &files {
        line(&text::line(&dir.join(path).display().to_string()));
    }
    note(&format!(
        "\nkit {name} is ready to run; it needs no key and no network"
    ));
    note_commands(&next);
    Ok(ExitCode::SUCCESS)
}

/// The commands to type now, each with its purpose.
fn next(dir: &Path, eval: Option<&str>) -> Vec<(String, &'static str)> {
    let mut next = Vec::new();
    if dir != Path::new(".") {
        next.push((
            format!("cd {}", quoted(dir)),
            "run the commands below there",
        ));
    }
    let rest = [
        ("ktsu validate", "check the kit"),
        ("ktsu run .", "run it on examples/default.json"),
        (
            "ktsu test baselines",
            "compare the agent with recorded answers",
        ),
        (
            "ktsu lock",
            "lock workflows, agents and servers, for --locked",
        ),
    ];
    next.extend(rest.map(|(command, what)| (command.to_owned(), what)));
    let check = eval.map(|path| (format!("ktsu check RUN --spec {path}"), "judge a run"));
    next.extend(check);
    next
}

/// The name of a kit in this folder: the folder's, as far as names can have its characters.
fn name_of(dir: &Path) -> String {
    let real = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let folder = real.file_name().unwrap_or_default().to_string_lossy();
    named(&folder)
}

/// Characters that no name has become one hyphen, and a name begins with a letter or a digit.
fn named(folder: &str) -> String {
    const MAX_NAME_CHARS: usize = 64;
    let mut name = String::new();
    for one in folder.chars() {
        match one.to_ascii_lowercase() {
            plain if plain.is_ascii_alphanumeric() => name.push(plain),
            '_' if !name.is_empty() => name.push('_'),
            _ if name.is_empty() || name.ends_with('-') => {}
            _ => name.push('-'),
        }
    }
    name.truncate(MAX_NAME_CHARS);
    let name = name.trim_end_matches(['-', '_']);
    match name {
        "" => "kit".to_owned(),
        name => name.to_owned(),
    }
}

/// Refuses a place where something is, and one that a link leads away from.
fn must_be_free(dir: &Path, path: &str) -> Result<(), Failure> {
    let full = dir.join(path);
    if full.symlink_metadata().is_ok() {
        let words = format!("{} already exists; nothing was written", full.display());
        return Err(Failure::could_not_run(words).hint("name a new folder: ktsu init DIR"));
    }
    let Some((folder, _)) = path.split_once('/') else {
        return Ok(());
    };
    let folder = dir.join(folder);
    match folder.symlink_metadata() {
        Ok(about) if !about.is_dir() => {
            let words = format!("{} is not a folder; nothing was written", folder.display());
            Err(Failure::could_not_run(words).hint("name a new folder: ktsu init DIR"))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

fn create(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut file = std::fs::File::create_new(path)?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ktsu_ledger::id::is_name;

    #[test]
    fn any_folder_gives_a_name_that_files_can_have() {
        for (folder, name) in [
            ("triage", "triage"),
            ("My First Kit", "my-first-kit"),
            ("../x", "x"),
            ("--a--b--", "a-b"),
            ("_under_score_", "under_score"),
            ("kit.v2", "kit-v2"),
            ("été", "t"),
            ("日本", "kit"),
            ("", "kit"),
            ("\u{1b}[31m", "31m"),
            ("123", "123"),
        ] {
            assert_eq!(named(folder), name, "{folder:?}");
            assert!(is_name(name), "{name}");
        }
        let long = named(&"ab-".repeat(50));
        assert!(is_name(&long) && !long.ends_with('-'), "{long}");
    }

    #[test]
    fn nothing_but_the_name_is_left_open_in_the_files() {
        for (path, text) in FILES {
            let rest = format!("{path}{text}").replace(NAME, "x");
            assert!(!rest.contains("{{N"), "{path}");
        }
    }
}
