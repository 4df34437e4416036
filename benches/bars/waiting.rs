//! Runs that wait: what they hold in memory.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use tokio::net::TcpListener;

use crate::table::{Row, Table, thousands};
use crate::{Effort, disk, engine, plans};

/// The argument that makes this program the engine that waits.
pub(crate) const CHILD: &str = "--waiting-engine";
const MIB: f64 = 1024.0 * 1024.0;

/// Starts an engine of its own, lets runs wait there, and looks at its size.
pub(crate) fn measure(effort: Effort, table: &mut Table) {
    let runs: usize = effort.of(10_000, 2_000);
    let runtime = engine::runtime();
    let url = runtime.block_on(hanging());
    let folder = disk::folder();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([CHILD, &url, &runs.to_string()])
        .arg(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || {
        let line = lines.next().unwrap().unwrap();
        assert!(["open", "waiting"].contains(&line.as_str()), "{line}");
        resident(child.id())
    };
    let (empty, full) = (next(), next());
    child.kill().unwrap();
    child.wait().unwrap();
    let a_run = (full - empty) / runs as f64;
    let bar = 256.0 * MIB;
    table.add(Row {
        what: format!(
            "{} runs waiting for a webhook: resident",
            thousands(runs as f64)
        ),
        figure: format!("{:.0} MiB", full / MIB),
        bare: format!("empty engine: {:.0} MiB", empty / MIB),
        ratio: format!("{:.1} KiB a run", a_run / 1024.0),
        bar: "≤ 256 MiB with 10,000".to_owned(),
        met: Some(empty + a_run * 10_000.0 <= bar),
    });
}

fn resident(process: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.unwrap().parse::<f64>().unwrap() * 1024.0
}

/// A receiver that takes connections and never answers.
pub(crate) async fn hanging() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hang", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            held.push(stream);
        }
    });
    url
}

/// The engine that waits: says when it is open and when all its runs wait, and is then killed.
pub(crate) fn child(arguments: &[String]) {
    let [url, runs, folder] = arguments else {
        panic!("{CHILD} URL RUNS FOLDER");
    };
    let runs: usize = runs.parse().unwrap();
    engine::runtime().block_on(async {
        let kit = plans::kit(&[("hang", &plans::chain(1, Some(url)))]);
        let engine = engine::open(Path::new(folder), kit).await;
        println!("open");
        start(&engine.orchestrator, "hang", runs).await;
        println!("waiting");
        std::future::pending::<()>().await;
    });
}

/// Starts runs, 64 at a time, and returns once all are acknowledged.
pub(crate) async fn start(
    orchestrator: &ktsu_orchestrator::Orchestrator,
    workflow: &'static str,
    runs: usize,
) {
    let clients: Vec<_> = (0..64)
        .map(|client| {
            let orchestrator = orchestrator.clone();
            tokio::spawn(async move {
                for _ in (client..runs).step_by(64) {
                    engine::invoke(&orchestrator, workflow).await;
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
}
