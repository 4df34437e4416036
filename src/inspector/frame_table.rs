//! Frames as rows: what each says, what it follows from, and what follows from it.

use ktsu_history::frame_window::{FrameLink, FrameLinks, FrameWanted, ShownFrame};
use ktsu_projections::step_name::path_in;
use maud::{Markup, html};

use crate::frame::{PagePlace, frame_link, own_frame_link, query, segment};
use crate::text::{Verbatim, beginning};
use crate::units::{counted, exact_moment};

/// The most characters of what a frame says in its row.
const MAX_WORDS: usize = 160;

/// Frames of a run that are listed.
pub(crate) struct FrameList<'p> {
    /// The place of the page.
    pub(crate) place: PagePlace,
    /// The run, the branch, or the inline child as `R/call`.
    pub(crate) run_id: &'p str,
    /// The frames.
    pub(crate) rows: &'p [ShownFrame],
    /// Those that are wanted: the query of the page.
    pub(crate) wanted: &'p FrameWanted,
    /// True in the first part of a page, whose rows come again: links lead to those.
    pub(crate) is_early: bool,
}

/// The address of the same page with other frames.
pub(crate) fn frames_link(place: PagePlace, run_id: &str, wanted: &FrameWanted) -> String {
    let text = |number: Option<u64>| number.map(|number| number.to_string());
    let (from, frame) = (text(wanted.from), text(wanted.frame));
    let query = query(&[
        ("type", &wanted.kind),
        ("step", &wanted.step),
        ("actor", &wanted.actor),
        ("from", from.as_deref().unwrap_or_default()),
        ("frame", frame.as_deref().unwrap_or_default()),
    ]);
    let run = segment(run_id);
    match wanted.frame {
        Some(seq) => place.link(&format!("runs/{run}/frames{query}#f{seq}")),
        None => place.link(&format!("runs/{run}/frames{query}")),
    }
}

/// The address at which a frame is opened: the window stays where it has the frame. In a file, its row.
fn opens(list: &FrameList<'_>, seq: u64) -> Option<String> {
    if list.place.is_file() {
        return own_frame_link(list.place, list.run_id, seq);
    }
    let has = list
        .rows
        .binary_search_by_key(&seq, |row| row.node.seq)
        .is_ok();
    let wanted = FrameWanted {
        from: list.wanted.from.filter(|_| has),
        frame: Some(seq),
        ..list.wanted.clone()
    };
    Some(frames_link(list.place, list.run_id, &wanted))
}

/// The frames, a row each.
pub(crate) fn frame_table(list: &FrameList<'_>) -> Markup {
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
                tbody { @for row in list.rows { (frame_row(list, row)) } }
            }
        }
    }
}

fn frame_row(list: &FrameList<'_>, row: &ShownFrame) -> Markup {
    let node = &row.node;
    let is_opened = list.wanted.frame == Some(node.seq);
    let (words, left_out) = beginning(&node.detail, MAX_WORDS);
    html! {
        tr id=[(!list.is_early).then(|| format!("f{}", node.seq))] class=[is_opened.then_some("selected")] {
            th scope="row" class="number" {
                a href=[opens(list, node.seq)] aria-current=[is_opened.then_some("true")] { (node.seq) }
            }
            td class="id" { (exact_moment(node.at)) }
            td class="id" { (Verbatim(&node.kind)) }
            td { (place_of(list, row)) }
            td { (Verbatim(&node.actor)) }
            td class="words" {
                (Verbatim(words))
                @if left_out > 0 { span class="dim" { "… and " (counted(left_out as u64, "character")) } }
            }
            td { (causes(list, row)) }
            td { (links(list, &row.effects)) }
        }
    }
}

/// The step of a frame, as a link to it; `child/` for what concerns a child as a whole.
pub(crate) fn place_of(list: &FrameList<'_>, row: &ShownFrame) -> Markup {
    let node = &row.node;
    let path = path_in(&node.scope, node.step.as_deref().unwrap_or_default());
    let query = query(&[("step", &path)]);
    html! {
        @if node.step.is_some() {
            a href=[list.place.page(&format!("runs/{}{query}", segment(list.run_id)))] { (Verbatim(&path)) }
        } @else { (Verbatim(&path)) }
    }
}

/// The frames that a frame follows from: of this run, and of others.
pub(crate) fn causes(list: &FrameList<'_>, row: &ShownFrame) -> Markup {
    let node = &row.node;
    html! {
        (links(list, &row.causes))
        @for cause in &node.foreign {
            " " (foreign(list.place, cause)) @if node.missing.contains(cause) { " (missing)" }
        }
        @if row.causes.shown.is_empty() && node.foreign.is_empty() { span class="dim" { "root" } }
    }
}

/// A frame of another stream: a link where the stream has a page.
fn foreign(place: PagePlace, cause: &str) -> Markup {
    let named = cause.rsplit_once('#').and_then(|(stream, seq)| {
        let run = stream
            .strip_prefix("run:")
            .or_else(|| stream.strip_prefix("branch:"));
        Some((run?, seq.parse().ok()?))
    });
    html! {
        @match named {
            Some((run, seq)) if !place.is_file() => a class="id" href=(frame_link(place, run, seq)) { (Verbatim(cause)) },
            _ => span class="id" { (Verbatim(cause)) },
        }
    }
}

/// Links to frames.
pub(crate) fn links(list: &FrameList<'_>, links: &FrameLinks) -> Markup {
    html! {
        @for (place, one) in links.shown.iter().enumerate() {
            @if place > 0 { " " }
            (frame(list, one))
        }
        @if links.left_out > 0 { span class="dim" { " and " (links.left_out) " more" } }
    }
}

/// A link to a frame: in the page of the run where it is not of the child that is shown.
fn frame(list: &FrameList<'_>, one: &FrameLink) -> Markup {
    let to = match one.is_within {
        true => opens(list, one.seq),
        false => own_frame_link(list.place, list.run_id, one.seq),
    };
    html! {
        @if one.is_missing { span class="number" { (one.seq) " (missing)" } }
        @else { a class="number" href=[to] { (one.seq) } }
    }
}
