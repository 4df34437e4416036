//! The page of the frames of a run: every recorded fact as a row, and one of them whole.

use ktsu_history::frame_window::{FrameWanted, FrameWindow, MAX_ROWS, OpenedFrame};
use ktsu_history::json_text;
use maud::{Markup, html};

use crate::decide::Permissions;
use crate::fork_form::{ForkOffer, fork_form};
use crate::frame::{PagePlace, RunTab, Section, SignedIn, page, root_of, run_tabs, segment};
use crate::frame_search::{FoundFrames, search_form, search_results};
use crate::frame_table::{FrameList, causes, frame_table, frames_link, links, place_of};
use crate::opening::until_rest;
use crate::text::{TypedText, Verbatim, beginning};
use crate::units::{counted, exact_moment};
use crate::value::value;

/// What a page of frames shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FramesPage {
    /// The principal that looks at it.
    pub by: SignedIn,
    /// What it may do.
    pub may: Permissions,
    /// The run, the branch, or the inline child as `R/call`.
    pub run_id: String,
    /// True if it has a world.
    pub has_world: bool,
    /// Of a branch: its parent, and the number of frames that it shares with it.
    pub branch_of: Option<(String, u64)>,
    /// What is searched for in them, by those who may read them.
    pub found: FoundFrames,
    /// The frames that are wanted: the query of its address.
    pub wanted: FrameWanted,
    /// The frames.
    pub window: FrameWindow,
    /// What the form of a fork after the frame that is opened begins with.
    pub fork: ForkOffer,
    /// The reason why the recorded JSON is not shown.
    pub closed: Option<String>,
}

const PLACE: PagePlace = PagePlace::WITHIN;

impl FramesPage {
    fn list(&self) -> FrameList<'_> {
        FrameList {
            place: PLACE,
            run_id: &self.run_id,
            rows: &self.window.rows,
            wanted: &self.wanted,
            is_early: false,
        }
    }

    /// The address of the same page with other frames.
    fn link(&self, wanted: &FrameWanted) -> String {
        frames_link(PLACE, &self.run_id, wanted)
    }
}

/// The page of the frames of a run.
pub fn frames_page(shown: &FramesPage) -> String {
    let wanted = &shown.wanted;
    let opened = &shown.window.opened;
    let list = html! {
        @if !shown.found.words.is_empty() { (search_results(&shown.run_id, &shown.found)) }
        @else if shown.window.rows.is_empty() { (empty(shown)) } @else { (frame_table(&shown.list())) }
        @if shown.found.words.is_empty() { (pages(shown)) }
    };
    // A larger run is not read again at each change.
    let live = (shown.window.total <= MAX_ROWS as u64).then(|| root_of(&shown.run_id));
    let list = html! { div data-live=[live] data-part="frames" { (list) } };
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
                        p { a href=(shown.link(&FrameWanted { frame: None, ..wanted.clone() })) { "Close" } }
                    }
                }
            }
        }
    };
    whole(shown, &body)
}

fn whole(shown: &FramesPage, body: &Markup) -> String {
    let title = format!("Frames of {}", shown.run_id);
    page(PLACE, Section::Runs, &title, &shown.by, body)
}

/// The first part of the page: frames that are shown before the others are read.
pub fn frames_opening(shown: &FramesPage) -> String {
    let list = FrameList {
        is_early: true,
        ..shown.list()
    };
    let body = html! {
        div class="early" { (head(shown)) (frame_table(&list)) (pages(shown)) }
    };
    until_rest(whole(shown, &body))
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
            (run_tabs(PLACE, &shown.run_id, RunTab::Frames, shown.has_world))
            (filter(shown))
            @if shown.closed.is_none() { (search_form(&shown.found)) }
            p data-part="extent" { (extent(shown)) }
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
                a href=(shown.link(&FrameWanted { frame: wanted.frame, ..FrameWanted::default() })) { "Show all" }
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
                @if !value.is_empty() { input type="hidden" name=(name) value=(TypedText(value)); }
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
            p { a href=(shown.link(&FrameWanted::default())) { "Show all frames" } }
        }
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
                a class="button" href=(shown.link(&from(earlier))) { "Earlier, from " (earlier) }
            }
            @if let Some(later) = shown.window.later {
                a class="button" href=(shown.link(&from(later))) { "Later, from " (later) }
            }
        }
    }
}

/// One frame, whole.
fn panel(shown: &FramesPage, opened: &OpenedFrame) -> Markup {
    let node = &opened.row.node;
    let list = shown.list();
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
        @if shown.may.operate && !shown.run_id.contains('/') { (fork_form(PLACE, &shown.run_id, node.seq, &shown.fork)) }
        p class="dim" {
            (exact_moment(node.at)) " UTC, by " (Verbatim(&node.actor))
            @if node.step.is_some() { ", about " (place_of(&list, &opened.row)) }
        }
        @if !node.detail.is_empty() { p { (Verbatim(beginning(&node.detail, 2_000).0)) } }
        h3 { "Follows from" }
        p { (causes(&list, &opened.row)) }
        h3 { "Caused" }
        p {
            (links(&list, &opened.row.effects))
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
