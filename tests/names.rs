//! A type name is used once: a type that other files can name shares its name with no other such
//! type of the workspace, unless both are the same thing in two forms. A type that is private to
//! its file may have any name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::circles::tokens;
use super::lifecycles::sources;
use super::{bare, without_tests};

/// Names that more than one file defines for the same thing: the reason, where the other forms of
/// these things are, and the names. A definition there does not count.
const SHARED: [(&str, &str, &[&str]); 3] = [
    (
        "what a route answers or takes, as it is on the wire",
        "src/api/routes/wire",
        &[
            "ComparedTask",
            "Decision",
            "Effects",
            "External",
            "Frame",
            "LedgerHealth",
            "RecomputedWorld",
            "ReplayDivergence",
            "RunRow",
            "StatusChange",
        ],
    ),
    (
        "what a runtime reports, of which the ledger has the event that records it",
        "src/contract/report",
        &[
            "ApprovalRequested",
            "ClaimedMetrics",
            "LlmRequest",
            "LlmResponse",
            "Purpose",
            "ToolCalled",
            "ToolInDoubt",
            "ToolReturned",
        ],
    ),
    (
        "what a command takes; each module of a command has one",
        "src/cli/",
        &["Arguments"],
    ),
];

/// The files that define a name.
type Definitions = BTreeMap<String, BTreeSet<String>>;

#[test]
fn a_type_name_is_used_once_in_the_workspace() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut definitions = Definitions::new();
    for path in sources(root) {
        let text = std::fs::read_to_string(root.join(&path)).expect("a source");
        for name in visible_types(&text) {
            definitions.entry(name).or_default().insert(path.clone());
        }
    }
    assert!(definitions.len() > 500, "only {} types", definitions.len());
    assert_eq!(stale(&definitions), Vec::<&str>::new(), "defined once now");
    let faults = repeated(&definitions);
    assert!(faults.is_empty(), "defined more than once: {faults:#?}");
}

/// The names that more than one file defines, without the other forms of [`SHARED`].
fn repeated(definitions: &Definitions) -> Definitions {
    let counted = definitions.iter().map(|(name, files)| {
        let is_form = |file: &&String| {
            let mut forms = SHARED.iter().filter(|(.., of)| of.contains(&name.as_str()));
            forms.any(|(_, place, _)| file.starts_with(place))
        };
        let files = files.iter().filter(|file| !is_form(file)).cloned();
        (name.clone(), files.collect::<BTreeSet<_>>())
    });
    counted.filter(|(_, files)| files.len() > 1).collect()
}

/// The names of [`SHARED`] that fewer than two files define.
fn stale(definitions: &Definitions) -> Vec<&'static str> {
    let names = SHARED.iter().flat_map(|(.., names)| names.iter().copied());
    let once = |name: &&str| definitions.get(*name).is_none_or(|files| files.len() < 2);
    names.filter(once).collect()
}

/// The types of a source that other files can name.
fn visible_types(text: &str) -> Vec<String> {
    let tokens = tokens(&without_tests(&bare(text)));
    let word = |at: usize| tokens.get(at).map_or("", String::as_str);
    let name_at = |at: usize| {
        let within = word(at + 1) == "(";
        let closing = || (at..tokens.len()).find(|next| word(*next) == ")");
        let kind = if within { closing()? + 1 } else { at + 1 };
        let is_type = matches!(word(kind), "struct" | "enum" | "union" | "trait" | "type");
        let name = word(kind + 1);
        (is_type && name.starts_with(char::is_uppercase)).then(|| name.to_owned())
    };
    let public = (0..tokens.len()).filter(|at| word(*at) == "pub");
    public.filter_map(name_at).collect()
}

#[test]
fn types_that_other_files_can_name_are_found_and_private_ones_are_not() {
    let text = "pub struct A;\nstruct B;\npub(super) enum C { D }\npub(in crate::x) trait E {}\n\
                pub type F<'a> = &'a G; // pub struct H\npub fn i() {}\npub struct J(pub K);\n\
                #[cfg(test)]\nmod tests {\n    pub struct L;\n}\n";
    assert_eq!(visible_types(text), ["A", "C", "E", "F", "J"]);
}

#[test]
fn a_name_is_shared_only_with_the_listed_forms() {
    let of = |name: &str, files: &[&str]| {
        let files = files.iter().map(|file| (*file).to_owned()).collect();
        repeated(&Definitions::from([(name.to_owned(), files)])).len()
    };
    assert_eq!(
        of("Frame", &["ledger/src/frame.rs", "src/api/routes/wire.rs"]),
        0
    );
    assert_eq!(
        of("Frame", &["ledger/src/frame.rs", "src/cli/frames.rs"]),
        1
    );
    assert_eq!(
        of("Other", &["ledger/src/frame.rs", "src/api/routes/wire.rs"]),
        1
    );
}
