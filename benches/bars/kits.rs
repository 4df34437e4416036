//! Kits: how long it takes to judge a large one, from the command line.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ktsu::kit::yaml;

use crate::Effort;
use crate::table::{Row, Table, median, ms};

const AGENTS: usize = 240;
const WORKFLOWS: usize = 260;

/// `ktsu validate` of 500 files, each of some size: workflows of twelve steps, agents with schemas.
/// Beside it, reading the files and parsing their YAML.
pub(crate) fn measure(_: Effort, table: &mut Table) {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path());
    let mut times: Vec<Duration> = (0..9).map(|_| validated(dir.path())).collect();
    let mut bare: Vec<Duration> = (0..9).map(|_| parsed(dir.path())).collect();
    let (time, bare) = (median(&mut times), median(&mut bare));
    table.add(Row {
        what: format!(
            "`ktsu validate` of {} files, median of 9",
            AGENTS + WORKFLOWS
        ),
        figure: ms(time),
        bare: format!("reading and parsing them: {}", ms(bare)),
        ratio: format!("{:.2}", time.as_secs_f64() / bare.as_secs_f64()),
        bar: "≤ 300 ms".to_owned(),
        met: Some(time <= Duration::from_millis(300)),
    });
}

fn validated(kit: &Path) -> Duration {
    let started = Instant::now();
    let status = Command::new(env!("CARGO_BIN_EXE_ktsu"))
        .arg("validate")
        .arg(kit)
        .env_clear()
        .stdout(Stdio::null())
        .status();
    assert!(status.unwrap().success());
    started.elapsed()
}

fn parsed(kit: &Path) -> Duration {
    let started = Instant::now();
    for folder in ["agents", "workflows"] {
        for entry in std::fs::read_dir(kit.join(folder)).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            std::hint::black_box(yaml::parse(&text).unwrap());
        }
    }
    started.elapsed()
}

fn write(kit: &Path) {
    for folder in ["agents", "workflows"] {
        std::fs::create_dir(kit.join(folder)).unwrap();
    }
    for at in 0..AGENTS {
        let path = kit.join(format!("agents/a{at}.agent.yaml"));
        std::fs::write(path, AGENT.replace("NAME", &format!("a{at}"))).unwrap();
    }
    for at in 0..WORKFLOWS {
        let mut text = WORKFLOW.replace("NAME", &format!("w{at}"));
        for step in 0..4 {
            let agent = format!("a{}", (at + step) % AGENTS);
            let steps = STEPS
                .replace("AGENT", &agent)
                .replace('#', &step.to_string());
            write!(text, "{steps}").unwrap();
        }
        std::fs::write(kit.join(format!("workflows/w{at}.workflow.yaml")), text).unwrap();
    }
}

const AGENT: &str = "\
name: NAME
version: 1.0.0
model: fast
params:
  schema:
    type: object
    required: [text]
    additionalProperties: false
    properties:
      text: {type: string}
prompt:
  system: |
    You sort support tickets. Answer with the topic.
  user: \"{{ params.text }}\"
output:
  schema:
    type: object
    required: [topic]
    properties:
      topic: {type: string, enum: [billing, outage, other]}
      ktsu_confidence: {type: number, minimum: 0, maximum: 1}
";

const WORKFLOW: &str = "\
kind: workflow
name: NAME
version: 1.0.0
params:
  schema:
    type: object
    required: [ticket]
    properties:
      ticket: {type: string}
      list: {type: array, default: []}
pipeline:
";

const STEPS: &str = "  \
  - id: ask#
    agent: agents/AGENT.agent.yaml
    confidence_threshold: 0.5
    params: {text: \"{{ params.ticket }} {{ step.shape#.result }}\"}
  - id: shape#
    transform:
      inputs: [params.list]
      ops:
        - filter: {expr: \"open && priority == 'high'\"}
        - sort: {field: created, order: desc}
  - id: tell#
    condition: step.ask#.topic == 'outage'
    webhook: {url: \"https://example.com/{{ step.ask#.topic }}\", body: {t: \"{{ params.ticket }}\"}}
";
