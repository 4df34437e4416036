//! Evidence from the command line: signed while it runs, exported, verified, keys changed.

use std::path::Path;

use ktsu_evidence::page::verifier_page;
use ktsu_ledger::merkle::Node;
use sha2::{Digest as _, Sha256};

use super::{Desk, kit, repository, worlds};
use crate::evidence::archive_holds;

#[test]
fn a_run_is_signed_witnessed_exported_and_verified() {
    let desk = Desk::new();
    let witness = desk.path().join("witness.notes");
    let place = format!("file:{}", witness.display());
    let run = desk.ktsu(&["run", &kit("hello"), "--json"]).is(0).json();
    let run = run["run_id"].as_str().unwrap().to_owned();
    let mut second = desk.command(&["run", &kit("hello"), "--json"]);
    let second = second.env("KTSU_WITNESS", &place).output().unwrap();
    assert!(second.status.success());
    let held = witness.to_str().unwrap();
    desk.ktsu(&["verify", "--checkpoint", held])
        .is(0)
        .says("2 signed checkpoints verified");
    let key = desk
        .ktsu(&["evidence", "key", "show", "--json"])
        .is(0)
        .json();
    let key = key["keys"][0]["public_key"].as_str().unwrap().to_owned();
    desk.ktsu(&["evidence", "export", &run, "-o", "a.tar"])
        .is(0)
        .says("frames of 1 run");
    desk.ktsu(&["evidence", "export", &run, "-o", "a.tar"])
        .is(2)
        .warns("already exists");
    desk.ktsu(&["evidence", "export", &run, "-o", "b.tar"])
        .is(0);
    let read = |name: &str| std::fs::read(desk.path().join(name)).unwrap();
    assert_eq!(read("a.tar"), read("b.tar"));
    let asked = [
        "evidence",
        "verify",
        "a.tar",
        "--key",
        &key,
        "--checkpoint",
        held,
        "--json",
    ];
    let said = desk.ktsu(&asked).is(0).json();
    let verdicts = said["outcome"]["claims"].as_array().unwrap();
    for claim in verdicts {
        // The other run of the ledger is left out, and with it what could be of this one.
        let open = ["lock", "completeness"].contains(&claim["claim"].as_str().unwrap());
        let expected = if !open { "proven" } else { "not_covered" };
        assert_eq!(claim["verdict"], expected, "{claim}");
    }
    std::fs::write(desk.path().join("c.tar"), b"no archive").unwrap();
    desk.ktsu(&["evidence", "verify", "c.tar"])
        .is(2)
        .warns("not an archive of evidence");
}

#[test]
fn the_verifier_for_browsers_is_written_with_its_digest_and_never_over_another_file() {
    let desk = Desk::new();
    let page = verifier_page().text.as_bytes();
    let written = desk.ktsu(&["evidence", "page", "--json"]).is(0).json();
    let read = std::fs::read(desk.path().join("verify.html")).unwrap();
    assert_eq!(read, page);
    assert_eq!(written["bytes"], page.len());
    let digest = Node::from_bytes(&Sha256::digest(page)).unwrap().to_string();
    assert_eq!(written["sha256"], digest);
    // What auditors compare it with: part of the source, and so of every release.
    let released = include_str!("../../../docs/verify.html.sha256");
    assert_eq!(released, format!("{digest}  verify.html\n"));
    desk.ktsu(&["evidence", "page"])
        .is(2)
        .warns("verify.html already exists");
    desk.ktsu(&["evidence", "page", "other.html"])
        .is(0)
        .says(&format!("other.html: SHA-256 {digest}"));
}

