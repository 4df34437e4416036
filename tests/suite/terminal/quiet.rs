//! With `--json`, standard error is for errors alone: every command, at a terminal, which would
//! show progress, hints and questions.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::Value;
use tempfile::TempDir;

use super::{command, recorded};
use crate::support::GUARD;
use crate::support::terminal::Terminal;

const KEEPER: &str = "name: keeper\nversion: 1.0.0\nmodel: std\n\
    prompt: {system: You keep things., user: Keep it.}\n\
    servers: [{name: ktsu/kv, access: {allowlist: [{name: kv-set, require_approval: {on_reject: recover}}]}}]\n\
    output: {schema: {type: object}}\n";
const KITS: [(&str, &str); 5] = [
    (
        "gated/workflows/gated.workflow.yaml",
        "kind: workflow\nname: gated\nversion: 1.0.0\n\
         pipeline: [{id: a, agent: ./agents/keeper.agent.yaml}]\n",
    ),
    ("gated/agents/keeper.agent.yaml", KEEPER),
    (
        "gated/gateway.yaml",
        "providers: [{name: desk, type: scripted, config: {rules: rules.yaml}}]\n\
         model_groups: [{name: std, models: [desk/m]}]\n",
    ),
    (
        "gated/rules.yaml",
        "rules:\n  - when: {turn: 1}\n    tool_calls: [{name: kv-set, arguments: {key: k, value: 1}}]\n\
         default:\n  reply: {kept: true}\n",
    ),
    (
        "seas/worlds/seas.world.yaml",
        "kind: world\nname: seas\nversion: 1.0.0\n",
    ),
];

/// A folder with kits, and the commands that were tried in it.
struct Desk {
    dir: TempDir,
    tried: BTreeSet<String>,
}

impl Desk {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in KITS {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        Self {
            dir,
            tried: BTreeSet::new(),
        }
    }

    fn command(&mut self, arguments: &str) -> Command {
        let all: Vec<&str> = arguments.split(' ').chain(["--json"]).collect();
        self.tried.insert(all[0].to_owned());
        let mut command = command(self.dir.path(), &all);
        command.env("LC_ALL", "C.UTF-8");
        command
    }

    /// Its standard output, a document each; nothing may come beside it.
    #[track_caller]
    fn says(&mut self, code: i32, arguments: &str) -> Vec<Value> {
        let path = self.dir.path().join("answer");
        let out = File::create(&path).unwrap();
        let mut terminal = Terminal::beside(self.command(arguments), 80, out.into());
        let ended = terminal.ends().0;
        assert_eq!((ended, terminal.text.as_str()), (code, ""), "{arguments}");
        let text = std::fs::read_to_string(&path).unwrap();
        let documents = serde_json::Deserializer::from_str(&text).into_iter();
        let documents: Vec<Value> = documents.map(Result::unwrap).collect();
        assert!(!documents.is_empty(), "{arguments} says nothing");
        documents
    }

    /// A run that waits for a person, and the call it waits with.
    fn waiting(&mut self) -> (String, String) {
        let mut run = self.command("run gated");
        let mut run = run
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        let record = loop {
            assert!(begun.elapsed() < GUARD, "nothing waits");
            let output = self.command("approvals").output().unwrap();
            let records: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            if records[0]["approval_id"].is_string() {
                break records[0].clone();
            }
        };
        send("INT", run.id());
        assert_eq!(run.wait().unwrap().code(), Some(2));
        let text = |name: &str| record[name].as_str().unwrap().to_owned();
        (text("run_id"), text("approval_id"))
    }
}

fn send(signal: &str, pid: u32) {
    let kill = format!("kill -{signal} {pid}");
    assert!(
        Command::new("sh")
            .args(["-c", &kill])
            .status()
            .unwrap()
            .success()
    );
}

fn run_id(of: &[Value]) -> String {
    of[0]["run_id"].as_str().unwrap().to_owned()
}

