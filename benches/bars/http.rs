//! The program as its users have it: `ktsu start` in a process of its own, asked over HTTP, with a
//! receiver and a provider that answer at once.
//!
//! `KTSU_BENCH_PROGRAM` names another build of `ktsu` to measure.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::agents::AGENT;
use crate::table::{Row, Table, median, ms, per_second, percentile, thousands};
use crate::{Effort, disk};

/// How many steps a run has.
const STEPS: usize = 20;
/// How many runs of pure steps.
const PURE: usize = 100;
/// How often everything is measured.
const ROUNDS: usize = 3;

/// Agent steps: one run at a time, and many at once.
pub(crate) fn agents(effort: Effort, table: &mut Table) {
    steps(
        effort,
        table,
        "agent",
        2,
        Duration::from_micros(350),
        8_000.0,
    );
}

/// Webhook steps: one run at a time, and many at once.
pub(crate) fn webhooks(effort: Effort, table: &mut Table) {
    steps(
        effort,
        table,
        "webhook",
        2,
        Duration::from_micros(150),
        18_000.0,
    );
}

fn steps(effort: Effort, table: &mut Table, kind: &str, syncs: u32, beyond: Duration, least: f64) {
    const CLIENTS: usize = 32;
    let program = Program::start(&[(kind.to_owned(), workflow(kind, STEPS))]);
    let mut bare = disk::Bare::new();
    program.load(kind, 1, effort.of(2, 1));
    let alone = rounds(|| program.load(kind, 1, effort.of(3, 1)));
    let sync = bare.sync(4096, 200);
    let step = alone.median() / STEPS as u32;
    let bar = syncs * sync + beyond;
    table.add(Row {
        what: format!(
            "{kind} step in a run of {STEPS}, over HTTP, {} runs",
            alone.times.len()
        ),
        figure: format!(
            "{}; {} of processor",
            ms(step),
            ms(alone.processor / STEPS as u32)
        ),
        bare: format!("sync of 4 KiB: {}", ms(sync)),
        ratio: format!("{:.1} syncs", step.as_secs_f64() / sync.as_secs_f64()),
        bar: format!("≤ {syncs} syncs + {} = {}", ms(beyond), ms(bar)),
        met: Some(step <= bar),
    });
    let together = rounds(|| program.load(kind, CLIENTS, effort.of(5, 2)));
    let rate = together.rate * STEPS as f64;
    table.add(Row {
        what: format!("{kind} steps, {CLIENTS} runs of {STEPS} at once, over HTTP"),
        figure: format!(
            "{} steps/s; {} of processor a step",
            thousands(rate),
            ms(together.processor / STEPS as u32)
        ),
        bare: format!("sync of 4 KiB: {}", ms(sync)),
        ratio: together.spread(),
        bar: format!("≥ {}/s", thousands(least)),
        met: Some(rate >= least),
    });
}

/// Runs of pure steps, to the reply with the envelope.
pub(crate) fn pure_steps(effort: Effort, table: &mut Table) {
    const CLIENTS: usize = 64;
    const LEAST: f64 = 0.35;
    let program = Program::start(&[("pure".to_owned(), workflow("pure", PURE))]);
    let mut bare = disk::Bare::new();
    program.load("pure", 1, effort.of(2, 1));
    let alone = rounds(|| program.load("pure", 1, effort.of(3, 1)));
    let sync = bare.sync(16 * 1024, 200);
    let bar = 2 * sync + Duration::from_micros(1_800);
    table.add(Row {
        what: format!("one run of {PURE} transforms, over HTTP, to the reply with its envelope"),
        figure: ms(alone.median()),
        bare: format!("sync of 16 KiB: {}", ms(sync)),
        ratio: alone.spread(),
        bar: format!("≤ 2 syncs + 1.80 ms = {}", ms(bar)),
        met: Some(alone.median() <= bar),
    });
    let together = rounds(|| program.load("pure", CLIENTS, effort.of(5, 2)));
    let rate = together.rate * PURE as f64;
    let record = vec!["x".repeat(300); 6_400];
    let bare = disk::grouped(&record, 64, Duration::from_secs(1));
    table.add(Row {
        what: format!("pure steps, {CLIENTS} clients, each reply with its envelope"),
        figure: format!("{} steps/s; {}", thousands(rate), together.spread()),
        bare: format!("groups of 64 records of 300 B: {}/s", thousands(bare)),
        ratio: format!("{:.2}", rate / bare),
        bar: format!("≥ {LEAST}"),
        met: Some(rate >= LEAST * bare),
    });
}

