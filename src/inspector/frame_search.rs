//! The search in the frames of a run, on their page.

use ktsu_history::payload_search::{SearchHit, SearchPage};
use maud::{Markup, html};

use crate::frame::{PagePlace, query, segment};
use crate::text::Verbatim;
use crate::units::counted;

/// Words that are searched for, and the places at which they occur.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundFrames {
    /// The words; empty if nothing is searched for.
    pub words: String,
    /// The frame at which the search begins.
    pub from: u64,
    /// The places.
    pub page: SearchPage,
}

const PLACE: PagePlace = PagePlace::WITHIN;

/// The form.
pub(crate) fn search_form(found: &FoundFrames) -> Markup {
    html! {
        form method="get" action="frames" class="filter" role="search" {
            label { "Text in frames " input type="search" name="search" required value=(Verbatim(&found.words)); }
            button type="submit" { "Search" }
        }
    }
}

/// The places, each with a link that opens its frame beside them.
pub(crate) fn search_results(run_id: &str, found: &FoundFrames) -> Markup {
    let page = &found.page;
    let link = |from: u64, frame: &str| {
        let from = Some(from).filter(|from| *from > 0);
        let from = from.map_or_else(String::new, |from| from.to_string());
        let query = query(&[
            ("search", &found.words),
            ("search_from", &from),
            ("frame", frame),
        ]);
        PLACE.link(&format!("runs/{}/frames{query}", segment(run_id)))
    };
    html! {
        p class="found" {
            (counted(page.hits.len() as u64, "place")) " in " (counted(page.searched as u64, "frame"))
            @if found.from > 0 { ", from frame " (found.from) " on" }
            ". " a href="frames" { "Show all frames" }
        }
        @if !page.hits.is_empty() {
            table class="hits" {
                thead {
                    tr {
                        th scope="col" class="number" { "Frame" }
                        th scope="col" { "Type, step" }
                        th scope="col" { "Where" }
                        th scope="col" { "What it says" }
                    }
                }
                tbody {
                    @for hit in &page.hits {
                        @let seq = hit.frame.to_string();
                        tr {
                            th scope="row" class="number" { a href={ (link(found.from, &seq)) "#f" (seq) } { (seq) } }
                            td { span class="id" { (Verbatim(&hit.kind)) } @if let Some(step) = &hit.step { " " (Verbatim(step)) } }
                            td class="id" { (Verbatim(&hit.at)) }
                            td { (excerpt(hit)) }
                        }
                    }
                }
            }
        }
        @if let Some(next) = page.next {
            nav class="pages" aria-label="More places" {
                a class="button" href=(link(next, "")) { "Search on, from frame " (next) }
            }
        }
    }
}

fn excerpt(hit: &SearchHit) -> Markup {
    html! {
        @if hit.from > 0 { "…" }
        (Verbatim(&hit.excerpt))
        @if let Some(left_out) = hit.left_out { " " span class="dim" { "and " (counted(left_out as u64, "place")) " more in this frame" } }
    }
}
