//! A copy of the sources below `target`, and its build.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A binary of tests.
pub(crate) struct Binary {
    pub(crate) executable: PathBuf,
    /// That of its package, in which cargo runs it.
    pub(crate) folder: PathBuf,
}

/// Where the copy is and what is made of it. It is kept, so that the next build is a short one.
pub(crate) struct Scratch {
    folder: PathBuf,
}

/// The files of the tree, as git knows them.
pub(crate) fn tracked(root: &Path) -> Vec<PathBuf> {
    let git = [
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ];
    let listed = Command::new("git").args(git).current_dir(root).output();
    let listed = String::from_utf8(listed.expect("git").stdout).expect("names in UTF-8");
    let files = listed.split_terminator('\0').map(PathBuf::from);
    // Removed, and not yet said so to git.
    files.filter(|file| root.join(file).exists()).collect()
}

impl Scratch {
    pub(crate) fn new(root: &Path) -> Self {
        let folder = root.join("target/seeded");
        std::fs::create_dir_all(folder.join("tree")).expect("a folder");
        Self { folder }
    }

    /// The file that names the defect that is switched on.
    pub(crate) fn switch(&self) -> PathBuf {
        self.folder.join("switch")
    }

    /// Makes the copy what the tree is, but for `changed`. What is so already is not written, and
    /// not built again.
    pub(crate) fn write(&self, root: &Path, changed: &BTreeMap<&str, String>) {
        let tree = self.folder.join("tree");
        let files: BTreeSet<PathBuf> = tracked(root).into_iter().collect();
        for file in &files {
            let (from, to) = (root.join(file), tree.join(file));
            let changed = file.to_str().and_then(|file| changed.get(file));
            let bytes = match changed {
                Some(text) => text.as_bytes().to_vec(),
                None => std::fs::read(&from).expect("a file of the tree"),
            };
            if std::fs::read(&to).is_ok_and(|there| there == bytes) {
                continue;
            }
            std::fs::create_dir_all(to.parent().unwrap_or(&tree)).expect("a folder");
            // With its permissions: some are programs.
            std::fs::copy(&from, &to).expect("a copy");
            std::fs::write(&to, bytes).expect("a copy");
        }
        remove_others(&tree, &tree, &files);
    }

    /// Builds all tests; each by its package and its target.
    pub(crate) fn build(&self) -> BTreeMap<(String, String), Binary> {
        let target = self.folder.join("target");
        if !target.exists() {
            link_dependencies(&target.join("debug"));
        }
        let mut cargo = Command::new(env!("CARGO"));
        cargo
            .args(["test", "--workspace", "--no-run", "--locked"])
            .args(["--message-format", "json-render-diagnostics"])
            .current_dir(self.folder.join("tree"))
            .env("CARGO_TARGET_DIR", &target)
            .stderr(Stdio::inherit());
        // What cargo says about this test is not to be taken for what it says about those.
        for (name, _) in std::env::vars_os() {
            let own = [
                "CARGO_PKG_",
                "CARGO_MANIFEST_",
                "CARGO_BIN_",
                "CARGO_CRATE_",
            ];
            let text = name.to_string_lossy().into_owned();
            if own.iter().any(|prefix| text.starts_with(prefix)) {
                cargo.env_remove(&name);
            }
        }
        let built = cargo.output().expect("cargo");
        assert!(built.status.success(), "the seeded sources do not build");
        let text = String::from_utf8(built.stdout).expect("messages of cargo");
        text.lines().filter_map(binary).collect()
    }
}

/// The binary that a message of cargo is about.
fn binary(message: &str) -> Option<((String, String), Binary)> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    let executable = PathBuf::from(message["executable"].as_str()?);
    let folder = Path::new(message["manifest_path"].as_str()?)
        .parent()?
        .to_owned();
    message["profile"]["test"]
        .as_bool()
        .filter(|is_test| *is_test)?;
    let target = &message["target"];
    let name = match target["kind"][0].as_str()? {
        "lib" => "lib",
        "test" => target["name"].as_str()?,
        _ => return None,
    };
    // `path+file:///…/ledger#ktsu-ledger@0.1.0`
    let (_, package) = message["package_id"].as_str()?.rsplit_once('#')?;
    let package = package.split('@').next()?.to_owned();
    Some(((package, name.to_owned()), Binary { executable, folder }))
}

/// Lends the build what was built of other people's crates: they are the same there.
fn link_dependencies(target: &Path) {
    let test = std::env::current_exe().expect("this test");
    let Some(own) = test.parent().and_then(Path::parent) else {
        return;
    };
    for folder in ["deps", "build", ".fingerprint"] {
        link(&own.join(folder), &target.join(folder));
    }
}

fn link(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).into_iter().flatten().flatten() {
        let (name, from) = (entry.file_name(), entry.path());
        let is_ours = ["ktsu", "suite", "seeded", "architecture"];
        let text = name.to_string_lossy();
        if is_ours
            .iter()
            .any(|ours| text.trim_start_matches("lib").starts_with(ours))
        {
            continue;
        }
        match from.is_dir() {
            true => link(&from, &to.join(&name)),
            // What is missing is built.
            false => drop(std::fs::hard_link(&from, to.join(&name))),
        }
    }
}

/// Removes the files of a folder of the copy that the tree does not have.
fn remove_others(tree: &Path, folder: &Path, files: &BTreeSet<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            remove_others(tree, &path, files);
        } else if path
            .strip_prefix(tree)
            .is_ok_and(|file| !files.contains(file))
        {
            std::fs::remove_file(&path).expect("a file of the copy");
        }
    }
}
