use ktsu_ledger::event::lock::Lock;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::*;
use crate::{load, load_unlocked};

const ONE: &str = "kind: workflow\nname: one\nversion: 1.0.0\npipeline:\n  - {id: ask, agent: agents/clerk.agent.yaml}\n  - {id: call, workflow: workflows/sub.workflow.yaml}\n";
const OTHER: &str = "kind: workflow\nname: other\nversion: 2.0.0\npipeline:\n  - {id: t, transform: {inputs: [params], ops: []}}\n";
const SUB: &str = "kind: workflow\nname: sub\nversion: 0.1.0\nvisibility: sub-workflow\npipeline:\n  - {id: t, transform: {inputs: [params], ops: []}}\n";
const CLERK: &str = "name: clerk\nversion: 1.0.0\nmodel: std\nprompt: {system: s}\noutput: {schema: {type: object}}\n";
const GATEWAY: &str = "providers: [{name: p, type: openai, config: {base_url: \"http://x/\", api_key: \"{{ env.K }}\"}}]\nenv: [{name: K, secret: true}]\nmodel_groups: [{name: std, models: [p/gpt-4o]}]\n";

fn kit() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in [
        ("workflows/one.workflow.yaml", ONE),
        ("workflows/other.workflow.yaml", OTHER),
        ("workflows/sub.workflow.yaml", SUB),
        ("agents/clerk.agent.yaml", CLERK),
        ("gateway.yaml", GATEWAY),
    ] {
        put(dir.path(), path, text);
    }
    dir
}

