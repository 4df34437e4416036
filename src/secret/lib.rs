//! Secrets: values that are never shown, and the redactor that removes them from everything else.

mod entities;
mod escapes;
pub mod file;
mod forms;
mod search;
mod signing;

use std::fmt;

use ktsu_ledger::canonical::parse_strict;
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use entities::Decoded;
use forms::forms;
use ktsu_contract::gateway::strip_code_fence;
use search::Patterns;

pub use signing::WebhookKey;

/// The text in place of a secret.
pub const REDACTED: &str = "[REDACTED]";

/// The least characters of a secret (decision K3): shorter ones would redact ordinary text.
pub const MIN_LENGTH: usize = 6;

/// The prefix of a webhook's key that is written in Base64; it is no part of the key itself.
pub const KEY_PREFIX: &str = "whsec_";

/// Returns `true` if a value is too short for a secret.
pub fn is_too_short(value: &str) -> bool {
    let key = value.strip_prefix(KEY_PREFIX).unwrap_or(value);
    key.chars().count() < MIN_LENGTH
}

/// The most times that a text is read whose escapes are escaped again.
const MAX_LAYERS: usize = 3;

/// Fewer characters than this at the end of a text are not taken for the beginning of a secret.
const MIN_CUT_LENGTH: usize = 4;

/// A secret value. It does not print, does not serialise and is wiped when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes the value in.
    pub fn new(value: impl Into<String>) -> Self {
        Self(Zeroizing::new(value.into()))
    }

    /// The value, for the one place that sends it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

/// Takes secrets out of text, in the forms they travel in: plain, JSON-escaped, URL-encoded,
/// HTML-escaped, base64, hexadecimal, as SQL.
#[derive(Clone, Default)]
pub struct Redactor {
    patterns: Patterns,
    longest: usize,
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redactor({} forms)", self.patterns.len())
    }
}

