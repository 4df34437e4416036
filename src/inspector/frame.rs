//! What all pages share: the head, the navigation, the style sheet.

use maud::{DOCTYPE, Markup, html};

use crate::assets::{live, style};
use crate::text::Verbatim;

/// The principal that looks at a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedIn {
    /// Its name; empty if none is known.
    pub name: String,
    /// True if it has a session, which it may end.
    pub by_session: bool,
    /// True if the engine serves a kit.
    pub has_kit: bool,
}

impl SignedIn {
    /// On pages that are shown to everybody.
    pub fn unknown() -> Self {
        Self {
            name: String::new(),
            by_session: false,
            has_kit: false,
        }
    }
}

/// The place of a page below `/inspector/`, from which its links begin; or a file of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PagePlace {
    /// How many folders it is below that.
    depth: usize,
    /// Of a file: the number of frames that it lists.
    file: Option<u64>,
}

impl PagePlace {
    /// `/inspector/runs`.
    pub(crate) const TOP: Self = Self::below(0);
    /// `/inspector/runs/ID`.
    pub(crate) const BELOW: Self = Self::below(1);
    /// `/inspector/runs/ID/PAGE`.
    pub(crate) const WITHIN: Self = Self::below(2);
    /// `/inspector/runs/ID/steps/STEP`.
    pub(crate) const STEP: Self = Self::below(3);

    const fn below(depth: usize) -> Self {
        Self { depth, file: None }
    }

    /// A file that lists the first frames of its run, and leads to no other page.
    pub(crate) fn file(frames: u64) -> Self {
        Self {
            depth: 0,
            file: Some(frames),
        }
    }

    pub(crate) fn is_file(self) -> bool {
        self.file.is_some()
    }

    /// The place of the page at a path.
    pub fn of(path: &str) -> Self {
        let below = path.strip_prefix("/inspector/").unwrap_or_default();
        Self::below(below.matches('/').count())
    }

    /// A link to something below `/inspector/`: relative, so that pages work behind any prefix.
    pub fn link(self, to: &str) -> String {
        format!("{}{to}", "../".repeat(self.depth))
    }

    /// A link to another page; none in a file.
    pub(crate) fn page(self, to: &str) -> Option<String> {
        (!self.is_file()).then(|| self.link(to))
    }
}

/// A page of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunTab {
    Overview,
    Graph,
    World,
    Frames,
    Why,
    /// The page of a step, which is none of the others.
    Step,
}

/// The navigation between the pages of a run; that of its world is among them where it has one.
pub(crate) fn run_tabs(place: PagePlace, run_id: &str, current: RunTab, has_world: bool) -> Markup {
    let run = format!("runs/{}", segment(run_id));
    let tabs = [
        (RunTab::Overview, "Time line", run.clone()),
        (RunTab::Graph, "Graph", format!("{run}/graph")),
        (RunTab::World, "World", format!("{run}/world")),
        (RunTab::Frames, "Frames", format!("{run}/frames")),
        (RunTab::Why, "Why", format!("{run}/why")),
    ];
    html! {
        nav class="tabs" aria-label="Pages of the run" {
            @for (tab, name, to) in tabs.iter().filter(|(tab, ..)| has_world || *tab != RunTab::World) {
                a href=(place.link(to)) aria-current=[(*tab == current).then_some("page")] { (name) }
            }
        }
    }
}

/// The link to a frame among those of its run.
pub(crate) fn frame_link(place: PagePlace, run_id: &str, seq: u64) -> String {
    place.link(&format!(
        "runs/{}/frames?frame={seq}#f{seq}",
        segment(run_id)
    ))
}

/// The link to a frame of the run that a page or a file shows; none in a file that does not list it.
pub(crate) fn own_frame_link(place: PagePlace, run_id: &str, seq: u64) -> Option<String> {
    match place.file {
        Some(frames) => (seq < frames).then(|| format!("#f{seq}")),
        None => Some(frame_link(place, root_of(run_id), seq)),
    }
}

/// The name of a part of a page that is about a step or an object, of the characters that paths have.
pub(crate) fn anchor(part: &str, path: &str) -> String {
    let kept = |c: char| c.is_ascii_alphanumeric() || "_-./@".contains(c);
    let path: String = path.chars().filter(|c| kept(*c)).collect();
    format!("{part}-{path}")
}

/// The run of an inline child, or the run itself.
pub(crate) fn root_of(run_id: &str) -> &str {
    run_id.split('/').next().unwrap_or(run_id)
}

/// A group of pages, as the navigation has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    Runs,
    Inbox,
    Evals,
    Kit,
    None,
}

/// Where the content of a page begins and ends. Both occur once, as everything from data is text.
pub(crate) const MAIN: (&str, &str) = ("<main id=\"main\">", "</main>");

/// A whole page.
pub(crate) fn page(
    place: PagePlace,
    section: Section,
    title: &str,
    by: &SignedIn,
    body: &Markup,
) -> String {
    let current = |one: Section| (one == section).then_some("page");
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (Verbatim(title)) " · ktsu" }
                link rel="stylesheet" href=(place.link(&style().name));
                script type="module" src=(place.link(&live().name)) {}
            }
            body {
                a class="skip" href="#main" { "To the content" }
                header class="top" {
                    span class="brand" { "ktsu" }
                    nav aria-label="Pages" {
                        a href=(place.link("runs")) aria-current=[current(Section::Runs)] { "Runs" }
                        a href=(place.link("inbox")) data-badge="" aria-current=[current(Section::Inbox)] { "Inbox" }
                        a href=(place.link("evals")) aria-current=[current(Section::Evals)] { "Evals" }
                        @if by.has_kit { a href=(place.link("kit")) aria-current=[current(Section::Kit)] { "Kit" } }
                    }
                    span class="who" { (Verbatim(&by.name)) }
                    @if by.by_session {
                        form method="post" action=(place.link("sign-out")) { button class="link" { "Sign out" } }
                    }
                }
                main id="main" { (body) }
                footer {
                    span data-state="" {}
                    " All times are UTC. "
                    a href=(place.link("api")) { "Workflows and routes" }
                    " · "
                    a href=(place.link("evidence")) { "Evidence" }
                }
            }
        }
    };
    page.into_string()
}

/// A value of a query, for a link.
pub(crate) fn query(pairs: &[(&str, &str)]) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(pairs.iter().filter(|(_, value)| !value.is_empty()));
    match query.finish() {
        none if none.is_empty() => none,
        some => format!("?{some}"),
    }
}

/// The id of a run as one segment of a path: an inline child has slashes in its id.
pub(crate) fn segment(run_id: &str) -> String {
    run_id.replace('%', "%25").replace('/', "%2F")
}
