//! Character references of HTML and XML: `&amp;`, `&#39;`, `&#x27;`. A text that is written into a
//! page is escaped character by character, each in one of several ways, so no list of whole forms
//! can cover the result. Texts are decoded instead, and positions in the decoded text are mapped
//! back.

use zeroize::Zeroizing;

/// A text without its character references.
pub(super) struct Decoded {
    pub(super) text: Zeroizing<String>,
    /// The positions after each reference, at which the rest begins: in the decoded text, and in
    /// the original.
    after: Vec<(usize, usize)>,
}

/// The most bytes that are read as one reference. The longest name below has eight letters; a number
/// has up to seven digits, or six hexadecimal ones.
pub(super) const MAX_LENGTH: usize = 10;

/// The most bytes that a character takes whose reference is escaped again: `&amp;` in place of its `&`.
pub(super) const MAX_ESCAPED_LENGTH: usize = MAX_LENGTH + 4;

impl Decoded {
    /// Decodes a text; none if it has no references.
    pub(super) fn of(text: &str) -> Option<Self> {
        let mut decoded = Self {
            text: Zeroizing::default(),
            after: Vec::new(),
        };
        let mut done = 0;
        for (at, _) in text.match_indices('&') {
            let Some((length, one)) = reference(&text.as_bytes()[at..]) else {
                continue;
            };
            if decoded.after.is_empty() {
                decoded.text.reserve(text.len());
            }
            decoded.text.push_str(text.get(done..at)?);
            decoded.text.push(one);
            done = at + length;
            decoded.after.push((decoded.text.len(), done));
        }
        decoded.text.push_str(text.get(done..)?);
        (!decoded.after.is_empty()).then_some(decoded)
    }

    /// The place in the original of a place in the decoded text.
    pub(super) fn original(&self, at: usize) -> usize {
        let before = self.after.partition_point(|(decoded, _)| *decoded <= at);
        let last = before.checked_sub(1).and_then(|last| self.after.get(last));
        let (decoded, original) = last.copied().unwrap_or_default();
        original + (at - decoded)
    }
}

/// The text without the reference at its end that was cut before it was whole.
pub(super) fn without_unfinished(text: &str) -> &str {
    let open = text.rfind('&').filter(|at| text.len() - at < MAX_LENGTH);
    let unfinished = open.and_then(|at| {
        let mut rest = text.get(at + 1..)?.bytes();
        let begun = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'#';
        rest.all(begun).then(|| text.get(..at)).flatten()
    });
    unfinished.unwrap_or(text)
}

/// The reference that a text begins with: its length, and what it stands for.
pub(super) fn reference(bytes: &[u8]) -> Option<(usize, char)> {
    let bytes = &bytes[..bytes.len().min(MAX_LENGTH)];
    let length = bytes.iter().position(|byte| *byte == b';')? + 1;
    let one = match bytes.get(..length)? {
        [b'&', b'#', b'x' | b'X', digits @ .., b';'] => number(digits, 16)?,
        [b'&', b'#', digits @ .., b';'] => number(digits, 10)?,
        [b'&', name @ .., b';'] => named(name)?,
        _ => return None,
    };
    Some((length, one))
}

fn number(digits: &[u8], radix: u32) -> Option<char> {
    // Signs are digits to nobody else.
    let plain = !digits.is_empty() && digits.iter().all(u8::is_ascii_alphanumeric);
    let digits = std::str::from_utf8(digits).ok().filter(|_| plain)?;
    char::from_u32(u32::from_str_radix(digits, radix).ok()?)
}

fn named(name: &[u8]) -> Option<char> {
    let name = std::str::from_utf8(name).ok()?;
    let known = NAMES.iter().find(|(of, _)| *of == name);
    if let Some((_, one)) = known {
        return Some(*one);
    }
    let latin = LATIN_1.iter().position(|known| *known == name)?;
    char::from_u32(0xa0 + u32::try_from(latin).ok()?)
}

