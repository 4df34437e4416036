//! Names that lead out of a kit, in every place that takes a name or a path: nothing outside is
//! opened (spec S04). The system calls of the whole are traced.

mod names;

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use ktsu_evidence::{tar, transfer};
use ktsu_gateway::Config;
use ktsu_kit as kit;
use ktsu_ledger::appender::Options;
use ktsu_ledger::store::MemoryStore;
use serde_json::{Value, json};

use crate::support::process::Process;
use crate::support::{Client, Within};
use names::{BAIT, all, encoded, is_uri};

/// A folder with a kit, and beside it what must not be opened.
struct Ground {
    dir: tempfile::TempDir,
}

const GOOD: &str = "kind: workflow\nname: good\nversion: 1.0.0\n\
                    params: {schema: {type: object, properties: {n: {default: 1}}}}\n\
                    pipeline: [{id: t, transform: {inputs: [{from: params.n}], ops: []}}]\n";

impl Ground {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ground = Self { dir };
        for file in [
            "bait",
            "bait.workflow.yaml",
            "bait.agent.yaml",
            "bait.server.yaml",
            "etc/passwd",
            "default.json",
        ] {
            ground.write(&format!("outside/{file}"), GOOD);
        }
        ground.write("kit/workflows/good.workflow.yaml", GOOD);
        ground.write("kit/agents/.keep", "");
        let outside = ground.outside();
        for (link, to) in [
            ("linked", outside.clone()),
            ("workflows/linked", outside.clone()),
            ("agents/linked", outside.clone()),
            ("examples", outside.clone()),
            (
                "workflows/file.workflow.yaml",
                outside.join("bait.workflow.yaml"),
            ),
            ("agents/file.agent.yaml", outside.join("bait.agent.yaml")),
            (
                "workflows/hop.workflow.yaml",
                PathBuf::from("file.workflow.yaml"),
            ),
            (
                "workflows/loop.workflow.yaml",
                PathBuf::from("loop.workflow.yaml"),
            ),
            ("agents/loop.agent.yaml", PathBuf::from("loop.agent.yaml")),
            ("gateway.yaml", outside.join("bait")),
        ] {
            symlink(to, ground.kit().join(link)).unwrap();
        }
        ground
    }

    /// The same without links that make a kit faulty by being there.
    fn plain() -> Self {
        let ground = Self::new();
        for link in [
            "workflows/file.workflow.yaml",
            "workflows/hop.workflow.yaml",
            "workflows/loop.workflow.yaml",
            "agents/file.agent.yaml",
            "agents/loop.agent.yaml",
            "gateway.yaml",
        ] {
            std::fs::remove_file(ground.kit().join(link)).unwrap();
        }
        ground
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn kit(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("kit")
    }

    fn outside(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("outside")
    }

    fn names(&self) -> Vec<String> {
        all(&self.outside())
    }
}

/// A text as a scalar of YAML.
fn scalar(name: &str) -> String {
    Value::from(name).to_string()
}

/// An agent that uses servers from files of these names.
fn uses(names: impl IntoIterator<Item = (usize, String)>) -> String {
    let mut text = String::from(
        "name: s\nversion: 1.0.0\nmodel: m\nprompt: {system: s}\n\
         output: {schema: {type: object}}\nservers:\n",
    );
    for (n, name) in names {
        text.push_str(&format!("  - {{name: s{n}, path: {}}}\n", scalar(&name)));
    }
    text
}

