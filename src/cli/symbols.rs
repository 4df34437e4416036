//! Symbols of our own on a screen, and their form where the locale is not UTF-8. Pure.
//!
//! What comes from data is never changed; these are only the marks, lines and ellipses around it.

use std::borrow::Cow;

/// The symbols that a terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Symbols {
    Unicode,
    Ascii,
}

impl Symbols {
    /// The symbols of a locale: `LC_ALL`, else `LC_CTYPE`, else `LANG`. One that is empty counts as
    /// unset, and where none is set the locale is `C`, which is ASCII.
    pub(super) fn of_locale(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &&str| variable(name).filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(set);
        match locale.is_some_and(|locale| is_utf8(&locale)) {
            true => Self::Unicode,
            false => Self::Ascii,
        }
    }

    /// It went as it should.
    pub(super) fn good(self) -> &'static str {
        self.or("✓", "+")
    }

    /// It did not.
    pub(super) fn bad(self) -> &'static str {
        self.or("✗", "x")
    }

    /// It did not happen.
    pub(super) fn skipped(self) -> &'static str {
        self.or("–", "-")
    }

    /// It has not begun, or is a detail.
    pub(super) fn dot(self) -> &'static str {
        self.or("·", ".")
    }

    /// It is under way.
    pub(super) fn going(self) -> &'static str {
        self.or("▸", ">")
    }

    /// Something is left out.
    pub(super) fn ellipsis(self) -> &'static str {
        self.or("…", "...")
    }

    /// From one value to another.
    pub(super) fn arrow(self) -> &'static str {
        self.or("→", "->")
    }

    /// A vertical line.
    pub(super) fn bar(self) -> &'static str {
        self.or("│", "|")
    }

    /// The tree lines before a name, and those before its children.
    pub(super) fn branch(self, last: bool) -> (&'static str, &'static str) {
        match (self, last) {
            (Self::Unicode, false) => ("├─ ", "│  "),
            (Self::Unicode, true) => ("└─ ", "   "),
            (Self::Ascii, false) => ("|- ", "|  "),
            (Self::Ascii, true) => ("`- ", "   "),
        }
    }

    /// Words of our own, such as a hint.
    pub(super) fn words(self, words: &str) -> Cow<'_, str> {
        match self {
            Self::Unicode => Cow::Borrowed(words),
            Self::Ascii => Cow::Owned(words.replace('…', "...")),
        }
    }

    fn or(self, unicode: &'static str, ascii: &'static str) -> &'static str {
        match self {
            Self::Unicode => unicode,
            Self::Ascii => ascii,
        }
    }
}

/// Returns `true` if the encoding of a locale is UTF-8: `en_US.UTF-8`, `C.utf8`, `de_DE.utf8@euro`,
/// and the bare `UTF-8` that macOS sets.
fn is_utf8(locale: &str) -> bool {
    let named = locale.split('@').next().unwrap_or_default();
    let encoding = named
        .split_once('.')
        .map_or(named, |(_, encoding)| encoding);
    let letters = encoding.chars().filter(char::is_ascii_alphanumeric);
    letters.collect::<String>().eq_ignore_ascii_case("utf8")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(set: &[(&str, &str)]) -> Symbols {
        let find = |name: &str| set.iter().find(|(one, _)| *one == name);
        Symbols::of_locale(|name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn the_encoding_of_the_locale_decides() {
        for utf8 in [
            "en_US.UTF-8",
            "C.utf8",
            "C.UTF8",
            "de_DE.utf8@euro",
            "UTF-8",
        ] {
            assert_eq!(of(&[("LANG", utf8)]), Symbols::Unicode, "{utf8}");
        }
        for other in [
            "C",
            "POSIX",
            "en_US",
            "de_DE.ISO-8859-1",
            "ja_JP.eucJP",
            "utf8_XX",
            "",
        ] {
            assert_eq!(of(&[("LANG", other)]), Symbols::Ascii, "{other}");
        }
        assert_eq!(of(&[]), Symbols::Ascii);
    }

    #[test]
    fn the_more_special_variable_wins_and_an_empty_one_is_unset() {
        let utf8 = "C.UTF-8";
        assert_eq!(
            of(&[("LC_ALL", "C"), ("LC_CTYPE", utf8), ("LANG", utf8)]),
            Symbols::Ascii
        );
        assert_eq!(
            of(&[("LC_ALL", ""), ("LC_CTYPE", "C"), ("LANG", utf8)]),
            Symbols::Ascii
        );
        assert_eq!(
            of(&[("LC_ALL", ""), ("LC_CTYPE", ""), ("LANG", utf8)]),
            Symbols::Unicode
        );
        assert_eq!(of(&[("LC_CTYPE", utf8), ("LANG", "C")]), Symbols::Unicode);
        assert_eq!(of(&[("LC_MESSAGES", utf8)]), Symbols::Ascii);
    }

    #[test]
    fn every_symbol_has_an_ascii_form() {
        let all = |symbols: Symbols| {
            let (middle, below) = symbols.branch(false);
            let (last, _) = symbols.branch(true);
            [
                symbols.good(),
                symbols.bad(),
                symbols.skipped(),
                symbols.dot(),
                symbols.going(),
                symbols.ellipsis(),
                symbols.arrow(),
                symbols.bar(),
                middle,
                below,
                last,
            ]
        };
        assert!(all(Symbols::Ascii).iter().all(|symbol| symbol.is_ascii()));
        assert!(
            all(Symbols::Unicode)
                .iter()
                .all(|symbol| !symbol.is_ascii())
        );
        assert_eq!(Symbols::Ascii.words("export NAME=…"), "export NAME=...");
    }
}