#[test]
fn a_key_is_rotated_and_revoked_and_the_ledger_stays_in_one_hand() {
    let desk = Desk::new();
    desk.hello();
    let shown = desk
        .ktsu(&["evidence", "key", "show", "--json"])
        .is(0)
        .json();
    let first = shown["keys"][0]["public_key"].as_str().unwrap().to_owned();
    let id = shown["keys"][0]["id"].as_str().unwrap().to_owned();
    let early = ["evidence", "key", "revoke", &id, "--reason", "lost"];
    desk.ktsu(&early).is(2).warns("rotate first");
    desk.ktsu(&["evidence", "key", "rotate"])
        .is(0)
        .says("in force");
    desk.ktsu(&early).is(0).says("revoked: lost");
    desk.ktsu(&early).is(2).warns("already revoked");
    let shown = desk.ktsu(&["evidence", "key", "show", "--json"]);
    let second = shown.is(0).json()["keys"][1]["public_key"].clone();
    let second = second.as_str().unwrap().to_owned();
    desk.hello();
    desk.ktsu(&["verify"])
        .is(0)
        .says("2 signed checkpoints verified");
    desk.ktsu(&["evidence", "export", "--all", "-o", "a.tar"])
        .is(0);
    desk.ktsu(&["evidence", "verify", "a.tar", "--key", &second])
        .is(0)
        .says("2 keys, each vouched for by the one before");
    desk.ktsu(&["evidence", "verify", "a.tar", "--key", &first])
        .is(1)
        .says("is revoked: it vouches for nothing");
    // A key that nobody vouches for signs on, and the auditor's key does not reach it.
    let file = desk.path().join(".ktsu/ledger.db.signing-key");
    let secret = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    desk.hello();
    desk.ktsu(&["evidence", "export", "--all", "-o", "b.tar"])
        .is(0);
    desk.ktsu(&["evidence", "verify", "b.tar"])
        .is(0)
        .says("no earlier key vouches for the key");
    desk.ktsu(&["verify"])
        .is(0)
        .says("no earlier key vouches for it");
    for times in [
        ["--from", "garbage"],
        ["--to", "2026-1"],
        ["--from", "9998"],
    ] {
        let told = [&["evidence", "export", "--all", "-o", "t.tar"][..], &times].concat();
        desk.ktsu(&told).is(2);
        assert!(!desk.path().join("t.tar").exists());
    }
    let strict = ["evidence", "verify", "b.tar", "--key", &second];
    desk.ktsu(&strict)
        .is(1)
        .says("does not vouch for the one that signed");
    let archive = std::fs::read(desk.path().join("b.tar")).unwrap();
    let ledger = std::fs::read(desk.path().join(".ktsu/ledger.db")).unwrap();
    for bytes in [archive, ledger] {
        assert!(!bytes.windows(32).any(|window| window == secret));
    }
}

#[test]
fn an_archive_is_put_beside_nothing_that_is_there_and_only_its_owner_reads_it() {
    use std::os::unix::fs::{MetadataExt as _, symlink};
    let desk = Desk::new();
    desk.hello();
    let place = |name: &str| desk.path().join(name);
    // Neither what a fixed name beside it would hit, nor what a link leads to, is touched.
    std::fs::write(place("a.part"), "mine").unwrap();
    symlink(place("victim"), place("link.tar")).unwrap();
    for command in [["evidence", "export"], ["export", "--format=jsonl"]] {
        let name = format!("{}.tar", command[0]);
        let told = [&command[..], &["--all", "-o", &name]].concat();
        desk.ktsu(&told).is(0);
        let found = std::fs::metadata(place(&name)).unwrap();
        assert_eq!((found.mode() & 0o777, found.nlink()), (0o600, 1));
        let linked = [&command[..], &["--all", "-o", "link.tar"]].concat();
        desk.ktsu(&linked).is(2).warns("already exists");
        let part = format!("{}.part", command[0]);
        let told = [&command[..], &["--all", "-o", &part]].concat();
        desk.ktsu(&told).is(0);
    }
    assert_eq!(std::fs::read(place("a.part")).unwrap(), b"mine");
    assert!(!place("victim").exists());
    let left = std::fs::read_dir(desk.path()).unwrap();
    let left = left.map(|one| one.unwrap().file_name().into_string().unwrap());
    assert!(!left.into_iter().any(|name| name.ends_with(".tmp")));
}

#[test]
fn checkpoints_that_are_none_are_refused() {
    let desk = Desk::new();
    desk.hello();
    desk.ktsu(&["evidence", "export", "--all"]).is(0);
    std::fs::write(desk.path().join("held"), "").unwrap();
    let asked = ["evidence", "verify", "evidence.tar", "--checkpoint", "held"];
    desk.ktsu(&asked).is(2).warns("cannot use the checkpoints");
    desk.ktsu(&["verify", "--checkpoint", "held"]).is(2);
}

