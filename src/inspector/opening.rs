//! The page of a large run in two parts: what is known of the run at once, and the whole page once its frames are
//! read.
//!
//! ```text
//! <main> │ <div class="early"> … </div> │ the page </main>
//!        what one sees first, until more follows (`base.css`)
//! ```

use ktsu_projections::index::RunRow;
use maud::html;

use crate::frame::{MAIN, PagePlace, RunTab, Section, SignedIn, page, run_tabs};
use crate::run::heading;
use crate::text::Verbatim;
use crate::units::{cost, counted, duration, moment};

/// What is known of a run before its frames are read.
#[derive(Debug, Clone, PartialEq)]
pub struct RunOpening {
    /// The principal that looks at it.
    pub by: SignedIn,
    /// Its row in the list of runs.
    pub row: RunRow,
    /// The number of its frames.
    pub frames: u64,
    /// True if it loads worlds.
    pub has_world: bool,
}

const PLACE: PagePlace = PagePlace::BELOW;

/// The first part of the page of a run; [`rest_of`] a page is the second one.
pub fn run_opening(shown: &RunOpening) -> String {
    let row = &shown.row;
    let took = row
        .ended_at
        .map(|ended| duration(ended.millis_since(row.created_at)));
    let body = html! {
        div class="early" {
            div class="head" {
                (heading(PLACE, &row.run_id, (&row.workflow, &row.version), &row.status))
                (run_tabs(PLACE, &row.run_id, RunTab::Overview, shown.has_world))
                dl class="facts" {
                    @if let Some(took) = took { div { dt { (took) } dd { "from its start to its end" } } }
                    @if let Some(micro_usd) = row.cost_micro_usd {
                        div { dt { @if micro_usd > 0 { (cost(micro_usd)) } @else { "no cost" } } dd { "of model calls" } }
                    }
                    div {
                        dt {
                            @match &row.principal {
                                Some(principal) => (Verbatim(principal)),
                                None => "started",
                            }
                        }
                        dd { (moment(row.created_at)) }
                    }
                    div { dt { (counted(shown.frames, "frame")) } dd { "are being read" } }
                }
                @if let Some(error) = &row.error { p class="note error" { (Verbatim(error)) } }
            }
        }
    };
    let title = format!("{} {}", row.workflow, row.run_id);
    until_rest(page(PLACE, Section::Runs, &title, &shown.by, &body))
}

/// A page without its end, to be sent before the rest of one.
pub(crate) fn until_rest(mut page: String) -> String {
    let end = page.find(MAIN.1).unwrap_or(page.len());
    page.truncate(end);
    page
}

/// A page without its beginning, to be sent after the opening of one.
pub fn rest_of(mut page: String) -> String {
    match page.find(MAIN.0) {
        Some(begin) => page.split_off(begin + MAIN.0.len()),
        None => page,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FailurePage, failure_page};

    #[test]
    fn an_opening_and_the_rest_of_a_page_are_a_page() {
        let row = serde_json::from_value(serde_json::json!({
            "created_at": "2026-11-02T09:14:02.123456Z", "ended_at": "2026-11-02T09:14:04.623456Z",
            "error": "</main>", "run_id": "run_1", "status": "failed", "version": "1.0.0",
            "workflow": "<main id=\"main\">", "cost_micro_usd": 1_200_000,
        }));
        let shown = RunOpening {
            by: SignedIn::unknown(),
            row: row.unwrap(),
            frames: 120_000,
            has_world: true,
        };
        let opening = run_opening(&shown);
        for text in [
            "2.5 s",
            "$1.20",
            "120000 frames",
            "run_1",
            "&lt;/main&gt;",
            "class=\"early\"",
            ">started<",
            ">World<",
        ] {
            assert!(opening.contains(text), "{text}: {opening}");
        }
        let failure = failure_page(&FailurePage {
            by: SignedIn::unknown(),
            place: PLACE,
            title: "a title".to_owned(),
            detail: String::new(),
            hint: None,
            back: None,
            may_sign_in: false,
        });
        let both = opening + &rest_of(failure.clone());
        for mark in ["<html", "<body", "<main", "</main>", "</body>", "</html>"] {
            assert_eq!(both.matches(mark).count(), 1, "{mark}: {both}");
        }
        assert!(both.ends_with(&rest_of(failure)));
        assert!(both.contains("a title"));
    }
}
