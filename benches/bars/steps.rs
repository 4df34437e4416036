//! Pure steps, made durable: many runs at once, and one run alone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ktsu::assemble::Engine;
use ktsu_kit::Kit;
use ktsu_ledger::appender::Counters;

use crate::table::{Row, Table, median, ms, per_second, thousands};
use crate::{Effort, disk, engine, plans};

/// Transforms of a run.
pub(crate) const STEPS: u32 = 100;
/// Runs at once.
pub(crate) const RUNS: usize = 64;
/// The most bytes of a frame that is measured here.
const FRAME: usize = 600;

/// 64 runs at once, one after another, against an appender that does nothing but append.
pub(crate) fn many_runs(effort: Effort, table: &mut Table) {
    let time = Duration::from_secs(effort.of(10, 2));
    let folder = disk::folder();
    let load = engine::runtime().block_on(async {
        let engine = engine::open(folder.path(), kit()).await;
        let load = sustain(&engine, time).await;
        engine.close().await.unwrap();
        load
    });
    let (steps, group) = (load.steps(), load.group());
    let Load {
        took,
        before,
        after,
        ..
    } = load;
    let bodies = engine::bodies(folder.path(), 200_000);
    let longest = longest_step_frame(&bodies);
    assert!(longest <= FRAME, "a step's frame has {longest} bytes");
    let bare = disk::grouped(&bodies, group, Duration::from_secs(effort.of(4, 1)));
    let one_a_run = disk::grouped(&bodies, RUNS, Duration::from_secs(effort.of(4, 1)));
    table.add(Row {
        what: format!("the same against groups of {RUNS} records, one a run"),
        figure: format!("{} steps/s", thousands(steps)),
        bare: format!("{} records/s", thousands(one_a_run)),
        ratio: format!("{:.2}", steps / one_a_run),
        bar: "≥ 0.35".to_owned(),
        met: Some(steps >= 0.35 * one_a_run),
    });
    table.add(Row {
        what: format!(
            "durable pure steps, {RUNS} runs at once, {:.0} s; frames ≤ {longest} B, {group} a \
             commit; {} checkpoints, {:.0} ms in all, longest {:.0} ms",
            took.as_secs_f64(),
            after.checkpoints - before.checkpoints,
            millis(after.checkpoint_us - before.checkpoint_us),
            millis(after.longest_checkpoint_us),
        ),
        figure: format!("{} steps/s", thousands(steps)),
        bare: format!("{} records/s", thousands(bare)),
        ratio: format!("{:.2}", steps / bare),
        bar: String::new(),
        met: None,
    });
}

fn millis(micros: u64) -> f64 {
    Duration::from_micros(micros).as_secs_f64() * 1000.0
}

/// `run.created` and the like are no frames of steps.
fn longest_step_frame(bodies: &[String]) -> usize {
    let steps = bodies
        .iter()
        .filter(|body| body.contains(r#""type":"step."#));
    steps.map(String::len).max().unwrap_or_default()
}

/// What many runs at once did.
pub(crate) struct Load {
    /// How long each run took that has ended.
    pub(crate) times: Vec<Duration>,
    /// How long all of them took.
    pub(crate) took: Duration,
    before: Counters,
    after: Counters,
}

impl Load {
    /// Steps per second.
    pub(crate) fn steps(&self) -> f64 {
        per_second(self.times.len() * STEPS as usize, self.took)
    }

    /// Frames stored.
    pub(crate) fn frames(&self) -> usize {
        usize::try_from(self.after.frames - self.before.frames).unwrap()
    }

    /// Frames of a commit.
    pub(crate) fn group(&self) -> usize {
        let commits = self.after.commits - self.before.commits;
        self.frames() / usize::try_from(commits.max(1)).unwrap()
    }
}

/// The workflow that is measured.
pub(crate) fn kit() -> Arc<Kit> {
    plans::kit(&[("chain", &plans::chain(STEPS, None))])
}

/// Keeps so many runs going for a time.
pub(crate) async fn sustain(engine: &Engine, time: Duration) -> Load {
    engine::reply(engine, "chain").await;
    let before = engine.appender().counters();
    let started = Instant::now();
    let clients: Vec<_> = (0..RUNS)
        .map(|_| {
            let orchestrator = engine.orchestrator.clone();
            tokio::spawn(async move {
                let mut times = Vec::new();
                while started.elapsed() < time {
                    let asked = Instant::now();
                    let run = engine::invoke(&orchestrator, "chain").await;
                    orchestrator.wait_until_ended(&run).await.unwrap();
                    times.push(asked.elapsed());
                }
                times
            })
        })
        .collect();
    let mut times = Vec::new();
    for client in clients {
        times.extend(client.await.unwrap());
    }
    Load {
        times,
        took: started.elapsed(),
        before,
        after: engine.appender().counters(),
    }
}

/// One run alone, from the request to the reply with its envelope.
pub(crate) fn one_run(effort: Effort, table: &mut Table) {
    let rounds = effort.of(45, 15);
    let folder = disk::folder();
    let mut bare = disk::Bare::new();
    let mut syncs = Vec::new();
    let mut commits = Vec::new();
    let mut times: Vec<Duration> = Vec::new();
    engine::runtime().block_on(async {
        let engine = engine::open(folder.path(), kit()).await;
        for _ in 0..rounds {
            let before = engine.appender().counters().commits;
            let started = Instant::now();
            engine::reply(&engine, "chain").await;
            times.push(started.elapsed());
            commits.push(engine.appender().counters().commits - before);
            // Beside each run, so that both meet the same disk.
            syncs.push(bare.sync(16 * 1024, 3));
        }
        engine.close().await.unwrap();
    });
    let most = commits.iter().copied().max().unwrap_or_default();
    let (time, sync) = (median(&mut times), median(&mut syncs));
    let bar = 2 * sync + Duration::from_micros(1_800);
    table.add(Row {
        what: format!("one run of {STEPS} transforms, request to reply: commits"),
        figure: most.to_string(),
        bare: String::new(),
        ratio: String::new(),
        bar: "≤ 4".to_owned(),
        met: Some(most <= 4),
    });
    table.add(Row {
        what: format!("the same: time, median of {rounds}"),
        figure: ms(time),
        bare: format!("sync of 16 KiB: {}", ms(sync)),
        ratio: format!("{:.1} syncs", time.as_secs_f64() / sync.as_secs_f64()),
        bar: format!("≤ 2 syncs + 1.8 ms = {}", ms(bar)),
        met: Some(time <= bar),
    });
}
