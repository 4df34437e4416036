//! `ktsu lock` and `--locked`: what was locked runs, and nothing else.

use serde_json::{Value, json};

use super::Desk;
use crate::support::tools::{Given, ToolServer};

const WORKFLOW: &str = "kind: workflow
name: one
version: 1.0.0
params: {schema: {type: object, properties: {who: {type: string, default: you}}}}
pipeline:
  - {id: ask, agent: agents/clerk.agent.yaml, params: {who: \"{{ params.who }}\"}}
";
const OTHER: &str = "kind: workflow
name: other
version: 1.0.0
pipeline:
  - {id: t, transform: {inputs: [params], ops: []}}
";
const AGENT: &str = "name: clerk
version: 1.0.0
model: std
params: {schema: {type: object, required: [who], properties: {who: {type: string}}}}
prompt: {system: s, user: \"{{ params.who }}\"}
output: {schema: {type: object, required: [said], properties: {said: {type: string}}}}
";
const GATEWAY: &str = "providers: [{name: p, type: scripted, config: {rules: replies.yaml}}]
model_groups: [{name: std, models: [p/one]}]
";

fn kit(desk: &Desk) {
    desk.write_file("kit/workflows/one.workflow.yaml", WORKFLOW);
    desk.write_file("kit/workflows/other.workflow.yaml", OTHER);
    desk.write_file("kit/agents/clerk.agent.yaml", AGENT);
    desk.write_file("kit/gateway.yaml", GATEWAY);
    desk.write_file(
        "kit/replies.yaml",
        "rules: []\ndefault: {reply: {said: hello}}\n",
    );
}

/// `data` and `ext` of the first frame of a run.
fn created(desk: &Desk, run: &str) -> (Value, Value) {
    let said = desk.ktsu(&["frames", run, "--json", "--limit", "1"]);
    let frame = said.is(0).json();
    (frame["data"].clone(), frame["ext"].clone())
}

fn run(desk: &Desk, workflow: &str) -> String {
    let said = desk.ktsu(&["run", "kit", workflow, "--json"]);
    let envelope = said.is(0).json();
    envelope["run_id"].as_str().unwrap().to_owned()
}

#[test]
fn what_changed_since_it_was_locked_is_named_and_refused_by_every_command_that_is_asked_to() {
    let desk = Desk::new();
    kit(&desk);
    desk.ktsu(&["run", "kit", "one", "--locked"])
        .is(2)
        .warns("lock-missing")
        .warns("the kit has no lock file")
        .warns("hint: to write one: ktsu lock kit");
    desk.ktsu(&["lock", "kit", "--check"])
        .is(1)
        .says("the kit has no lock file: kit/ktsu.lock.yaml")
        .warns("to write one: ktsu lock kit");
    desk.ktsu(&["lock", "kit"])
        .is(0)
        .says("kit/ktsu.lock.yaml: 3 files, locked");
    desk.ktsu(&["lock", "kit"]).is(0).says("unchanged");
    desk.ktsu(&["lock", "kit", "--check"])
        .is(0)
        .says("matches its lock");
    let said = desk
        .ktsu(&["lock", "kit", "--check", "--json"])
        .is(0)
        .json();
    assert_eq!(
        (&said["locked"], &said["drift"]),
        (&json!(true), &json!([]))
    );
    let one = desk.ktsu(&["run", "kit", "one", "--locked", "--json"]);
    let one = one.is(0).json()["run_id"].as_str().unwrap().to_owned();
    desk.ktsu(&["capture", &one, "-o", "base"]).is(0);
    for arguments in [
        &["validate", "kit", "--locked"][..],
        &["test", "base", "--kit", "kit", "--locked"],
        &["replay", &one, "--against", "kit", "--locked"],
    ] {
        desk.ktsu(arguments).is(0);
    }
    desk.write_file(
        "kit/agents/clerk.agent.yaml",
        &format!("{AGENT}# read it\n"),
    );
    let place = "ktsu.lock.yaml:10:13";
    let words = "agents/clerk.agent.yaml is not the file that was locked";
    for arguments in [
        &["run", "kit", "one", "--locked"][..],
        &["start", "--kit", "kit", "--port", "0", "--locked"],
        &["test", "base", "--kit", "kit", "--locked"],
        &["replay", &one, "--against", "kit", "--locked"],
    ] {
        let said = desk.ktsu(arguments);
        said.is(2).warns(words).warns(place).warns("ktsu lock kit");
    }
    desk.ktsu(&["validate", "kit", "--locked"])
        .is(1)
        .says(&format!("error[lock-drift]: {words}"))
        .says(place)
        .says("not valid (1 error)");
    let said = desk.ktsu(&["lock", "kit", "--check"]);
    said.is(1).says(words).says(place).warns("ktsu lock kit");
    let said = desk
        .ktsu(&["lock", "kit", "--check", "--json"])
        .is(1)
        .json();
    assert_eq!(said["drift"][0]["path"], "agents/clerk.agent.yaml");
    assert_eq!(said["drift"][0]["difference"], "changed");
    assert_eq!(said["faults"][0]["line"], 10);
    // Without the flag it is a warning.
    desk.ktsu(&["validate", "kit"])
        .is(0)
        .says(&format!("warning[lock-drift]: {words}"));
    let (code, err) = desk.start(&["--kit", "kit"]).stop("TERM");
    assert_eq!(code, 0, "{err}");
    assert!(err.contains(words), "{err}");
    desk.ktsu(&["run", "kit", "one"])
        .is(0)
        .warns(&format!("warning[lock-drift]: {words}"))
        .warns(place)
        .warns("to update the lock: ktsu lock kit");
    desk.ktsu(&["lock", "kit"]).is(0).warns(words);
    desk.ktsu(&["run", "kit", "one", "--locked"]).is(0);
}

#[test]
fn a_run_records_the_lock_it_was_started_under_and_none_that_does_not_hold() {
    let desk = Desk::new();
    kit(&desk);
    let free = run(&desk, "one");
    let (data, ext) = created(&desk, &free);
    assert!(data.get("lock").is_none(), "{data}");
    assert_eq!(ext.as_array().unwrap().len(), 1);
    desk.ktsu(&["lock", "kit"]).is(0);
    let (one, again) = (run(&desk, "one"), run(&desk, "one"));
    let (data, ext) = created(&desk, &one);
    assert_eq!(data["lock"], Value::Null);
    let paths: Vec<&Value> = ext
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["path"])
        .collect();
    assert_eq!(paths, ["/definition", "/lock"]);
    // A blob is kept once, however many runs name it.
    assert_eq!(created(&desk, &again).1, ext);
    let whole = desk.ktsu(&["frames", &one, "--json", "--expand", "--limit", "1"]);
    let whole = whole.is(0).json();
    let entries = whole["data"]["lock"]["entries"].as_array().unwrap();
    assert_eq!(entries[1]["path"], "workflows/one.workflow.yaml");
    assert_eq!(entries[1]["definition"], data["digest"]);
    desk.ktsu(&["trace", &one, "0"])
        .is(0)
        .says("by local, locked");
    // What differs in how they were locked is no difference between runs.
    desk.ktsu(&["diff", &free, &one]).is(0);
    // The file that one of them does not use hinders only the other.
    desk.write_file(
        "kit/agents/clerk.agent.yaml",
        &format!("{AGENT}# read it\n"),
    );
    let (drifted, other) = (run(&desk, "one"), run(&desk, "other"));
    assert_eq!(created(&desk, &drifted).1.as_array().unwrap().len(), 1);
    assert_eq!(created(&desk, &other).1.as_array().unwrap().len(), 2);
    desk.ktsu(&["verify"]).is(0);
    desk.ktsu(&["replay", "--all", "--strict"]).is(0);
    // Evidence of each says as much.
    for (run, verdict) in [
        (&one, "proven"),
        (&other, "proven"),
        (&drifted, "not_covered"),
    ] {
        let file = format!("{run}.tar");
        desk.ktsu(&["evidence", "export", run, "-o", &file]).is(0);
        let said = desk
            .ktsu(&["evidence", "verify", &file, "--json"])
            .is(0)
            .json();
        let claims = said["outcome"]["claims"].as_array().unwrap();
        let lock = claims.iter().find(|one| one["claim"] == "lock").unwrap();
        assert_eq!(lock["verdict"], verdict, "{lock}");
    }
}

#[test]
fn a_lock_that_cannot_be_read_is_reported_at_its_place_and_can_be_written_anew() {
    let desk = Desk::new();
    kit(&desk);
    desk.write_file("kit/ktsu.lock.yaml", "format: 2\nfuture: {}\n");
    for arguments in [
        &["run", "kit", "one"][..],
        &["start", "--kit", "kit", "--port", "0"],
    ] {
        let said = desk.ktsu(arguments);
        said.is(2).warns("lock-format").warns("ktsu.lock.yaml:1:9");
    }
    desk.ktsu(&["validate", "kit"])
        .is(1)
        .says("ktsu.lock.yaml:1:9");
    desk.ktsu(&["lock", "kit", "--check"])
        .is(1)
        .says("lock-format");
    desk.ktsu(&["lock", "kit"]).is(0);
    desk.ktsu(&["lock", "kit", "--check"]).is(0);
}

#[test]
fn a_file_without_a_version_is_not_locked_and_nothing_is_written() {
    let desk = Desk::new();
    kit(&desk);
    let bare = AGENT.replace("version: 1.0.0\n", "");
    desk.write_file("kit/agents/clerk.agent.yaml", &bare);
    desk.ktsu(&["lock", "kit"])
        .is(2)
        .warns("the kit cannot be locked")
        .warns("error[version-missing]")
        .warns("agents/clerk.agent.yaml:1:1");
    assert!(!desk.path().join("kit/ktsu.lock.yaml").exists());
    desk.write_file("kit/agents/clerk.agent.yaml", "name: [\n");
    desk.ktsu(&["lock", "kit"])
        .is(2)
        .warns("the kit is not valid");
    desk.ktsu(&["lock", "nowhere"]).is(2).warns("not a folder");
}

#[cfg(unix)]
#[test]
fn a_lock_is_neither_read_nor_written_through_a_link_out_of_the_kit() {
    let desk = Desk::new();
    kit(&desk);
    desk.write_file("outside.yaml", "format: 1\n");
    let link = desk.path().join("kit/ktsu.lock.yaml");
    std::os::unix::fs::symlink(desk.path().join("outside.yaml"), &link).unwrap();
    desk.ktsu(&["validate", "kit"])
        .is(1)
        .says("the file is a link that leads out of the kit");
    desk.ktsu(&["lock", "kit"]).is(0);
    assert!(!link.is_symlink());
    let outside = std::fs::read_to_string(desk.path().join("outside.yaml")).unwrap();
    assert_eq!(outside, "format: 1\n");
}

#[test]
fn tools_that_cannot_be_asked_for_leave_the_lock_as_it_is() {
    let desk = Desk::new();
    kit(&desk);
    let uses = "servers: [{name: crm, path: ../servers/crm.server.yaml}]\n";
    desk.write_file("kit/agents/clerk.agent.yaml", &format!("{AGENT}{uses}"));
    let server = "name: crm\nversion: 1.0.0\nurl: http://127.0.0.1:9/mcp\n";
    desk.write_file("kit/servers/crm.server.yaml", server);
    desk.ktsu(&["lock", "kit"]).is(0);
    let path = desk.path().join("kit/ktsu.lock.yaml");
    let before = std::fs::read_to_string(&path).unwrap();
    for flags in [&["--tools"][..], &["--tools", "--check"]] {
        desk.ktsu(&[&["lock", "kit"], flags].concat())
            .is(2)
            .warns("servers/crm.server.yaml: ");
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), before);

    // What was asked for once is kept by those who do not ask.
    let digest = "0".repeat(64);
    let version = before.find("path: \"servers/crm").unwrap();
    let end = version + before[version..].find("  - ").unwrap();
    let pinned = format!(
        "{}    tools:\n      \"get\": \"{digest}\"\n{}",
        &before[..end],
        &before[end..]
    );
    desk.write_file("kit/ktsu.lock.yaml", &pinned);
    desk.ktsu(&["lock", "kit", "--check"]).is(0);
    desk.ktsu(&["lock", "kit"]).is(0);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), pinned);
    desk.write_file(
        "kit/servers/crm.server.yaml",
        &format!("{server}# changed\n"),
    );
    desk.ktsu(&["lock", "kit"]).is(0);
    let pinned = std::fs::read_to_string(&path).unwrap();
    assert!(pinned.contains(&digest), "{pinned}");

    // Where others may be there, nothing is forgotten unless they are asked.
    let renamed = desk.path().join("kit/servers/crm.server.yaml");
    std::fs::remove_file(renamed).unwrap();
    desk.write_file("kit/servers/crm2.server.yaml", server);
    desk.write_file(
        "kit/agents/clerk.agent.yaml",
        &format!("{AGENT}{}", uses.replace("crm.s", "crm2.s")),
    );
    let refused = |words: &str| {
        let said = desk.ktsu(&["lock", "kit"]);
        said.is(2).warns(words).warns("ktsu lock kit --tools");
    };
    refused("this would remove the tools locked in servers/crm.server.yaml");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), pinned);
    desk.write_file("kit/ktsu.lock.yaml", &format!("<<<<<<< ours\n{pinned}"));
    refused("this would remove the tools locked in ktsu.lock.yaml");
}

