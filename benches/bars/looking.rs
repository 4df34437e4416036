//! Looking back at recorded runs: two of them compared, one decided again.

use std::time::{Duration, Instant};

use ktsu_ledger::{Frame, FrameError, Sealed};
use ktsu_projections::diff::{Side, diff};
use ktsu_workflow::replay::{Definitions, replay};

use crate::Effort;
use crate::plans;
use crate::table::{Row, Table, median, ms, thousands};

/// Diff of two runs of 10,000 frames that differ in one step, and strict replay of one of them;
/// both from the stored bytes.
pub(crate) fn measure(_: Effort, table: &mut Table) {
    let one = plans::record(&plans::chain(5000, None), usize::MAX);
    let two = plans::record(&plans::chain(5001, None), usize::MAX);
    let (one, two) = (one.sealed, two.sealed);
    let reading = timed(&|| {
        std::hint::black_box((frames(&one), frames(&two)));
    });
    let both = timed(&|| {
        let (a, b) = (frames(&one), frames(&two));
        let side = |frames| Side { frames, scope: "" };
        let found = diff(side(&a), side(&b)).unwrap();
        assert!(!found.is_empty());
        std::hint::black_box(found);
    });
    table.add(Row {
        what: format!(
            "diff of two runs of {} frames, median of 5",
            thousands(one.len() as f64)
        ),
        figure: ms(both),
        bare: format!("reading them: {}", ms(reading)),
        ratio: format!("{:.2}", both.as_secs_f64() / reading.as_secs_f64()),
        bar: "≤ 300 ms".to_owned(),
        met: Some(both <= Duration::from_millis(300)),
    });
    let again = timed(&|| {
        let frames = frames(&one);
        std::hint::black_box(replay(&frames, &mut Definitions::default()).unwrap());
    });
    table.add(Row {
        what: format!(
            "strict replay of a run of {} frames, median of 5",
            thousands(one.len() as f64)
        ),
        figure: ms(again),
        bare: String::new(),
        ratio: String::new(),
        bar: String::new(),
        met: None,
    });
}

fn timed(work: &dyn Fn()) -> Duration {
    let mut times: Vec<Duration> = (0..5)
        .map(|_| {
            let started = Instant::now();
            work();
            started.elapsed()
        })
        .collect();
    median(&mut times)
}

fn frames(sealed: &[Sealed]) -> Vec<Frame> {
    let decode = |one: &Sealed| {
        let blobs = &one.blobs;
        one.record.decode::<FrameError>(&mut |hash| {
            let found = blobs.iter().find(|blob| blob.hash == *hash);
            Ok(found.map(|blob| blob.text.clone()))
        })
    };
    sealed.iter().map(|one| decode(one).unwrap()).collect()
}
