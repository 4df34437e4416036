//! One ledger, one owner: who else may do what.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;

use super::{Desk, kit, send};
use crate::support::cannot_mount;

#[test]
fn a_second_owner_learns_who_the_first_is_and_what_to_type() {
    let desk = Desk::new();
    let owner = desk.start(&["--kit", &kit("hello")]);
    for arguments in [
        &["run", &kit("hello")][..],
        &["start", "--port", "0", "--kit", &kit("hello")],
    ] {
        desk.ktsu(arguments)
            .is(2)
            .warns(&format!("process {}", owner.child.id()))
            .warns(&owner.url)
            .warns("ktsu invoke WORKFLOW")
            .warns("--ledger FILE");
    }
    desk.ktsu(&["run", &kit("hello"), "--ledger", "mine.db"])
        .is(0);
}

#[test]
fn invoke_gives_up_on_an_engine_that_does_not_answer() {
    let desk = Desk::new();
    // It takes connections, and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let asked = ["invoke", "hello", "--orchestrator", &url, "--timeout", "1"];
    desk.ktsu(&asked)
        .is(2)
        .warns(&format!("no response from {url} within 1 s"))
        .warns("ktsu runs");
    let with_key = [&asked[..], &["--idempotency-key", "once"]].concat();
    desk.ktsu(&with_key)
        .is(2)
        .warns("with the same key, which starts no second run");
}

