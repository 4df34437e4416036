//! Text from data, as it is, with what cannot be seen made visible.

use std::fmt::{self, Display, Write};

use maud::Render;

/// Text from data in a page: escaped, with control characters and marks that turn the direction of
/// what follows as their code points (`\u{202e}`), so that a page shows what is recorded and nothing
/// else.
pub struct Verbatim<T>(pub T);

impl<T: Display> Render for Verbatim<T> {
    fn render_to(&self, page: &mut String) {
        // Writing to a string does not fail, and a value that does is left where it failed.
        let _ = write!(Escaper(page), "{}", self.0);
    }
}

/// Text that a person typed, in the field of a form from which it is sent again as it is.
pub(crate) struct TypedText<'t>(pub(crate) &'t str);

impl Render for TypedText<'_> {
    fn render_to(&self, page: &mut String) {
        for c in self.0.chars() {
            match c {
                '&' => page.push_str("&amp;"),
                '<' => page.push_str("&lt;"),
                '>' => page.push_str("&gt;"),
                '"' => page.push_str("&quot;"),
                '\'' => page.push_str("&#39;"),
                '\n' | '\t' => page.push(c),
                // References to these mean other characters (HTML, numeric character reference end state).
                '\u{80}'..='\u{9f}' => page.push(c),
                // The source of the page has nothing hidden either.
                c if is_hidden(c) => page.push_str(&format!("&#x{:x};", u32::from(c))),
                c => page.push(c),
            }
        }
    }
}

/// Returns `true` if a page shows a text as it is, with nothing made visible.
pub(crate) fn is_plain(text: &str) -> bool {
    !text
        .chars()
        .any(|c| !matches!(c, '\n' | '\t') && is_hidden(c))
}

struct Escaper<'p>(&'p mut String);

impl Write for Escaper<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                '\n' | '\t' => self.0.push(c),
                c if is_hidden(c) => write!(self.0, "\\u{{{:x}}}", u32::from(c))?,
                c => self.0.push(c),
            }
        }
        Ok(())
    }
}

/// Returns `true` for characters that a reader cannot see, or that change how others are seen.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// The first characters of a text, and the number of those that are left out.
pub fn beginning(text: &str, most: usize) -> (&str, usize) {
    match text.char_indices().nth(most) {
        None => (text, 0),
        Some((end, _)) => {
            let (shown, rest) = text.split_at(end);
            (shown, rest.chars().count())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_typed_is_sent_again_as_it_was_and_hides_nothing_in_the_source_of_the_page() {
        let typed = TypedText("<\u{202e}\u{200d}\u{1b}\r\n\u{85}").render();
        assert_eq!(
            typed.into_string(),
            "&lt;&#x202e;&#x200d;&#x1b;&#xd;\n\u{85}"
        );
    }

    #[test]
    fn text_from_data_stays_text_and_hidden_characters_are_seen() {
        let shown = Verbatim("<b a='\"'>&\u{202e}\u{1b}[2J\0\u{200b}\n\té").render();
        let expected = "&lt;b a=&#39;&quot;&#39;&gt;&amp;\\u{202e}\\u{1b}[2J\\u{0}\\u{200b}\n\té";
        assert_eq!(shown.0, expected);
    }

    #[test]
    fn the_beginning_of_a_text_says_how_much_is_left_out() {
        assert_eq!(beginning("héllo", 5), ("héllo", 0));
        assert_eq!(beginning("héllo", 2), ("hé", 3));
        assert_eq!(beginning("", 0), ("", 0));
    }
}
