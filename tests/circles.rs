//! Circles of imports between the files of a crate.
//!
//! A file imports another where a path in it leads to an item of the other: in a `use`, or in the
//! code. What a module re-exports is an item of the file that defines it. A parent does not import
//! its children by declaring or re-exporting them, and test code does not count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{bare, is_word, manifests, without_tests};

/// Files, by the folder of their crate, that define the type which the modules below them work on,
/// and call these modules: the modules below may import them.
const PARENTS: &[(&str, &[&str])] = &[
    (
        "ledger",
        &[
            "appender.rs",
            "event/mod.rs",
            "store/sqlite/mod.rs",
            "verify.rs",
        ],
    ),
    ("projections", &["run/mod.rs"]),
    ("src/schema", &["lib.rs"]),
    (
        "src/workflow",
        &[
            "commands.rs",
            "definition/mod.rs",
            "next/mod.rs",
            "respond/mod.rs",
        ],
    ),
    ("src/egress", &["lib.rs"]),
    ("src/secret", &["lib.rs"]),
    ("src/tools", &["lib.rs"]),
    ("src/runtime", &["lib.rs", "record.rs", "task.rs"]),
    ("src/history", &["provenance/story.rs"]),
    ("src/evidence", &["check/mod.rs"]),
    (
        "src/gateway",
        &[
            "provider.rs",
            "provider/scripted.rs",
            "provider/scripted/read.rs",
        ],
    ),
    ("src/orchestrator", &["lib.rs", "run.rs", "tools/mod.rs"]),
    ("src/api", &["routes.rs"]),
    ("src/cli", &["content.rs", "lib.rs"]),
];

/// Imports that close a circle, each with the reason why: the folder of the crate, the file that
/// imports and the one that it imports. Without these, and those of [`PARENTS`], no circle is left.
const EDGES: &[(&str, &str, &str, &str)] = &[
    (
        "src/workflow",
        "types/functions.rs",
        "types/infer.rs",
        "the arguments of a function are expressions, and an expression calls functions",
    ),
    (
        "src/workflow",
        "rules.rs",
        "commands.rs",
        "rules say which commands an outcome may give, and reading commands asks the rules",
    ),
    (
        "src/tools",
        "transport.rs",
        "legacy.rs",
        "a session sends in the dialect of its server, which sends through the session",
    ),
    (
        "src/tools",
        "transport.rs",
        "streamable.rs",
        "a session sends in the dialect of its server, which sends through the session",
    ),
    (
        "src/tools",
        "transport.rs",
        "session.rs",
        "a session that its server forgot is made anew by what makes sessions",
    ),
    (
        "src/orchestrator",
        "run.rs",
        "registry.rs",
        "a run starts runs, and the registry starts a run",
    ),
    (
        "src/orchestrator",
        "run.rs",
        "human_commands.rs",
        "a message to a run holds what people command, which is sent as a message",
    ),
    (
        "src/orchestrator",
        "run.rs",
        "reports.rs",
        "a message to a run holds a report, which is sent as a message",
    ),
    (
        "src/orchestrator",
        "run.rs",
        "tools/mod.rs",
        "a message to a run holds a call of a tool, which is sent as a message",
    ),
    (
        "src/orchestrator",
        "registry.rs",
        "startup.rs",
        "a run that is asked for is read as at a start, which registers runs",
    ),
];
/// The most such imports.
const MAX_EDGES: usize = 10;

/// Returns `true` if an import is one of a parent by a module below it.
fn is_of_parent(folder: &str, file: &str, imported: &str) -> bool {
    let mut parents = PARENTS.iter().filter(|(of, _)| *of == folder);
    let below = match imported.rsplit_once('/') {
        Some((at, "mod.rs")) => format!("{at}/"),
        None if imported == "lib.rs" => String::new(),
        _ => format!("{}/", imported.trim_end_matches(".rs")),
    };
    file.starts_with(&below) && parents.any(|(_, files)| files.contains(&imported))
}