/// How long the 202 takes, whatever the run has to do.
pub(crate) fn accept(effort: Effort, table: &mut Table) {
    const LONG: usize = 1_000;
    const BEYOND: Duration = Duration::from_micros(1_500);
    let kinds = [("none", 0), ("long", LONG)];
    let workflows = kinds.map(|(name, steps)| (name.to_owned(), named(name, "pure", steps)));
    let program = Program::start(&workflows);
    let mut bare = disk::Bare::new();
    let rounds = effort.of(100, 30);
    let mut times = kinds.map(|_| Vec::new());
    let mut connection = program.connection();
    // In turn, so that both meet the same disk; the first ones warm up.
    for round in 0..rounds + 5 {
        for ((name, steps), times) in kinds.iter().zip(&mut times) {
            let time = program
                .asks(&mut connection, &format!("/invoke/{name}"), 202)
                .0;
            if round >= 5 {
                times.push(time);
            }
            // The rest of the run is not in the next one's way.
            thread::sleep(Duration::from_millis(if *steps > 0 { 60 } else { 5 }));
        }
    }
    let [none, long] = &mut times;
    let (none, long) = (median(none), median(long));
    let sync = bare.sync(16 * 1024, 200);
    table.add(Row {
        what: format!("202 for a pipeline of {LONG} transforms, over HTTP, median of {rounds}"),
        figure: ms(long),
        bare: format!(
            "sync of 16 KiB: {}; for a pipeline without steps: {}",
            ms(sync),
            ms(none)
        ),
        ratio: format!("{} more", ms(long.saturating_sub(none))),
        bar: format!("≤ {} more", ms(BEYOND)),
        met: Some(long <= none + BEYOND),
    });
}

/// A branch of a run that has ended.
pub(crate) fn fork(effort: Effort, table: &mut Table) {
    let program = Program::start(&[("pure".to_owned(), workflow("pure", PURE))]);
    let mut bare = disk::Bare::new();
    let rounds = effort.of(300, 100);
    let mut connection = program.connection();
    let (_, envelope) = program.asks(&mut connection, "/invoke/pure?wait=60", 200);
    let envelope: Value = serde_json::from_slice(&envelope).unwrap();
    let path = format!("/runs/{}/fork", envelope["run_id"].as_str().unwrap());
    let forks = (0..rounds).map(|_| program.asks(&mut connection, &path, 201).0);
    let mut times: Vec<Duration> = forks.collect();
    let sync = bare.sync(4096, 200);
    let (time, bar) = (median(&mut times), 2 * sync + Duration::from_micros(300));
    table.add(Row {
        what: format!("fork, over HTTP, median of {rounds}"),
        figure: ms(time),
        bare: format!("sync of 4 KiB: {}", ms(sync)),
        ratio: format!("{:.1} syncs", time.as_secs_f64() / sync.as_secs_f64()),
        bar: format!("≤ 2 syncs + 0.30 ms = {}", ms(bar)),
        met: Some(time <= bar),
    });
}

/// What clients saw.
pub(crate) struct Load {
    /// How long each run took, from the request to the whole reply.
    pub(crate) times: Vec<Duration>,
    /// Runs per second.
    rate: f64,
    /// Time of processor that the program took for a run.
    processor: Duration,
}

impl Load {
    fn median(&self) -> Duration {
        median(&mut self.times.clone())
    }

    /// The median, and the slowest of a hundred against it.
    fn spread(&self) -> String {
        let (middle, slow) = (self.median(), percentile(&mut self.times.clone(), 99));
        let ratio = slow.as_secs_f64() / middle.as_secs_f64();
        format!("p50 {}, p99 {} ({ratio:.1})", ms(middle), ms(slow))
    }
}

/// The round with the middle rate.
fn rounds(mut load: impl FnMut() -> Load) -> Load {
    let mut all: Vec<Load> = (0..ROUNDS).map(|_| load()).collect();
    all.sort_by(|one, other| one.rate.total_cmp(&other.rate));
    all.swap_remove(ROUNDS / 2)
}

/// A chain of steps of one kind.
pub(crate) fn workflow(kind: &str, steps: usize) -> String {
    named(kind, kind, steps)
}

