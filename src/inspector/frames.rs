//! The page of the frames of a run: every recorded fact as a row, and one of them whole.

use ktsu_history::fork_estimate::ForkEstimate;
use ktsu_history::frame_window::{FrameLink, FrameLinks, FrameWanted, FrameWindow, ShownFrame};
use ktsu_history::frame_window::{MAX_ROWS, OpenedFrame};
use ktsu_history::json_text;
use ktsu_projections::step_name::path_in;
use maud::{Markup, html};

use crate::decide::{Permissions, fork_form};
use crate::frame::{
    PagePlace, RunTab, Section, SignedIn, frame_link, page, query, root_of, run_tabs, segment,
};
use crate::frame_search::{FoundFrames, search_form, search_results};
use crate::text::{Verbatim, beginning};
use crate::units::{counted, exact_moment};
use crate::value::value;

/// The most characters of what a frame says in its row.
const MAX_WORDS: usize = 160;

/// What a page of frames shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FramesPage {
    /// The principal that looks at it.
    pub by: SignedIn,
    /// What it may do.
    pub may: Permissions,
    /// The run, the branch, or the inline child as `R/call`.
    pub run_id: String,
    /// Of a branch: its parent, and the number of frames that it shares with it.
    pub branch_of: Option<(String, u64)>,
    /// What is searched for in them, by those who may read them.
    pub found: FoundFrames,
    /// The frames that are wanted: the query of its address.
    pub wanted: FrameWanted,
    /// The frames.
    pub window: FrameWindow,
    /// What a fork after the frame that is opened would ask again.
    pub estimate: Option<ForkEstimate>,
    /// The reason why the recorded JSON is not shown.
    pub closed: Option<String>,
}

const PLACE: PagePlace = PagePlace::WITHIN;

/// The page of the frames of a run.
pub fn frames_page(shown: &FramesPage) -> String {
    let wanted = &shown.wanted;
    let opened = &shown.window.opened;
    let list = html! {
        @if !shown.found.words.is_empty() { (search_results(&shown.run_id, &shown.found)) }
        @else if shown.window.rows.is_empty() { (empty(shown)) } @else { (table(shown)) }
        @if shown.found.words.is_empty() { (pages(shown)) }
    };
    let body = html! {
        (head(shown))
        @match (wanted.frame, opened) {
            (None, _) => (list),
            (Some(seq), opened) => {
                div class="columns" {
                    section aria-label="Frames" { (list) }
                    aside class="kept" aria-label="Frame" {
                        @match opened {
                            Some(opened) => (panel(shown, opened)),
                            None => p class="error" { "The run has no frame " (seq) "." },
                        }
                        p { a href=(link(shown, &FrameWanted { frame: None, ..wanted.clone() })) { "Close" } }
                    }
                }
            }
        }
    };
    page(
        PLACE,
        Section::Runs,
        &format!("Frames of {}", shown.run_id),
        &shown.by,
        &body,
    )
}

/// The address of the same page with other frames.
fn link(shown: &FramesPage, wanted: &FrameWanted) -> String {
    let text = |number: Option<u64>| number.map(|number| number.to_string());
    let (from, frame) = (text(wanted.from), text(wanted.frame));
    let query = query(&[
        ("type", &wanted.kind),
        ("step", &wanted.step),
        ("actor", &wanted.actor),
        ("from", from.as_deref().unwrap_or_default()),
        ("frame", frame.as_deref().unwrap_or_default()),
    ]);
    let run = segment(&shown.run_id);
    match wanted.frame {
        Some(seq) => PLACE.link(&format!("runs/{run}/frames{query}#f{seq}")),
        None => PLACE.link(&format!("runs/{run}/frames{query}")),
    }
}

/// The address at which a frame is opened: the window stays where it has the frame.
fn opens(shown: &FramesPage, seq: u64) -> String {
    let rows = &shown.window.rows;
    let has = rows.binary_search_by_key(&seq, |row| row.node.seq).is_ok();
    let wanted = FrameWanted {
        from: shown.wanted.from.filter(|_| has),
        frame: Some(seq),
        ..shown.wanted.clone()
    };
    link(shown, &wanted)
}

fn head(shown: &FramesPage) -> Markup {
    let window = &shown.window;
    html! {
        div class="head" {
            p class="crumbs" {
                a href=(PLACE.link("runs")) { "Runs" } " / "
                a href=(PLACE.link(&format!("runs/{}", segment(&shown.run_id)))) { (Verbatim(&shown.run_id)) }
            }
            h1 { "Frames" }
            (run_tabs(PLACE, &shown.run_id, RunTab::Frames))
            (filter(shown))
            @if shown.closed.is_none() { (search_form(&shown.found)) }
            p { (extent(shown)) }
            @if let Some(damage) = &window.damage {
                p class="note error" role="alert" { (Verbatim(damage)) "; later frames may be missing here. See " code { "ktsu verify" } "." }
            }
            @if window.total > MAX_ROWS as u64 { (jump(shown)) }
            @if let Some((parent, shared)) = &shown.branch_of {
                p class="dim" {
                    "A branch: it shares the frames below " (shared) " with "
                    a href=(PLACE.link(&format!("runs/{}/frames", segment(parent)))) { (Verbatim(parent)) }
                    "."
                }
            }
        }
    }
}

