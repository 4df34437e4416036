//! Where data went, and what was found there.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use super::needles::{Coding, Form, Needles};

/// Bytes somebody could read.
pub(super) struct Place {
    name: String,
    /// What the world said to the run this is about; none for what is about all runs.
    coding: Option<Coding>,
    bytes: Vec<u8>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}",
            self.name,
            self.coding.map_or("all", Coding::name)
        )
    }
}

impl Place {
    /// What stands about a hit.
    fn around(&self, at: usize) -> String {
        let (from, to) = (at.saturating_sub(80), self.bytes.len().min(at + 60));
        String::from_utf8_lossy(&self.bytes[from..to]).into_owned()
    }
}

/// All of them.
#[derive(Default)]
pub(super) struct Places(Vec<Place>);

impl Places {
    pub(super) fn add(&mut self, name: &str, coding: Coding, bytes: Vec<u8>) {
        self.put(name, Some(coding), bytes);
    }

    pub(super) fn shared(&mut self, name: &str, bytes: Vec<u8>) {
        self.put(name, None, bytes);
    }

    fn put(&mut self, name: &str, coding: Option<Coding>, bytes: Vec<u8>) {
        let name = name.to_owned();
        self.0.push(Place {
            name,
            coding,
            bytes,
        });
    }

    /// A file, or everything below a folder, if it is there.
    pub(super) fn files(&mut self, name: &str, coding: Coding, path: &Path) {
        if path.is_file() {
            self.add(name, coding, std::fs::read(path).unwrap());
        }
        for entry in std::fs::read_dir(path).into_iter().flatten() {
            self.files(name, coding, &entry.unwrap().path());
        }
    }

    /// Each place with what is found in it, and what stands about the first hit.
    pub(super) fn found(&self, needles: &Needles) -> Vec<String> {
        let mut found: BTreeMap<String, (usize, String)> = BTreeMap::new();
        for place in &self.0 {
            for (number, form, at) in needles.find(&place.bytes) {
                let first = || (0, format!("{number}: {}", place.around(at)));
                found
                    .entry(format!("{place} {form:?}"))
                    .or_insert_with(first)
                    .0 += 1;
            }
        }
        let tell = |(place, (hits, first))| format!("{place}: {hits} hits, the first of {first}");
        found.into_iter().map(tell).collect()
    }

    /// The places in which nothing is found, whatever was said to the runs they are about.
    pub(super) fn quiet(&self, needles: &Needles) -> Vec<&str> {
        let mut names: BTreeMap<&str, bool> = BTreeMap::new();
        for place in &self.0 {
            let loud = names.entry(&place.name).or_default();
            *loud = *loud || !needles.find(&place.bytes).is_empty();
        }
        let quiet = names.into_iter().filter(|(_, loud)| !loud);
        quiet.map(|(name, _)| name).collect()
    }

    /// Whether a place holds what was said in a coding.
    pub(super) fn leaks(&self, needles: &Needles, name: &str, coding: Coding) -> bool {
        let form = |found: Form| match coding {
            // What was read as JSON stands there as it is.
            Coding::Json => matches!(found, Form::Json | Form::Raw),
            _ => found == form(coding),
        };
        let mut about = self
            .0
            .iter()
            .filter(|one| one.name == name && one.coding == Some(coding));
        about.any(|one| {
            needles
                .find(&one.bytes)
                .iter()
                .any(|(_, found, _)| form(*found))
        })
    }

    /// Whether a text stands in a place.
    pub(super) fn holds(&self, name: &str, text: &str) -> bool {
        let mut about = self.0.iter().filter(|one| one.name == name);
        about.any(|one| {
            one.bytes
                .windows(text.len())
                .any(|here| here == text.as_bytes())
        })
    }
}

/// The form in which a coding is read.
pub(super) fn form(coding: Coding) -> Form {
    match coding {
        Coding::Raw | Coding::Split | Coding::Error => Form::Raw,
        Coding::Base64 | Coding::Base64Url => Form::Base64,
        Coding::Hex => Form::Hex,
        Coding::Url => Form::Url,
        Coding::Json => Form::Json,
    }
}
