//! References to other files of a kit: `PATH` or `PATH@VERSION`, never outside the kit.

use std::path::{Component, Path, PathBuf};

use super::files::{AGENT_SUFFIX, SERVER_SUFFIX, WORKFLOW_SUFFIX, file_names};
use ktsu_codes::nearest;
use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::yaml::SourceSpan;

/// A reference, and what is looked for.
pub(super) struct FileReference<'a> {
    /// As written, version included.
    pub(super) name: &'a str,
    pub(super) place: SourceSpan,
    pub(super) kind: &'a ReferenceKind,
}

/// The files a reference may mean.
pub(super) struct ReferenceKind {
    /// As in "there is no agent file".
    pub(super) word: &'static str,
    /// The suffix of the names of such files.
    pub(super) suffix: &'static str,
    /// The code where there is none.
    pub(super) absent: FaultCode,
    /// True if paths start at the kit's folder, and only then at that of the file.
    pub(super) kit_first: bool,
    /// The folder in which similar names are looked for.
    pub(super) folder: &'static str,
}

/// Files of agents.
pub(super) const AGENT_FILES: ReferenceKind = ReferenceKind {
    word: "agent file",
    suffix: AGENT_SUFFIX,
    absent: FaultCode::AgentNotFound,
    kit_first: true,
    folder: "agents",
};

/// Files of workflows.
pub(super) const WORKFLOW_FILES: ReferenceKind = ReferenceKind {
    word: "workflow",
    suffix: WORKFLOW_SUFFIX,
    absent: FaultCode::ChildNotFound,
    kit_first: false,
    folder: "workflows",
};

/// Files of tool servers.
pub(super) const SERVER_FILES: ReferenceKind = ReferenceKind {
    word: "server file",
    suffix: SERVER_SUFFIX,
    absent: FaultCode::ServerNotFound,
    kit_first: false,
    folder: "servers",
};

/// The path and the version of a reference. What follows the last `@` is a version, unless it is
/// the end of a path.
pub(super) fn split(name: &str) -> (&str, Option<&str>) {
    match name.rsplit_once('@') {
        Some((path, version)) if !version.contains('/') && !version.ends_with(".yaml") => {
            (path, Some(version))
        }
        Some(_) | None => (name, None),
    }
}

/// The path that a reference of a file means, relative to the kit.
pub(super) fn resolve(
    root: &Path,
    from: &str,
    reference: &FileReference<'_>,
) -> Result<String, Fault> {
    let (name, _) = split(reference.name);
    let kind = reference.kind;
    let fault = |code, words| Fault::new(code, reference.place, words);
    let outside = || {
        fault(
            FaultCode::ChildOutsideKit,
            format!("{name:?} is outside the kit"),
        )
    };
    let folder = Path::new(from).parent().unwrap_or(Path::new(""));
    let mut candidates = [inside(&folder.join(name)), inside(Path::new(name))];
    if kind.kit_first {
        candidates.reverse();
    }
    if candidates.iter().all(Option::is_none) {
        return Err(outside());
    }
    let found = candidates
        .into_iter()
        .flatten()
        .find(|path| root.join(path).is_file());
    let Some(path) = found else {
        let absent = fault(kind.absent, format!("there is no {} {name:?}", kind.word));
        return Err(match (near(root, name, kind), kind.kit_first) {
            (Some(near), _) => absent.hint(format!("did you mean {near}?")),
            (None, true) => absent.hint("paths start at the kit's folder, then at this file's"),
            (None, false) => absent.hint("paths start at this file's folder, then at the kit's"),
        });
    };
    // A symbolic link must not lead out either.
    let real = root.join(&path).canonicalize();
    if !real.is_ok_and(|real| real.starts_with(root)) {
        return Err(outside());
    }
    let parts = path
        .components()
        .map(|part| part.as_os_str().to_string_lossy());
    let path = parts.collect::<Vec<_>>().join("/");
    if !path.ends_with(kind.suffix) {
        let words = format!("{name:?} is not {} file", kind.noun());
        let absent = fault(kind.absent, words);
        return Err(absent.hint(format!("its name ends with {}", kind.suffix)));
    }
    Ok(path)
}

impl ReferenceKind {
    fn noun(&self) -> String {
        let noun = self.word.trim_end_matches(" file");
        let article = if noun.starts_with('a') { "an" } else { "a" };
        format!("{article} {noun}")
    }
}

/// The path without `.` and `..`, or nothing if it leaves its start.
fn inside(path: &Path) -> Option<PathBuf> {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::Normal(name) => out.push(name),
            Component::ParentDir if out.pop() => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(out)
}

/// A file with a similar name in the usual folder. A name without a folder is meant to stand there.
fn near(root: &Path, name: &str, kind: &ReferenceKind) -> Option<String> {
    let names = file_names(&root.join(kind.folder));
    let paths: Vec<String> = names
        .into_iter()
        .filter(|name| name.ends_with(kind.suffix))
        .map(|name| format!("{}/{name}", kind.folder))
        .collect();
    let name = name.trim_start_matches("../").trim_start_matches("./");
    let whole = match name.contains('/') {
        true => name.to_owned(),
        false => format!("{}/{name}", kind.folder),
    };
    nearest(&whole, paths.iter().map(String::as_str)).map(str::to_owned)
}

/// Checks that the file a reference leads to is the version it asks for. `is_said` is false where
/// the file says none, and so counts as 0.0.0.
pub(super) fn version(
    reference: &FileReference<'_>,
    version: &str,
    is_said: bool,
    from: &str,
) -> Option<Fault> {
    let (_, wanted) = split(reference.name);
    let wanted = wanted?;
    let fault = |code, words| Some(Fault::new(code, reference.place, words));
    let Ok(parsed) = semver::Version::parse(wanted) else {
        let words = format!("{wanted:?} is not a semantic version");
        return fault(FaultCode::BadVersion, words);
    };
    if semver::Version::parse(version).is_ok_and(|found| found == parsed) {
        return None;
    }
    let word = reference.kind.word;
    let words = match is_said {
        true => format!("{from} wants version {wanted}, the {word} is {version}"),
        false => format!("{from} wants version {wanted}, the {word} has none"),
    };
    let hint = format!("write @{version}, or change the version of the file");
    Some(fault(FaultCode::VersionMismatch, words)?.hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_follows_the_last_at_and_is_no_path() {
        for (name, path, version) in [
            ("a.agent.yaml", "a.agent.yaml", None),
            ("a.agent.yaml@1.0.0", "a.agent.yaml", Some("1.0.0")),
            ("a@b/c.agent.yaml", "a@b/c.agent.yaml", None),
            ("a@b.agent.yaml", "a@b.agent.yaml", None),
            ("a@b.agent.yaml@2.0.0", "a@b.agent.yaml", Some("2.0.0")),
            ("ktsu/x@1.0.0", "ktsu/x", Some("1.0.0")),
            ("a.agent.yaml@", "a.agent.yaml", Some("")),
        ] {
            assert_eq!(split(name), (path, version), "{name}");
        }
    }

    #[test]
    fn paths_do_not_leave_their_start() {
        for (path, kept) in [
            ("a/../b", Some("b")),
            ("./a/./b", Some("a/b")),
            ("a/../../b", None),
            ("/a", None),
            ("..", None),
        ] {
            assert_eq!(inside(Path::new(path)), kept.map(PathBuf::from), "{path}");
        }
    }
}
