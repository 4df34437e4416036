//! What the program keeps in memory, and how long it takes to start with many workflows, in a
//! process of its own.

use std::fs;
use std::time::Duration;

use crate::Effort;
use crate::http::{Program, workflow};
use crate::table::{Row, Table, median, ms};

/// How many steps a workflow has.
const STEPS: usize = 100;
/// How many workflows the usual kit has.
const SOME: usize = 11;
/// How many a large one has.
const MANY: usize = 300;
/// How many runs at once.
const CLIENTS: usize = 64;
/// What is freed is given back only after a second.
const SETTLED: Duration = Duration::from_secs(3);

/// The start with many workflows, and the memory of idle engines.
pub(crate) fn idle(effort: Effort, table: &mut Table) {
    let some = started(SOME);
    let resident = Resident::of(&some);
    let bare = Resident::of(&started(1));
    table.add(Row {
        what: format!("memory of an idle engine with {SOME} workflows of {STEPS} transforms"),
        figure: resident.total.words(),
        bare: format!("with one: {}", bare.total.words()),
        ratio: format!("{} of it are the program's file", resident.file.words()),
        bar: "≤ 40 MiB".to_owned(),
        met: Some(resident.total <= Size::mib(40)),
    });
    drop(some);
    let starts = (0..effort.of(5, 3)).map(|_| {
        let program = started(MANY);
        (program.started_in, Resident::of(&program).total)
    });
    let (mut times, sizes): (Vec<Duration>, Vec<Size>) = starts.unzip();
    let more = MANY - SOME;
    let mut each: Vec<u64> = sizes
        .iter()
        .map(|size| size.0.saturating_sub(resident.total.0) / more as u64)
        .collect();
    each.sort_unstable();
    let each = Size(each[each.len() / 2]);
    table.add(Row {
        what: format!("memory of each further workflow of {STEPS} transforms, {more} of them"),
        figure: each.words(),
        bare: format!(
            "its file: {}",
            Size(workflow("pure", STEPS).len() as u64).words()
        ),
        ratio: String::new(),
        bar: "≤ 150 KiB".to_owned(),
        met: Some(each <= Size(150 << 10)),
    });
    let started = median(&mut times);
    let bar = Duration::from_millis(300);
    table.add(Row {
        what: format!("start with {MANY} workflows of {STEPS} transforms, to ready"),
        figure: ms(started),
        bare: format!("with one: {}", ms(self::started(1).started_in)),
        ratio: format!("{} a workflow", ms(started / MANY as u32)),
        bar: format!("≤ {}", ms(bar)),
        met: Some(started <= bar),
    });
}

/// The most memory while many runs are under way.
pub(crate) fn busy(effort: Effort, table: &mut Table) {
    let program = started(1);
    let before = Resident::of(&program);
    let load = program.load("w0", CLIENTS, effort.of(20, 4));
    let most = Size::from_status(&program, "VmHWM");
    table.add(Row {
        what: format!("most memory while {CLIENTS} clients run {STEPS} transforms each"),
        figure: most.words(),
        bare: format!("idle: {}", before.total.words()),
        ratio: format!("{} runs in all", load.times.len()),
        bar: "≤ 130 MiB".to_owned(),
        met: Some(most <= Size::mib(130)),
    });
}

fn started(workflows: usize) -> Program {
    let files = (0..workflows).map(|at| {
        let name = format!("w{at}");
        let text = workflow("pure", STEPS).replace("name: pure", &format!("name: {name}"));
        (name, text)
    });
    Program::start(&files.collect::<Vec<_>>())
}

/// What a process has in memory once it has nothing to do.
struct Resident {
    total: Size,
    /// Pages of files: the program itself, mostly.
    file: Size,
}

impl Resident {
    fn of(program: &Program) -> Self {
        std::thread::sleep(SETTLED);
        Self {
            total: Size::from_status(program, "VmRSS"),
            file: Size::from_status(program, "RssFile"),
        }
    }
}

/// Bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Size(u64);

impl Size {
    fn mib(count: u64) -> Self {
        Self(count << 20)
    }

    /// A line of `/proc/PID/status`.
    fn from_status(program: &Program, name: &str) -> Self {
        let status = fs::read_to_string(format!("/proc/{}/status", program.process())).unwrap();
        let mut lines = status.lines();
        let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
        Self(kib.unwrap().trim().parse::<u64>().unwrap() << 10)
    }

    fn words(self) -> String {
        match self.0 {
            bytes if bytes < 1 << 20 => format!("{:.0} KiB", bytes as f64 / 1024.0),
            bytes => format!("{:.1} MiB", bytes as f64 / (1024.0 * 1024.0)),
        }
    }
}