/// Returns `true` if an import is one of [`EDGES`].
fn is_listed(folder: &str, file: &str, imported: &str) -> bool {
    let mut edges = EDGES.iter();
    edges.any(|(of, from, to, _)| (*of, *from, *to) == (folder, file, imported))
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders: Vec<String> = manifests(root).into_iter().map(|one| one.1).collect();
    folders.push("src".to_owned());
    let mut faults = Vec::new();
    for folder in folders {
        let inner = root.join(&folder).join("src");
        let sources = match inner.join("lib.rs").exists() {
            true => inner,
            false => root.join(&folder),
        };
        let read = |path: &str| std::fs::read_to_string(sources.join(path)).ok();
        let mut imports = imports(&read);
        let all = circles(&imports);
        let is_closing = |from: &str, to: &str| {
            let both = |circle: &Vec<String>| {
                [from, to]
                    .iter()
                    .all(|file| circle.iter().any(|one| one == file))
            };
            all.iter().any(both)
        };
        let parents = PARENTS.iter().filter(|(of, _)| *of == folder);
        let parents = parents.flat_map(|(_, files)| files.iter());
        let closing = |parent: &&&str| {
            let mut files = imports.iter();
            files.any(|(file, imported)| {
                imported.contains(**parent)
                    && is_of_parent(&folder, file, parent)
                    && is_closing(file, parent)
            })
        };
        let stale = parents.filter(|parent| !closing(parent));
        faults.extend(stale.map(|file| format!("{folder}: {file} closes no circle any more")));
        let edges = EDGES.iter().filter(|(of, ..)| *of == folder);
        let stale = edges.filter(|(_, from, to, _)| {
            !imports.get(*from).is_some_and(|files| files.contains(*to)) || !is_closing(from, to)
        });
        faults.extend(stale.map(|(_, from, to, _)| {
            format!("{folder}: {from} closes no circle with {to} any more")
        }));
        for (file, imported) in &mut imports {
            imported.retain(|other| {
                !is_of_parent(&folder, file, other) && !is_listed(&folder, file, other)
            });
        }
        for circle in circles(&imports) {
            let edge = |file: &String| {
                let within = imports[file].iter().filter(|other| circle.contains(other));
                let within: Vec<&str> = within.map(String::as_str).collect();
                format!("\n  {file} imports {}", within.join(" "))
            };
            let edges: Vec<String> = circle.iter().map(edge).collect();
            faults.push(format!("{folder}:{}", edges.concat()));
        }
    }
    assert!(EDGES.len() <= MAX_EDGES, "{} edges", EDGES.len());
    assert!(faults.is_empty(), "circles:\n{}", faults.join("\n"));
}

/// The files that each file imports.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// A module: the path from the root of its crate.
type ModulePath = Vec<String>;

#[derive(Default)]
struct Module {
    file: String,
    tokens: Vec<String>,
    /// The names that `use` brings into it, with the whole paths.
    names: BTreeMap<String, Vec<String>>,
    /// The paths of every `use`, and whether it re-exports.
    uses: Vec<(Vec<String>, bool)>,
}

type Modules = BTreeMap<ModulePath, Module>;

/// Reads the modules of a crate from its `lib.rs` on, and what they import.
fn imports(read: &dyn Fn(&str) -> Option<String>) -> Imports {
    let mut modules = Modules::new();
    load(read, Vec::new(), "lib.rs", &mut modules);
    let mut imports = Imports::new();
    for (path, module) in &modules {
        let files = imports.entry(module.file.clone()).or_default();
        for (target, at) in targets(&modules, path, module) {
            let below = at.starts_with(path) && at.len() > path.len();
            if modules[&at].file != module.file && !(target && below) {
                files.insert(modules[&at].file.clone());
            }
        }
    }
    imports
}

fn load(
    read: &dyn Fn(&str) -> Option<String>,
    path: ModulePath,
    file: &str,
    modules: &mut Modules,
) {
    let text = read(file).unwrap_or_else(|| panic!("{file} is declared and missing"));
    let mut module = Module {
        file: file.to_owned(),
        tokens: tokens(&without_tests(&bare(&text))),
        ..Module::default()
    };
    let folder = match file.rsplit_once('/') {
        Some((folder, "mod.rs")) => format!("{folder}/"),
        None if file == "lib.rs" => String::new(),
        _ => format!("{}/", file.trim_end_matches(".rs")),
    };
    for at in 0..module.tokens.len() {
        let [word, name, end] = [0, 1, 2].map(|next| word(&module.tokens, at + next));
        if word == "mod" && end == ";" {
            let mut child = path.clone();
            child.push(name.to_owned());
            let below = [
                format!("{folder}{name}.rs"),
                format!("{folder}{name}/mod.rs"),
            ];
            let file = below.iter().find(|file| read(file).is_some());
            let file = file.unwrap_or_else(|| panic!("{below:?} is declared and missing"));
            load(read, child, file, modules);
        }
        // A bound captures with `use<'a>`.
        if word == "use" && name != "<" {
            let exported = at > 0 && [")", "pub"].contains(&module.tokens[at - 1].as_str());
            let mut leaves = Vec::new();
            tree(&module.tokens, at + 1, &[], &mut leaves);
            for (name, leaf) in leaves {
                module.names.insert(name, leaf.clone());
                module.uses.push((leaf, exported));
            }
        }
    }
    modules.insert(path, module);
}

