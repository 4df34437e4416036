//! A page as a file of its own: it loads nothing and runs nothing.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest as _, Sha256};

use crate::assets::saved_style;
use crate::text::Verbatim;

/// A whole file. Its policy permits its own style sheet and nothing else.
pub(crate) fn saved_page(title: &str, what: &str, body: &Markup, foot: &Markup) -> String {
    let style = saved_style();
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'",
        BASE64.encode(Sha256::digest(style))
    );
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (Verbatim(title)) " · ktsu" }
                style { (PreEscaped(style)) }
            }
            body {
                a class="skip" href="#main" { "To the content" }
                header class="top" { span class="brand" { "ktsu" } span class="who" { (what) } }
                main id="main" { (body) }
                footer { (foot) }
            }
        }
    };
    page.into_string()
}
