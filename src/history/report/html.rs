//! What pages of worlds share: no scripts, nothing loaded, everything from data escaped.

use std::fmt::{self, Display, Write};

use maud::{Markup, PreEscaped, Render, html};

/// The most characters of one text.
const MAX_TEXT: usize = 64 * 1024;

const CONTENT_SECURITY_POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

const STYLE: &str = ":root{color-scheme:light dark;--bg:#fff;--fg:#1b1b1b;--dim:#666;--line:#ddd}\
@media(prefers-color-scheme:dark){:root{--bg:#161616;--fg:#e6e6e6;--dim:#999;--line:#333}}\
body{background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif;max-width:70rem;\
margin:2rem auto;padding:0 1rem}pre{white-space:pre-wrap;overflow-wrap:anywhere;border:1px solid \
var(--line);padding:.5rem}table{border-collapse:collapse;width:100%}td,th{text-align:left;\
border-bottom:1px solid var(--line);padding:.2rem .5rem;vertical-align:top}\
details{margin:.2rem 0 .2rem 1rem}.dim{color:var(--dim)}.failed{color:#c33}\
.drawing{overflow:auto;border:1px solid var(--line)}svg{font-size:13px}svg text{fill:var(--fg)}\
svg text.dim{fill:var(--dim)}rect,path.line{fill:none;stroke:var(--dim)}\
marker path{fill:var(--dim)}.label{text-anchor:middle}";

/// A whole page under a title.
pub(super) fn document(title: &str, body: &Markup) -> String {
    let page = html! {
        (PreEscaped("<!doctype html>\n"))
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(CONTENT_SECURITY_POLICY);
                meta name="viewport" content="width=device-width";
                title { (HtmlText(title)) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (HtmlText(title)) }
                (body)
            }
        }
        "\n"
    };
    page.into_string()
}

/// Text from data: escaped, cut at a bound, and with U+FFFD for control characters and for marks
/// that turn the direction of what follows.
pub(super) struct HtmlText<T>(pub T);

impl<T: Display> Render for HtmlText<T> {
    fn render_to(&self, page: &mut String) {
        let room = MAX_TEXT;
        if write!(TextFilter { page, room }, "{}", self.0).is_err() {
            page.push_str(" … (cut)");
        }
    }
}

struct TextFilter<'a> {
    page: &'a mut String,
    /// The number of characters that may still be written.
    room: usize,
}

impl Write for TextFilter<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            self.room = self.room.checked_sub(1).ok_or(fmt::Error)?;
            match c {
                // Maud leaves it as it is.
                '\'' => self.page.push_str("&#39;"),
                '\n' | '\t' => self.page.push(c),
                '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => self.page.push('\u{fffd}'),
                c if c.is_control() => self.page.push('\u{fffd}'),
                c => c.render_to(self.page),
            }
        }
        Ok(())
    }
}

/// A row of a table.
pub(super) fn row(cells: &[&dyn Display]) -> Markup {
    html! { tr { @for cell in cells { td { (HtmlText(cell)) } } } }
}

fn block(text: impl Display) -> Markup {
    html! { pre { (HtmlText(text)) } }
}

pub(super) fn details(summary: impl Display, text: impl Display) -> Markup {
    html! { details { summary { (HtmlText(summary)) } (block(text)) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_data_stays_text() {
        let text = HtmlText("<script>alert('x')</script>\u{202e}\u{1b}[2J&\"\n").render();
        let expected =
            "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;\u{fffd}\u{fffd}[2J&amp;&quot;\n";
        assert_eq!(text.0, expected);
    }

    #[test]
    fn a_long_text_is_cut() {
        let (whole, longer) = ("é".repeat(MAX_TEXT), "é".repeat(MAX_TEXT + 1));
        assert_eq!(HtmlText(&whole).render().0, whole);
        assert_eq!(HtmlText(&longer).render().0, whole + " … (cut)");
    }
}
