//! Names of tools and ids of calls, as providers accept them: letters, digits, `_` and `-`, at most
//! 64 of them. Tool servers and other providers accept more.
//!
//! Anything else is sent under a derived name, and mapped back in the reply. Within a call no two
//! derived names are equal: a server whose tool has the derived name of another tool does not get
//! the calls of that tool.

use std::collections::{BTreeMap, BTreeSet};

use super::ProviderCall;

/// The longest name that both providers take.
const MAX_NAME_LENGTH: usize = 64;
/// Number of digits of its digest that distinguish one shortened name from another, where that is
/// enough.
const DIGITS: usize = 8;

/// The names and ids of a call as they are sent.
#[derive(Debug)]
pub(super) struct ProviderNames {
    tools: NameMapping,
    ids: NameMapping,
    /// The names of tools that do not fit, by those they are sent under.
    back: BTreeMap<String, String>,
}

impl ProviderNames {
    /// Of the tools on offer, of those that were asked for before, and of the calls of these.
    pub(super) fn of(call: &ProviderCall) -> Self {
        let before = || call.messages.iter().flat_map(|one| &one.tool_calls);
        let offered = call.tools.iter().map(|tool| tool.name.as_str());
        let tools = offered.chain(before().map(|call| call.name.as_str()));
        let tools = NameMapping::of(tools.collect());
        let back = tools
            .0
            .iter()
            .map(|(own, made)| (made.clone(), own.clone()));
        Self {
            back: back.collect(),
            tools,
            ids: NameMapping::of(before().map(|call| call.id.as_str()).collect()),
        }
    }

    /// The name of a tool of this call as it is sent.
    pub(super) fn tool<'n>(&'n self, own: &'n str) -> &'n str {
        self.tools.of_own(own)
    }

    /// The id of a call before this one as it is sent.
    pub(super) fn id<'n>(&'n self, own: &'n str) -> &'n str {
        self.ids.of_own(own)
    }

    /// The name that a model used, as it was given to us.
    pub(super) fn back(&self, sent: &str) -> String {
        let own = self.back.get(sent).map(String::as_str);
        own.unwrap_or(sent).to_owned()
    }
}

/// The names that are sent in place of those that do not fit.
#[derive(Debug)]
struct NameMapping(BTreeMap<String, String>);

impl NameMapping {
    /// The same ones always give the same.
    fn of(names: BTreeSet<&str>) -> Self {
        // What fits is sent as it is, so that it has its name before any other is made.
        let (plain, misfits): (Vec<&str>, Vec<&str>) = names.into_iter().partition(|one| fits(one));
        let mut taken: BTreeSet<String> = plain.into_iter().map(str::to_owned).collect();
        let made = misfits.into_iter().map(|own| {
            let mut tries = 0;
            let mut made = derived_name(own, tries);
            while !taken.insert(made.clone()) {
                tries += 1;
                made = derived_name(own, tries);
            }
            (own.to_owned(), made)
        });
        Self(made.collect())
    }

    fn of_own<'n>(&'n self, own: &'n str) -> &'n str {
        self.0.get(own).map_or(own, String::as_str)
    }
}

fn fits(name: &str) -> bool {
    (1..=MAX_NAME_LENGTH).contains(&name.len()) && name.chars().all(is_plain)
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// A digit more of the digest with every try, and another digest once all of them are used.
fn derived_name(name: &str, tries: usize) -> String {
    let digits = (DIGITS + tries).min(MAX_NAME_LENGTH - 1);
    let digest = match tries <= MAX_NAME_LENGTH - 1 - DIGITS {
        true => blake3::hash(name.as_bytes()),
        false => blake3::hash(format!("{tries} {name}").as_bytes()),
    };
    let plain = name.chars().map(|c| if is_plain(c) { c } else { '_' });
    let beginning: String = plain.take(MAX_NAME_LENGTH - digits - 1).collect();
    let digits: String = digest.to_hex().chars().take(digits).collect();
    format!("{beginning}_{digits}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ktsu_contract::gateway::{ChatMessage, ToolCall, ToolDefinition};

    fn names(offered: &[&str], ids: &[&str]) -> ProviderNames {
        let tool = |name: &&str| ToolDefinition {
            name: (*name).to_owned(),
            ..ToolDefinition::default()
        };
        let call = |id: &&str| ToolCall {
            id: (*id).to_owned(),
            name: "f".to_owned(),
            ..ToolCall::default()
        };
        ProviderNames::of(&ProviderCall {
            group: "g".to_owned(),
            model: "m".to_owned(),
            messages: vec![ChatMessage {
                role: "assistant".to_owned(),
                tool_calls: ids.iter().map(call).collect(),
                ..ChatMessage::default()
            }],
            max_tokens: 1,
            temperature: None,
            tools: offered.iter().map(tool).collect(),
        })
    }

    #[test]
    fn a_name_that_fits_is_sent_as_it_is() {
        let own = ["kv-get", "crm__read_all", "A", &"x".repeat(64)];
        let names = names(&own, &own);
        for own in own {
            assert_eq!((names.tool(own), names.id(own)), (own, own));
            assert_eq!(names.back(own), own);
        }
    }

    #[test]
    fn other_names_are_sent_as_ones_that_fit_and_are_distinguished() {
        let long = "x".repeat(64);
        let own = [
            "kv.get",
            "kv/get",
            "kv get",
            "é",
            "",
            &format!("{long}a"),
            &format!("{long}b"),
        ];
        let names = names(&own, &own);
        let made: BTreeSet<&str> = own.iter().map(|own| names.tool(own)).collect();
        assert_eq!(made.len(), own.len());
        assert!(made.iter().all(|name| fits(name)), "{made:?}");
        assert!(own.iter().all(|own| names.back(names.tool(own)) == **own));
        assert_eq!(names.tool("kv.get"), "kv_get_1d9064c3");
        assert_eq!(names.id("kv.get"), "kv_get_1d9064c3");
    }

    #[test]
    fn a_tool_named_like_one_we_would_make_of_another_gets_none_of_its_calls() {
        let mut own = vec!["kv.get".to_owned()];
        // However many there are, and however far it was foreseen.
        for tries in 0..100 {
            own.push(derived_name("kv.get", tries));
            let offered: Vec<&str> = own.iter().map(String::as_str).collect();
            let names = names(&offered, &offered);
            let sent: BTreeSet<&str> = own.iter().map(|own| names.tool(own)).collect();
            assert_eq!(sent.len(), own.len(), "two are sent under one name");
            assert!(sent.iter().all(|name| fits(name)), "{sent:?}");
            assert!(own.iter().all(|own| names.back(names.tool(own)) == *own));
            let ids: BTreeSet<&str> = own.iter().map(|own| names.id(own)).collect();
            assert_eq!(ids.len(), own.len(), "two are sent under one id");
        }
    }
}