fn named(name: &str, kind: &str, steps: usize) -> String {
    let mut text = format!(
        "kind: workflow\nname: {name}\nversion: '1.0.0'\n\
         params: {{schema: {{type: object, required: [msg], properties: {{msg: {{type: string}}}}}}}}\n\
         pipeline:{}\n",
        if steps == 0 { " []" } else { "" }
    );
    for step in 0..steps {
        let work = match (kind, step) {
            ("agent", _) => {
                "agent: agents/echo.agent.yaml, params: {msg: '{{ params.msg }}'}".to_owned()
            }
            ("webhook", _) => "webhook: {url: HOOK, body: {msg: '{{ params.msg }}'}}".to_owned(),
            (_, 0) => "transform: {inputs: [{from: params}], ops: [{map: {expr: '{msg: msg}'}}]}"
                .to_owned(),
            (_, step) => format!(
                "transform: {{inputs: [{{from: step.s{}.result}}], ops: [{{map: {{expr: '{{msg: msg}}'}}}}]}}",
                step - 1
            ),
        };
        let after = step
            .checked_sub(1)
            .map(|before| format!(", depends_on: [s{before}]"));
        text.push_str(&format!(
            "  - {{id: s{step}, {work}{}}}\n",
            after.unwrap_or_default()
        ));
    }
    text
}

/// `ktsu start` with its kit, and the receiver and provider it calls. Killed when dropped.
pub(crate) struct Program {
    child: Child,
    address: String,
    /// From the call to ready.
    pub(crate) started_in: Duration,
    _folder: tempfile::TempDir,
}

