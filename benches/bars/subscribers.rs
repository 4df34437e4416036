//! Whether subscribers that never answer slow the runs they are told of.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};

use ktsu::assemble::Engine;
use ktsu::receiver::Receiver;
use ktsu_environment::Environment;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::table::{Row, Table, median, ms};
use crate::{Effort, disk, engine, plans};

/// Transforms of a run.
const STEPS: u32 = 100;
/// Subscriptions of the engine; half of their receivers hang.
const SUBSCRIPTIONS: usize = 100;
/// How much longer a run may take with them.
const MOST: f64 = 1.10;

/// One run at a time of an engine that has 100 subscriptions to the end of each run, and of an engine
/// that has none, in turn.
pub(crate) fn measure(effort: Effort, table: &mut Table) {
    let rounds = effort.of(300, 60);
    let (alone_in, told_in) = (disk::folder(), disk::folder());
    let (mut alone, mut told) = (Vec::new(), Vec::new());
    let (heard, hanging) = engine::runtime().block_on(async {
        let chain = plans::chain(STEPS, None);
        let kit = plans::kit(&[("chain", &chain)]);
        let receiver = Receiver::start(8).await.unwrap();
        let silent = Silent::start().await;
        let environment = environment(told_in.path(), &receiver.url(), &silent.url);
        let secret = ("HOOK".to_owned(), "a secret of the bench".to_owned());
        let process = BTreeMap::from([secret]);
        let without = engine::open(alone_in.path(), plans::kit(&[("chain", &chain)])).await;
        let with = engine::open_in(told_in.path(), kit, Some(environment), process).await;
        // The first run of each opens the connections, and leaves half of them hanging.
        one_run(&without).await;
        one_run(&with).await;
        silent.until(SUBSCRIPTIONS / 2).await;
        for _ in 0..rounds {
            alone.push(one_run(&without).await);
            told.push(one_run(&with).await);
        }
        let hanging = silent.open();
        without.close().await.unwrap();
        with.close().await.unwrap();
        (receiver.received(), hanging)
    });
    let (alone, told) = (median(&mut alone), median(&mut told));
    let ratio = told.as_secs_f64() / alone.as_secs_f64();
    table.add(Row {
        what: format!(
            "a run of {STEPS} pure steps with {SUBSCRIPTIONS} subscriptions to its end, of which \
             {hanging} calls hang and {heard} were answered, median of {rounds}"
        ),
        figure: ms(told),
        bare: format!("without subscriptions: {}", ms(alone)),
        ratio: format!("{ratio:.2}"),
        bar: format!("≤ {MOST:.2}"),
        met: Some(ratio <= MOST),
    });
}

async fn one_run(engine: &Engine) -> Duration {
    let started = Instant::now();
    engine::reply(engine, "chain").await;
    started.elapsed()
}

fn environment(folder: &Path, answering: &str, silent: &str) -> Environment {
    let mut text = "name: bench\negress: {allow: [\"127.0.0.1\"]}\nsubscriptions:\n".to_owned();
    for at in 0..SUBSCRIPTIONS {
        let url = if at % 2 == 0 { answering } else { silent };
        writeln!(
            text,
            "  - {{name: s{at}, pattern: run.completed, url: \"{url}/s{at}\", \
             secret: \"{{{{ env.HOOK }}}}\"}}"
        )
        .unwrap();
    }
    let file = folder.join("bench.env.yaml");
    std::fs::write(&file, text).unwrap();
    Environment::load(&file).unwrap()
}

/// A server that takes connections and never answers.
struct Silent {
    url: String,
    open: watch::Receiver<Vec<TcpStream>>,
}

impl Silent {
    async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (sender, open) = watch::channel(Vec::new());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                sender.send_modify(|open| open.push(stream));
            }
        });
        Self { url, open }
    }

    /// How many calls are waiting.
    fn open(&self) -> usize {
        self.open.borrow().len()
    }

    /// Waits for that many calls.
    async fn until(&self, calls: usize) {
        let mut open = self.open.clone();
        open.wait_for(|open| open.len() >= calls).await.unwrap();
    }
}
