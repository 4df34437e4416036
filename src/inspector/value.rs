//! Values as pages show them.

use maud::{Markup, html};

use crate::text::{Verbatim, beginning};
use crate::units::counted;

/// The most characters of a value on the page; the API has all of it.
const MAX_VALUE: usize = 16 * 1024;

/// A value, as JSON. What is left out of a long one is said.
pub(crate) fn value(json: &str) -> Markup {
    let (shown, left_out) = beginning(json, MAX_VALUE);
    html! {
        pre tabindex="0" { (Verbatim(shown)) }
        @if left_out > 0 {
            p class="dim" { (counted(left_out as u64, "character")) " more; the API has all of it" }
        }
    }
}