/// The names of ASCII characters, and of one that is none.
const NAMES: [(&str, char); 45] = [
    ("amp", '&'),
    ("AMP", '&'),
    ("lt", '<'),
    ("LT", '<'),
    ("gt", '>'),
    ("GT", '>'),
    ("quot", '"'),
    ("QUOT", '"'),
    ("apos", '\''),
    ("Tab", '\t'),
    ("NewLine", '\n'),
    ("excl", '!'),
    ("num", '#'),
    ("dollar", '$'),
    ("percnt", '%'),
    ("lpar", '('),
    ("rpar", ')'),
    ("ast", '*'),
    ("midast", '*'),
    ("plus", '+'),
    ("comma", ','),
    ("period", '.'),
    ("sol", '/'),
    ("colon", ':'),
    ("semi", ';'),
    ("equals", '='),
    ("quest", '?'),
    ("commat", '@'),
    ("lbrack", '['),
    ("lsqb", '['),
    ("bsol", '\\'),
    ("rbrack", ']'),
    ("rsqb", ']'),
    ("Hat", '^'),
    ("lowbar", '_'),
    ("UnderBar", '_'),
    ("grave", '`'),
    ("lbrace", '{'),
    ("lcub", '{'),
    ("vert", '|'),
    ("verbar", '|'),
    ("VerLine", '|'),
    ("rbrace", '}'),
    ("rcub", '}'),
    ("euro", '€'),
];

/// The names of U+00A0 to U+00FF, in their order.
#[rustfmt::skip]
const LATIN_1: [&str; 96] = [
    "nbsp", "iexcl", "cent", "pound", "curren", "yen", "brvbar", "sect",
    "uml", "copy", "ordf", "laquo", "not", "shy", "reg", "macr",
    "deg", "plusmn", "sup2", "sup3", "acute", "micro", "para", "middot",
    "cedil", "sup1", "ordm", "raquo", "frac14", "frac12", "frac34", "iquest",
    "Agrave", "Aacute", "Acirc", "Atilde", "Auml", "Aring", "AElig", "Ccedil",
    "Egrave", "Eacute", "Ecirc", "Euml", "Igrave", "Iacute", "Icirc", "Iuml",
    "ETH", "Ntilde", "Ograve", "Oacute", "Ocirc", "Otilde", "Ouml", "times",
    "Oslash", "Ugrave", "Uacute", "Ucirc", "Uuml", "Yacute", "THORN", "szlig",
    "agrave", "aacute", "acirc", "atilde", "auml", "aring", "aelig", "ccedil",
    "egrave", "eacute", "ecirc", "euml", "igrave", "iacute", "icirc", "iuml",
    "eth", "ntilde", "ograve", "oacute", "ocirc", "otilde", "ouml", "divide",
    "oslash", "ugrave", "uacute", "ucirc", "uuml", "yacute", "thorn", "yuml",
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn references_of_every_kind_are_read_and_nothing_else_is() {
        let decoded = |text: &str| Decoded::of(text).map(|decoded| decoded.text.to_string());
        for (text, read) in [
            ("a&amp;b", "a&b"),
            ("&lt;&gt;&quot;&apos;", "<>\"'"),
            ("&#39;&#039;&#x27;&#X27;&#x000027;", "'''''"),
            ("caf&eacute; &nbsp;&yuml;&Agrave;", "café \u{a0}ÿÀ"),
            ("&#128273;&#x1f511;", "\u{1f511}\u{1f511}"),
            ("&&amp;;&", "&&;&"),
        ] {
            assert_eq!(decoded(text).as_deref(), Some(read), "{text}");
        }
        for text in [
            "",
            "plain",
            "a=1&b=2",
            "&amp",
            "&;",
            "&#;",
            "&#x;",
            "&#+39;",
            "&#xD800;",
            "&#99999999;",
            "&unheard;",
            "& amp;",
            "&#00000000039;",
        ] {
            assert_eq!(decoded(text), None, "{text}");
        }
        let longest = NAMES.iter().map(|(name, _)| name.len());
        let longest = longest.chain(LATIN_1.iter().map(|name| name.len())).max();
        assert!(longest.map(|name| name + 2) <= Some(MAX_LENGTH));
    }

    proptest! {
        #![proptest_config(ktsu_campaign::config(256))]

        #[test]
        fn what_is_between_two_places_is_what_was_there(
            parts in proptest::collection::vec(
                prop_oneof!["[a&;é]{0,3}", Just("&amp;".to_owned()), Just("&#233;".to_owned())],
                0..12,
            ),
        ) {
            let text = parts.concat();
            if let Some(decoded) = Decoded::of(&text) {
                for (at, one) in decoded.text.char_indices() {
                    let from = decoded.original(at);
                    let to = decoded.original(at + one.len_utf8());
                    let part = &text[from..to];
                    let read = Decoded::of(part).map_or(part.to_owned(), |read| read.text.to_string());
                    prop_assert_eq!(read, one.to_string());
                }
                prop_assert_eq!(decoded.original(decoded.text.len()), text.len());
            }
        }
    }
}
