//! What commands show of a run that a person paused or cancelled.

use ktsu_ledger::store::SqliteStore;
use serde_json::json;

use super::Desk;
use crate::golden::goldens;

#[test]
fn a_paused_run_says_since_when_by_whom_and_why_and_a_cancelled_one_who_ended_it() {
    let goldens = goldens();
    let (_, golden) = goldens
        .iter()
        .find(|(name, _)| name == "v2-failure")
        .unwrap();
    let run = golden.stream.name();
    let desk = Desk::new();
    let folder = desk.path().join(".ktsu");
    std::fs::create_dir_all(&folder).unwrap();
    // Accepted, and left before anything of it began.
    golden
        .cut(1)
        .put(&mut SqliteStore::open(&folder.join("ledger.db")).unwrap());
    desk.ktsu(&["runs"]).is(0).says("  pending  ");
    desk.ktsu(&["pause", run, "--reason", "the desk is shut"])
        .is(0);
    desk.ktsu(&["runs"]).is(0).says("  waiting, paused  ");
    let row = desk.ktsu(&["runs", "--json"]).is(0).json();
    assert!(row["runs"][0]["paused_at"].is_string(), "{row}");
    let get = || desk.ktsu(&["runs", "get", run, "--json"]).is(0).json();
    let paused = get();
    assert_eq!(paused["status"], "waiting");
    assert_eq!(paused["paused"]["at"], row["runs"][0]["paused_at"]);
    assert_eq!(paused["paused"]["by"], "local");
    assert_eq!(paused["paused"]["reason"], "the desk is shut");
    assert_eq!(paused.get("cancelled"), None);
    desk.ktsu(&["trace", run])
        .is(0)
        .says("paused since ")
        .says("Z by local: the desk is shut\n");
    let traced = desk.ktsu(&["trace", run, "--json"]).is(0).json();
    assert_eq!(traced["paused"], paused["paused"]);
    let many = ["pause", "--workflow", "root", "--yes"];
    desk.ktsu(&many)
        .is(1)
        .warns(&format!("error: {run}: the run is paused"));
    let many = [&many[..], &["--json"]].concat();
    let refused = desk.ktsu(&many).is(1).json();
    assert_eq!(refused["runs"], json!([]));
    assert_eq!(refused["refused"][0]["run_id"], run);
    assert_eq!(refused["refused"][0]["code"], "invalid_run_state");
    let why = refused["refused"][0]["error"].as_str().unwrap();
    assert!(why.starts_with("the run is paused"), "{refused}");
    for more in [&["--status", "pending"][..], &["--yes"]] {
        let one = [&["cancel", run], more].concat();
        desk.ktsu(&one).is(2).warns("cannot be used with");
    }
    desk.ktsu(&["cancel", run, "--expect", "0"])
        .is(2)
        .warns("review the run, then --expect ");
    desk.ktsu(&["cancel", run, "--reason", "for good"]).is(0);
    let cancelled = get();
    assert_eq!(cancelled["status"], "cancelled");
    assert_eq!(cancelled.get("paused"), None);
    assert_eq!(cancelled["cancelled"]["by"], "local");
    assert_eq!(cancelled["cancelled"]["reason"], "for good");
    let row = desk.ktsu(&["runs", "--json"]).is(0).json();
    assert_eq!(row["runs"][0].get("paused_at"), None);
    desk.ktsu(&["verify"]).is(0);
    let other = json!("cancelled by local: for good");
    assert_eq!(cancelled["error"]["message"], other);
}