impl Program {
    pub(crate) fn start(workflows: &[(String, String)]) -> Self {
        let folder = disk::folder();
        let world = world();
        let gateway = format!(
            "providers: [{{name: here, type: openai, config: {{base_url: 'http://{world}/v1', \
             api_key: not-needed}}}}]\nmodel_groups: [{{name: std, models: [here/echo]}}]\n"
        );
        let mut files = vec![
            ("agents/echo.agent.yaml".to_owned(), AGENT.to_owned()),
            ("gateway.yaml".to_owned(), gateway),
        ];
        for (name, text) in workflows {
            let text = text.replace("HOOK", &format!("http://{world}/hook"));
            files.push((format!("workflows/{name}.workflow.yaml"), text));
        }
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let started = Instant::now();
        let mut child = command(folder.path()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = loop {
            let line = out.next().unwrap().unwrap();
            let line: Value = serde_json::from_str(&line).unwrap_or_default();
            if let Some(url) = line["url"].as_str() {
                break url.trim_start_matches("http://").to_owned();
            }
        };
        Self {
            child,
            address,
            started_in: started.elapsed(),
            _folder: folder,
        }
    }

    /// The number of the process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Starts runs from some clients for some seconds, each as soon as its last one has ended.
    pub(crate) fn load(&self, workflow: &str, clients: usize, seconds: u64) -> Load {
        let over = AtomicBool::new(false);
        let before = processor_time(self.child.id());
        let started = Instant::now();
        let times: Vec<Duration> = thread::scope(|scope| {
            let clients: Vec<_> = (0..clients)
                .map(|_| scope.spawn(|| self.client(workflow, &over)))
                .collect();
            thread::sleep(Duration::from_secs(seconds));
            over.store(true, Ordering::Relaxed);
            clients
                .into_iter()
                .flat_map(|client| client.join().unwrap())
                .collect()
        });
        let took = started.elapsed();
        let processor = processor_time(self.child.id()) - before;
        Load {
            rate: per_second(times.len(), took),
            processor: processor / u32::try_from(times.len()).unwrap(),
            times,
        }
    }

    fn connection(&self) -> Connection {
        Connection::to(TcpStream::connect(&self.address).unwrap())
    }

    /// Starts a run, or posts to one; how long the answer took, and its body.
    fn asks(&self, connection: &mut Connection, path: &str, status: u16) -> (Duration, Vec<u8>) {
        let body = match path.starts_with("/invoke/") {
            true => json!({"msg": "The printer on the third floor"}),
            false => json!({}),
        };
        let body = body.to_string();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        let started = Instant::now();
        connection.stream.write_all(request.as_bytes()).unwrap();
        let (head, answer) = connection.read().unwrap();
        let took = started.elapsed();
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{head}");
        (took, answer)
    }

    /// One client with a connection of its own.
    fn client(&self, workflow: &str, over: &AtomicBool) -> Vec<Duration> {
        let mut connection = self.connection();
        let path = format!("/invoke/{workflow}?wait=600");
        let mut times = Vec::new();
        while !over.load(Ordering::Relaxed) {
            let (took, envelope) = self.asks(&mut connection, &path, 200);
            times.push(took);
            let complete = br#""status":"complete""#;
            assert!(
                envelope
                    .windows(complete.len())
                    .any(|part| part == complete),
                "{}",
                String::from_utf8_lossy(&envelope)
            );
        }
        times
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn command(folder: &Path) -> Command {
    let program = std::env::var_os("KTSU_BENCH_PROGRAM");
    let program = program.map_or_else(|| env!("CARGO_BIN_EXE_ktsu").into(), PathBuf::from);
    let mut command = Command::new(program);
    command
        .args(["start", "--all", "--json", "--port", "0"])
        .args(["--runtime-port", "0", "--gateway-port", "0", "--kit"])
        .arg(folder)
        .arg("--ledger")
        .arg(folder.join("ledger.db"))
        .env_clear()
        .env("KTSU_LOG", "error")
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command
}

/// User and system time of a process.
fn processor_time(process: u32) -> Duration {
    /// The unit of `/proc/PID/stat` on every Linux.
    const TICKS: u64 = 100;
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let (_, after_name) = stat.rsplit_once(") ").unwrap();
    let fields: Vec<u64> = after_name
        .split(' ')
        .skip(11)
        .take(2)
        .map(|one| one.parse().unwrap())
        .collect();
    Duration::from_millis(fields.iter().sum::<u64>() * 1000 / TICKS)
}

/// A receiver of webhooks and a provider of models that answers at once; its address.
fn world() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let answer = json!({
        "id": "1", "object": "chat.completion", "created": 1, "model": "echo",
        "choices": [{"index": 0, "finish_reason": "stop",
            "message": {"role": "assistant", "content": r#"{"answer":"done"}"#}}],
        "usage": {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25},
    });
    let answer = answer.to_string();
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{answer}",
        answer.len()
    );
    // One thread that serves every connection that is ready: threads that are woken one by one would
    // cost the machine as much as a third of what is measured.
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .unwrap();
        runtime.block_on(async {
            listener.set_nonblocking(true).unwrap();
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let answer: Arc<[u8]> = answer.into_bytes().into();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(answer_all(stream, Arc::clone(&answer)));
            }
        });
    });
    address
}

/// Gives every request of a connection the same answer.
async fn answer_all(mut stream: tokio::net::TcpStream, answer: Arc<[u8]>) {
    stream.set_nodelay(true).unwrap();
    let mut bytes = Vec::with_capacity(64 * 1024);
    while let Ok(1..) = stream.read_buf(&mut bytes).await {
        while let Some(request) = message(&bytes) {
            bytes.drain(..request);
            stream.write_all(&answer).await.unwrap();
        }
    }
}

/// How long the first message is, head and body, once all of it is there.
fn message(bytes: &[u8]) -> Option<usize> {
    const LENGTH: &[u8] = b"\r\ncontent-length: ";
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = &bytes[..end + 2];
    let at = head.windows(LENGTH.len());
    let at = at
        .into_iter()
        .position(|part| part.eq_ignore_ascii_case(LENGTH));
    let digits = at.map_or(&[][..], |at| &head[at + LENGTH.len()..]);
    let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
    let body = digits.fold(0, |length, digit| length * 10 + usize::from(digit - b'0'));
    let whole = end + 4 + body;
    (bytes.len() >= whole).then_some(whole)
}

/// One side of a connection that stays open between messages.
struct Connection {
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl Connection {
    fn to(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            bytes: Vec::new(),
        }
    }

    /// The next message: its head and its body; nothing once the other side has closed.
    fn read(&mut self) -> Option<(String, Vec<u8>)> {
        let end = loop {
            let end = self.bytes.windows(4).position(|four| four == b"\r\n\r\n");
            match end {
                Some(end) => break end + 4,
                None => self.more()?,
            }
        };
        let head = String::from_utf8_lossy(&self.bytes[..end]).to_ascii_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length:"));
        let length: usize = length.map_or(0, |length| length.trim().parse().unwrap());
        while self.bytes.len() < end + length {
            self.more()?;
        }
        let rest = self.bytes.split_off(end + length);
        let body = std::mem::replace(&mut self.bytes, rest).split_off(end);
        Some((head.to_uppercase(), body))
    }

    fn more(&mut self) -> Option<()> {
        let mut part = [0; 16 * 1024];
        match self.stream.read(&mut part) {
            Ok(0) | Err(_) => None,
            Ok(bytes) => {
                self.bytes.extend_from_slice(&part[..bytes]);
                Some(())
            }
        }
    }
}
