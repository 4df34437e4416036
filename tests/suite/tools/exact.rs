//! A thousand entries and names that look like others: what a kit takes, what a definition permits.
//! What a runtime makes of them is tested beside its catalogue.

use ktsu_ledger::event::plan::ToolRule;

use crate::support::KitDir;
use crate::support::lookalikes::{NAMES, all};

const FLOW: &str = "pipeline: [{id: act, agent: ./agents/a.agent.yaml}]\n";
/// The faults of a kit whose allowlist has these entries.
fn faults(entries: &[&str]) -> usize {
    // JSON is YAML, whatever stands in the text.
    let list = serde_json::to_string(entries).unwrap();
    let agent = format!(
        "name: a\nversion: 1.0.0\nmodel: std\nprompt: {{system: s}}\noutput: {{schema: {{type: object}}}}
servers: [{{name: desk, path: ../servers/desk.server.yaml, access: {{allowlist: {list}}}}}]\n"
    );
    let kit = KitDir::new(&[("flow", FLOW)])
        .with("agents/a.agent.yaml", &agent)
        .with(
            "servers/desk.server.yaml",
            "name: desk\nversion: 1.0.0\nurl: http://desk.example\n",
        );
    match ktsu_kit::load(kit.dir.path()) {
        Ok(_) => 0,
        Err(faults) => faults.faults.len(),
    }
}

/// Letters, digits and a few signs, a star at the end at the most: written out a second time.
fn is_entry(text: &str) -> bool {
    let name = text.strip_suffix('*').unwrap_or(text);
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/:".contains(&byte);
    !text.is_empty() && text.len() <= 128 && name.bytes().all(plain)
}

#[test]
fn a_kit_takes_no_entry_that_could_be_taken_for_another() {
    let all: Vec<String> = all().into_iter().map(|(_, other)| other).collect();
    assert!(all.len() >= 1_000);
    let (good, bad): (Vec<&str>, Vec<&str>) = all
        .iter()
        .map(String::as_str)
        .partition(|text| is_entry(text));
    assert!(
        good.len() >= 100 && bad.len() >= 500,
        "{} {}",
        good.len(),
        bad.len()
    );
    assert_eq!(faults(&good), 0);
    for one in bad {
        assert!(faults(&[one]) > 0, "{one:?}");
    }
}

#[test]
fn a_definition_permits_a_name_byte_for_byte_and_by_its_beginning() {
    let rule = |pattern: &str| ToolRule {
        approval: None,
        pattern: pattern.to_owned(),
    };
    let all = all();
    for (name, other) in &all {
        assert!(!rule(name).covers(other), "{name} {other:?}");
        assert!(rule("*").covers(other));
        assert!(rule(other).covers(other), "{other:?}");
        for known in NAMES {
            let permitted = match other.strip_suffix('*') {
                Some(beginning) => known.as_bytes().starts_with(beginning.as_bytes()),
                None => known.as_bytes() == other.as_bytes(),
            };
            assert_eq!(rule(other).covers(known), permitted, "{other:?} {known}");
        }
    }
}
