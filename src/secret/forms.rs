//! The encoded forms of a whole secret, as other programs write them.

use base64::engine::GeneralPurpose;
use base64::prelude::{BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD, Engine as _};
use serde_json::Value;
use zeroize::Zeroizing;

use super::{MIN_LENGTH, escapes};

/// Every form of a secret that is looked for as it stands.
pub(super) fn forms(secret: &str) -> Vec<Zeroizing<String>> {
    if secret.is_empty() {
        return Vec::new();
    }
    let mut forms = vec![
        secret.to_owned(),
        json(secret),
        percent(secret, "%20", false),
        percent(secret, "+", false),
        percent(secret, "%20", true),
        escapes::bytes(secret, "%", false),
        escapes::bytes(secret, "%", true),
        escapes::unicode(secret, false),
        escapes::unicode(secret, true),
        escapes::bytes(secret, "", false),
        escapes::bytes(secret, "", true),
    ];
    forms.extend(within_sql(secret));
    forms.extend(within_urls(secret));
    for alphabet in [BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE_NO_PAD] {
        for lead in 0..3 {
            forms.extend(base64_core(secret, &alphabet, lead));
        }
    }
    forms.into_iter().map(Zeroizing::new).collect()
}

/// As SQL writes it, also within JSON there: in literals and names, which double their quotes, in
/// literals that have escapes, and in the data of `COPY`.
fn within_sql(secret: &str) -> Vec<String> {
    const CONTROLS: [(char, &str); 7] = [
        ('\n', "\\n"),
        ('\r', "\\r"),
        ('\t', "\\t"),
        ('\u{8}', "\\b"),
        ('\u{b}', "\\v"),
        ('\u{c}', "\\f"),
        ('\u{1a}', "\\Z"),
    ];
    const QUOTE: (char, &str) = ('\'', "''");
    const BACKSLASH: (char, &str) = ('\\', "\\\\");
    let [newline, carriage_return, .., end] = CONTROLS;
    let lines = [BACKSLASH, newline, carriage_return];
    let escaped = [('\'', "\\'"), ('"', "\\\""), end];
    let ways = [
        vec![QUOTE],
        vec![QUOTE, BACKSLASH],
        [&lines[..], &[QUOTE]].concat(),
        [&lines[..], &escaped].concat(),
        [&CONTROLS[..6], &[BACKSLASH]].concat(),
        vec![('"', "\"\"")],
        vec![('`', "``")],
    ];
    let json = json(secret);
    let both = [secret, &json].into_iter();
    both.flat_map(|text| ways.iter().map(|way| replaced(text, way)))
        .collect()
}

fn replaced(text: &str, ways: &[(char, &str)]) -> String {
    let mut out = String::with_capacity(text.len());
    for one in text.chars() {
        match ways.iter().find(|(of, _)| *of == one) {
            Some((_, written)) => out.push_str(written),
            None => out.push(one),
        }
    }
    out
}

/// As a string of JSON has it.
fn json(secret: &str) -> String {
    let json = Value::String(secret.to_owned()).to_string();
    json[1..json.len() - 1].to_owned()
}

/// As it stands in the parts of a URL, each of which leaves other characters as they are.
fn within_urls(secret: &str) -> Vec<String> {
    let Ok(mut url) = url::Url::parse("http://h/") else {
        return Vec::new();
    };
    url.set_path(secret);
    url.set_query(Some(secret));
    url.set_fragment(Some(secret));
    let path = url.path().trim_start_matches('/').to_owned();
    let rest = [url.query(), url.fragment()];
    let rest = rest.into_iter().flatten().map(str::to_owned);
    // A path may lose its dots, and be too short to be told from anything.
    let all = std::iter::once(path).chain(rest);
    all.filter(|form| form.len() >= MIN_LENGTH).collect()
}

fn percent(secret: &str, space: &str, lower: bool) -> String {
    let mut out = String::new();
    for byte in secret.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(char::from(byte));
            }
            b' ' => out.push_str(space),
            _ if lower => out.push_str(&format!("%{byte:02x}")),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// The letters of base64 that depend on the secret alone when `lead` bytes (modulo 3) stand
/// before it; the letters it shares with its neighbours are left out.
fn base64_core(secret: &str, alphabet: &GeneralPurpose, lead: usize) -> Option<String> {
    let bytes = Zeroizing::new([&[0, 0][..lead], secret.as_bytes()].concat());
    let encoded = Zeroizing::new(alphabet.encode(&*bytes));
    let letters = encoded.get((lead * 8).div_ceil(6)..bytes.len() * 8 / 6)?;
    // Fewer letters would redact ordinary text.
    (letters.len() >= MIN_LENGTH).then(|| letters.to_owned())
}