fn put(dir: &Path, path: &str, text: &str) {
    let path = dir.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn lock(dir: &Path) -> Lock {
    let kit = load_unlocked(dir).unwrap_or_else(|faults| panic!("{faults}"));
    let lock = generate(&kit).unwrap_or_else(|faults| panic!("{faults}"));
    fs::write(dir.join(FILE), to_yaml(&lock)).unwrap();
    lock
}

fn sound(dir: &Path) -> Kit {
    load(dir).unwrap_or_else(|faults| panic!("{faults}"))
}

/// What differs, as `PATH RESPECT`.
fn drift(dir: &Path) -> Vec<String> {
    let held = sound(dir).lock.unwrap();
    let told = held.drift.iter().map(|one| {
        let difference = serde_json::to_value(one.difference).unwrap();
        format!("{} {}", one.path, difference.as_str().unwrap())
    });
    told.collect()
}

#[test]
fn a_lock_names_every_file_by_what_is_in_it_and_is_the_same_wherever_the_kit_lies() {
    let (here, there) = (kit(), kit());
    let made = lock(here.path());
    assert_eq!(made, lock(there.path()));
    let read = |dir: &Path| fs::read(dir.join(FILE)).unwrap();
    assert_eq!(read(here.path()), read(there.path()));
    let paths: Vec<&str> = made.entries.iter().map(|one| one.path.as_str()).collect();
    let sorted = [
        "agents/clerk.agent.yaml",
        "workflows/one.workflow.yaml",
        "workflows/other.workflow.yaml",
        "workflows/sub.workflow.yaml",
    ];
    assert_eq!(paths, sorted);
    let kit = sound(here.path());
    let digest = blake3::hash(CLERK.as_bytes()).to_hex().to_string();
    assert_eq!(made.entries[0].digest, digest);
    let one = &kit.workflows["one"].definition.digest;
    assert_eq!(made.entries[1].definition.as_ref(), Some(one));
    // What nobody can start has no run that could name a definition.
    assert_eq!(made.entries[3].definition, None);
    assert_eq!(kit.lock.as_ref().unwrap().lock, made);
    assert!(kit.must_be_locked().is_ok());
    assert!(kit.warnings.faults.is_empty(), "{}", kit.warnings);
}

#[test]
fn every_way_a_kit_can_differ_from_its_lock_is_reported_with_its_path() {
    let dir = kit();
    let dir = dir.path();
    let whole = lock(dir);
    assert_eq!(drift(dir), [""; 0]);
    put(
        dir,
        "agents/clerk.agent.yaml",
        &format!("{CLERK}# read it\n"),
    );
    assert_eq!(drift(dir), ["agents/clerk.agent.yaml changed"]);
    put(
        dir,
        "agents/clerk.agent.yaml",
        &CLERK.replace("1.0.0", "1.0.1"),
    );
    assert_eq!(drift(dir), ["agents/clerk.agent.yaml version"]);
    put(dir, "agents/clerk.agent.yaml", CLERK);
    put(dir, "agents/new.agent.yaml", &CLERK.replace("clerk", "new"));
    fs::remove_file(dir.join("workflows/other.workflow.yaml")).unwrap();
    let told = [
        "agents/new.agent.yaml added",
        "workflows/other.workflow.yaml removed",
    ];
    assert_eq!(drift(dir), told);
    fs::remove_file(dir.join("agents/new.agent.yaml")).unwrap();
    put(dir, "workflows/other.workflow.yaml", OTHER);
    // The same files, and another definition: whoever wrote the lock resolved them otherwise.
    let mut otherwise = whole.clone();
    otherwise.entries[2].definition = otherwise.entries[1].definition.clone();
    fs::write(dir.join(FILE), to_yaml(&otherwise)).unwrap();
    assert_eq!(drift(dir), ["workflows/other.workflow.yaml definition"]);
    // It is told although something else has changed that does not explain it.
    put(
        dir,
        "agents/clerk.agent.yaml",
        &format!("{CLERK}# read it\n"),
    );
    let told = [
        "agents/clerk.agent.yaml changed",
        "workflows/other.workflow.yaml definition",
    ];
    assert_eq!(drift(dir), told);
    put(dir, "agents/clerk.agent.yaml", CLERK);
    fs::write(dir.join(FILE), to_yaml(&whole)).unwrap();
    let prices =
        "    pricing: [{model: gpt-4o, input_per_million_usd: 1, output_per_million_usd: 2}]\n";
    let dear = GATEWAY.replace(
        "[{name: std, models: [p/gpt-4o]}]\n",
        "\n  - name: std\n    models: [p/gpt-4o]\n",
    );
    put(dir, "gateway.yaml", &dear);
    assert_eq!(drift(dir), [""; 0]);
    put(dir, "gateway.yaml", &format!("{dear}{prices}"));
    assert_eq!(drift(dir), ["prices prices"]);
    let refused = sound(dir).must_be_locked().unwrap_err();
    let words = refused.to_string();
    assert!(
        words.contains("2026-11+gateway.yaml, locked were 2026-11"),
        "{words}"
    );
    assert!(words.contains("ktsu.lock.yaml:4:3"), "{words}");
}

#[test]
fn a_run_records_the_lock_only_where_its_own_files_are_those_that_were_locked() {
    let dir = kit();
    let dir = dir.path();
    let locked = |dir: &Path| {
        let kit = sound(dir);
        let names = kit.workflows.iter().filter(|(_, one)| one.lock.is_some());
        names.map(|(name, _)| name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(locked(dir), [""; 0]);
    lock(dir);
    assert_eq!(locked(dir), ["one", "other", "sub"]);
    put(
        dir,
        "agents/clerk.agent.yaml",
        &format!("{CLERK}# read it\n"),
    );
    assert_eq!(locked(dir), ["other", "sub"]);
    put(dir, "agents/clerk.agent.yaml", CLERK);
    put(
        dir,
        "workflows/sub.workflow.yaml",
        &format!("{SUB}# read it\n"),
    );
    assert_eq!(locked(dir), ["other"]);
    // A file that none of them uses hinders none.
    put(dir, "workflows/sub.workflow.yaml", SUB);
    put(
        dir,
        "agents/spare.agent.yaml",
        &CLERK.replace("clerk", "spare"),
    );
    assert_eq!(locked(dir), ["one", "other", "sub"]);
    let kit = sound(dir);
    let recorded = kit.workflows["one"].lock.clone().unwrap();
    let read: Lock = serde_json::from_str(recorded.as_str()).unwrap();
    assert_eq!(read, kit.lock.unwrap().lock);
}

#[test]
fn a_file_without_a_version_is_not_locked_and_named() {
    let dir = kit();
    let text = CLERK.replace("version: 1.0.0\n", "");
    put(dir.path(), "agents/clerk.agent.yaml", &text);
    let kit = load_unlocked(dir.path()).unwrap_or_else(|faults| panic!("{faults}"));
    let refused = generate(&kit).unwrap_err();
    assert!(refused.has_errors());
    let words = refused.to_string();
    assert!(words.contains("error[version-missing]"), "{words}");
    assert!(words.contains("agents/clerk.agent.yaml:1:1"), "{words}");
}

#[test]
fn a_kit_without_a_lock_and_one_that_cannot_be_locked_are_refused_in_other_words() {
    let dir = kit();
    let codes = |dir: &Path| {
        let refused = sound(dir).must_be_locked().unwrap_err();
        let codes = refused.faults.iter().map(|one| one.code.text());
        codes.collect::<Vec<_>>()
    };
    assert_eq!(codes(dir.path()), ["lock-missing"]);
    lock(dir.path());
    let text = CLERK.replace("version: 1.0.0\n", "");
    put(dir.path(), "agents/clerk.agent.yaml", &text);
    assert_eq!(codes(dir.path()), ["version-missing"]);
}

#[test]
fn a_damaged_or_hostile_lock_is_a_fault_at_its_place() {
    let dir = kit();
    let whole = to_yaml(&lock(dir.path()));
    let zeros = "0".repeat(64);
    let entry = format!(
        "  - {{kind: server, path: s, version: 1.0.0, digest: \"{zeros}\", tools: {{a: \"{zeros}\"}}}}\n"
    );
    let cases = [
        ("format: 1", "format: 2", "lock-format", 2, 9),
        ("format: 1", "format: \"1\"", "lock-format", 2, 9),
        ("format: 1\n", "", "missing-key", 2, 1),
        ("prices:\n", "prises:\n", "unknown-key", 3, 1),
        ("  version: \"2026-11\"\n", "", "missing-key", 4, 3),
        ("entries:\n", "entries: &a\n", "", 0, 0),
        ("entries:\n", "entries: {}\nmore:\n", "wrong-type", 6, 10),
        ("- kind: agent", "- kind: tool", "bad-value", 7, 11),
        (
            "    version: \"1.0.0\"",
            "    version: 1.0",
            "wrong-type",
            9,
            14,
        ),
        (
            "    version: \"1.0.0\"",
            "    version: one",
            "bad-version",
            9,
            14,
        ),
        (
            "    path: \"agents",
            "    tools: {}\n    path: \"agents",
            "misplaced-key",
            8,
            12,
        ),
        ("\n    digest: \"", "\n    digest: \"F", "bad-value", 10, 13),
        ("workflows/other", "workflows/one", "duplicate-name", 17, 11),
        ("entries:\n", "entries:\n  - *nobody\n", "yaml-syntax", 7, 5),
        ("entries:\n", "entries:\n\t- a\n", "yaml-syntax", 7, 2),
        ("entries:\n", &format!("entries:\n{entry}"), "", 0, 0),
    ];
    for (from, to, code, line, column) in cases {
        let text = whole.replacen(from, to, 1);
        assert_ne!(text, whole, "{from}");
        fs::write(dir.path().join(FILE), &text).unwrap();
        match load(dir.path()) {
            Ok(_) => assert_eq!(code, "", "{to} passes"),
            Err(faults) => {
                let mut told = faults.faults.iter();
                let wanted =
                    told.any(|one| (one.code.text(), one.line, one.column) == (code, line, column));
                assert!(wanted, "{to}, {code} {line}:{column}: {faults}");
                let mut told = faults.faults.iter();
                assert!(told.all(|one| one.file == Path::new(FILE)), "{faults}");
            }
        }
        // Whatever it says, it can be written anew.
        assert!(load_unlocked(dir.path()).is_ok());
    }
    fs::write(dir.path().join(FILE), [0xff, 0xfe]).unwrap();
    let faults = load(dir.path()).unwrap_err();
    assert_eq!(faults.faults[0].code.text(), "file-unreadable");
}

#[test]
fn tools_that_a_lock_knows_are_kept_and_need_not_be_known_here() {
    let dir = kit();
    let mut wanted = lock(dir.path());
    wanted.entries.push(ktsu_ledger::event::lock::LockEntry {
        definition: None,
        digest: "0".repeat(64),
        kind: ktsu_ledger::event::lock::Kind::Server,
        path: "servers/a \"b\"\n: [c].server.yaml".to_owned(),
        tools: Some([("read: it".to_owned(), "1".repeat(64))].into()),
        version: "1.0.0".to_owned(),
    });
    let also = |path: &str, tools| {
        let last = wanted.entries.last().unwrap();
        ktsu_ledger::event::lock::LockEntry {
            path: path.to_owned(),
            tools,
            ..last.clone()
        }
    };
    // None was there, and nobody asked: two things.
    let others = [also("b", Some(BTreeMap::new())), also("c", None)];
    wanted.entries.extend(others);
    fs::write(dir.path().join(FILE), to_yaml(&wanted)).unwrap();
    let kit = sound(dir.path());
    let held = kit.lock.unwrap();
    assert_eq!(held.lock, wanted);
    assert_eq!(held.drift.len(), 3);
    // Nobody uses it.
    assert!(kit.workflows.values().all(|one| one.lock.is_some()));
}

#[test]
fn a_changed_server_takes_the_lock_from_those_who_use_it() {
    let agent = "version: 1.0.0\nmodel: m\nprompt: {system: s}\noutput: {schema: {type: object}}\n";
    let uses =
        format!("name: a\n{agent}servers: [{{name: crm, path: ../servers/crm.server.yaml}}]\n");
    let free = format!("name: b\n{agent}");
    let head = "kind: workflow\nversion: 1.0.0\n";
    let step = |agent: &str| format!("pipeline: [{{id: s, agent: agents/{agent}.agent.yaml}}]\n");
    let (one, two) = (
        format!("{head}name: one\n{}", step("a")),
        format!("{head}name: two\n{}", step("b")),
    );
    let server = "name: crm\nversion: 1.0.0\nurl: http://127.0.0.1:9\n";
    let dir = super::super::tests::kit(&[
        ("agents/a.agent.yaml", &uses),
        ("agents/b.agent.yaml", &free),
        ("workflows/one.workflow.yaml", &one),
        ("workflows/two.workflow.yaml", &two),
        ("servers/crm.server.yaml", server),
    ]);
    fs::write(dir.path().join(FILE), to_yaml(&lock(dir.path()))).unwrap();
    let locked = || {
        let kit = sound(dir.path());
        let each = kit.workflows.values().map(|one| one.lock.is_some());
        each.collect::<Vec<_>>()
    };
    assert_eq!(locked(), [true, true]);
    let path = dir.path().join("servers/crm.server.yaml");
    fs::write(path, format!("{server}# changed\n")).unwrap();
    assert_eq!(locked(), [false, true]);
}

#[test]
fn what_was_locked_of_a_server_is_not_forgotten_because_its_file_changed() {
    let server = "name: crm\nversion: 1.0.0\nurl: http://127.0.0.1:9\n";
    let flow = "kind: workflow\nversion: 1.0.0\nname: w\npipeline: []\n";
    let (crm, mail) = ("servers/crm.server.yaml", "servers/mail.server.yaml");
    let dir = super::super::tests::kit(&[
        ("workflows/w.workflow.yaml", flow),
        (crm, server),
        (mail, &server.replace("crm", "mail")),
    ]);
    let dir = dir.path();
    let mut before = lock(dir);
    for entry in &mut before.entries {
        if entry.kind == ktsu_ledger::event::lock::Kind::Server {
            entry.tools = Some([("get".to_owned(), "0".repeat(64))].into());
        }
    }
    let kept = || {
        let mut made = lock(dir);
        let lost = carry_over_tools(&mut made, &before);
        let kept = made.entries.into_iter().filter(|one| one.tools.is_some());
        let kept: Vec<String> = kept.map(|one| one.path).collect();
        (kept, lost)
    };
    // Another comment, another place, another allowlist: what is offered is held against the pins.
    put(dir, crm, &format!("{server}# read it\n"));
    put(
        dir,
        mail,
        &server
            .replace("name: crm", "name: mail")
            .replace(":9", ":8"),
    );
    assert_eq!(kept(), (vec![crm.to_owned(), mail.to_owned()], vec![]));
    // One that is gone for good takes its tools with it.
    fs::remove_file(dir.join(mail)).unwrap();
    assert_eq!(kept(), (vec![crm.to_owned()], vec![]));
    // One that is gone while another came may be the same.
    put(
        dir,
        "servers/post.server.yaml",
        &server.replace("crm", "post"),
    );
    assert_eq!(kept(), (vec![crm.to_owned()], vec![mail.to_owned()]));
    // One that only came has none.
    put(dir, mail, &server.replace("crm", "mail"));
    assert_eq!(kept(), (vec![crm.to_owned(), mail.to_owned()], vec![]));
}

proptest::proptest! {
    #![proptest_config(ktsu_campaign::config(256))]

    #[test]
    fn no_text_makes_reading_a_lock_panic(text in "[a-c:{}\\[\\]&*!|>'\"#,\n\t -]{0,60}") {
        if let Ok(node) = ktsu_config::yaml::parse(&text) {
            let _ = file::read(&text, &node);
        }
    }
}