/// The heads of a run in an archive of everything: how many frames, and which status.
fn heads(desk: &Desk, run: &str, archive: &str) -> Vec<(u64, String)> {
    desk.ktsu(&["evidence", "export", "--all", "-o", archive])
        .is(0);
    let bytes = std::fs::read(desk.path().join(archive)).unwrap();
    let files = ktsu_evidence::tar::read(&bytes).unwrap();
    let frames = String::from_utf8(files["frames.jsonl"].clone()).unwrap();
    let frames = frames
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let stream = format!("run:{run}");
    let of_run = frames.filter(|frame| frame["data"]["stream"] == stream.as_str());
    let head = |frame: serde_json::Value| {
        let status = frame["data"]["status"].as_str().unwrap().to_owned();
        (frame["data"]["frames"].as_u64().unwrap(), status)
    };
    of_run.map(head).collect()
}

#[test]
fn every_checkpoint_over_frames_behind_a_head_is_over_another_head() {
    let desk = Desk::new();
    let run = desk.hello();
    let first = heads(&desk, &run, "a.tar");
    assert_eq!(first.len(), 1);
    // Said after the end: the end stays, and what was said cannot be cut off.
    let set = [
        "overlay",
        &run,
        "greet.result=[{\"text\":\"Hi\",\"name\":\"all\"}]",
    ];
    desk.ktsu(&[&set[..], &["--reason", "early"]].concat())
        .is(0);
    let second = heads(&desk, &run, "b.tar");
    assert_eq!(second[..1], first);
    assert_eq!(second.last().unwrap().1, "complete");
    assert!(second.last().unwrap().0 > first[0].0, "{second:?}");
    let hello = kit("hello");
    desk.ktsu(&["resume", &run, "--from", "measure", "--kit", &hello])
        .is(0);
    let third = heads(&desk, &run, "c.tar");
    assert!(
        third.last().unwrap().0 > second.last().unwrap().0,
        "{third:?}"
    );
    desk.ktsu(&["evidence", "verify", "c.tar"])
        .is(0)
        .says("proven      completeness");
}

/// Everything that was recorded at a desk, judged by both verifiers.
fn is_evidence(desk: &Desk, told: &str) {
    drop(std::fs::remove_file(desk.path().join("all.tar")));
    desk.ktsu(&["evidence", "export", "--all", "-o", "all.tar"])
        .is(0);
    desk.ktsu(&["evidence", "verify", "all.tar"]).is(0);
    let archive = std::fs::read(desk.path().join("all.tar")).unwrap();
    archive_holds(&archive, told);
}

#[test]
fn runs_of_every_shipped_kit_are_evidence_to_both_verifiers() {
    for entry in std::fs::read_dir(repository().join("kits")).unwrap() {
        let folder = entry.unwrap().path();
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let desk = Desk::new();
        match name.as_str() {
            // It asks a server of tools; what it does with one is in `tools/access_request.rs`.
            "access-request" => drop(desk.ktsu(&["run", &kit(&name)]).is(1)),
            "incidents" => {
                for decision in ["approve", "reject"] {
                    worlds::incidents(&desk, decision);
                }
                let input = format!("@{}/examples/agreed.json", kit(&name));
                desk.ktsu(&["run", &kit(&name), "--input", &input]).is(0);
            }
            "diligence" | "research" => {
                let silent = worlds::without_gateway(&desk, &name);
                for kit in [silent, kit(&name)] {
                    desk.ktsu(&["run", &kit, "--goal", "Acme"]).is(0);
                }
            }
            // A person reviews what its example leads to.
            "verification" => {
                for (word, status) in [("approve", 0), ("reject", 1)] {
                    let record = super::reviewing::interrupted(&desk, &["run", &kit(&name)]);
                    let id = record["review_id"].as_str().unwrap();
                    desk.ktsu(&[word, id, "--kit", &kit(&name)]).is(status);
                }
                let input = format!("@{}/examples/reliable.json", kit(&name));
                desk.ktsu(&["run", &kit(&name), "--input", &input]).is(0);
            }
            _ => drop(desk.ktsu(&["run", &kit(&name)]).is(0)),
        }
        is_evidence(&desk, &name);
    }
}

