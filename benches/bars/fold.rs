//! Reading a recorded run, and whether the length of a run slows its steps.

use std::time::{Duration, Instant};

use ktsu_ledger::event::ContinueReason;
use ktsu_ledger::{Frame, Hash, Record};
use ktsu_projections::envelope::EnvelopeFold;
use ktsu_projections::{Lineage, RunState};
use ktsu_workflow::definition::Definition;
use ktsu_workflow::turn;

use crate::Effort;
use crate::plans::{self, Recorded};
use crate::table::{Row, Table, median, ms, per_second, thousands};

/// The most bytes of a frame that is folded here.
const FRAME: usize = 700;

/// Fold, fold with the chain checked, trace.
pub(crate) fn measure(effort: Effort, table: &mut Table) {
    let count: u32 = effort.of(100_000, 20_000);
    let definition = plans::chain(count / 2, None);
    let recorded = plans::record(&definition, usize::MAX);
    let (first, rest) = recorded.sealed.split_first().unwrap();
    let first = &first.frame;
    let records: Vec<&Record> = rest.iter().map(|sealed| &sealed.record).collect();
    let longest = records.iter().map(|record| record.body.len()).max();
    assert!(longest.unwrap_or_default() <= FRAME);
    let rounds = |work: &dyn Fn()| {
        let mut times: Vec<Duration> = (0..9).map(|_| timed(work)).collect();
        per_second(records.len(), median(&mut times))
    };
    let plain = rounds(&|| fold(&definition, first, &records, false));
    let checked = rounds(&|| fold(&definition, first, &records, true));
    let bare = rounds(&|| {
        for record in &records {
            std::hint::black_box(Hash::of(record.body.as_bytes()));
        }
    });
    for (what, figure, absolute, share) in [
        ("fold", plain, 500_000.0, 0.5),
        ("fold with the chain checked", checked, 350_000.0, 0.35),
    ] {
        table.add(Row {
            what: format!(
                "{what}, {} frames of ≤ {} B, median of 9",
                thousands(f64::from(count)),
                longest.unwrap_or_default()
            ),
            figure: format!("{} frames/s", thousands(figure)),
            bare: format!("BLAKE3: {} frames/s", thousands(bare)),
            ratio: format!("{:.2}", figure / bare),
            bar: format!("≥ {}/s or ≥ {share}", thousands(absolute)),
            met: Some(figure >= absolute || figure >= share * bare),
        });
    }
    trace(&recorded, table);
}

/// The envelope of a run that has just ended, in JSON: from the state that its task holds, and from
/// its frames.
pub(crate) fn envelope(effort: Effort, table: &mut Table) {
    const STEPS: u32 = 100;
    const BAR: Duration = Duration::from_micros(150);
    let recorded = plans::record(&plans::chain(STEPS, None), usize::MAX);
    let frames: Vec<Frame> = recorded
        .sealed
        .iter()
        .map(|one| one.frame.clone())
        .collect();
    let live = || serde_json::to_vec(&recorded.details.envelope(&recorded.state)).unwrap();
    let folded = || {
        let fold = EnvelopeFold::of(&frames).unwrap();
        serde_json::to_vec(&fold.envelope("")).unwrap()
    };
    assert_eq!(live(), folded());
    let rounds = effort.of(200, 50);
    let middle = |work: &dyn Fn()| {
        let mut times: Vec<Duration> = (0..rounds).map(|_| timed(work)).collect();
        median(&mut times)
    };
    let from_state = middle(&|| drop(std::hint::black_box(live())));
    let from_frames = middle(&|| drop(std::hint::black_box(folded())));
    table.add(Row {
        what: format!("envelope of a run of {STEPS} transforms that has just ended, in JSON"),
        figure: ms(from_state),
        bare: format!("by folding its frames: {}", ms(from_frames)),
        ratio: format!(
            "{:.2}",
            from_state.as_secs_f64() / from_frames.as_secs_f64()
        ),
        bar: format!("≤ {}", ms(BAR)),
        met: Some(from_state <= BAR),
    });
}

fn timed(work: &dyn Fn()) -> Duration {
    let started = Instant::now();
    work();
    started.elapsed()
}

fn fold(definition: &Definition, first: &Frame, records: &[&Record], check: bool) {
    let mut state = RunState::begin(first, definition.outline.clone()).unwrap();
    for record in records {
        if check {
            assert_eq!(Hash::of(record.body.as_bytes()), record.hash);
        }
        // `apply` itself checks that `prev` is the hash of the frame before.
        let frame = record.decode_bare().unwrap();
        state.apply(&frame).unwrap();
    }
    std::hint::black_box(state);
}

fn trace(recorded: &Recorded, table: &mut Table) {
    let lineage = Lineage::from_frames(recorded.sealed.iter().map(|sealed| &sealed.frame));
    let last = recorded.sealed.len() as u64 - 1;
    let mut reached = 0;
    let mut times: Vec<Duration> = (0..9)
        .map(|_| {
            let started = Instant::now();
            let chain = lineage.ancestors(last);
            let nodes: Vec<_> = chain.iter().filter_map(|seq| lineage.node(*seq)).collect();
            reached = std::hint::black_box(nodes).len();
            started.elapsed()
        })
        .collect();
    let time = median(&mut times);
    table.add(Row {
        what: format!(
            "trace of the last of {} frames ({} causes), after load",
            thousands(recorded.sealed.len() as f64),
            thousands(reached as f64)
        ),
        figure: ms(time),
        bare: String::new(),
        ratio: String::new(),
        bar: "≤ 20 ms".to_owned(),
        met: Some(time <= Duration::from_millis(20)),
    });
}

/// Steps at 10,000 and at 100 of the same workflow, one of each in turn.
pub(crate) fn late_steps(_: Effort, table: &mut Table) {
    const SAMPLES: usize = 200;
    let definition = plans::chain(10_200, None);
    let mut early = plans::record_steps(&definition, 100);
    let mut late = plans::record_steps(&definition, 10_000);
    let (mut early_times, mut late_times) = (Vec::new(), Vec::new());
    for _ in 0..SAMPLES {
        early_times.push(one_step(&definition, &mut early));
        late_times.push(one_step(&definition, &mut late));
    }
    let (early, late) = (median(&mut early_times), median(&mut late_times));
    let ratio = late.as_secs_f64() / early.as_secs_f64();
    let micros = |time: Duration| format!("{:.1} µs", time.as_secs_f64() * 1e6);
    table.add(Row {
        what: format!("step 10,000 of a run against step 100, median of {SAMPLES}, no store"),
        figure: micros(late),
        bare: format!("step 100: {}", micros(early)),
        ratio: format!("{ratio:.2}"),
        bar: "≤ 1.2".to_owned(),
        met: Some(ratio <= 1.2),
    });
}

/// A turn of one step, as a run's task takes it: three frames with the one that continues it.
fn one_step(definition: &Definition, recorded: &mut Recorded) -> Duration {
    let input = turn::continuation(&recorded.state, ContinueReason::Bound);
    let at = recorded.state.at();
    let started = Instant::now();
    let taken = turn::apply_input(definition, &mut recorded.state, input, at, &recorded.memo);
    let time = started.elapsed();
    assert_eq!(taken.unwrap().sealed.len(), 3);
    time
}