/// Every name in every place of files, each place by itself; how many were tried.
fn files(ground: &Ground) -> usize {
    let mut tried = 0;
    let refused = |what: &str, name: &str| {
        let loaded = kit::load(&ground.kit());
        assert!(loaded.is_err(), "{what} {name:?} is taken");
    };
    let head = "kind: workflow\nname: w\nversion: 1.0.0\npipeline:\n";
    // It is the name that is refused, and nothing else in that file.
    ground.write(
        "kit/servers/good.server.yaml",
        "name: s0\nversion: 1.0.0\nurl: http://127.0.0.1:9\n",
    );
    let good = "../servers/good.server.yaml".to_owned();
    ground.write("kit/agents/s.agent.yaml", &uses([(0, good)]));
    kit::load(&ground.kit()).unwrap();
    for name in ground.names() {
        let quoted = scalar(&name);
        for (what, step) in [
            ("agent", format!("  - {{id: a, agent: {quoted}}}\n")),
            ("child", format!("  - {{id: a, workflow: {quoted}}}\n")),
        ] {
            ground.write("kit/workflows/w.workflow.yaml", &format!("{head}{step}"));
            refused(what, &name);
            tried += 1;
        }
        std::fs::remove_file(ground.kit().join("workflows/w.workflow.yaml")).unwrap();
        ground.write("kit/agents/s.agent.yaml", &uses([(0, name.clone())]));
        refused("server", &name);
        std::fs::remove_file(ground.kit().join("agents/s.agent.yaml")).unwrap();
        tried += 1;
        if name != "good" {
            ground.write("kit/kit.yaml", &format!("default: {quoted}\n"));
            refused("default", &name);
            std::fs::remove_file(ground.kit().join("kit.yaml")).unwrap();
            tried += 1;
        }
        for key in ["rules", "replies_from"] {
            let text = format!(
                "providers: [{{name: s, type: scripted, config: {{{key}: {quoted}}}}}]\n\
                 model_groups: [{{name: g, models: [s/m]}}]\n"
            );
            ground.write("kit/gateway.yaml", &text);
            let loaded = Config::load_in(&ground.kit(), Path::new("gateway.yaml"), None);
            assert!(loaded.is_err(), "{key} {name:?} is taken");
            std::fs::remove_file(ground.kit().join("gateway.yaml")).unwrap();
            tried += 1;
        }
    }
    tried
}

/// Every name as a member of an archive, and as a stream of an export; how many were tried.
fn archives(ground: &Ground) -> usize {
    let mut tried = 0;
    for name in ground.names() {
        if !tar::is_name(&name) {
            let member = tar::Files::from([(name.clone(), Vec::new())]);
            assert!(tar::write(&member).is_err(), "{name:?} is written");
            let mut bytes = tar::write(&tar::Files::from([("a".to_owned(), Vec::new())])).unwrap();
            bytes[..100].fill(0);
            let kept = name.len().min(100);
            bytes[..kept].copy_from_slice(&name.as_bytes()[..kept]);
            assert!(tar::read(&bytes).is_err(), "{name:?} is read");
            tried += 1;
        }
        for stream in [format!("run:{name}"), name.clone()] {
            let body = json!({"v": 1, "stream": stream, "seq": 0, "type": "run.started"});
            let line = json!({"hash": "0".repeat(64), "body": body});
            let text = format!(
                "{}\n{line}\n",
                json!({"ktsu_export": 1, "blobs": 0, "frames": 1})
            );
            assert!(
                transfer::check(&text, None).is_err(),
                "{stream:?} is taken in"
            );
            tried += 1;
        }
    }
    tried
}

/// Every name in every route that takes one: the answer is that for a name that does not exist.
async fn routes(client: &Client, ground: &Ground, run: &str) -> usize {
    let places = [
        ("POST", "/invoke/NAME"),
        ("GET", "/runs/NAME"),
        ("GET", "/runs/NAME/envelope"),
        ("GET", "/runs/NAME/frames"),
        ("GET", "/runs/NAME/trace"),
        ("GET", "/runs/NAME/recompute"),
        ("POST", "/runs/NAME/fork"),
        ("POST", "/runs/RUN/steps/NAME/report"),
        ("POST", "/runs/RUN/steps/NAME/complete"),
        ("POST", "/runs/NAME/steps/t/complete"),
    ];
    let mut absent = BTreeMap::new();
    let mut tried = 0;
    for (method, place) in places {
        let path = place.replace("RUN", run).replace("NAME", "absent");
        let answer = client.send(method, &path, &[], "{}").await;
        absent.insert((method, place), (answer.status, answer.body));
    }
    for name in ground.names() {
        let mut forms = vec![encoded(&name)];
        if is_uri(&name) {
            forms.push(name.clone());
        }
        for (method, place) in places {
            for form in &forms {
                let path = place.replace("RUN", run).replace("NAME", form);
                let Some(answer) = client.try_send(method, &path, &[], "{}").await else {
                    continue;
                };
                tried += 1;
                let (status, body) = &absent[&(method, place)];
                let text = answer.text();
                assert!(
                    (400..500).contains(&answer.status),
                    "{method} {path}: {text}"
                );
                assert!(
                    !text.contains(BAIT) && !text.contains("kind: workflow"),
                    "{path}: {text}"
                );
                // A slash makes other routes of it, an empty name none at all; a name that is one is
                // answered as what is not there.
                let one = !form.contains(['/', '?', '#']) && form.len() < 300 && !name.is_empty();
                if one && !name.contains('/') && place == "/invoke/NAME" {
                    assert_eq!(
                        (answer.status, &answer.body),
                        (*status, body),
                        "{method} {path}"
                    );
                }
            }
        }
    }
    tried
}

