//! The tools that an agent may call: the grammar of `access.allowlist`, and what two lists allow
//! together (seed 000, invariants 4 and 5; decision K5).

use std::cmp::Reverse;
use std::collections::HashMap;

use ktsu_ledger::event::plan::{ApprovalPolicy, ToolRule};

use super::approval;
use super::read::{Fields, KitReader};
use super::shape::server as shape;
use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::yaml::{YamlNode, YamlValue};

/// The most entries of a list. Two lists are held against each other, entry by entry.
const MAX_ENTRIES: usize = 1_000;

/// Tools that may be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowlist {
    entries: Vec<ToolRule>,
}

impl Default for Allowlist {
    /// Without an access block every tool may be called.
    fn default() -> Self {
        Self::of(&["*"])
    }
}

impl Allowlist {
    /// These tools, of which nobody is asked.
    pub(super) fn of(patterns: &[&str]) -> Self {
        let entry = |pattern: &&str| ToolRule {
            approval: None,
            pattern: (*pattern).to_owned(),
        };
        Self {
            entries: patterns.iter().map(entry).collect(),
        }
    }

    /// Returns `true` if a tool may be called at all.
    pub fn permits(&self, tool: &str) -> bool {
        self.entries.iter().any(|entry| entry.covers(tool))
    }

    /// The entries as they are written.
    pub fn patterns(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.pattern.as_str())
    }

    /// The policies by which people are asked before tools of it are called.
    pub fn policies(&self) -> impl Iterator<Item = ApprovalPolicy> {
        let rules = self.rules().into_iter();
        rules.filter_map(|rule| rule.approval)
    }

    /// The tools that both lists allow. An approval that either list asks for is asked for.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut entries: Vec<ToolRule> = Vec::new();
        let mut known: HashMap<&str, usize> = HashMap::new();
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
            let asked = approval::both(one.approval.as_ref(), two.approval.as_ref());
            let at = *known.entry(&narrower.pattern).or_insert(entries.len());
            match entries.get_mut(at) {
                Some(entry) => {
                    entry.approval = approval::both(entry.approval.as_ref(), asked.as_ref());
                }
                None => entries.push(ToolRule {
                    approval: asked,
                    pattern: narrower.pattern.clone(),
                }),
            }
        }
        Self { entries }
    }

    /// The rules of a definition: each pattern once, the narrowest first, and in each what all the
    /// wider ones ask as well. Whatever covers one tool is a chain of beginnings of it, so the first
    /// rule that covers it says everything that any says: see [`ServerPlan::approval`].
    ///
    /// [`ServerPlan::approval`]: ktsu_ledger::event::plan::ServerPlan::approval
    pub fn rules(&self) -> Vec<ToolRule> {
        let mut rules: Vec<ToolRule> = Vec::new();
        for entry in &self.entries {
            if rules.iter().any(|rule| rule.pattern == entry.pattern) {
                continue;
            }
            let wider = self.entries.iter().filter(|one| one.covers(&entry.pattern));
            rules.push(ToolRule {
                approval: wider.fold(None, |asked, one| {
                    approval::both(asked.as_ref(), one.approval.as_ref())
                }),
                pattern: entry.pattern.clone(),
            });
        }
        rules.sort_by_key(|rule| match rule.pattern.strip_suffix('*') {
            None => (0, Reverse(0)),
            Some(beginning) => (1, Reverse(beginning.len())),
        });
        rules
    }
}

/// The `access:` of a server, in the file of an agent or in its own. Where there is none every tool
/// may be called; one of which nothing is left was a list once, and must not come to mean that.
pub(super) fn of(reader: &mut KitReader<'_>, fields: &Fields<'_>) -> Option<Allowlist> {
    match fields.get("access") {
        Some(node) => read(reader, node),
        None if is_emptied(
            reader,
            fields,
            "access",
            "access: {allowlist: []} allows no tool",
        ) =>
        {
            None
        }
        None => Some(Allowlist::default()),
    }
}

/// Returns `true` if a key that restricts is there without a value, which is reported.
fn is_emptied(
    reader: &mut KitReader<'_>,
    fields: &Fields<'_>,
    key: &'static str,
    hint: &str,
) -> bool {
    let place = fields.key(key).filter(|_| fields.get(key).is_none());
    if let Some(place) = place {
        let words = format!("{key} is there and says nothing");
        let fault = Fault::new(FaultCode::BadAllowlist, place, words);
        reader.fault(fault.hint(format!("{hint}; without the key nothing is restricted")));
    }
    place.is_some()
}

fn read(reader: &mut KitReader<'_>, node: &YamlNode) -> Option<Allowlist> {
    let fields = reader.shaped(node, &shape::ACCESS)?;
    let list = fields.get("allowlist")?;
    let list = reader.list(list, "access.allowlist")?;
    if let Some(node) = list.get(MAX_ENTRIES) {
        let words = format!("the list has more than {MAX_ENTRIES} entries");
        let fault = Fault::new(FaultCode::BadAllowlist, node.place, words);
        return reader.reject(fault.hint("beginnings with a star (crm-*) say more with less"));
    }
    let mut entries = Vec::new();
    for node in list {
        entries.extend(match &node.data {
            YamlValue::Map(_) => gated(reader, node),
            _ => pattern(reader, node).map(|pattern| ToolRule {
                approval: None,
                pattern,
            }),
        });
    }
    Some(Allowlist { entries })
}

