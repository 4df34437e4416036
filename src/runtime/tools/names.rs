//! Names of tools: in an allowlist, for a model, and when two servers offer the same name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::ServerTool;

/// Returns `true` if one of these patterns covers a tool: exact, byte by byte (seed 000, invariant
/// 5).
pub(super) fn is_covered(patterns: &[String], tool: &str) -> bool {
    patterns
        .iter()
        .any(|pattern| match pattern.strip_suffix('*') {
            Some(beginning) => tool.starts_with(beginning),
            None => pattern == tool,
        })
}

/// The entries of an allowlist that cover none of the tools that a server offers.
pub(super) fn unmatched<'l>(
    patterns: &'l [String],
    offered: &[Arc<ServerTool>],
) -> impl Iterator<Item = &'l str> {
    let is_unmatched = |pattern: &&String| {
        let covered =
            |tool: &Arc<ServerTool>| is_covered(std::slice::from_ref(*pattern), &tool.name);
        *pattern != "*" && !offered.iter().any(covered)
    };
    patterns.iter().filter(is_unmatched).map(String::as_str)
}

/// The full name of a tool that two servers offer: the server's name precedes its own (decision
/// A2).
pub(super) fn qualified(server: &str, tool: &str) -> String {
    format!("{server}__{tool}")
}

/// The names a model is told, one for each (server, tool) in order. A name that two of them would
/// have is told in full by both; what would still be read in two ways is not told at all.
pub(super) fn names_for_model(offered: &[(&str, &str)]) -> Vec<Option<String>> {
    let mut full: BTreeSet<usize> = BTreeSet::new();
    loop {
        let names = candidate_names(offered, &full);
        let mut owners: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (at, name) in names.iter().enumerate() {
            owners.entry(name).or_default().push(at);
        }
        let shared = owners.values().filter(|owners| owners.len() > 1);
        let shared: BTreeSet<usize> = shared.flatten().copied().collect();
        if shared.is_subset(&full) {
            let single = |(at, name): (usize, String)| (!shared.contains(&at)).then_some(name);
            return names.into_iter().enumerate().map(single).collect();
        }
        full.extend(shared);
    }
}

fn candidate_names(offered: &[(&str, &str)], full: &BTreeSet<usize>) -> Vec<String> {
    let name = |(at, (server, tool)): (usize, &(&str, &str))| match full.contains(&at) {
        true => qualified(server, tool),
        false => (*tool).to_owned(),
    };
    offered.iter().enumerate().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(offered: &[(&str, &str)]) -> Vec<String> {
        let or_none = |name: Option<String>| name.unwrap_or_else(|| "-".to_owned());
        names_for_model(offered).into_iter().map(or_none).collect()
    }

    #[test]
    fn a_name_that_two_servers_offer_is_described_in_full_by_both() {
        assert_eq!(plain(&[("a", "x"), ("b", "y")]), ["x", "y"]);
        let told = plain(&[("a", "x"), ("b", "x"), ("b", "y")]);
        assert_eq!(told, ["a__x", "b__x", "y"]);
        // A plain name that looks like a full one gives way.
        let told = plain(&[("a", "x"), ("b", "x"), ("c", "a__x")]);
        assert_eq!(told, ["a__x", "b__x", "c__a__x"]);
        // `a` + `b__c` and `a__b` + `c` read the same in full: neither is told.
        let told = plain(&[("a", "b__c"), ("a__b", "c"), ("d", "b__c"), ("d", "c")]);
        assert_eq!(told, ["-", "-", "d__b__c", "d__c"]);
    }

    #[test]
    fn a_pattern_is_exact_but_for_one_star_at_its_end() {
        let patterns = ["read", "list_*", "*x"].map(str::to_owned);
        for (tool, covers) in [
            ("read", true),
            ("Read", false),
            ("read ", false),
            ("rea", false),
            ("reader", false),
            ("read\0", false),
            ("ｒead", false),
            ("list_", true),
            ("list_all", true),
            ("list", false),
            ("yx", false),
            ("*x", true),
            ("", false),
        ] {
            assert_eq!(is_covered(&patterns, tool), covers, "{tool:?}");
        }
        assert!(is_covered(&["*".to_owned()], ""));
        assert!(!is_covered(&[], ""));
    }
}