#[test]
fn no_name_in_a_file_or_an_archive_leads_out() {
    let ground = Ground::plain();
    let tried = files(&ground) + archives(&ground);
    assert!(tried >= 1200, "{tried}");
}

#[tokio::test]
async fn no_name_in_a_route_leads_out() {
    let ground = Ground::plain();
    let kit = crate::support::load(&ground.kit());
    assert!(
        kit.examples.is_empty(),
        "a folder of examples is a link that leads out"
    );
    let within = Within::new(kit, MemoryStore::new(), Options::default(), &[], None).await;
    let run = within.client.run("good", json!({})).await;
    let run = run["run_id"].as_str().unwrap().to_owned();
    let tried = routes(&within.client, &ground, &run).await;
    assert!(tried >= 1200, "{tried}");
}

/// Opens of files in a trace, as the system resolved them: what `strace -y` shows behind the
/// descriptor; and those that failed, as they were asked for.
fn opened(trace: &str) -> Vec<String> {
    let calls = trace.lines().filter(|line| {
        let call = line
            .split_once(' ')
            .map_or(*line, |(_, call)| call.trim_start());
        ["open(", "openat(", "openat2(", "creat(", "execve("]
            .iter()
            .any(|name| call.starts_with(name))
    });
    calls
        .map(|line| {
            let resolved = line.rsplit_once(" = ").and_then(|(_, said)| {
                said.split_once('<')
                    .map(|(_, path)| path.trim_end_matches('>').to_owned())
            });
            let asked = || line.split('"').nth(1).unwrap_or_default().to_owned();
            resolved.unwrap_or_else(asked)
        })
        .collect()
}

/// What every process opens, whatever it is asked.
fn is_of_the_system(path: &str) -> bool {
    // Of the process itself, but not what it was given.
    let own = path.starts_with("/proc/") && !path.ends_with("/environ");
    let folders = [
        env!("CARGO_BIN_EXE_ktsu"),
        "/lib",
        "/usr/lib",
        "/usr/bin",
        "/etc/ld.so",
        "/sys/",
        "/etc/localtime",
        "/dev/null",
        "/dev/urandom",
        "/dev/pts",
        "/etc/ssl",
        "/etc/resolv.conf",
        "/etc/hosts",
        "/etc/nsswitch.conf",
    ];
    own || folders.iter().any(|folder| path.starts_with(folder))
}

/// What was opened beside what is below the folders, and what belongs to the system.
fn strange(trace: &str, folders: &[&Path]) -> Vec<String> {
    let below = |path: &str| {
        folders
            .iter()
            .any(|folder| Path::new(path).starts_with(folder))
    };
    let bait = |path: &str| path.contains("outside") || path.contains(BAIT);
    let mut opened = opened(trace);
    opened.retain(|path| match bait(path) {
        // Asked for below the kit, and not there: no file has such a name.
        true => path.starts_with('/') && Path::new(path).exists(),
        false => path.starts_with('/') && !below(path) && !is_of_the_system(path),
    });
    opened
}

