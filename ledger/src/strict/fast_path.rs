//! Recognises ordinary canonical text in one pass over its bytes, without a parser.
//!
//! It accepts nothing that the full check refuses, and gives up on anything rare: numeric escapes,
//! space between tokens, exponents, numbers of many digits. Then the full check decides and words
//! the error.

/// The most digits on either side of a point: fewer than 64 bits may need.
const MAX_DIGITS: usize = 18;

/// Returns `true` if a text is one value that needs no closer look: at most so many levels, keys in
/// order (from the outermost object on, if `sorted`).
pub(super) fn is_plain(text: &str, levels: usize, sorted: bool) -> bool {
    let mut walk = Walk {
        bytes: text.as_bytes(),
        at: 0,
    };
    walk.value(levels, sorted).is_some() && walk.at == text.len()
}

struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// `Some` while the text is plain; `None` ends the walk.
type Plain = Option<()>;

impl<'a> Walk<'a> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn expect(&mut self, byte: u8) -> Plain {
        (self.next()? == byte).then_some(())
    }

    fn value(&mut self, levels: usize, sorted: bool) -> Plain {
        match self.peek()? {
            b'"' => self.string(),
            b'{' => self.object(levels.checked_sub(1)?, sorted),
            b'[' => self.array(levels.checked_sub(1)?),
            b'n' => self.word(b"null"),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            _ => self.number(),
        }
    }

    fn object(&mut self, inner: usize, sorted: bool) -> Plain {
        self.at += 1;
        if self.peek()? == b'}' {
            self.at += 1;
            return Some(());
        }
        let mut last: Option<&[u8]> = None;
        loop {
            let key = self.key()?;
            if sorted && last.is_some_and(|last| last >= key) {
                return None;
            }
            last = Some(key);
            self.expect(b':')?;
            self.value(inner, true)?;
            match self.next()? {
                b',' => {}
                b'}' => return Some(()),
                _ => return None,
            }
        }
    }

    fn array(&mut self, inner: usize) -> Plain {
        self.at += 1;
        if self.peek()? == b']' {
            self.at += 1;
            return Some(());
        }
        loop {
            self.value(inner, true)?;
            match self.next()? {
                b',' => {}
                b']' => return Some(()),
                _ => return None,
            }
        }
    }

    /// A key without escapes, so that its bytes are its text.
    fn key(&mut self) -> Option<&'a [u8]> {
        self.expect(b'"')?;
        let from = self.at;
        self.run();
        let key = self.bytes.get(from..self.at)?;
        self.expect(b'"')?;
        Some(key)
    }

    fn string(&mut self) -> Plain {
        self.at += 1;
        loop {
            self.run();
            match self.next()? {
                b'"' => return Some(()),
                b'\\' => match self.next()? {
                    b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {}
                    _ => return None,
                },
                _ => return None,
            }
        }
    }

    /// Skips to the next byte that is not simply part of a string.
    fn run(&mut self) {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let plain = |byte: &u8| *byte >= 0x20 && *byte != b'"' && *byte != b'\\';
        self.at += rest
            .iter()
            .position(|byte| !plain(byte))
            .unwrap_or(rest.len());
    }

    fn word(&mut self, word: &[u8]) -> Plain {
        self.bytes.get(self.at..)?.starts_with(word).then_some(())?;
        self.at += word.len();
        Some(())
    }

    fn number(&mut self) -> Plain {
        if self.peek()? == b'-' {
            self.at += 1;
        }
        let from = self.at;
        let digits = self.digits();
        if digits == 0 || digits > 1 && self.bytes.get(from) == Some(&b'0') {
            return None;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            return matches!(self.digits(), 1..=MAX_DIGITS).then_some(());
        }
        (digits <= MAX_DIGITS).then_some(())
    }

    fn digits(&mut self) -> usize {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += digits;
        digits
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::strict::{Check, MAX_BODY_DEPTH, check_slowly};

    /// Texts that are nearly JSON: tokens in any order, whole values among them.
    fn texts() -> impl Strategy<Value = String> {
        let token = prop_oneof![
            Just("{".to_owned()),
            Just("}".to_owned()),
            Just("[".to_owned()),
            Just("]".to_owned()),
            Just(",".to_owned()),
            Just(":".to_owned()),
            Just(r#""a":"#.to_owned()),
            Just(r#""b":"#.to_owned()),
            Just(r#"{"a":1,"b":[]}"#.to_owned()),
            Just("true".to_owned()),
            Just("null".to_owned()),
            Just(" ".to_owned()),
            r#""[a-c"\\/un0-9\u{1}é]{0,6}""#,
            "-?[0-9]{1,20}(\\.[0-9]{0,20})?([eE]-?[0-9]{1,3})?",
        ];
        prop::collection::vec(token, 0..8).prop_map(|tokens| tokens.concat())
    }

    proptest! {
        #![proptest_config(ktsu_campaign::config(256))]

        #[test]
        fn whatever_is_plain_passes_the_strict_reading(text in texts(), sorted: bool) {
            for levels in [2, MAX_BODY_DEPTH] {
                if is_plain(&text, levels, sorted) {
                    let strict = check_slowly(&text, Check::new(levels, sorted));
                    prop_assert_eq!(strict, Ok(()), "{}", text);
                }
            }
        }
    }

    #[test]
    fn ordinary_frames_are_plain_and_what_must_be_refused_is_not() {
        for text in [
            r#"{"v":1,"stream":"run:a","data":{"a":[1,-2,0.5,"x\n\"é"],"b":{}},"ext":[]}"#,
            "[]",
            "0",
            "-18",
            "999999999999999999",
        ] {
            assert!(is_plain(text, 64, false), "{text}");
        }
        for text in [
            "",
            "01",
            "1.",
            "-",
            "1e5",
            "[1,]",
            "[1 ]",
            r#"{"a":1,"a":1}"#,
            r#"{"b":1,"a":1}"#,
            r#"{"\u0061":1}"#,
            r#""\ud800""#,
            "\"\u{1}\"",
            r#""\x""#,
            "18446744073709551616",
            "nul",
            "1 2",
            "[[[]]]",
        ] {
            assert!(!is_plain(text, 2, true), "{text}");
        }
    }
}
