//! The page on which a principal signs in.

use maud::html;

use crate::frame::{PagePlace, Section, SignedIn, page};

/// What the page has beside its form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignInPage {
    /// The place that it is in: it takes that of every page that asks for a principal.
    pub place: PagePlace,
    /// Where to continue, below `/inspector/`.
    pub to: String,
    /// True if a token was given that is no principal's.
    pub is_refused: bool,
}

/// The page on which a principal signs in.
pub fn sign_in_page(shown: &SignInPage) -> String {
    let place = shown.place;
    let body = html! {
        form class="sign-in" method="post" action=(place.link("sign-in")) {
            h1 { "Sign in" }
            @if shown.is_refused {
                p class="alert" role="alert" id="refused" { "No principal has this token." }
            }
            input type="hidden" name="to" value=(shown.to);
            label for="token" { "Token" }
            input id="token" name="token" type="password" required autocomplete="current-password" autofocus
                aria-invalid=[shown.is_refused.then_some("true")]
                aria-describedby=(if shown.is_refused { "refused about" } else { "about" });
            p class="dim" id="about" {
                "The token of a principal of this engine, as " code { "KTSU_TOKEN" } " has it for commands. "
                "This browser stays signed in for 12 hours at most, and not longer than 2 hours without use."
            }
            button { "Sign in" }
        }
    };
    page(place, Section::None, "Sign in", &SignedIn::unknown(), &body)
}
