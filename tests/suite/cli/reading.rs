//! What is recorded, read again.

use std::io::Read as _;
use std::process::Stdio;

use serde_json::Value;

use super::{Desk, kit, repository};

#[test]
fn any_part_of_an_id_that_no_other_run_has_serves() {
    let desk = Desk::new();
    let (one, two) = (desk.hello(), desk.hello());
    let end = &one[one.len() - 12..];
    assert_eq!(
        desk.ktsu(&["runs", "get", end]).is(0).json()["run_id"],
        one.as_str()
    );
    assert_eq!(
        desk.ktsu(&["runs", "get", &two]).is(0).json()["run_id"],
        two.as_str()
    );
    // Both began within the same minutes.
    desk.ktsu(&["trace", &one[..8]])
        .is(2)
        .warns("matches several runs")
        .warns(&one)
        .warns("give more of the id");
    desk.ktsu(&["trace", "run_none"])
        .is(2)
        .warns("there is no run run_none");
    for command in [
        &["trace", ""][..],
        &["frames", "run:"],
        &["runs", "get", ""],
    ] {
        desk.ktsu(command)
            .is(2)
            .warns("the run id is empty")
            .warns("ktsu runs lists them");
    }
    desk.ktsu(&["runs", "--status", "foo"])
        .is(2)
        .warns("pending, running, waiting, complete, failed");
}

#[test]
fn runs_are_listed_newest_first_and_filtered() {
    let desk = Desk::new();
    let (one, two) = (desk.hello(), desk.hello());
    let said = desk.ktsu(&["runs"]);
    let mut lines = said.is(0).out.lines();
    assert!(lines.next().unwrap().starts_with("RUN  "));
    assert!(
        lines
            .next()
            .unwrap()
            .starts_with(&format!("{two}  hello     complete  "))
    );
    assert!(lines.next().unwrap().starts_with(&one));
    let json = desk.ktsu(&["runs", "--json", "--limit", "1"]).is(0).json();
    assert_eq!(json["runs"].as_array().unwrap().len(), 1);
    assert_eq!(json["runs"][0]["run_id"], two.as_str());
    desk.ktsu(&["runs", "--status", "failed"])
        .is(0)
        .warns("no matching runs in");
    desk.ktsu(&["runs", "--limit", "0"]).is(2);
    assert_eq!(
        desk.ktsu(&["runs", "--workflow", "hello"])
            .is(0)
            .out
            .lines()
            .count(),
        3
    );
}

/// What a trace says of a webhook that was sent: beside its step, of its frame, in JSON and on a page.
fn requests_of(desk: &Desk, run: &str) {
    let whole = desk.ktsu(&["trace", run, "--json"]).is(0).json();
    let steps = whole["steps"].as_array().unwrap();
    let step = steps.iter().find(|step| step["id"] == "hand_over").unwrap();
    let sent = &step["calls"][0];
    let request = &sent["request"];
    let (url, body) = (request["url"].as_str().unwrap(), &request["body"]);
    assert_eq!(request["method"], "POST");
    assert_eq!(request["body_bytes"], body.to_string().len());
    // In a pipe it is whole.
    let trace = desk.ktsu(&["trace", run]);
    let sent_to = format!("POST {url}: ");
    let mut lines = trace.is(0).out.lines();
    let (_, told) = lines.find_map(|line| line.split_once(&sent_to)).unwrap();
    assert_eq!(&serde_json::from_str::<Value>(told).unwrap(), body);
    let seq = sent["frame"].to_string();
    let of_the_frame = desk.ktsu(&["trace", run, &seq]);
    of_the_frame
        .is(0)
        .says(&format!("request     POST {url}\n"))
        .says("headers     accept, content-length, content-type, host, user-agent, webhook-id\n")
        .says(&format!("length      {} bytes\n", request["body_bytes"]))
        .says("\nbody\n  {\n");
    let json = desk.ktsu(&["trace", run, &seq, "--json"]).is(0).json();
    assert_eq!(&json["request"], request);
    let answered = step["calls"][1]["frame"].to_string();
    desk.ktsu(&["trace", run, &answered])
        .is(0)
        .says("status      200\n");
    let page = desk.path().join("page.html");
    desk.ktsu(&["trace", run, "--html", page.to_str().unwrap()])
        .is(0);
    let page = std::fs::read_to_string(page).unwrap();
    let sent = format!("POST <span class=\"id\">{url}</span>");
    assert!(
        page.contains(&sent) && page.contains("status 200"),
        "{page}"
    );
}

