//! The program itself.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::Effort;
use crate::table::{Row, Table, median, ms};

/// How long it takes to say its version, and how large it is; nothing if none was built.
pub(crate) fn measure(_: Effort, table: &mut Table) {
    let program = Path::new(env!("CARGO_BIN_EXE_ktsu"));
    let Ok(about) = std::fs::metadata(program) else {
        return;
    };
    let mut times: Vec<Duration> = (0..25).map(|_| spawned(program)).collect();
    let mut bare: Vec<Duration> = (0..25).map(|_| spawned(Path::new("/bin/true"))).collect();
    let (time, bare) = (median(&mut times), median(&mut bare));
    table.add(Row {
        what: "`ktsu --version`, median of 25".to_owned(),
        figure: ms(time),
        bare: format!("/bin/true: {}", ms(bare)),
        ratio: format!("{:.1}", time.as_secs_f64() / bare.as_secs_f64()),
        bar: "≤ 20 ms".to_owned(),
        met: Some(time <= Duration::from_millis(20)),
    });
    let megabytes = about.len() as f64 / 1e6;
    table.add(Row {
        what: "the program".to_owned(),
        figure: format!("{megabytes:.1} MB"),
        bare: String::new(),
        ratio: String::new(),
        bar: "≤ 40 MB".to_owned(),
        met: Some(megabytes <= 40.0),
    });
}

fn spawned(program: &Path) -> Duration {
    let started = Instant::now();
    let status = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    assert!(status.unwrap().success());
    started.elapsed()
}
