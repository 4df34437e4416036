//! Which tools an agent may call: the grammar of `access.allowlist`, and what two lists allow
//! together (seed 000, invariants 4 and 5; decision K5).

use super::fault::{Fault, FaultCode};
use super::read::Reader;
use super::shape::server as shape;
use super::yaml::{Data, Node};

/// Tools that may be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowlist {
    entries: Vec<Entry>,
}

/// A name, the beginning of one, or all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    pattern: String,
    /// A person is asked first.
    gated: bool,
}

impl Default for Allowlist {
    /// Without an access block every tool may be called.
    fn default() -> Self {
        Self::of(&["*"])
    }
}

impl Allowlist {
    fn of(patterns: &[&str]) -> Self {
        let entry = |pattern: &&str| Entry {
            pattern: (*pattern).to_owned(),
            gated: false,
        };
        Self {
            entries: patterns.iter().map(entry).collect(),
        }
    }

    /// Whether a tool may be called at all.
    pub fn permits(&self, tool: &str) -> bool {
        self.entries.iter().any(|entry| entry.covers(tool))
    }

    /// Whether a person is asked before: one entry that says so is enough.
    pub fn asks_first(&self, tool: &str) -> bool {
        let mut entries = self.entries.iter();
        entries.any(|entry| entry.gated && entry.covers(tool))
    }

    /// The entries as they are written.
    pub fn patterns(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.pattern.as_str())
    }

    /// What both lists allow. Whoever asks a person first is heard in either.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let mut entries: Vec<Entry> = Vec::new();
        for (one, two) in self
            .entries
            .iter()
            .flat_map(|one| other.entries.iter().map(move |two| (one, two)))
        {
            let narrower = match (one.covers(&two.pattern), two.covers(&one.pattern)) {
                (true, _) => two,
                (false, true) => one,
                (false, false) => continue,
            };
            let gated = one.gated || two.gated;
            match entries
                .iter_mut()
                .find(|entry| entry.pattern == narrower.pattern)
            {
                Some(known) => known.gated |= gated,
                None => entries.push(Entry {
                    pattern: narrower.pattern.clone(),
                    gated,
                }),
            }
        }
        Self { entries }
    }
}

impl Entry {
    /// Whether a tool, or everything another pattern stands for, is among what this one allows.
    fn covers(&self, pattern: &str) -> bool {
        match self.pattern.strip_suffix('*') {
            Some(beginning) => pattern.starts_with(beginning),
            None => self.pattern == pattern,
        }
    }
}

/// The `access:` of a server, in the file of an agent or in its own.
pub(super) fn read(reader: &mut Reader<'_>, node: &Node) -> Option<Allowlist> {
    let fields = reader.shaped(node, &shape::ACCESS)?;
    let list = fields.get("allowlist")?;
    let list = reader.list(list, "access.allowlist")?;
    let mut entries = Vec::new();
    for node in list {
        entries.extend(match &node.data {
            Data::Map(_) => gated(reader, node),
            Data::Null | Data::Bool(_) | Data::Number(_) | Data::Text(_) | Data::List(_) => {
                pattern(reader, node).map(|pattern| Entry {
                    pattern,
                    gated: false,
                })
            }
        });
    }
    Some(Allowlist { entries })
}

/// An entry that asks a person first.
fn gated(reader: &mut Reader<'_>, node: &Node) -> Option<Entry> {
    let fields = reader.shaped(node, &shape::GATED)?;
    let name = fields.get("name").and_then(|node| pattern(reader, node));
    let policy = fields.get("require_approval");
    if let Some(node) = policy {
        approval(reader, node);
    }
    Some(Entry {
        pattern: name?,
        gated: policy.is_some(),
    })
}

fn approval(reader: &mut Reader<'_>, node: &Node) -> Option<()> {
    let fields = reader.shaped(node, &shape::APPROVAL)?;
    if let Some(node) = fields.get("on_reject") {
        reader.word(node, "on_reject", &[("fail", ()), ("recover", ())]);
    }
    if let Some(node) = fields.get("timeout_behavior") {
        reader.word(node, "timeout_behavior", &[("fail", ()), ("reject", ())]);
    }
    let timeout = fields.get("timeout").filter(|node| !is_none(node));
    if timeout.is_some_and(|node| reader.duration(node, "timeout").is_some()) {
        reader.required(&fields, "timeout_behavior", "an approval with a timeout");
    }
    Some(())
}

/// `0` and `0s` mean that there is no timeout.
fn is_none(node: &Node) -> bool {
    match &node.data {
        Data::Number(number) => number.as_u64() == Some(0),
        Data::Text(text) => matches!(text.as_str(), "0" | "0s" | "0m" | "0h" | "0ms"),
        Data::Null | Data::Bool(_) | Data::List(_) | Data::Map(_) => false,
    }
}

/// A whole name, the beginning of one with a star behind it, or a star for all.
fn pattern(reader: &mut Reader<'_>, node: &Node) -> Option<String> {
    let text = reader.string(node, "an entry of the allowlist")?;
    let name = text.strip_suffix('*').unwrap_or(text);
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | ':');
    if !text.is_empty() && text.len() <= 128 && name.chars().all(plain) {
        return Some(text.to_owned());
    }
    let at = name.find('*').unwrap_or_default();
    let place = reader.spot(node, at, 1);
    let words = if name.contains('*') {
        format!("{text:?} has a star inside: it may stand at the end only")
    } else {
        format!("{text:?} is not the name of a tool")
    };
    let fault = Fault::new(FaultCode::BadAllowlist, place, words);
    reader.fault(fault.hint("write a whole name, a beginning with a star (crm-*), or *"));
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gated(patterns: &[&str]) -> Allowlist {
        let mut list = Allowlist::of(patterns);
        for entry in &mut list.entries {
            entry.gated = true;
        }
        list
    }

    #[test]
    fn two_lists_allow_what_each_of_them_allows() {
        let cases: [(&[&str], &[&str], &[&str]); 6] = [
            (&["*"], &["crm-*", "read"], &["crm-*", "read"]),
            (&["crm-*"], &["crm-read", "mail-send"], &["crm-read"]),
            (&["crm-read"], &["crm-*", "*"], &["crm-read"]),
            (&["crm-*"], &["crm-read-*"], &["crm-read-*"]),
            (&["a", "b"], &["c"], &[]),
            (&[], &["*"], &[]),
        ];
        for (one, two, both) in cases {
            let (one, two) = (Allowlist::of(one), Allowlist::of(two));
            assert_eq!(one.and(&two), Allowlist::of(both));
            for tool in ["a", "b", "crm-read", "crm-read-x", "crm-", "mail-send"] {
                let each = one.permits(tool) && two.permits(tool);
                assert_eq!(one.and(&two).permits(tool), each, "{tool}");
                assert_eq!(two.and(&one).permits(tool), each, "{tool}");
            }
        }
    }

    #[test]
    fn a_person_is_asked_as_soon_as_one_entry_says_so() {
        let open = Allowlist::default();
        assert!(open.permits("x") && !open.asks_first("x"));
        let both = open.and(&gated(&["delete-*"]));
        assert!(both.asks_first("delete-a") && !both.permits("read"));
        let mut wide = Allowlist::of(&["*"]);
        wide.entries.extend(gated(&["delete-*"]).entries);
        for both in [
            wide.and(&Allowlist::of(&["delete-*", "read"])),
            Allowlist::of(&["delete-*", "read"]).and(&wide),
        ] {
            assert!(both.asks_first("delete-a") && !both.asks_first("read"));
        }
    }
}
