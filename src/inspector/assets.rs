//! Files that pages load. Their names change with their content, so browsers may keep them for ever.

use std::sync::LazyLock;

/// A file that pages load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asset {
    /// Its name, below `/inspector/`.
    pub name: String,
    /// Its media type.
    pub media_type: &'static str,
    /// Its content, which never changes under its name.
    pub text: &'static str,
}

/// The parts of the style sheet that a file of a run or a world needs, too.
const OF_FILES: [&str; 5] = [
    include_str!("style/base.css"),
    include_str!("style/step.css"),
    include_str!("style/graph.css"),
    include_str!("style/world.css"),
    include_str!("style/narrow.css"),
];
/// The other parts of the style sheet of pages, which come before the last one.
const OF_PAGES: [&str; 4] = [
    include_str!("style/live.css"),
    include_str!("style/diff.css"),
    include_str!("style/evals.css"),
    include_str!("style/kit.css"),
];
/// What a file has of its own.
const OF_SAVED: &str = include_str!("style/saved.css");

static STYLE: LazyLock<String> = LazyLock::new(|| {
    let [base, step, graph, world, narrow] = OF_FILES;
    let [live, diff, evals, kit] = OF_PAGES;
    [base, live, step, graph, diff, evals, world, kit, narrow].concat()
});
static SAVED_STYLE: LazyLock<String> = LazyLock::new(|| OF_FILES.concat() + OF_SAVED);

/// The style sheet of a file that loads nothing.
pub(crate) fn saved_style() -> &'static str {
    &SAVED_STYLE
}

/// What keeps pages up to date.
const LIVE: &str = include_str!("script/live.js");

static FILES: LazyLock<[Asset; 2]> = LazyLock::new(|| {
    [
        asset_of("style", "css", "text/css; charset=utf-8", &STYLE),
        asset_of("live", "js", "text/javascript; charset=utf-8", LIVE),
    ]
});

fn asset_of(stem: &str, ending: &str, media_type: &'static str, text: &'static str) -> Asset {
    let hash = blake3::hash(text.as_bytes()).to_hex();
    let hash = hash.get(..16).unwrap_or_default();
    Asset {
        name: format!("{stem}-{hash}.{ending}"),
        media_type,
        text,
    }
}

/// The style sheet.
pub(crate) fn style() -> &'static Asset {
    let [style, _] = &*FILES;
    style
}

/// The script that keeps pages up to date.
pub(crate) fn live() -> &'static Asset {
    let [_, live] = &*FILES;
    live
}

/// The file of a name, if there is one.
pub fn asset(name: &str) -> Option<&'static Asset> {
    FILES.iter().find(|asset| asset.name == name)
}
