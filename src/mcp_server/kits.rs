//! Finding the kit that an agent names: below the working directory, and nowhere else.

use std::path::{Component, Path, PathBuf};

use super::answer::AnswerError;
use ktsu_codes::nearest;

/// The usual folder of kits.
const KITS: &str = "kits";
/// The entries that mark a folder as a kit: one of these.
const MARKS: [&str; 3] = ["kit.yaml", "workflows", "worlds"];
/// The most kits that a refusal names.
const MAX_NAMED: usize = 20;

/// The folder of a kit: `NAME` under `kits/` or under the working directory, where dots may stand
/// for slashes. The path has no symbolic links left.
///
/// # Errors
/// There is none, or it is not below the working directory.
pub(super) fn find(root: &Path, name: &str) -> Result<PathBuf, AnswerError> {
    let mut is_outside = false;
    for way in ways(name) {
        for folder in [root.join(KITS).join(&way), root.join(&way)] {
            let Ok(found) = folder.canonicalize() else {
                continue;
            };
            if !is_below(root, &found) {
                is_outside = true;
            } else if is_kit(&found) {
                return Ok(found);
            }
        }
    }
    let words = match is_outside || !is_plain(Path::new(name)) {
        true => "a kit must be below the working directory",
        false => "there is no kit of this name",
    };
    Err(AnswerError::new(words).hint(hint(root, name)))
}

/// The paths that may be meant by a name: the name itself, and the name with slashes for dots.
fn ways(name: &str) -> Vec<PathBuf> {
    let mut ways = vec![PathBuf::from(name), PathBuf::from(name.replace('.', "/"))];
    ways.retain(|way| is_plain(way));
    ways.dedup();
    ways
}

/// Returns `true` if a path neither leaves the folder it begins in nor begins elsewhere.
fn is_plain(path: &Path) -> bool {
    let plain = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    path.components().all(plain) && !path.as_os_str().is_empty()
}

fn is_below(root: &Path, found: &Path) -> bool {
    let root = root.canonicalize();
    root.is_ok_and(|root| found.starts_with(&root) && *found != root)
}

fn is_kit(folder: &Path) -> bool {
    MARKS.iter().any(|mark| folder.join(mark).exists())
}

fn hint(root: &Path, name: &str) -> String {
    let names = names(root);
    let last = name.rsplit(['/', '.']).next().unwrap_or(name);
    match nearest(last, names.iter().map(String::as_str)) {
        Some(near) => format!("did you mean {near}?"),
        None if names.is_empty() => "a kit is a folder with workflows/ or worlds/".to_owned(),
        None => format!("kits: {}", names.join(", ")),
    }
}

/// The names of the first kits under `kits/`, in order.
fn names(root: &Path) -> Vec<String> {
    let folder = std::fs::read_dir(root.join(KITS));
    let entries = folder.into_iter().flatten().flatten();
    let kits = entries.filter(|entry| is_kit(&entry.path()));
    let mut names: Vec<String> = kits
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names.truncate(MAX_NAMED);
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        for folder in [
            "project/kits/tides/worlds",
            "project/kits/deep/er/workflows",
            "project/here/workflows",
            "project/kits/v1.2/workflows",
            "project/kits/empty",
            "elsewhere/workflows",
        ] {
            std::fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        std::os::unix::fs::symlink(
            dir.path().join("elsewhere"),
            dir.path().join("project/kits/link"),
        )
        .unwrap();
        let root = dir.path().join("project");
        (dir, root)
    }

    #[test]
    fn a_kit_is_found_by_its_name_or_its_path_with_dots_for_slashes() {
        let (_dir, root) = project();
        for (name, folder) in [
            ("tides", "kits/tides"),
            ("kits/tides", "kits/tides"),
            ("kits.tides", "kits/tides"),
            ("./kits/tides/", "kits/tides"),
            ("deep/er", "kits/deep/er"),
            ("deep.er", "kits/deep/er"),
            ("here", "here"),
            ("v1.2", "kits/v1.2"),
        ] {
            let expected = root.canonicalize().unwrap().join(folder);
            assert_eq!(find(&root, name).unwrap(), expected, "{name}");
        }
    }

    #[test]
    fn nothing_outside_of_the_working_directory_is_a_kit() {
        let (dir, root) = project();
        let absolute = dir.path().join("elsewhere").display().to_string();
        let inside = root.join("here").display().to_string();
        for name in [
            "../elsewhere",
            "kits/../../elsewhere",
            "link",
            &absolute,
            &inside,
            "/",
            "..",
        ] {
            let error = format!("{:?}", find(&root, name).unwrap_err());
            assert!(
                error.contains("below the working directory"),
                "{name}: {error}"
            );
        }
        for name in ["empty", "tide", "", ".", "a\0b"] {
            assert!(find(&root, name).is_err(), "{name}");
        }
        let error = format!("{:?}", find(&root, "tide").unwrap_err());
        assert!(error.contains("did you mean tides?"), "{error}");
    }
}