#[test]
fn a_server_whose_file_changed_is_still_held_against_the_tools_that_were_locked() {
    let desk = Desk::new();
    kit(&desk);
    let uses = "servers: [{name: crm, path: ../servers/crm.server.yaml}]\n";
    desk.write_file("kit/agents/clerk.agent.yaml", &format!("{AGENT}{uses}"));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let offers = |says: &str| {
        let tools =
            json!([{"name": "get", "description": says, "inputSchema": {"type": "object"}}]);
        runtime.block_on(ToolServer::scripted(tools, |_| Given::text("got")))
    };
    let (first, same, drifted) = (offers("Gets it."), offers("Gets it."), offers("Gets all."));
    let leads_to = |server: &ToolServer| {
        let text = format!("name: crm\nversion: 1.0.0\nurl: {}\n", server.url);
        desk.write_file("kit/servers/crm.server.yaml", &text);
    };
    leads_to(&first);
    desk.ktsu(&["lock", "kit", "--tools"]).is(0);
    desk.ktsu(&["run", "kit", "one", "--locked"]).is(0);
    leads_to(&same);
    desk.ktsu(&["lock", "kit"]).is(0);
    desk.ktsu(&["run", "kit", "one", "--locked"]).is(0);
    leads_to(&drifted);
    desk.ktsu(&["lock", "kit"]).is(0);
    let said = desk.ktsu(&["run", "kit", "one", "--locked", "--json"]);
    assert_eq!(said.is(1).json()["error"]["code"], "tool_drift");
    desk.ktsu(&["lock", "kit", "--tools"])
        .is(0)
        .warns("servers/crm.server.yaml: its tools differ from the lock");
    desk.ktsu(&["run", "kit", "one", "--locked"]).is(0);
}