/// The kit `asks`: about three items a model is asked, and something is made of what it says. `rest`
/// stands behind the responders, `rules` says what the model replies.
fn asks(desk: &Desk, rest: &str, rules: &str) {
    let world = format!(
        r#"kind: world
name: asks
version: 1.0.0
objects: {{Goal: {{}}, A: {{}}, B: {{}}}}
responders:
  - name: ask
    "on": object.created
    type: Goal
    on_error: continue
    for_each: {{items: [a, b, c]}}
    ask:
      model: m
      messages: [{{role: user, content: "{{{{ item }}}}"}}]
      output: {{schema: {{type: object, required: [x], properties: {{x: {{type: string}}}}}}}}
    then:
      - object: {{type: A, data: {{x: "{{{{ reply.output.x }}}}"}}}}
      - object: {{type: B, data: {{}}}}
        when: reply.output.x == 'twice'
{rest}"#
    );
    desk.write_file("asks/worlds/asks.world.yaml", &world);
    desk.write_file("asks/rules.yaml", rules);
    let gateway = "providers:\n  - {name: p, type: scripted, config: {rules: rules.yaml}}\n\
                   model_groups:\n  - {name: m, models: [p/rules]}\n";
    desk.write_file("asks/gateway.yaml", gateway);
}

#[test]
fn whatever_a_model_replies_to_a_responder_is_evidence_to_both_verifiers() {
    let reply = |reply: &str| format!("rules: []\ndefault: {{reply: {reply}}}\n");
    let one = |of: &str| {
        format!("rules:\n  - {{when: {{user: b}}, {of}}}\ndefault: {{reply: {{x: ok}}}}\n")
    };
    let later = r#"  - name: later
    "on": object.created
    type: A
    emit:
      - object: {type: B, data: {of: "{{ object.id }}"}}
        key: one
"#;
    for (told, rest, rules) in [
        ("an answer", later, reply("{x: twice}")),
        (
            "one skips",
            later,
            one("reply: {x: b, ktsu_skip_reason: nothing new}"),
        ),
        (
            "all skip",
            "",
            reply("{x: b, ktsu_skip_reason: nothing new}"),
        ),
        (
            "one asks for a person",
            "",
            one("reply: {x: b, ktsu_needs_human: true}"),
        ),
        ("one is of another schema", later, one("reply: {x: 5}")),
        ("one is no JSON", later, one("text: hello")),
        (
            "one fails",
            later,
            one("error: {status: 500, message: boom}"),
        ),
    ] {
        let desk = Desk::new();
        asks(&desk, rest, &rules);
        desk.ktsu(&["run", "asks", "--goal", "g"]).is(0);
        is_evidence(&desk, told);
    }
}

/// The end of a budget stands in the stream of a run whose agents have budgets of their own.
#[test]
fn a_run_whose_responders_ask_until_the_budget_is_used_up_is_evidence_to_both_verifiers() {
    for (limit, low, high) in [
        ("max_events", "max_events: 4", "max_events=60"),
        (
            "max_recursion_depth",
            "max_recursion_depth: 1",
            "max_recursion_depth=60",
        ),
    ] {
        let desk = Desk::new();
        let rest = format!("budget: {{{low}}}\n");
        asks(&desk, &rest, "rules: []\ndefault: {reply: {x: ok}}\n");
        desk.ktsu(&["run", "asks", "--goal", "g"]).is(1);
        is_evidence(&desk, limit);
        let runs = desk.ktsu(&["runs", "--json"]).is(0).json();
        let run = runs["runs"][0]["run_id"].as_str().unwrap().to_owned();
        desk.ktsu(&["resume", &run, "--kit", "asks", "--raise", high])
            .is(0);
        let goal = r#"{"type": "object.created", "data": {"type": "Goal", "data": {}}}"#;
        desk.ktsu(&["post", &run, goal, "--kit", "asks"]).is(0);
        is_evidence(&desk, limit);
        let changes = changes(desk.path());
        let kinds: Vec<&str> = changes.iter().map(|row| row[4].as_str()).collect();
        assert_eq!(kinds, ["budget.raised", "object.created"], "{changes:?}");
        let by: Vec<&str> = changes.iter().map(|row| row[5].as_str()).collect();
        assert_eq!(by, ["local", "local"]);
        assert_eq!(changes[0][7], high.replace('=', " "));
        let what = &changes[1][7];
        assert!(what.starts_with("post 1 Goal Goal-"), "{changes:?}");
    }
}

/// The rows of `derived/changes.csv` in `all.tar`.
fn changes(folder: &Path) -> Vec<Vec<String>> {
    let archive = std::fs::read(folder.join("all.tar")).unwrap();
    let files = ktsu_evidence::tar::read(&archive).unwrap();
    let table = String::from_utf8(files["derived/changes.csv"].clone()).unwrap();
    let rows = table.lines().skip(1);
    rows.map(|row| row.split(',').map(str::to_owned).collect())
        .collect()
}
