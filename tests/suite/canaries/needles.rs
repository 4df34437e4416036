//! Five hundred secrets that stand nowhere by chance, the ways they are written, and the search
//! for what is left of them.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

/// How many there are.
pub(super) const CANARIES: usize = 500;
/// Of these, so many are variables of workflows; then come secrets of callers, then keys of
/// providers.
pub(super) const VARIABLES: usize = 480;
pub(super) const CALLERS: std::ops::Range<usize> = VARIABLES..490;
pub(super) const KEYS: std::ops::Range<usize> = 490..CANARIES;

/// The letters of half a canary.
const HALF: usize = 12;
/// What a needle is found by; none is shorter.
const HEAD: usize = 12;

/// One of them: two halves of letters nobody guesses, and something between them that the
/// encodings write differently.
pub(super) fn canary(number: usize) -> String {
    let odd = ["-", "/", "\"", " ", "+", "é", "\\", "%"];
    let odd = match number {
        0..VARIABLES => odd[number % odd.len()],
        // What a header carries.
        _ => "-",
    };
    let digest = blake3::hash(format!("canary {number}").as_bytes());
    let letter =
        |byte: &u8| char::from(b"abcdefghijklmnopqrstuvwxyz0123456789"[*byte as usize % 36]);
    let letters: String = digest.as_bytes().iter().map(letter).collect();
    format!("{}{odd}{}", &letters[..HALF], &letters[HALF..2 * HALF])
}

/// Whether it can stand in the path of a URL as it is.
pub(super) fn fits_a_url(number: usize) -> bool {
    canary(number).contains('-')
}

/// How a canary travels. The last two are about what carries it: it comes in pieces, or as the
/// text of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    Raw,
    Base64,
    Base64Url,
    Hex,
    Url,
    Json,
    Split,
    Error,
}

impl Coding {
    pub(super) const ALL: [Self; 8] = [
        Self::Raw,
        Self::Base64,
        Self::Base64Url,
        Self::Hex,
        Self::Url,
        Self::Json,
        Self::Split,
        Self::Error,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Base64 => "base64",
            Self::Base64Url => "base64url",
            Self::Hex => "hex",
            Self::Url => "url",
            Self::Json => "json",
            Self::Split => "split",
            Self::Error => "error",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    /// A canary as it is said this way. Every second one differs in what an encoding leaves open:
    /// upper or lower case, alone or behind a name.
    pub(super) fn write(self, number: usize) -> String {
        let text = canary(number);
        let other = number % 2 == 1;
        match self {
            Self::Raw | Self::Split | Self::Error => text,
            Self::Base64 if other => STANDARD.encode(format!("user{number}:{text}")),
            Self::Base64 => STANDARD.encode(text),
            Self::Base64Url if other => URL_SAFE_NO_PAD.encode(format!("u:{text}!")),
            Self::Base64Url => URL_SAFE_NO_PAD.encode(text),
            Self::Hex => each(&text, |byte| cased(format!("{byte:02x}"), other)),
            Self::Url => each(&text, |byte| {
                format!("%{}", cased(format!("{byte:02x}"), other))
            }),
            Self::Json => unicode(&text, "\\", other),
        }
    }

    /// All that are asked for, one behind another.
    pub(super) fn say(self, numbers: impl IntoIterator<Item = usize>) -> String {
        let all = numbers.into_iter().map(|one| self.write(one));
        all.collect::<Vec<_>>().join(" | ")
    }
}

fn each(text: &str, write: impl Fn(u8) -> String) -> String {
    text.bytes().map(write).collect()
}

fn cased(text: String, upper: bool) -> String {
    match upper {
        true => text.to_uppercase(),
        false => text,
    }
}

fn unicode(text: &str, escape: &str, upper: bool) -> String {
    let unit = |unit: u16| format!("{escape}u{}", cased(format!("{unit:04x}"), upper));
    text.encode_utf16().map(unit).collect()
}

/// What somebody could read a canary from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Form {
    Raw,
    Base64,
    Hex,
    Url,
    Json,
}

/// Finds halves of canaries in any form, in one pass.
pub(super) struct Needles {
    all: Vec<(usize, Form, Vec<u8>)>,
    by_head: HashMap<[u8; HEAD], Vec<usize>>,
    heads: Vec<bool>,
}

/// A hit: whose, in which form, where.
pub(super) type Hit = (usize, Form, usize);

impl Needles {
    pub(super) fn new() -> Self {
        let mut needles = Self {
            all: Vec::new(),
            by_head: HashMap::new(),
            heads: vec![false; 1 << 16],
        };
        for number in 0..CANARIES {
            let text = canary(number);
            for half in [&text[..HALF], &text[text.len() - HALF..]] {
                for (form, needle) in forms(half) {
                    needles.add(number, form, needle);
                }
            }
        }
        needles
    }

    fn add(&mut self, number: usize, form: Form, needle: Vec<u8>) {
        let head: [u8; HEAD] = needle[..HEAD].try_into().unwrap();
        self.heads[slot(&head)] = true;
        let places = self.by_head.entry(head).or_default();
        places.push(self.all.len());
        self.all.push((number, form, needle));
    }

    pub(super) fn find(&self, bytes: &[u8]) -> Vec<Hit> {
        let mut hits = Vec::new();
        for at in 0..bytes.len().saturating_sub(HEAD - 1) {
            if !self.heads[slot(&bytes[at..])] {
                continue;
            }
            let Some(places) = self.by_head.get(&bytes[at..at + HEAD]) else {
                continue;
            };
            for place in places {
                let (number, form, needle) = &self.all[*place];
                if bytes[at..].starts_with(needle) {
                    hits.push((*number, *form, at));
                }
            }
        }
        hits
    }
}

fn slot(bytes: &[u8]) -> usize {
    let mixed =
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]).wrapping_mul(0x9E37_79B1);
    (mixed >> 16) as usize
}

/// The forms of half a canary, none of them shorter than the head of a needle.
fn forms(half: &str) -> Vec<(Form, Vec<u8>)> {
    let mut forms = vec![(Form::Raw, half.to_owned())];
    for upper in [false, true] {
        forms.push((
            Form::Hex,
            each(half, |byte| cased(format!("{byte:02x}"), upper)),
        ));
        forms.push((
            Form::Url,
            each(half, |byte| {
                format!("%{}", cased(format!("{byte:02x}"), upper))
            }),
        ));
        // Text of JSON in JSON in JSON.
        for escape in ["\\", "\\\\", "\\\\\\\\"] {
            forms.push((Form::Json, unicode(half, escape, upper)));
        }
    }
    for lead in 0..3 {
        // Whole groups of three bytes alone: what stands beside does not change them.
        let from = (3 - lead) % 3;
        let whole = (half.len() - from) / 3 * 3;
        forms.push((Form::Base64, STANDARD.encode(&half[from..from + whole])));
    }
    forms.dedup();
    let bytes = forms
        .into_iter()
        .map(|(form, text)| (form, text.into_bytes()));
    bytes.collect()
}