#[test]
fn no_command_says_anything_beside_its_json() {
    let mut desk = Desk::new();
    desk.says(0, "init demo --eval");
    desk.says(0, "validate demo");
    desk.says(0, "lock demo");
    desk.says(0, "lock demo --check");
    desk.says(0, "workflow tree demo/workflows/demo.workflow.yaml");
    let run = run_id(&desk.says(0, "run demo"));
    let other = run_id(&desk.says(
        0,
        "invoke demo --kit demo --input @demo/examples/default.json",
    ));
    look_back(&mut desk, &run, &other);
    let seas = run_id(&desk.says(0, "run seas --goal tides"));
    desk.says(0, &format!("world {seas}"));
    desk.says(0, &format!(r#"post {seas} {{"type":"note"}}"#));
    change(&mut desk, &run);
    steer(&mut desk);
    desk.says(0, "ledger init");
    desk.says(0, "ledger status");
    desk.says(0, "ledger copy --to copied.db");
    desk.says(0, "version");
    desk.says(0, "explain");
    desk.says(0, "explain schema_violation");
    desk.says(0, "completions bash");
    desk.says(0, "schema workflow");
    start(&mut desk);
    // A new command has to be tried here, too.
    let help = command(desk.dir.path(), &["--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands.take_while(|line| !line.is_empty());
    // What does not fit beside a name continues below its description.
    let commands = commands.filter(|line| !line.starts_with("   "));
    let commands = commands.filter_map(|line| line.split_whitespace().next());
    let commands: Vec<&str> = commands.collect();
    assert!(commands.len() > 30, "{help}");
    for name in commands.into_iter().filter(|name| *name != "help") {
        assert!(desk.tried.contains(name), "{name} was not tried");
    }
}

#[test]
fn an_engine_of_a_command_does_not_warn_beside_its_json() {
    let mut desk = Desk::new();
    desk.says(0, "init demo");
    let run = run_id(&desk.says(0, "run demo"));
    let mut fork = desk.command(&format!("fork {run} --before answer --kit demo"));
    // A witness that takes nothing is a warning.
    let output = fork.env("KTSU_WITNESS", "command:false").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
}

fn look_back(desk: &mut Desk, run: &str, other: &str) {
    desk.says(0, &format!("check {run} --spec demo/evals/demo.eval.yaml"));
    desk.says(0, "evals");
    desk.says(0, "eval run demo");
    desk.says(0, "runs");
    desk.says(0, "runs --limit 1");
    desk.says(0, "runs --workflow nothing");
    desk.says(0, &format!("runs get {run}"));
    desk.says(0, &format!("trace {run}"));
    desk.says(0, &format!("trace {run} --frames"));
    desk.says(0, &format!("trace {run} 3"));
    desk.says(0, &format!("trace {run} --of output.reply"));
    desk.says(0, &format!("trace {run} --why-not answer"));
    desk.says(0, &format!("frames {run}"));
    desk.says(0, &format!("frames {run} --follow"));
    desk.says(0, &format!("diff {run} {other}"));
    desk.says(0, &format!("replay {run} --strict"));
    desk.says(0, "replay --all --against demo");
    desk.says(0, "approvals");
    desk.says(0, "approvals --all");
    desk.says(0, "approvals --reviews");
    desk.says(0, "verify --write-heads heads.json");
    desk.says(0, "verify --heads heads.json");
    desk.says(0, &format!("evidence export {run} -o run.tar"));
    desk.says(0, "evidence verify run.tar");
    desk.says(0, "evidence page verify.html");
    desk.says(0, &format!("export {run}"));
    desk.says(0, &format!("export {run} -o run.jsonl"));
    desk.says(0, "import run.jsonl --ledger imported.db");
    desk.says(0, "backup copy.db");
    desk.says(0, "restore copy.db --to restored.db");
    desk.says(0, &format!("capture {run} -o captured"));
    desk.says(0, "test captured --kit demo");
    desk.says(0, "test demo/baselines --kit demo --record");
}

fn change(desk: &mut Desk, run: &str) {
    desk.says(0, &format!("recompute {run} --kit demo"));
    let branch = desk.says(0, &format!("fork {run} --before answer --kit demo"));
    let branch = branch[0]["branch_id"].as_str().unwrap().to_owned();
    desk.says(
        0,
        &format!("overlay {branch} prepare.result=[] --reason why --kit demo"),
    );
    desk.says(0, &format!("fork {run} --before answer --go --kit demo"));
    desk.says(0, &format!("resume {run} --from answer --kit demo"));
}

fn steer(desk: &mut Desk) {
    let (_, call) = desk.waiting();
    desk.says(0, &format!("approve {call} --kit gated"));
    let (_, call) = desk.waiting();
    desk.says(0, &format!("reject {call} --reason no --kit gated"));
    let (run, _) = desk.waiting();
    desk.says(0, &format!("hold {run} --reason r"));
    desk.says(0, &format!("pause {run}"));
    desk.says(0, &format!("terminate {run}"));
    desk.waiting();
    desk.says(0, "cancel --workflow gated --yes");
    desk.says(0, "cancel --workflow gated --yes");
}

fn start(desk: &mut Desk) {
    for (more, says) in [
        ("start --kit demo --port 0", true),
        ("start --kit demo --port 0 -q", true),
        ("mcp --kit demo --http 127.0.0.1:0", true),
        ("inspect --no-open", true),
        ("dev demo", true),
    ] {
        let mut command = desk.command(more);
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(ready["url"].is_string(), says, "{line}");
        send("TERM", child.id());
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{more}");
    }
}

/// The address in the lock beside a ledger, once an engine owns it.
fn owned(dir: &Path) {
    let path = dir.join(".ktsu/ledger.db.lock");
    let begun = Instant::now();
    while !std::fs::read_to_string(&path).is_ok_and(|text| text.contains("http://")) {
        assert!(begun.elapsed() < GUARD, "nobody owns the ledger");
        std::thread::yield_now();
    }
}

#[test]
fn a_quiet_engine_logs_errors_alone_unless_it_is_asked_for_more() {
    for (log, says) in [(None, false), (Some("info"), true)] {
        let mut desk = Desk::new();
        desk.says(0, "init demo");
        let arguments = ["start", "--quiet", "--kit", "demo", "--port", "0"];
        let mut start = command(desk.dir.path(), &arguments);
        start.envs(log.map(|level| ("KTSU_LOG", level)));
        let child = start
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        owned(desk.dir.path());
        // What is asked of it is answered as ever; that it is there shows that it has started.
        let arguments = [
            "invoke",
            "demo",
            "-q",
            "--wait",
            "--input",
            "@demo/examples/default.json",
        ];
        let invoked = command(desk.dir.path(), &arguments).output().unwrap();
        let (out, err) = (invoked.stdout, invoked.stderr);
        assert_eq!(String::from_utf8_lossy(&err), "");
        assert!(String::from_utf8_lossy(&out).contains("demo 0.1.0 complete"));
        send("TERM", child.id());
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "");
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(err.contains("ready"), says, "{err}");
        assert!(says || err.is_empty(), "{err}");
    }
}

#[test]
fn the_log_of_an_engine_has_colours_at_a_terminal_that_takes_them() {
    for (more, is_coloured) in [(&[][..], true), (&["--color", "never"], false)] {
        let mut desk = Desk::new();
        desk.says(0, "init demo");
        let arguments = [&["start", "--kit", "demo", "--port", "0"], more].concat();
        let mut terminal = Terminal::of(command(desk.dir.path(), &arguments), 100);
        terminal.until("INFO", 1);
        owned(desk.dir.path());
        send("TERM", terminal.id());
        let (code, screen) = terminal.ends();
        assert_eq!(code, 0, "{}", screen.text());
        let text = &terminal.text;
        assert_eq!(text.contains('\u{1b}'), is_coloured, "{text:?}");
    }
}

#[test]
fn errors_are_shown_however_quiet_a_command_is() {
    let dir = tempfile::tempdir().unwrap();
    recorded::ledger(&dir.path().join("ledger.db"));
    for arguments in [
        ["run", "nowhere", "--quiet"],
        ["run", "nowhere", "--json"],
        ["invoke", "nothing", "-q"],
        ["start", "--kit=nowhere", "-q"],
        ["trace", "run_nothing", "--json"],
    ] {
        let output = command(dir.path(), &arguments).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(err.starts_with("error: "), "{arguments:?}: {err}");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn colours_are_written_as_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join(".ktsu")).unwrap();
    recorded::ledger(&dir.path().join(".ktsu/ledger.db"));
    let id = recorded::id("intake");
    let piped = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = command(dir.path(), arguments);
        let output = command.envs(variables.iter().copied()).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        text.contains(&0x1b)
    };
    let shown = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = command(dir.path(), arguments);
        command.envs(variables.iter().copied());
        let mut terminal = Terminal::of(command, 80);
        terminal.ends();
        terminal.text.contains('\u{1b}')
    };
    // An answer, an error of ours, and what is wrong with the arguments.
    for arguments in [
        &["trace", &id][..],
        &["trace", "nothing"],
        &["trace", "--nothing"],
        &["--help"],
    ] {
        let with = |more: &[&'static str]| -> Vec<&str> {
            more.iter()
                .copied()
                .chain(arguments.iter().copied())
                .collect()
        };
        assert!(!piped(&with(&[]), &[]), "{arguments:?}");
        assert!(shown(&with(&[]), &[]), "{arguments:?}");
        assert!(!shown(&with(&[]), &[("NO_COLOR", "1")]), "{arguments:?}");
        assert!(
            piped(&with(&["--color=always"]), &[("NO_COLOR", "1")]),
            "{arguments:?}"
        );
        assert!(piped(&with(&["--color", "always"]), &[]), "{arguments:?}");
        assert!(!shown(&with(&["--color", "never"]), &[]), "{arguments:?}");
        assert!(
            !shown(&with(&["--color=never"]), &[("CLICOLOR_FORCE", "1")]),
            "{arguments:?}"
        );
        assert!(shown(&with(&["--color=auto"]), &[]), "{arguments:?}");
    }
    let wrong = command(dir.path(), &["runs", "--color=perhaps"])
        .output()
        .unwrap();
    assert_eq!(wrong.status.code(), Some(2));
}