/// Which frames are shown, and of how many.
fn extent(shown: &FramesPage) -> String {
    let window = &shown.window;
    let ends = window.rows.first().zip(window.rows.last());
    let numbers = match ends {
        Some((first, last)) => format!("numbers {} to {}", first.node.seq, last.node.seq),
        None => "none of them here".to_owned(),
    };
    let all = counted(window.total, "frame");
    if shown.wanted.is_filtered() {
        let of = counted(window.wanted as u64, "frame");
        return format!("{of} of {all} match; shown: {numbers}.");
    }
    match window.rows.len() as u64 == window.total {
        true => format!("{all}, {numbers}."),
        false => format!("{all}; shown: {numbers}."),
    }
}

fn filter(shown: &FramesPage) -> Markup {
    let wanted = &shown.wanted;
    let window = &shown.window;
    html! {
        form method="get" action="frames" class="filter" role="search" {
            label { "Type " (choice("type", &wanted.kind, &window.kinds)) }
            label { "Step " input type="text" name="step" value=(Verbatim(&wanted.step)); }
            label { "Actor " (choice("actor", &wanted.actor, &window.actors)) }
            button type="submit" { "Show" }
            @if wanted.is_filtered() {
                a href=(link(shown, &FrameWanted { frame: wanted.frame, ..FrameWanted::default() })) { "Show all" }
            }
        }
    }
}

/// A choice among names that there are; the one that is given is among them.
fn choice(name: &str, given: &str, there: &[String]) -> Markup {
    let is_other = !given.is_empty() && !there.iter().any(|one| one == given);
    html! {
        select name=(name) {
            option value="" selected[given.is_empty()] { "any" }
            @if is_other { option value=(Verbatim(given)) selected { (Verbatim(given)) } }
            @for one in there {
                option value=(Verbatim(one)) selected[one == given] { (Verbatim(one)) }
            }
        }
    }
}

/// A form that goes to a number, with the same frames.
fn jump(shown: &FramesPage) -> Markup {
    let wanted = &shown.wanted;
    let kept = [
        ("type", &wanted.kind),
        ("step", &wanted.step),
        ("actor", &wanted.actor),
    ];
    html! {
        form method="get" action="frames" class="filter" {
            @for (name, value) in kept {
                @if !value.is_empty() { input type="hidden" name=(name) value=(Verbatim(value)); }
            }
            label { "From number " input type="number" name="from" min="0" required value=[wanted.from]; }
            button type="submit" { "Go" }
        }
    }
}

fn empty(shown: &FramesPage) -> Markup {
    html! {
        div class="empty" {
            @match (shown.wanted.from, shown.window.wanted) {
                (Some(from), 1..) => p { "No such frame has the number " (from) " or a later one." },
                _ => p { "No frame is like this." },
            }
            p { a href=(link(shown, &FrameWanted::default())) { "Show all frames" } }
        }
    }
}

fn table(shown: &FramesPage) -> Markup {
    html! {
        div class="scroll" tabindex="0" role="region" aria-label="Frames" {
            table class="frames" {
                thead {
                    tr {
                        th scope="col" class="number" { "Frame" }
                        th scope="col" { "Time (UTC)" }
                        th scope="col" { "Type" }
                        th scope="col" { "Step" }
                        th scope="col" { "Actor" }
                        th scope="col" { "What it says" }
                        th scope="col" { "Follows from" }
                        th scope="col" { "Caused" }
                    }
                }
                tbody { @for row in &shown.window.rows { (frame_row(shown, row)) } }
            }
        }
    }
}

fn frame_row(shown: &FramesPage, row: &ShownFrame) -> Markup {
    let node = &row.node;
    let is_opened = shown.wanted.frame == Some(node.seq);
    let (words, left_out) = beginning(&node.detail, MAX_WORDS);
    html! {
        tr id={ "f" (node.seq) } class=[is_opened.then_some("selected")] {
            th scope="row" class="number" {
                a href=(opens(shown, node.seq)) aria-current=[is_opened.then_some("true")] { (node.seq) }
            }
            td class="id" { (exact_moment(node.at)) }
            td class="id" { (Verbatim(&node.kind)) }
            td { (place_of(shown, row)) }
            td { (Verbatim(&node.actor)) }
            td class="words" {
                (Verbatim(words))
                @if left_out > 0 { span class="dim" { "… and " (counted(left_out as u64, "character")) } }
            }
            td { (causes(shown, row)) }
            td { (links(shown, &row.effects)) }
        }
    }
}

