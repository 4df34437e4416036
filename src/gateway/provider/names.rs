//! Names of tools and ids of calls, as providers take them: letters, digits, `_` and `-`, at most
//! 64 of them. Tool servers and other providers are freer than that.
//!
//! What does not fit is sent under a name made of it, and comes back under its own.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::Call;

/// The longest name that both providers take.
const LONGEST: usize = 64;
/// How many digits of its digest tell one shortened name from another.
const DIGITS: usize = 8;

/// The names of a call that do not fit, by those they are sent under.
#[derive(Debug, Default)]
pub(super) struct Names(BTreeMap<String, String>);

impl Names {
    /// Of the tools on offer, and of those that were asked for before.
    pub(super) fn of(call: &Call) -> Self {
        let offered = call.tools.iter().map(|tool| &tool.name);
        let before = call
            .messages
            .iter()
            .flat_map(|message| &message.tool_calls)
            .map(|call| &call.name);
        let misfits = offered.chain(before).filter(|name| !fits(name));
        Self(misfits.map(|name| (made_of(name), name.clone())).collect())
    }

    /// The name that a model used, as it was given to us.
    pub(super) fn back(&self, name: String) -> String {
        self.0.get(&name).cloned().unwrap_or(name)
    }
}

/// The name, or the id, as it is sent. The same one always gives the same.
pub(super) fn sent(name: &str) -> Cow<'_, str> {
    match fits(name) {
        true => Cow::Borrowed(name),
        false => Cow::Owned(made_of(name)),
    }
}

fn fits(name: &str) -> bool {
    (1..=LONGEST).contains(&name.len()) && name.chars().all(is_plain)
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

fn made_of(name: &str) -> String {
    let plain = name.chars().map(|c| if is_plain(c) { c } else { '_' });
    let beginning: String = plain.take(LONGEST - DIGITS - 1).collect();
    let digest = blake3::hash(name.as_bytes()).to_hex();
    let digits: String = digest.chars().take(DIGITS).collect();
    format!("{beginning}_{digits}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_fits_is_sent_as_it_is() {
        for name in ["kv-get", "crm__read_all", "A", &"x".repeat(64)] {
            assert_eq!(sent(name), name);
        }
    }

    #[test]
    fn other_names_are_sent_as_ones_that_fit_and_are_told_apart() {
        let long = "x".repeat(64);
        let names = [
            "kv.get",
            "kv/get",
            "kv get",
            "é",
            "",
            &format!("{long}a"),
            &format!("{long}b"),
        ];
        let made: std::collections::BTreeSet<String> =
            names.iter().map(|name| sent(name).into_owned()).collect();
        assert_eq!(made.len(), names.len());
        assert!(made.iter().all(|name| fits(name)), "{made:?}");
        assert!(sent("kv.get").starts_with("kv_get_"));
    }
}