fn word(tokens: &[String], at: usize) -> &str {
    tokens.get(at).map_or("", String::as_str)
}

/// Reads a tree of `use` from a token on: each name it brings, with its path. Returns where it ends.
fn tree(
    tokens: &[String],
    start: usize,
    before: &[String],
    leaves: &mut Vec<(String, Vec<String>)>,
) -> usize {
    let mut path = before.to_vec();
    let mut at = start;
    loop {
        match word(tokens, at) {
            "::" => at += 1,
            "{" => {
                at += 1;
                while !["}", ""].contains(&word(tokens, at)) {
                    at = tree(tokens, at, &path, leaves);
                    at += usize::from(word(tokens, at) == ",");
                }
                return at + 1;
            }
            "as" => {
                leaves.push((word(tokens, at + 1).to_owned(), path));
                return at + 2;
            }
            "" | "," | "}" | ";" => {
                if path.last().is_some_and(|last| last == "self") && path.len() > 1 {
                    path.pop();
                }
                leaves.push((path.last().cloned().unwrap_or_default(), path));
                return at;
            }
            segment => {
                path.push(segment.to_owned());
                at += 1;
            }
        }
    }
}

/// The modules whose items a module names, and whether it only re-exports the item.
fn targets(modules: &Modules, path: &ModulePath, module: &Module) -> Vec<(bool, ModulePath)> {
    let mut found = Vec::new();
    let mut add = |segments: &[String], exported| {
        if let Some(Target::Item(at)) = resolve(modules, path, segments, 0) {
            found.push((exported, at));
        }
    };
    for (segments, exported) in &module.uses {
        add(segments, *exported);
    }
    let mut at = 0;
    while at < module.tokens.len() {
        if word(&module.tokens, at) == "use" && word(&module.tokens, at + 1) != "<" {
            at = tree(&module.tokens, at + 1, &[], &mut Vec::new());
            continue;
        }
        let mut segments = Vec::new();
        while word(&module.tokens, at).starts_with(is_word) {
            segments.push(module.tokens[at].clone());
            let more = word(&module.tokens, at + 1) == "::"
                && word(&module.tokens, at + 2).starts_with(is_word);
            if !more {
                break;
            }
            at += 2;
        }
        if segments.len() > 1 {
            add(&segments, false);
        }
        at += 1;
    }
    found
}

enum Target {
    Module(ModulePath),
    /// An item of this module's file.
    Item(ModulePath),
}

/// Where a path leads that is written in a module; nothing where it leaves the crate.
fn resolve(
    modules: &Modules,
    from: &ModulePath,
    segments: &[String],
    depth: usize,
) -> Option<Target> {
    let (first, mut rest) = segments.split_first()?;
    let mut at = match first.as_str() {
        "crate" => Vec::new(),
        "self" => from.clone(),
        "super" => from.split_last()?.1.to_vec(),
        name => match step(modules, from, name, depth)? {
            Target::Module(at) => at,
            item @ Target::Item(_) => return Some(item),
        },
    };
    while let Some((segment, after)) = rest.split_first() {
        rest = after;
        if segment == "super" {
            at.pop();
            continue;
        }
        match step(modules, &at, segment, depth) {
            Some(Target::Module(below)) => at = below,
            Some(item) => return Some(item),
            None if modules[&at].names.contains_key(segment) => return None,
            None => return Some(Target::Item(at)),
        }
    }
    Some(Target::Module(at))
}

/// What a name is in a module: a child, or what it was imported as; nothing where the module's file
/// defines it, or another crate.
fn step(modules: &Modules, at: &ModulePath, name: &str, depth: usize) -> Option<Target> {
    let mut child = at.clone();
    child.push(name.to_owned());
    if modules.contains_key(&child) {
        return Some(Target::Module(child));
    }
    let path = modules[at].names.get(name).filter(|_| depth < 8)?;
    resolve(modules, at, path, depth + 1)
}