/// The step of a frame, as a link to it; `child/` for what concerns a child as a whole.
fn place_of(shown: &FramesPage, row: &ShownFrame) -> Markup {
    let node = &row.node;
    let path = path_in(&node.scope, node.step.as_deref().unwrap_or_default());
    let query = query(&[("step", &path)]);
    html! {
        @if node.step.is_some() {
            a href=(PLACE.link(&format!("runs/{}{query}", segment(&shown.run_id)))) { (Verbatim(&path)) }
        } @else { (Verbatim(&path)) }
    }
}

/// The frames that a frame follows from: of this run, and of others.
fn causes(shown: &FramesPage, row: &ShownFrame) -> Markup {
    let node = &row.node;
    html! {
        (links(shown, &row.causes))
        @for cause in &node.foreign {
            " " (foreign(cause)) @if node.missing.contains(cause) { " (missing)" }
        }
        @if row.causes.shown.is_empty() && node.foreign.is_empty() { span class="dim" { "root" } }
    }
}

/// A frame of another stream: a link where the stream has a page.
fn foreign(cause: &str) -> Markup {
    let named = cause.rsplit_once('#').and_then(|(stream, seq)| {
        let run = stream
            .strip_prefix("run:")
            .or_else(|| stream.strip_prefix("branch:"));
        Some((run?, seq.parse().ok()?))
    });
    html! {
        @match named {
            Some((run, seq)) => a class="id" href=(frame_link(PLACE, run, seq)) { (Verbatim(cause)) },
            None => span class="id" { (Verbatim(cause)) },
        }
    }
}

fn links(shown: &FramesPage, links: &FrameLinks) -> Markup {
    html! {
        @for (place, one) in links.shown.iter().enumerate() {
            @if place > 0 { " " }
            (frame(shown, one))
        }
        @if links.left_out > 0 { span class="dim" { " and " (links.left_out) " more" } }
    }
}

/// A link to a frame: in the page of the run where it is not of the child that is shown.
fn frame(shown: &FramesPage, one: &FrameLink) -> Markup {
    let to = match one.is_within {
        true => opens(shown, one.seq),
        false => frame_link(PLACE, root_of(&shown.run_id), one.seq),
    };
    html! {
        @if one.is_missing { span class="number" { (one.seq) " (missing)" } }
        @else { a class="number" href=(to) { (one.seq) } }
    }
}

fn pages(shown: &FramesPage) -> Markup {
    let from = |from: u64| FrameWanted {
        from: Some(from),
        frame: None,
        ..shown.wanted.clone()
    };
    html! {
        nav class="pages" aria-label="More frames" {
            @if let Some(earlier) = shown.window.earlier {
                a class="button" href=(link(shown, &from(earlier))) { "Earlier, from " (earlier) }
            }
            @if let Some(later) = shown.window.later {
                a class="button" href=(link(shown, &from(later))) { "Later, from " (later) }
            }
        }
    }
}

/// One frame, whole.
fn panel(shown: &FramesPage, opened: &OpenedFrame) -> Markup {
    let node = &opened.row.node;
    let run = root_of(&shown.run_id);
    let raw = |more: &str| {
        let seq = node.seq;
        // The API is beside the pages.
        PLACE.link(&format!(
            "../runs/{}/frames?from={seq}&limit=1{more}",
            segment(run)
        ))
    };
    html! {
        h2 { "Frame " (node.seq) " " span class="id" { (Verbatim(&node.kind)) } }
        // A child is forked with its run.
        @if shown.may.operate && !shown.run_id.contains('/') { (fork_form(PLACE, &shown.run_id, node.seq, shown.estimate.as_ref())) }
        p class="dim" {
            (exact_moment(node.at)) " UTC, by " (Verbatim(&node.actor))
            @if node.step.is_some() { ", about " (place_of(shown, &opened.row)) }
        }
        @if !node.detail.is_empty() { p { (Verbatim(beginning(&node.detail, 2_000).0)) } }
        h3 { "Follows from" }
        p { (causes(shown, &opened.row)) }
        h3 { "Caused" }
        p {
            (links(shown, &opened.row.effects))
            @if opened.row.effects.shown.is_empty() { span class="dim" { "nothing" } }
        }
        @match &shown.closed {
            Some(why) => { h3 { "As it is recorded" } p class="dim" { (Verbatim(why)) } }
            None => {
                h3 { "Hash" }
                p class="id hash" { (opened.hash) }
                h3 { "As it is recorded" }
                (value(&json_text::pretty(&opened.json)))
                @for (path, bytes) in &opened.external {
                    p class="dim" {
                        "The value of " code { (Verbatim(path)) } ", " (counted(*bytes, "byte")) ", is kept beside the frame."
                    }
                }
                p {
                    a href=(raw("")) download={ "frame-" (node.seq) ".json" } { "Download it" }
                    @if !opened.external.is_empty() {
                        " or " a href=(raw("&expand=true")) download={ "frame-" (node.seq) ".json" } { "with these values" }
                    }
                }
            }
        }
    }
}