#[test]
fn a_trace_shows_steps_children_calls_and_the_way_to_the_root() {
    let desk = Desk::new();
    let said = desk.ktsu(&["run", &kit("intake"), "--json"]);
    let run = said.is(0).json()["run_id"].as_str().unwrap().to_owned();
    desk.ktsu(&["trace", &run])
        .is(0)
        .says("├─ ✓ open ")
        .says("after queue, urgent")
        .says("│  └─ ✓ page ")
        .says("webhook.delivered")
        .says("12 steps in ");
    requests_of(&desk, &run);
    desk.ktsu(&["trace", &format!("{run}/escalate")])
        .is(0)
        .says("✓ urgent 1.0.0 complete");
    desk.ktsu(&["trace", &format!("{run}/none")])
        .is(2)
        .warns("/none");
    let tree = desk.ktsu(&["trace", &run, "--frames"]);
    let frames = desk.ktsu(&["frames", &run]);
    assert_eq!(
        tree.is(0).out.lines().count(),
        frames.is(0).out.lines().count()
    );
    for arguments in [
        &["trace", &run][..],
        &["trace", &run, "--frames"],
        &["trace", &run, "3"],
    ] {
        desk.ktsu(&[arguments, &["--json"]].concat()).is(0).json();
    }
    let chain = desk.ktsu(&["trace", &run, "17"]);
    let numbers: Vec<u64> = chain
        .is(0)
        .out
        .lines()
        .filter_map(|line| line.split_whitespace().next()?.parse().ok())
        .collect();
    assert!(
        numbers.is_sorted_by(|later, earlier| later > earlier),
        "{numbers:?}"
    );
    assert_eq!((numbers[0], numbers[numbers.len() - 1]), (17, 0));
    let id = format!("run:{run}#17");
    assert_eq!(desk.ktsu(&["trace", &run, &id]).is(0).out, chain.out);
    assert_eq!(desk.ktsu(&["trace", &id]).is(0).out, chain.out);
    desk.ktsu(&["trace", &run, "999"])
        .is(2)
        .warns("has no frame 999");
    desk.ktsu(&["trace", &run, "x"])
        .is(2)
        .warns("x is not a frame");
}

#[test]
fn frames_come_whole_in_part_and_expanded() {
    let desk = Desk::new();
    let run = desk.hello();
    let all = desk.ktsu(&["frames", &run, "--json"]);
    let frames: Vec<Value> = all
        .is(0)
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(
        frames
            .iter()
            .zip(0u64..)
            .all(|(frame, seq)| frame["seq"] == seq)
    );
    assert!(frames[0]["data"]["definition"].is_null());
    let part = desk.ktsu(&["frames", &run, "--json", "--from", "1", "--limit", "2"]);
    assert_eq!(
        part.is(0).out,
        all.out
            .lines()
            .skip(1)
            .take(2)
            .fold(String::new(), |a, b| a + b + "\n")
    );
    let whole = desk
        .ktsu(&["frames", &run, "--json", "--expand", "--limit", "1"])
        .is(0)
        .json();
    assert!(whole["data"]["definition"].is_object());
    desk.ktsu(&["frames", &run, "--follow"])
        .is(0)
        .says("run.completed");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let desk = Desk::new();
    let run = desk.hello();
    for arguments in [
        &["frames", &run][..],
        &["frames", &run, "--json"],
        &["trace", &run],
        &["runs"],
        &["runs", "get", &run],
        &["verify"],
        &["--help"],
        &["run", &kit("hello")],
    ] {
        let mut command = desk.command(arguments);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let mut err = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut err)
            .unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(0), "{arguments:?} {err}");
        assert!(!err.contains("panic"), "{err}");
    }
}

#[test]
fn a_changed_byte_is_found_and_named() {
    let desk = Desk::new();
    let run = desk.hello();
    desk.ktsu(&["verify"])
        .is(0)
        .says("✓ .ktsu/ledger.db is sound: ")
        .says("not covered: ");
    change_a_byte(&desk);
    desk.ktsu(&["verify"])
        .is(1)
        .says("is damaged: 1 problem;")
        .says(&format!("run:{run}#"));
    desk.ktsu(&["verify", &run])
        .is(1)
        .says(&format!("✗ run:{run} is damaged"))
        .says(&format!("  run:{run}: "))
        .says(", head ");
    let json = desk.ktsu(&["verify", "--json"]).is(1).json();
    assert_eq!(json["sound"], false);
    assert!(json["report"]["problems"][0]["seq"].is_u64());
    desk.ktsu(&["backup", "copy.db"]).is(1).warns("problem");
    assert!(!desk.path().join("copy.db").exists());
}

