//! A large kit, judged whole.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::Effort;
use crate::table::{Row, Table, median, ms};

const WORKFLOWS: usize = 200;
const AGENTS: usize = 150;

/// How long `ktsu validate` takes on 500 files: 200 workflows of five steps, 150 agents and 150
/// servers, with a secret on its way through all of them.
pub(crate) fn measure(_: Effort, table: &mut Table) {
    let dir = tempfile::tempdir().unwrap();
    let files = write(dir.path());
    let mut times: Vec<Duration> = (0..9).map(|_| validated(dir.path())).collect();
    let mut bare: Vec<Duration> = (0..9).map(|_| read(dir.path())).collect();
    let (time, bare) = (median(&mut times), median(&mut bare));
    table.add(Row {
        what: format!("`ktsu validate` on {files} files, median of 9"),
        figure: ms(time),
        bare: format!("the files read: {}", ms(bare)),
        ratio: format!("{:.0}", time.as_secs_f64() / bare.as_secs_f64()),
        bar: "≤ 300 ms".to_owned(),
        met: Some(time <= Duration::from_millis(300)),
    });
}

fn validated(dir: &Path) -> Duration {
    let started = Instant::now();
    let status = Command::new(env!("CARGO_BIN_EXE_ktsu"))
        .args(["validate", "--no-env"])
        .arg(dir)
        .stdout(Stdio::null())
        .status();
    assert!(status.unwrap().success());
    started.elapsed()
}

fn read(dir: &Path) -> Duration {
    let started = Instant::now();
    for folder in ["workflows", "agents", "servers"] {
        for entry in std::fs::read_dir(dir.join(folder)).unwrap() {
            std::hint::black_box(std::fs::read_to_string(entry.unwrap().path()).unwrap());
        }
    }
    started.elapsed()
}

/// Gives the number of files.
fn write(dir: &Path) -> usize {
    for folder in ["workflows", "agents", "servers"] {
        std::fs::create_dir_all(dir.join(folder)).unwrap();
    }
    let put = |path: String, text: String| std::fs::write(dir.join(path), text).unwrap();
    for n in 0..WORKFLOWS {
        put(format!("workflows/w{n}.workflow.yaml"), workflow(n));
    }
    for n in 0..AGENTS {
        put(format!("agents/a{n}.agent.yaml"), agent(n));
        put(format!("servers/s{n}.server.yaml"), server(n));
    }
    WORKFLOWS + 2 * AGENTS
}

fn workflow(n: usize) -> String {
    let mut text = format!(
        "kind: workflow\nname: w{n}\nversion: 1.0.0\nenv: [{{name: K, secret: true}}]\n\
         params: {{schema: {{type: object, required: [msg], properties: {{msg: {{type: string}}}}}}}}\n\
         pipeline:\n"
    );
    for step in 0..5 {
        let agent = (n + step) % AGENTS;
        write!(
            text,
            "  - id: s{step}\n    agent: agents/a{agent}.agent.yaml@1.0.0\n    params: {{tok: \
             \"{{{{ env.K }}}}\", msg: \"Hello {{{{ params.msg }}}}\"}}\n"
        )
        .unwrap();
    }
    text
}

fn agent(n: usize) -> String {
    format!(
        "name: a{n}\nversion: 1.0.0\nmodel: std\nparams: {{schema: {{type: object, required: [tok, \
         msg], properties: {{msg: {{type: string}}, tok: {{type: string, secret: true}}}}}}}}\n\
         prompt: {{system: s, user: \"{{{{ params.msg }}}}\"}}\nservers:\n  - {{name: s{n}, path: \
         ../servers/s{n}.server.yaml, params: {{k: \"{{{{ params.tok }}}}\"}}, access: {{allowlist: \
         [crm-*]}}}}\noutput: {{schema: {{type: object, required: [answer], properties: {{answer: \
         {{type: string}}}}}}}}\n"
    )
}

fn server(n: usize) -> String {
    format!(
        "name: s{n}\nversion: 1.0.0\nurl: https://s{n}.example/mcp\nparams: {{k: {{secret: true}}}}\n\
         auth: {{secret: \"{{{{ params.k }}}}\"}}\n"
    )
}