#[test]
fn invoke_goes_through_the_owner() {
    let desk = Desk::new();
    let owner = desk.start(&["--kit", &kit("hello")]);
    let said = desk.ktsu(&["invoke", "hello", "--idempotency-key", "once"]);
    let run = said
        .is(0)
        .out
        .trim()
        .strip_prefix("run_id: ")
        .unwrap()
        .to_owned();
    let again = desk.ktsu(&["invoke", "hello", "--idempotency-key", "once", "--json"]);
    assert_eq!(again.is(0).json()["run_id"], run.as_str());
    desk.ktsu(&[
        "invoke",
        "hello",
        "--input",
        r#"{"name":"X"}"#,
        "--idempotency-key",
        "once",
    ])
    .is(2)
    .warns("idempotency key");
    desk.ktsu(&["invoke", "hello", "--wait", "--input", r#"{"name":"Ada"}"#])
        .is(0)
        .says("Hello, Ada!")
        .warns("step greet complete");
    let json = desk.ktsu(&[
        "invoke",
        "hello",
        "--wait",
        "--json",
        "--orchestrator",
        &owner.url,
    ]);
    assert_eq!(json.is(0).json()["status"], "complete");
    desk.ktsu(&["invoke", "helo"])
        .is(2)
        .warns("no workflow helo")
        .warns("did you mean hello?");
    desk.ktsu(&["invoke", "hello", "--input", r#"{"name":""}"#])
        .is(2)
        .warns("name");
    let (code, err) = owner.stop("TERM");
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("ready"), "{err}");
}

#[test]
fn readers_work_beside_the_owner() {
    let desk = Desk::new();
    let owner = desk.start(&["--kit", &kit("hello"), "--log-format", "json"]);
    let run = desk
        .ktsu(&["invoke", "hello", "--wait", "--json"])
        .is(0)
        .json();
    let run = run["run_id"].as_str().unwrap();
    desk.ktsu(&["runs"]).is(0).says(run);
    desk.ktsu(&["runs", "get", run]).is(0);
    desk.ktsu(&["trace", run]).is(0).says("greet");
    desk.ktsu(&["frames", run]).is(0).says("run.completed");
    desk.ktsu(&["verify"]).is(0).says("is sound");
    desk.ktsu(&["backup", "copy.db"]).is(0).says("verified");
    desk.ktsu(&["restore", "copy.db"])
        .is(2)
        .warns("owned by process");
    let (code, err) = owner.stop("INT");
    assert_eq!(code, 0);
    for line in err.lines() {
        let _: serde_json::Value = serde_json::from_str(line).unwrap();
    }
}

#[test]
fn where_no_one_owns_the_ledger_invoke_needs_a_kit_and_waits() {
    let desk = Desk::new();
    desk.ktsu(&["invoke", "hello"])
        .is(2)
        .warns("no engine owns")
        .warns("ktsu start --kit DIR");
    desk.ktsu(&["invoke", "hello", "--kit", &kit("hello")])
        .is(0)
        .says("Hello, world!")
        .warns("until it ends");
    desk.ktsu(&["invoke", "hello", "--orchestrator", "http://127.0.0.1:9"])
        .is(2)
        .warns("does not answer");
    desk.ktsu(&["invoke", "hello", "--orchestrator", "nonsense"])
        .is(2)
        .warns("not a URL");
}

#[test]
fn a_port_in_use_is_said_with_another_to_try() {
    let desk = Desk::new();
    let owner = desk.start(&["--kit", &kit("hello")]);
    let port = owner.url.rsplit_once(':').unwrap().1;
    let hello = kit("hello");
    let arguments = [
        "start", "--kit", &hello, "--port", port, "--ledger", "mine.db",
    ];
    desk.ktsu(&arguments)
        .is(2)
        .warns("cannot listen on")
        .warns("--port");
}

/// A chain of steps could nest as deep as it is long: what is answered must stay readable.
#[test]
fn a_long_run_is_traced_here_and_over_http() {
    const STEPS: usize = 2000;
    let desk = Desk::new();
    let mut workflow = "kind: workflow\nname: long\nversion: 1.0.0\npipeline:\n".to_owned();
    for step in 0..STEPS {
        let from = match step {
            0 => "params".to_owned(),
            _ => format!("step.s{}.result", step - 1),
        };
        let input = format!("{{inputs: [{{from: {from}}}], ops: []}}");
        writeln!(workflow, "  - id: s{step}\n    transform: {input}").unwrap();
    }
    let long = desk.write_kit("long", &workflow);
    let owner = desk.start(&["--kit", &long]);
    let run = desk
        .ktsu(&["invoke", "long", "--wait", "--json"])
        .is(0)
        .json();
    let run = run["run_id"].as_str().unwrap();
    desk.ktsu(&["trace", run])
        .is(0)
        .says(&format!("{STEPS} steps in "));
    let tree = desk.ktsu(&["trace", run, "--frames"]);
    assert!(tree.is(0).out.lines().count() > 2 * STEPS);
    let address = owner.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let request =
        format!("GET /runs/{run}/trace HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer:.200}");
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let trace: serde_json::Value = serde_json::from_str(body).unwrap();
    assert!(trace["tree"].as_array().unwrap().len() > 2 * STEPS);
    let (code, _) = owner.stop("TERM");
    assert_eq!(code, 0);
}

/// The variables of one service are none of another's business.
#[test]
fn a_runtime_does_not_listen_where_the_orchestrator_is_to_be() {
    let desk = Desk::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let nobody = "http://127.0.0.1:9";
    let mut child = desk
        .command(&[
            "start",
            "runtime",
            "--orchestrator",
            nobody,
            "--gateway",
            nobody,
        ])
        .env("KTSU_ORCHESTRATOR_PORT", &port)
        .env("KTSU_RUNTIME_PORT", "0")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let ready = lines.next();
    send("TERM", child.id());
    assert!(child.wait().unwrap().success());
    let ready = ready.unwrap().unwrap();
    assert!(
        ready.starts_with("the ktsu runtime listens on http://127.0.0.1:"),
        "{ready}"
    );
    assert!(!ready.ends_with(&format!(":{port}")), "{ready}");
}

/// The log and the lock of a ledger are found by its name: by another one they are missed.
#[test]
fn a_hard_link_of_a_ledger_is_refused_to_owners_and_readers_are_warned() {
    let desk = Desk::new();
    let run = desk.hello();
    let owner = desk.start(&["--kit", &kit("hello")]);
    std::fs::create_dir(desk.path().join("other")).unwrap();
    let link = desk.path().join("other/ledger.db");
    std::fs::hard_link(desk.path().join(".ktsu/ledger.db"), &link).unwrap();
    let hello = kit("hello");
    let owned = [
        &["run", &hello][..],
        &["start", "--port", "0", "--kit", &hello],
        &["invoke", "hello", "--kit", &hello],
        &["overlay", &run, "greet.result=\"x\"", "--reason", "y"],
        &["import", "runs.jsonl"],
        &["evidence", "key", "rotate"],
    ];
    desk.ktsu(&["export", "--all", "-o", "runs.jsonl"])
        .is(0)
        .says("runs.jsonl holds ")
        .says(" frames, ");
    for arguments in owned {
        let arguments = [arguments, &["--ledger", "other/ledger.db"]].concat();
        let said = desk.ktsu(&arguments);
        assert_ne!(said.code, 0, "{said:#?}");
        said.warns("2 names (hard links)");
    }
    desk.ktsu(&["runs", "--ledger", "other/ledger.db"])
        .is(0)
        .says(&run)
        .warns("may be out of date")
        .warns("2 names (hard links)");
    desk.ktsu(&["verify", "--ledger", "other/ledger.db"])
        .says("not covered: frames in the log only: the file is in use through another name")
        .warns("may be out of date");
    for (arguments, file) in [
        (&["backup", "copy.db"][..], "copy.db"),
        (&["export", "--all", "-o", "old.jsonl"], "old.jsonl"),
        (&["evidence", "export", "--all"], "evidence.tar"),
    ] {
        let arguments = [arguments, &["--ledger", "other/ledger.db"]].concat();
        desk.ktsu(&arguments)
            .is(2)
            .warns("through another name of the file")
            .warns("use the path that its owner uses");
        assert!(!desk.path().join(file).exists(), "{file}");
    }
    desk.ktsu(&["backup", "copy.db"]).is(0);
    // Whoever owns it goes on, and nothing is lost.
    let second = desk
        .ktsu(&["invoke", "hello", "--wait", "--json"])
        .is(0)
        .json();
    owner.stop("TERM");
    std::fs::remove_file(&link).unwrap();
    desk.ktsu(&["runs"])
        .is(0)
        .says(&run)
        .says(second["run_id"].as_str().unwrap());
    desk.ktsu(&["verify"]).is(0);
    let said = desk.ktsu(&["runs"]);
    assert!(!said.err.contains("warning"), "{said:#?}");
}

/// In a mount namespace of its own, so that nothing is left of it.
#[test]
fn a_bind_mount_of_a_ledger_is_refused_to_owners_and_readers_are_warned() {
    if let Some(why) = cannot_mount() {
        crate::support::not_tested(&format!("that a bind mount of a ledger is refused: {why}"));
        return;
    }
    let desk = Desk::new();
    let run = desk.hello();
    desk.write_file("other/ledger.db", "");
    let elsewhere = |arguments: &[&str]| {
        let script = "mount --bind .ktsu/ledger.db other/ledger.db && exec \"$@\"";
        let ktsu = env!("CARGO_BIN_EXE_ktsu");
        let mut command = std::process::Command::new("unshare");
        command
            .args(["-m", "sh", "-c", script, "sh", ktsu])
            .args(arguments)
            .args(["--ledger", "other/ledger.db"])
            .current_dir(desk.path())
            .stdin(Stdio::null());
        let done = command.output().unwrap();
        let err = String::from_utf8_lossy(&done.stderr).into_owned();
        (done.status.code(), err)
    };
    let refused = |why: &str| {
        let (code, err) = elsewhere(&["run", &kit("hello")]);
        assert_eq!(code, Some(2), "{err}");
        assert!(err.contains(why), "{err}");
    };
    // Whether or not somebody owns it by its own name: a log may be there all the same.
    refused("mounted by itself (a bind mount)");
    let owner = desk.start(&["--kit", &kit("hello")]);
    refused("mounted by itself (a bind mount)");
    let (code, err) = elsewhere(&["runs"]);
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains("may be out of date"), "{err}");
    let second = desk
        .ktsu(&["invoke", "hello", "--wait", "--json"])
        .is(0)
        .json();
    owner.stop("TERM");
    desk.ktsu(&["runs"])
        .is(0)
        .says(&run)
        .says(second["run_id"].as_str().unwrap());
    desk.ktsu(&["verify"]).is(0);
}

#[test]
fn an_emptied_ledger_is_refused_with_the_way_back() {
    let desk = Desk::new();
    let run = desk.hello();
    desk.ktsu(&["backup", "copy.db"]).is(0);
    desk.ktsu(&["export", "--all", "-o", "runs.jsonl"]).is(0);
    let ledger = desk.path().join(".ktsu/ledger.db");
    std::fs::write(&ledger, "").unwrap();
    for arguments in [
        &["run", &kit("hello")][..],
        &["start", "--port", "0", "--kit", &kit("hello")],
    ] {
        desk.ktsu(arguments)
            .is(2)
            .warns("too short for a ledger")
            .warns("ledger.db.key")
            .warns("ktsu restore BACKUP --to .ktsu/ledger.db");
    }
    for arguments in [&["runs"][..], &["start", "--read-only", "--port", "0"]] {
        desk.ktsu(arguments)
            .is(2)
            .warns("it is empty (0 bytes)")
            .warns("ktsu restore BACKUP --to ");
    }
    let said = desk.ktsu(&["import", "runs.jsonl"]);
    said.is(2).warns("it is empty (0 bytes)");
    assert!(!said.err.contains("runs.jsonl"), "{said:#?}");
    assert_eq!(std::fs::metadata(&ledger).unwrap().len(), 0);
    std::fs::rename(&ledger, desk.path().join("emptied.db")).unwrap();
    desk.ktsu(&["restore", "copy.db", "--to", ".ktsu/ledger.db"])
        .is(0);
    desk.ktsu(&["runs"]).is(0).says(&run);
    desk.hello();
}

#[test]
fn a_ledger_whose_owner_was_killed_is_refused_once_its_log_is_gone() {
    let desk = Desk::new();
    let owner = desk.start(&["--kit", &kit("hello")]);
    let invoked = desk.ktsu(&["invoke", "hello", "--wait", "--json"]);
    let run = invoked.is(0).json()["run_id"].as_str().unwrap().to_owned();
    owner.stop("KILL");
    let (log, aside) = (
        desk.path().join(".ktsu/ledger.db-wal"),
        desk.path().join("aside"),
    );
    std::fs::rename(&log, &aside).unwrap();
    for arguments in [
        &["run", &kit("hello")][..],
        &["start", "--port", "0", "--kit", &kit("hello")],
    ] {
        desk.ktsu(arguments)
            .is(2)
            .warns("did not close it, and ")
            .warns("ledger.db-wal is missing");
    }
    desk.ktsu(&["run", &kit("hello")])
        .is(2)
        .warns("ledger.db-wal back next to it")
        .warns("ledger.db.lock");
    desk.ktsu(&["verify"])
        .says("not covered: frames that were only in ")
        .says("the last owner did not close the ledger");
    // With its log it is whole.
    std::fs::rename(&aside, &log).unwrap();
    desk.hello();
    desk.ktsu(&["runs"]).is(0).says(&run);
    desk.ktsu(&["verify"]).is(0);
}

#[test]
fn a_ledger_that_cannot_even_be_read_is_not_sent_back_to_the_same_command() {
    let desk = Desk::new();
    desk.hello();
    desk.ktsu(&["export", "--all", "-o", "runs.jsonl"]).is(0);
    let ledger = desk.path().join(".ktsu/ledger.db");
    let mut bytes = std::fs::read(&ledger).unwrap();
    // The first page: the schema is gone, and the header is not.
    bytes[100..4096].fill(0);
    std::fs::write(&ledger, bytes).unwrap();
    let said = desk.ktsu(&["start", "--read-only", "--port", "0"]);
    said.is(2).warns("damaged").warns("ktsu restore BACKUP");
    assert!(!said.err.contains("--read-only"), "{said:#?}");
    let said = desk.ktsu(&["import", "runs.jsonl"]);
    said.is(2).warns("the ledger is damaged");
    assert!(!said.err.contains("runs.jsonl"), "{said:#?}");
}

#[test]
fn reading_is_served_beside_the_owner_and_nothing_is_written() {
    let desk = Desk::new();
    let run = desk.hello();
    let owner = desk.start(&["--kit", &kit("hello")]);
    let reading = desk.start(&["--read-only"]);
    let at = |path: &str| {
        let address = reading.url.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        let method = if path.starts_with("/invoke") {
            "POST"
        } else {
            "GET"
        };
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let health = at("/health");
    assert!(health.starts_with("HTTP/1.1 200 "), "{health}");
    assert!(
        health.contains(r#""ledger":{"state":"read_only"}"#),
        "{health}"
    );
    assert!(at("/runs").contains(&run));
    let home = at("/");
    let (_, home) = home.split_once("\r\n\r\n").unwrap();
    let home: serde_json::Value = serde_json::from_str(home).unwrap();
    assert_eq!(home["ledger"], "read_only");
    assert_eq!(home["workflows"], serde_json::json!([]));
    let posts = home["routes"].as_array().unwrap().iter();
    let mut posts = posts.filter(|route| route["method"] != "GET");
    assert_eq!(posts.next().unwrap()["path"], "/runs/{id}/replay");
    assert_eq!(posts.next(), None, "nothing that would write is offered");
    // What the owner does next is seen.
    let second = desk
        .ktsu(&["invoke", "hello", "--wait", "--json"])
        .is(0)
        .json();
    let second = second["run_id"].as_str().unwrap();
    assert!(at(&format!("/runs/{second}")).contains("complete"));
    assert!(at("/invoke/hello").starts_with("HTTP/1.1 404 "));
    let (code, err) = reading.stop("TERM");
    assert_eq!(code, 0, "{err}");
    desk.ktsu(&["invoke", "hello", "--wait"]).is(0);
    let (code, _) = owner.stop("TERM");
    assert_eq!(code, 0);
    desk.ktsu(&["start", "runtime", "--read-only"])
        .is(2)
        .warns("--read-only is only for the orchestrator");
}