/// Nothing was opened that should not be, and something was opened at all.
fn nothing_else(trace: &str, folders: &[&Path]) {
    let mut opened = opened(trace).into_iter();
    let below = |path: String| {
        folders
            .iter()
            .any(|folder| Path::new(&path).starts_with(folder))
    };
    assert!(opened.any(below), "nothing was traced: {trace}");
    let strange = strange(trace, folders);
    assert!(strange.is_empty(), "opened: {strange:#?}");
}

fn strace(output: &Path) -> Option<Command> {
    let tried = Command::new("strace")
        .args(["-f", "-o", "/dev/null", "true"])
        .output();
    if !tried.as_ref().is_ok_and(|done| done.status.success()) {
        crate::support::not_tested(&format!(
            "that no name opens a file outside; strace: {tried:?}"
        ));
        return None;
    }
    let mut strace = Command::new("/usr/bin/env");
    strace.args([
        "strace",
        "-f",
        "-y",
        "-s",
        "9000",
        "-e",
        "trace=open,openat,openat2,creat,execve",
        "-o",
    ]);
    strace.arg(output);
    Some(strace)
}

/// The real binary: judging a kit full of such names, and answering requests that have them.
#[tokio::test]
async fn the_binary_opens_nothing_outside_whatever_it_is_asked() {
    let ground = Ground::new();
    let mut steps = String::from("kind: workflow\nname: many\nversion: 1.0.0\npipeline:\n");
    for (n, name) in ground.names().iter().enumerate() {
        let name = scalar(name);
        steps.push_str(&format!(
            "  - {{id: a{n}, agent: {name}}}\n  - {{id: w{n}, workflow: {name}}}\n"
        ));
    }
    ground.write("kit/workflows/many.workflow.yaml", &steps);
    let servers = ground.names().into_iter().enumerate();
    ground.write("kit/agents/many.agent.yaml", &uses(servers));
    let desk = tempfile::tempdir().unwrap();
    let output = desk.path().join("calls");
    let Some(mut traced) = strace(&output) else {
        return;
    };
    let path = std::env::var("PATH").unwrap_or_default();
    traced
        .arg(env!("CARGO_BIN_EXE_ktsu"))
        .arg("validate")
        .arg(ground.kit());
    traced
        .current_dir(desk.path())
        .env_clear()
        .env("PATH", &path);
    let said = traced.output().unwrap();
    assert_eq!(said.status.code(), Some(1), "{said:?}");
    let trace = std::fs::read_to_string(&output).unwrap();
    nothing_else(&trace, &[&ground.kit(), desk.path()]);

    let ground = Ground::plain();
    let ledger = desk.path().join("ledger.db");
    let traced = strace(&output).unwrap();
    let engine = Process::within(traced, &ground.kit(), &ledger, &[("PATH", &path)]);
    let run = engine.client().run("good", json!({})).await;
    let run = run["run_id"].as_str().unwrap().to_owned();
    routes(&engine.client(), &ground, &run).await;
    engine.stop();
    let trace = std::fs::read_to_string(&output).unwrap();
    nothing_else(&trace, &[&ground.kit(), desk.path()]);
}

/// The search for opens finds one.
#[test]
fn a_trace_of_a_command_that_looks_outside_is_found_out() {
    let ground = Ground::new();
    let desk = tempfile::tempdir().unwrap();
    let output = desk.path().join("calls");
    for path in [
        "workflows/file.workflow.yaml",
        "../outside/bait",
        "linked/bait",
    ] {
        let Some(mut traced) = strace(&output) else {
            return;
        };
        let path = ground.kit().join(path);
        let search = std::env::var("PATH").unwrap_or_default();
        traced.arg("cat").arg(path).env_clear().env("PATH", search);
        assert!(traced.output().unwrap().status.success());
        let trace = std::fs::read_to_string(&output).unwrap();
        let found = strange(&trace, &[&ground.kit()]);
        let bait = ground.outside().display().to_string();
        assert!(found.len() == 1 && found[0].starts_with(&bait), "{found:?}");
    }
}