#[test]
fn heads_kept_elsewhere_show_what_was_cut_off() {
    let desk = Desk::new();
    desk.hello();
    desk.ktsu(&["backup", "early.db"]).is(0);
    let run = desk.hello();
    desk.ktsu(&["verify", "--write-heads", "heads.json"])
        .is(0)
        .warns("heads written");
    desk.ktsu(&["verify", "--write-heads", "heads.json"])
        .is(2)
        .warns("cannot write");
    desk.hello();
    desk.ktsu(&["verify", "--heads", "heads.json"]).is(0);
    // The ledger as it was before the second run.
    desk.ktsu(&["restore", "early.db", "--to", "cut/ledger.db"])
        .is(0)
        .says("verified");
    desk.ktsu(&["verify", "--ledger", "cut/ledger.db"]).is(0);
    desk.ktsu(&[
        "verify",
        "--ledger",
        "cut/ledger.db",
        "--heads",
        "heads.json",
    ])
    .is(1)
    .says(&format!("run:{run}#"))
    .says("is not there");
    desk.ktsu(&["verify", "--heads", "early.db"])
        .is(2)
        .warns("cannot use the heads");
    desk.ktsu(&["restore", "early.db"])
        .is(2)
        .warns("already exists");
}

#[test]
fn a_workflow_is_shown_as_a_tree() {
    let desk = Desk::new();
    let file = repository().join("kits/intake/workflows/intake.workflow.yaml");
    let file = file.to_str().unwrap();
    desk.ktsu(&["workflow", "tree", file])
        .is(0)
        .says("└── workflows/urgent.workflow.yaml (workflow)");
    let json = desk
        .ktsu(&["workflow", "tree", file, "--json"])
        .is(0)
        .json();
    assert_eq!(json["kind"], "workflow");
    assert_eq!(json["path"], file);
    desk.ktsu(&["workflow", "tree", "nothing.yaml"])
        .is(2)
        .warns("cannot read");
}

#[test]
fn a_verified_run_is_reported_with_its_head_and_its_own_counts() {
    let desk = Desk::new();
    let run = desk.hello();
    desk.hello();
    let lines = desk.ktsu(&["frames", &run, "--json"]).is(0).out.clone();
    let frames: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let last = frames.last().unwrap();
    let head = last["hash"].as_str().unwrap();
    let count = frames.len();
    desk.ktsu(&["verify", &run])
        .is(0)
        .says("streams of the whole ledger read")
        .says(&format!("run:{run}: {count} frames, 1 blob, head {head}"));
    let json = desk.ktsu(&["verify", &run, "--json"]).is(0).json();
    let stream = &json["streams"][0];
    assert_eq!(stream["head"], head);
    assert_eq!(stream["frames"], count);
    assert_eq!(json["streams"].as_array().unwrap().len(), 1);
    // Nobody is named where nobody was asked about and nothing is wrong.
    let json = desk.ktsu(&["verify", "--json"]).is(0).json();
    assert_eq!(json["streams"], serde_json::json!([]));
}

/// Changes what the only step of `hello` gave, in the frame that holds it.
fn change_a_byte(desk: &Desk) {
    let path = desk.path().join(".ktsu/ledger.db");
    let mut bytes = std::fs::read(&path).unwrap();
    let text = b"Hello, world!";
    // A page that was divided may hold it a second time, where nobody reads it.
    let places = 0..bytes.len() - text.len();
    let places: Vec<usize> = places.filter(|at| bytes[*at..].starts_with(text)).collect();
    assert!(!places.is_empty());
    places.into_iter().for_each(|at| bytes[at] = b'J');
    std::fs::write(&path, bytes).unwrap();
}

#[test]
fn a_branch_is_as_damaged_as_the_frames_that_it_shares() {
    let desk = Desk::new();
    let run = desk.hello();
    let frames = desk.ktsu(&["frames", &run, "--json"]).is(0).out.clone();
    let shared = (frames.lines().count() - 1).to_string();
    let fork = |at: &str| {
        let fork = desk.ktsu(&["fork", &run, "--at", at, "--json"]);
        fork.is(0).json()["branch_id"].as_str().unwrap().to_owned()
    };
    let (late, early) = (fork(&shared), fork("1"));
    desk.ktsu(&["verify", &late])
        .is(0)
        .says(&format!("({shared} shared)"));
    change_a_byte(&desk);
    desk.ktsu(&["verify", &late])
        .is(1)
        .says(&format!("run:{run}#"));
    // What is wrong behind the place where it was forked is none of its own.
    desk.ktsu(&["verify", &early]).is(0);
}
