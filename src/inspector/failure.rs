//! The page in place of one that cannot be shown.

use maud::html;

use crate::frame::{PagePlace, Section, SignedIn, page};
use crate::text::Verbatim;

/// What cannot be shown, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailurePage {
    /// The principal that looks at it.
    pub by: SignedIn,
    /// The place that it is in.
    pub place: PagePlace,
    /// What is wrong.
    pub title: String,
    /// In more words.
    pub detail: String,
    /// What to do next.
    pub hint: Option<String>,
    /// The page from which a form was sent, below `/inspector/`.
    pub back: Option<String>,
    /// True if another principal might be shown it.
    pub may_sign_in: bool,
}

/// The page of a failure.
pub fn failure_page(failure: &FailurePage) -> String {
    let place = failure.place;
    let body = html! {
        div class="head" {
            h1 { (Verbatim(&failure.title)) }
            p class="dim" { (Verbatim(&failure.detail)) }
            @if let Some(hint) = &failure.hint { p { (Verbatim(hint)) } }
            p {
                @match &failure.back {
                    Some(back) => a class="button" href=(place.link(back)) { "Back" },
                    None => a href=(place.link("runs")) { "All runs" },
                }
                @if failure.may_sign_in { " " a href=(place.link("sign-in")) { "Sign in as another principal" } }
            }
        }
    };
    page(place, Section::None, &failure.title, &failure.by, &body)
}