/// The words, the `::` and the other characters of code.
pub(super) fn tokens(code: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(c) = rest.chars().next() {
        let length = match c {
            c if is_word(c) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            c => c.len_utf8(),
        };
        tokens.push(rest[..length].to_owned());
        rest = rest[length..].trim_start();
    }
    tokens
}

/// The sets of more than one file of which each reaches every other.
fn circles(imports: &Imports) -> BTreeSet<Vec<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> = imports
        .keys()
        .map(|file| {
            let mut reached = BTreeSet::new();
            let mut open = vec![file];
            while let Some(file) = open.pop() {
                open.extend(imports[file].iter().filter(|next| reached.insert(*next)));
            }
            (file, reached)
        })
        .collect();
    let circle = |file: &&String| -> Vec<String> {
        let mutual = reached[*file]
            .iter()
            .filter(|other| reached[**other].contains(*file));
        mutual.map(|other| (*other).clone()).collect()
    };
    reached
        .keys()
        .map(circle)
        .filter(|one| one.len() > 1)
        .collect()
}

/// The circles of a crate of which these are the files.
fn circles_of(files: &[(&str, &str)]) -> Vec<Vec<String>> {
    let read = |path: &str| {
        let file = files.iter().find(|(name, _)| *name == path);
        file.map(|(_, text)| (*text).to_owned())
    };
    circles(&imports(&read)).into_iter().collect()
}

#[test]
fn a_circle_is_found_through_uses_paths_aliases_and_groups() {
    for (a, b) in [
        (
            "use crate::b::B; pub struct A;",
            "use crate::a::A; pub struct B;",
        ),
        (
            "use super::b::B; pub struct A;",
            "fn f() { crate::a::g(); }",
        ),
        (
            "fn f() { super::b::g(); }",
            "use super::a; fn g() { a::f(); }",
        ),
        (
            "use super::b as other; fn f() { other::g(); }",
            "use {super::a::{f, g as h}};",
        ),
        (
            "use super::b::{self, B}; pub const N: u8 = 1;",
            "fn g(n: [u8; crate::a::N as usize]) {}",
        ),
        ("use crate::B; pub struct A;", "use crate::A; pub struct B;"),
        ("use crate::inner::Renamed;", "type T = crate::a::A;"),
    ] {
        let lib = "mod a; mod b; mod inner; pub use a::A; pub use b::B;";
        let inner = "pub use crate::b::B as Renamed;";
        let files = [
            ("lib.rs", lib),
            ("a.rs", a),
            ("b.rs", b),
            ("inner.rs", inner),
        ];
        let found = circles_of(&files);
        assert!(
            found.iter().flatten().any(|file| file == "a.rs"),
            "{a} {b}: {found:?}"
        );
        assert!(
            found.iter().flatten().any(|file| file == "b.rs"),
            "{a} {b}: {found:?}"
        );
    }
}

#[test]
fn a_parent_and_its_child_make_a_circle_by_items_only() {
    let child = "use super::Limit; pub struct Part;";
    let circle = |parent: &str| {
        let lib = ("lib.rs", "mod parent;");
        !circles_of(&[lib, ("parent/mod.rs", parent), ("parent/child.rs", child)]).is_empty()
    };
    assert!(!circle("mod child; pub use child::Part; pub struct Limit;"));
    assert!(!circle(
        "mod child; pub(crate) use self::child::{Part}; pub struct Limit;"
    ));
    assert!(circle("mod child; use child::Part; pub struct Limit;"));
    assert!(circle("mod child; pub struct Limit(child::Part);"));
}

#[test]
fn what_leads_one_way_makes_no_circle() {
    for (a, b) in [
        ("use crate::b::B;", "pub struct B;"),
        (
            "use crate::b::B;",
            "// crate::a::A\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}\n",
        ),
        ("use crate::b::B;", "fn f() { \"crate::a::A\" }"),
        (
            "use crate::b::B;",
            "use other::a::A; fn f() { other::a::A::new() }",
        ),
        ("use crate::b::B;", "enum a { X } "),
    ] {
        let files = [("lib.rs", "mod a; mod b;"), ("a.rs", a), ("b.rs", b)];
        assert_eq!(circles_of(&files), Vec::<Vec<String>>::new(), "{a} {b}");
    }
}
