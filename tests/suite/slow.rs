//! Clients of the real binary that ask and never read what they are answered. They are in the process
//! of the test: what the engine takes for them is told by the system.

use std::io::Write as _;
use std::net::TcpStream;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use tokio::net::TcpSocket;

use crate::support::process::Process;
use crate::support::{Client, KitDir};

/// More than an engine has places for.
const MANY: usize = 2060;
/// Held by the one test of a crowd that runs: two of them would take each other's time.
static CROWDED: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
const SOME: usize = 500;
/// How many bytes the system takes in for each of them.
const RECEIVED: u32 = 4 * 1024;
/// What those may make it grow by, in KiB.
const MOST_KIB: u64 = 64 * 1024;

const HELLO: &str = r#"
params: {schema: {type: object, properties: {msg: {type: string, default: hi}}}}
pipeline: [{id: greet, transform: {inputs: [{from: params}], ops: [{map: {expr: "{text: msg}"}}]}}]
"#;

/// An engine in a process of its own, and a run of which answers are large.
struct Engine {
    process: Process,
    run: String,
    _kit: KitDir,
    _dir: tempfile::TempDir,
}

impl Engine {
    /// Answers about its run have some multiple of this many bytes.
    async fn start(bytes: usize) -> Self {
        let kit = KitDir::new(&[("hello", HELLO)]);
        let dir = tempfile::tempdir().unwrap();
        let process = Process::start(kit.dir.path(), &dir.path().join("ledger.db"), &[]);
        let msg = "x".repeat(bytes);
        let run = process.client().run("hello", json!({"msg": msg})).await;
        Self {
            run: run["run_id"].as_str().unwrap().to_owned(),
            process,
            _kit: kit,
            _dir: dir,
        }
    }

    /// What is asked for, so many times.
    fn requests(&self, times: usize) -> Vec<String> {
        let run = &self.run;
        let get = |path: &str, more: &str| {
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{more}\r\n").repeat(times)
        };
        vec![
            get("/openapi.json", ""),
            get("/health", ""),
            get("/runs?limit=1000", ""),
            get(&format!("/runs/{run}/envelope"), ""),
            get(&format!("/runs/{run}/frames?expand=true"), ""),
            get(
                &format!("/runs/{run}/frames?expand=true"),
                "accept: text/event-stream\r\n",
            ),
        ]
    }

    /// Opens connections that ask for all of that, and read nothing.
    async fn crowd(&self, count: usize, times: usize) -> Vec<TcpStream> {
        let address = self.process.url.strip_prefix("http://").unwrap();
        let address = address.parse().unwrap();
        let requests = self.requests(times);
        let mut crowd = Vec::with_capacity(count);
        for one in 0..count {
            let socket = TcpSocket::new_v4().unwrap();
            // What the system takes in for a client that does not read is work for the engine, and no test of it.
            socket.set_recv_buffer_size(RECEIVED).unwrap();
            let stream = socket.connect(address).await.unwrap().into_std().unwrap();
            stream.set_nonblocking(false).unwrap();
            crowd.push(stream);
            let (mut stream, request) = (&crowd[one], requests[one % requests.len()].clone());
            // One that is closed already cannot be written to.
            let _ = stream.write_all(request.as_bytes());
        }
        crowd
    }

    /// Somebody else, on a connection of their own.
    async fn honest(&self) {
        let client = || Client::of(&self.process.url);
        for path in ["/health", "/openapi.json", "/runs?limit=5"] {
            let answer = client().get(path).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        }
        let envelope = client().run("hello", json!({"msg": "short"})).await;
        assert_eq!(envelope["status"], "complete");
        let whole = client().get(&format!("/runs/{}", self.run)).await;
        assert_eq!(whole.status, 200, "{}", whole.text());
    }

    /// The peak of its memory so far, in KiB.
    fn peak_kib(&self) -> u64 {
        let path = format!("/proc/{}/status", self.process.pid);
        let status = std::fs::read_to_string(path).unwrap();
        let mut lines = status.lines();
        let line = lines.find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

/// Whether this process may have so many connections; says so if not.
fn may_open(connections: usize) -> bool {
    let wanted = connections as u64 + 512;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return true;
    }
    let raised = Rlimit {
        current: Some(wanted),
        maximum: limit.maximum,
    };
    let may = setrlimit(Resource::Nofile, raised).is_ok();
    if !may {
        crate::support::not_tested(&format!(
            "{connections} connections at once; they need ulimit -n {wanted}"
        ));
    }
    may
}

#[tokio::test]
async fn more_clients_than_there_are_places_that_never_read_keep_no_one_from_an_answer() {
    let _alone = CROWDED.lock().await;
    if !may_open(MANY) {
        return;
    }
    let engine = Engine::start(1024).await;
    let crowd = engine.crowd(MANY, 10).await;
    for _ in 0..2 {
        engine.honest().await;
    }
    drop(crowd);
    engine.honest().await;
    engine.process.stop();
}

#[tokio::test]
async fn five_hundred_clients_that_never_read_make_the_engine_grow_by_less_than_64_mib() {
    let _alone = CROWDED.lock().await;
    if !may_open(SOME) {
        return;
    }
    let engine = Engine::start(100 * 1024).await;
    // What every answer needs once is there before.
    for request in [
        "/openapi.json".to_owned(),
        format!("/runs/{}/envelope", engine.run),
        format!("/runs/{}/frames?expand=true", engine.run),
    ] {
        assert_eq!(engine.process.client().get(&request).await.status, 200);
    }
    engine.honest().await;
    let before = engine.peak_kib();
    let crowd = engine.crowd(SOME, 100).await;
    // Each of them has got something, an answer or the end of its connection.
    let crowd = tokio::task::spawn_blocking(move || {
        for stream in &crowd {
            let _ = stream.peek(&mut [0]);
        }
        crowd
    });
    let crowd = crowd.await.unwrap();
    engine.honest().await;
    let grown = engine.peak_kib() - before;
    eprintln!("{SOME} clients: {grown} KiB more");
    assert!(grown <= MOST_KIB, "{grown} KiB more");
    drop(crowd);
    engine.process.stop();
}