impl Redactor {
    /// A redactor of these secrets. An empty secret is ignored.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a Secret>) -> Self {
        let mut patterns = Vec::new();
        let mut longest = 0;
        for secret in secrets {
            longest = longest.max(escapes::longest(secret.expose()));
            patterns.extend(forms(secret.expose()));
            let key = secret.expose().strip_prefix(KEY_PREFIX);
            if let Some(key) = key.filter(|key| !is_too_short(key)) {
                patterns.extend(forms(key));
            }
        }
        let patterns = Patterns::new(patterns);
        Self { patterns, longest }
    }

    /// Returns `true` if there is nothing to look for.
    pub fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// The most bytes a secret takes in any form: who has read this many beyond some place has
    /// every secret that begins before it whole.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Returns `true` if a secret is in a text, in any form that is looked for.
    pub fn finds(&self, text: &str) -> bool {
        self.patterns.is_match(text)
            || (!self.is_empty())
                && layers(text)
                    .iter()
                    .any(|layer| self.patterns.is_match(&layer.text))
    }

    /// As [`Redactor::finds`], also where it takes reading the escapes of the text to see the secret.
    pub fn finds_even_escaped(&self, text: &str) -> bool {
        self.finds(text) || self.is_hidden_in(text)
    }

    /// The places of secrets in a text, in order of their beginnings; places may overlap.
    fn find_all(&self, text: &str) -> Vec<(usize, usize)> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut found: Vec<_> = self.patterns.find_all(text).collect();
        let layers = layers(text);
        for (depth, layer) in layers.iter().enumerate() {
            let within = self.patterns.find_all(&layer.text);
            let original = |at| original(&layers[..=depth], at);
            found.extend(within.map(|(start, stop)| (original(start), original(stop))));
        }
        found.sort_unstable();
        found
    }

    /// The text with every occurrence replaced; none if there is nothing to replace.
    pub fn redact(&self, text: &str) -> Option<String> {
        let found = self.find_all(text);
        (!found.is_empty()).then(|| replace_ranges(text, &found, text.len()))
    }

    /// The beginning of a text that is not in a format we read, redacted. Of a secret that begins
    /// before `end` nothing is left, provided that [`Redactor::longest`] bytes after `end` are
    /// there to see.
    ///
    /// Escapes may hide a secret character by character, which no list of forms can foresee. If
    /// reading them brings one to light, nothing of the text is given.
    pub fn redact_beginning(&self, text: &str, end: usize) -> String {
        let end = text.floor_char_boundary(end);
        if self.is_empty() {
            return text[..end].to_owned();
        }
        let found = self.find_all(text);
        let shown = replace_ranges(text, &found, text.len());
        if self.is_hidden_in(&shown) {
            return REDACTED.to_owned();
        }
        replace_ranges(text, &found, end)
    }

    /// Returns `true` if reading the escapes of a text shows a secret.
    fn is_hidden_in(&self, text: &str) -> bool {
        escapes::read(text).is_some_and(|read| {
            let read = Zeroizing::new(read);
            let spaced = || Zeroizing::new(read.replace('+', " "));
            // A plus may be a space.
            self.finds(&read) || (read.contains('+') && self.finds(&spaced()))
        })
    }

    /// As [`Redactor::redact`], always giving text.
    pub fn redact_text(&self, text: &str) -> String {
        self.redact(text).unwrap_or_else(|| text.to_owned())
    }

    /// As [`Redactor::redact_text`], of a text that somebody else may have cut, who did not know
    /// our secrets: the beginning of one at its end is taken out, too.
    pub fn redact_cut(&self, text: &str) -> String {
        let mut text = self.redact_text(text);
        if let Some(at) = self.unfinished_start(&text) {
            text.truncate(at);
            text.push_str(REDACTED);
        }
        text
    }

    /// The start of an unfinished secret at the end of a text that was cut.
    fn unfinished_start(&self, text: &str) -> Option<usize> {
        if self.is_empty() {
            return None;
        }
        let whole = entities::without_unfinished(text);
        let layers = layers(whole);
        let decoded = layers.iter().enumerate().filter_map(|(depth, layer)| {
            let at = self
                .patterns
                .unfinished_start(&layer.text, MIN_CUT_LENGTH)?;
            Some(original(&layers[..=depth], at))
        });
        let plain = [text, whole].map(|text| self.patterns.unfinished_start(text, MIN_CUT_LENGTH));
        decoded.chain(plain.into_iter().flatten()).min()
    }

    /// The reply of a model, redacted. Others read it as JSON, and a secret that is escaped in part
    /// would stand in clear then: a JSON text that hides one is read, redacted and written anew; of
    /// any other text that does nothing is given.
    pub fn redact_reply(&self, text: &str) -> String {
        let text = self.redact_text(text);
        if !self.is_hidden_in(&text) {
            return text;
        }
        // Strictly: a text that nobody takes must not become one by being written anew.
        let Ok(mut value) = parse_strict(strip_code_fence(&text).as_bytes()) else {
            return REDACTED.to_owned();
        };
        self.redact_value(&mut value);
        let written = value.to_string();
        // Escaped twice, or a number that was written in another way.
        match self.finds_even_escaped(&written) {
            true => REDACTED.to_owned(),
            false => written,
        }
    }

    /// Redacts the text of a tree, in place: strings, and the names of members, which in a payload
    /// are as much somebody's words as its strings are.
    pub fn redact_value(&self, value: &mut Value) {
        if self.is_empty() {
            return;
        }
        match value {
            Value::String(text) => {
                if let Some(redacted) = self.redact(text) {
                    *text = redacted;
                }
                // Escaped in part, so that it is read somewhere else: nothing of it is kept.
                if self.is_hidden_in(text) {
                    REDACTED.clone_into(text);
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_value(item)),
            Value::Object(members) => {
                if members.keys().any(|name| self.finds_even_escaped(name)) {
                    *members = self.redact_names(std::mem::take(members));
                }
                members
                    .values_mut()
                    .for_each(|member| self.redact_value(member));
            }
            Value::Number(number) if self.finds(&number.to_string()) => {
                *value = REDACTED.into();
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Members under redacted names; where two become one, the later gets a number.
    fn redact_names(&self, members: Map<String, Value>) -> Map<String, Value> {
        let mut redacted = Map::new();
        for (name, value) in members {
            let plain = match self.redact_text(&name) {
                plain if self.is_hidden_in(&plain) => REDACTED.to_owned(),
                plain => plain,
            };
            let mut free = plain.clone();
            let mut number = 2;
            while redacted.contains_key(&free) {
                free = format!("{plain} {number}");
                number += 1;
            }
            redacted.insert(free, value);
        }
        redacted
    }
}

/// A text without its character references, again without them where they were escaped, and so on.
fn layers(text: &str) -> Vec<Decoded> {
    let mut layers: Vec<Decoded> = Vec::new();
    while layers.len() < MAX_LAYERS {
        let read = layers.last().map_or(text, |layer| layer.text.as_str());
        match Decoded::of(read) {
            Some(layer) => layers.push(layer),
            None => break,
        }
    }
    layers
}

/// The place in the text itself of a place in the last of some layers.
fn original(layers: &[Decoded], at: usize) -> usize {
    layers.iter().rev().fold(at, |at, layer| layer.original(at))
}

/// The text before `end` with what was found replaced.
fn replace_ranges(text: &str, found: &[(usize, usize)], end: usize) -> String {
    let mut out = String::with_capacity(end);
    let mut done = 0;
    for (start, stop) in found {
        if *start >= end {
            break;
        }
        if *start >= done {
            out.push_str(&text[done..*start]);
            out.push_str(REDACTED);
        }
        done = done.max(*stop);
    }
    out.push_str(text.get(done..end).unwrap_or_default());
    out
}

#[cfg(test)]
mod tests;