/// An entry that asks a person first.
fn gated(reader: &mut KitReader<'_>, node: &YamlNode) -> Option<ToolRule> {
    let fields = reader.shaped(node, &shape::GATED)?;
    let name = fields.read("name", |node| pattern(reader, node));
    let approval = match fields.get("require_approval") {
        Some(node) => Some(approval::read(reader, node)?),
        None if is_emptied(
            reader,
            &fields,
            "require_approval",
            "require_approval: {} asks a person",
        ) =>
        {
            return None;
        }
        None => None,
    };
    Some(ToolRule {
        approval,
        pattern: name?,
    })
}

/// A whole name, the beginning of one with a star behind it, or a star for all.
fn pattern(reader: &mut KitReader<'_>, node: &YamlNode) -> Option<String> {
    let text = reader.string(node, "an entry of the allowlist")?;
    let name = text.strip_suffix('*').unwrap_or(text);
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | ':');
    if !text.is_empty() && text.len() <= 128 && name.chars().all(plain) {
        return Some(text.to_owned());
    }
    let at = name.find('*').unwrap_or_default();
    let place = reader.spot(node, at, 1);
    let words = if name.contains('*') {
        format!("{text:?} has a star inside: it is allowed at the end only")
    } else {
        format!("{text:?} is not the name of a tool")
    };
    let fault = Fault::new(FaultCode::BadAllowlist, place, words);
    reader.reject(fault.hint("write a whole name, a beginning with a star (crm-*), or *"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ktsu_ledger::event::plan::{OnReject, ServerPlan};

    use super::*;

    fn asked(quorum: u32) -> ApprovalPolicy {
        ApprovalPolicy {
            not_by_proposer: false,
            on_reject: OnReject::Recover,
            quorum,
            timeout: None,
        }
    }

    /// A list of patterns, each with as many people as have to approve; 0: it asks nobody.
    fn list(entries: &[(&str, u32)]) -> Allowlist {
        let rule = |(pattern, quorum): &(&str, u32)| ToolRule {
            approval: (*quorum > 0).then(|| asked(*quorum)),
            pattern: (*pattern).to_owned(),
        };
        Allowlist {
            entries: entries.iter().map(rule).collect(),
        }
    }

    /// The number of people that a definition asks about a tool.
    fn people(list: &Allowlist, tool: &str) -> u32 {
        let plan = ServerPlan {
            auth: None,
            declared: None,
            file: "servers.yaml#s".to_owned(),
            name: "s".to_owned(),
            params: BTreeMap::new(),
            stateful: false,
            timeout_ms: None,
            tools: list.rules(),
            url: "http://s".to_owned(),
            version: "1.0.0".to_owned(),
        };
        assert_eq!(plan.permits(tool), list.permits(tool), "{tool}");
        plan.approval(tool).map_or(0, |policy| policy.quorum)
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
            assert_eq!(one.intersection(&two), Allowlist::of(both));
            for tool in ["a", "b", "crm-read", "crm-read-x", "crm-", "mail-send"] {
                let each = one.permits(tool) && two.permits(tool);
                assert_eq!(one.intersection(&two).permits(tool), each, "{tool}");
                assert_eq!(two.intersection(&one).permits(tool), each, "{tool}");
            }
        }
    }

    #[test]
    fn a_person_is_asked_as_soon_as_one_entry_says_so() {
        let open = Allowlist::default();
        assert!(open.permits("x") && open.policies().next().is_none() && people(&open, "x") == 0);
        let both = open.intersection(&list(&[("delete-*", 1)]));
        assert!(
            both.policies().count() == 1 && people(&both, "delete-a") == 1 && !both.permits("read")
        );
        let wide = list(&[("*", 0), ("delete-*", 2)]);
        for both in [
            wide.intersection(&Allowlist::of(&["delete-*", "read"])),
            Allowlist::of(&["delete-*", "read"]).intersection(&wide),
        ] {
            assert_eq!((people(&both, "delete-a"), people(&both, "read")), (2, 0));
        }
    }

    #[test]
    fn every_rule_that_covers_a_tool_is_heard_in_whatever_order_they_are() {
        let entries = [("*", 0), ("crm-*", 1), ("crm-del-*", 0), ("crm-del-a", 3)];
        let told = [
            ("mail", 0),
            ("crm-read", 1),
            ("crm-del-b", 1),
            ("crm-del-a", 3),
        ];
        let mut order = entries;
        for turn in 0..24 {
            order.swap(turn % 3, turn % 3 + 1);
            for (tool, most) in told {
                assert_eq!(people(&list(&order), tool), most, "{tool} {order:?}");
            }
        }
        let both = list(&entries).intersection(&list(&[("crm-del-*", 2), ("crm-*", 0)]));
        for (tool, most) in [
            ("mail", 0),
            ("crm-read", 1),
            ("crm-del-b", 2),
            ("crm-del-a", 3),
        ] {
            assert_eq!(people(&both, tool), most, "{tool}");
        }
        assert!(!both.permits("mail"));
    }
}
