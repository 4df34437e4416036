//! The bars of `docs/performance.md`: what ktsu does, beside what this disk and this processor can
//! do at all, measured in the same run.
//!
//! `cargo bench` measures everything; `cargo bench -- fold` the parts whose name holds a word;
//! `cargo bench -- --quick` in a shorter time. Only ratios within one run mean anything.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench prints, and stops where something is not as it must be"
)]

mod admit;
mod agents;
mod back;
mod binary;
mod bombs;
mod cancel;
mod disk;
mod engine;
mod fold;
mod followers;
mod http;
mod looking;
mod machines;
mod memory;
mod metrics;
mod plans;
#[path = "../../ledger/tests/support/postgres.rs"]
mod postgres;
mod start;
mod steps;
mod subscribers;
mod sweep;
mod table;
mod tools;
mod validate;
mod waiting;
mod webhook;
mod worlds;

use table::Table;

/// How long to measure.
#[derive(Debug, Clone, Copy)]
struct Effort {
    quick: bool,
}

impl Effort {
    /// One of two numbers.
    fn of<T>(self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}

type Part = fn(Effort, &mut Table);

/// In the order they are measured: the quiet ones before those that fill the disk's queue.
const PARTS: [(&str, Part); 38] = [
    ("binary", binary::measure),
    ("validate", validate::measure),
    ("bombs", bombs::measure),
    ("fold", fold::measure),
    ("late", fold::late_steps),
    ("envelope", fold::envelope),
    ("world-late", worlds::late_frames),
    ("world-trace", worlds::causes),
    ("looking", looking::measure),
    ("of", back::of),
    ("fork", back::fork),
    ("one-run", steps::one_run),
    ("webhook", webhook::measure),
    ("subscribers", subscribers::measure),
    ("followers", followers::measure),
    ("cancel", cancel::measure),
    ("agent-step", agents::one_step),
    ("agent-items", agents::fan_out),
    ("agent-runs", agents::many_runs),
    ("tool-step", tools::one_step),
    ("tool-runs", tools::many_runs),
    ("world-frames", worlds::measure),
    ("many-runs", steps::many_runs),
    ("http-agents", http::agents),
    ("http-webhooks", http::webhooks),
    ("http-pure", http::pure_steps),
    ("http-accept", http::accept),
    ("http-fork", http::fork),
    ("memory-idle", memory::idle),
    ("memory-busy", memory::busy),
    ("admit", admit::measure),
    ("sweep", sweep::measure),
    ("waiting", waiting::measure),
    ("metrics", metrics::measure),
    ("machines", machines::measure),
    ("start", start::measure),
    ("verify", back::verify),
    ("export", back::export),
];

/// Those that take minutes: measured where they are named.
const LONG_PARTS: [(&str, Part); 1] = [("year", machines::year::measure)];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, rest @ ..] = arguments.as_slice()
        && flag == waiting::CHILD
    {
        return waiting::child(rest);
    }
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let words: Vec<&String> = arguments
        .iter()
        .filter(|argument| !argument.starts_with("--"))
        .collect();
    let mut table = Table::default();
    for (name, part) in PARTS {
        if words.is_empty() || words.iter().any(|word| name.contains(word.as_str())) {
            say(&format!("measuring {name} …"));
            part(Effort { quick }, &mut table);
        }
    }
    for (name, part) in LONG_PARTS {
        if words.iter().any(|word| *word == name) {
            say(&format!("measuring {name} …"));
            part(Effort { quick }, &mut table);
        }
    }
    print!("{table}");
}

#[expect(clippy::print_stderr, reason = "the table alone goes to stdout")]
fn say(words: &str) {
    eprintln!("{words}");
}
