//! Evidence from the command line: signed while it runs, exported, verified, keys changed.

use super::{Desk, kit};

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
        .says("2 signed checkpoints are right");
    let key = desk
        .ktsu(&["evidence", "key", "show", "--json"])
        .is(0)
        .json();
    let key = key["keys"][0]["public_key"].as_str().unwrap().to_owned();
    desk.ktsu(&["evidence", "export", &run, "-o", "a.tar"])
        .is(0)
        .says("frames of 1 runs");
    desk.ktsu(&["evidence", "export", &run, "-o", "a.tar"])
        .is(2)
        .warns("exists already");
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
        let built = !["approvals", "tools", "lockfile"].contains(&claim["claim"].as_str().unwrap());
        let expected = if built { "proven" } else { "not_covered" };
        assert_eq!(claim["verdict"], expected, "{claim}");
    }
    std::fs::write(desk.path().join("c.tar"), b"no archive").unwrap();
    desk.ktsu(&["evidence", "verify", "c.tar"])
        .is(2)
        .warns("not an archive of evidence");
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
    desk.hello();
    desk.ktsu(&["verify"])
        .is(0)
        .says("2 signed checkpoints are right");
    desk.ktsu(&["evidence", "export", "--all", "-o", "a.tar"])
        .is(0);
    desk.ktsu(&["evidence", "verify", "a.tar", "--key", &first])
        .is(0)
        .says("2 keys, each by the one before");
    // A key that nobody vouches for signs on, and the auditor's key does not reach it.
    let file = desk.path().join(".ktsu/ledger.db.signing-key");
    let secret = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    desk.hello();
    desk.ktsu(&["evidence", "export", "--all", "-o", "b.tar"])
        .is(0);
    desk.ktsu(&["evidence", "verify", "b.tar"])
        .is(0)
        .says("nobody vouches for the key");
    let strict = ["evidence", "verify", "b.tar", "--key", &first];
    desk.ktsu(&strict)
        .is(1)
        .says("does not vouch for the one that signed");
    let archive = std::fs::read(desk.path().join("b.tar")).unwrap();
    let ledger = std::fs::read(desk.path().join(".ktsu/ledger.db")).unwrap();
    for bytes in [archive, ledger] {
        assert!(!bytes.windows(32).any(|window| window == secret));
    }
}
