//! `ktsu verify`: verifies a ledger.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ktsu_ledger::lock::{is_held_elsewhere, missing_log};
use ktsu_ledger::note::Checkpoint;
use ktsu_ledger::store::Reader;
use ktsu_ledger::verify::{Head, VerifyOptions, VerifyProblem, VerifyReport};
use ktsu_ledger::{Hash, LedgerPlace, StreamId};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::location::nearby_ledger;
use super::output::{
    BAD, GOOD, WARN, exit_code, is_live, line, line_dim, note, note_sheet, painted, print_json,
    symbols, transient,
};
use super::reading::{open_at, warn_of_second_name};
use super::{Common, Failure, json as shape, text};
use ktsu_history::verify::{self, StreamEnd};
use ktsu_opening::files::unwritable;
use ktsu_opening::find::find_record;

/// What `verify` takes.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Reports only what concerns this run; the whole ledger is read all the same
    run: Option<String>,
    /// Heads recorded earlier with --write-heads; each must still be there
    #[arg(long, value_name = "FILE")]
    heads: Option<PathBuf>,
    /// Signed checkpoints kept elsewhere, for instance by a witness: the ledger must continue from each
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,
    /// Writes where every stream ends to a new file, to be kept elsewhere
    #[arg(long, value_name = "FILE")]
    write_heads: Option<PathBuf>,
}

/// A file of heads.
#[derive(Debug, Serialize, Deserialize)]
struct HeadsFile {
    heads: Vec<WrittenHead>,
}

/// A recorded head.
#[derive(Debug, Serialize, Deserialize)]
struct WrittenHead {
    hash: Hash,
    seq: u64,
    stream: String,
}

/// Verifies a ledger.
pub(super) fn run(common: &Common, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let place = nearby_ledger(common)?;
    // Checked before the file is opened.
    let elsewhere = place.ledger.file().is_some_and(is_held_elsewhere);
    warn_of_second_name(&place.ledger);
    let options = VerifyOptions {
        heads: arguments
            .heads
            .as_deref()
            .map(read_heads)
            .transpose()?
            .unwrap_or_default(),
        checkpoints: match &arguments.checkpoint {
            Some(path) => read_checkpoints(path)?,
            None => Vec::new(),
        },
    };
    // If the ledger is too damaged to be opened, the verifier reports that.
    let stream = match &arguments.run {
        Some(run) => Some(find_record(&open_at(&place.ledger)?, run)?.0),
        None => None,
    };
    let live = is_live();
    let mut shown = 0;
    let report = verify::ledger(&place.ledger, &options, &mut |progress| {
        if live && progress.frames >= shown + 50_000 {
            shown = progress.frames;
            let ellipsis = note_sheet().symbols.ellipsis();
            transient(&format!("  {ellipsis} {shown} frames"));
        }
    });
    if live {
        transient("");
    }
    let mut report = report?;
    if elsewhere {
        let words = "frames in the log only: the file is in use through another name";
        report.not_covered.push(words.to_owned());
    }
    if let Some(log) = place.ledger.file().and_then(missing_log) {
        report.not_covered.push(format!(
            "frames that were only in {}: it is missing, and the last owner did not close the ledger",
            log.display()
        ));
    }
    let reader = open_at(&place.ledger).ok();
    if let (Some(stream), Some(reader)) = (&stream, &reader) {
        report.problems.retain(verify::concerns(reader, stream));
    }
    let ends = reader.map(|reader| ends(&reader, stream.as_ref(), &report.problems));
    let ends = ends.unwrap_or_default();
    let stream = stream.map(|stream| stream.to_string());
    let sound = report.is_sound();
    if common.json {
        let body = json!({
            "ledger": place.ledger.to_string(),
            "sound": sound,
            "run": stream,
            "streams": ends,
            "report": report,
        });
        print_json(&body)?;
    } else {
        print(&report, &place.ledger, stream.as_deref(), &ends);
    }
    if let Some(path) = arguments.write_heads.as_ref().filter(|_| sound) {
        write_heads(path, &verify::heads(&open_at(&place.ledger)?)?)?;
    }
    Ok(exit_code(sound))
}

/// The ends of the streams to show: the requested run and streams with problems.
fn ends(
    reader: &dyn Reader,
    asked: Option<&StreamId>,
    problems: &[VerifyProblem],
) -> Vec<StreamEnd> {
    let named = problems
        .iter()
        .filter_map(|problem| problem.stream.as_ref());
    let named = named.filter_map(|name| name.parse().ok());
    let named: BTreeSet<StreamId> = named.chain(asked.cloned()).collect();
    named
        .iter()
        .filter_map(|stream| verify::end(reader, stream))
        .collect()
}

fn print_end(end: &StreamEnd) {
    let shared = match end.shared {
        0 => String::new(),
        some => format!(" ({some} shared)"),
    };
    let words = format!(
        "{}: {}{shared}, {}, head {}",
        end.stream,
        text::count(end.frames, "frame"),
        text::count(end.blobs, "blob"),
        end.head
    );
    line(&format!("  {}", text::line(&words)));
}

fn print(report: &VerifyReport, ledger: &LedgerPlace, stream: Option<&str>, ends: &[StreamEnd]) {
    let what = stream.map_or_else(|| ledger.to_string(), str::to_owned);
    let what = text::line(&what).into_owned();
    let of_all = match stream {
        Some(_) => " of the whole ledger",
        None => "",
    };
    let read = format!(
        "{}, {}, {}{of_all} read",
        text::count(report.frames, "frame"),
        text::count(report.blobs, "blob"),
        text::count(report.streams, "stream")
    );
    if report.is_sound() {
        line(&format!(
            "{} {what} is sound: {read}",
            painted(GOOD, symbols().good())
        ));
    } else {
        line(&format!(
            "{} {what} is damaged: {}; {read}",
            painted(BAD, symbols().bad()),
            text::count(report.problems.len(), "problem")
        ));
        for problem in &report.problems {
            let place = match (&problem.stream, problem.seq) {
                (Some(stream), Some(seq)) => format!("{stream}#{seq}"),
                (Some(stream), None) => stream.clone(),
                (None, _) => "the file".to_owned(),
            };
            let words = format!("{place}: {}", problem.message);
            if !line(&format!("  {}", text::line(&words))) {
                return;
            }
        }
    }
    ends.iter().for_each(print_end);
    if report.checkpoints > 0 {
        let words = format!(
            "  {} verified, the last over {}",
            text::count(report.checkpoints, "signed checkpoint"),
            text::count(report.signed_frames, "frame")
        );
        line_dim(&words);
    }
    if report.unreferenced_blobs > 0 {
        let blobs = text::count(report.unreferenced_blobs, "unreferenced blob");
        line_dim(&format!("  {blobs}"));
    }
    for one in &report.not_covered {
        line(&format!(
            "{} {}",
            painted(WARN, "not covered:"),
            text::line(one)
        ));
    }
}

/// The checkpoints in a file: one note, or many as a witness appends them.
pub(super) fn read_checkpoints(path: &Path) -> Result<Vec<Checkpoint>, Failure> {
    let failed = |why: &dyn std::fmt::Display| {
        Failure::could_not_run(format!(
            "cannot use the checkpoints in {}: {why}",
            path.display()
        ))
        .hint("it must hold signed notes, as a witness receives them")
    };
    let text = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
    let notes = ktsu_evidence::notes(&text).map_err(|error| failed(&error))?;
    Ok(notes)
}

fn read_heads(path: &Path) -> Result<Vec<Head>, Failure> {
    let failed = |why: &dyn std::fmt::Display| {
        Failure::could_not_run(format!("cannot use the heads in {}: {why}", path.display()))
            .hint("to make one: ktsu verify --write-heads FILE")
    };
    let text = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
    let written: HeadsFile = serde_json::from_str(&text).map_err(|error| failed(&error))?;
    let heads = written.heads.into_iter().map(|one| {
        Ok(Head {
            stream: one
                .stream
                .parse()
                .map_err(|_| failed(&"a stream has no name"))?,
            seq: one.seq,
            hash: one.hash,
        })
    });
    heads.collect()
}

/// Refuses to overwrite a file: earlier heads are what counts.
fn write_heads(path: &Path, heads: &[Head]) -> Result<(), Failure> {
    let failed = |error: std::io::Error| unwritable(path, &error);
    let heads = heads.iter().map(|head| WrittenHead {
        hash: head.hash,
        seq: head.seq,
        stream: head.stream.to_string(),
    });
    let heads = HeadsFile {
        heads: heads.collect(),
    };
    let json = serde_json::to_string(&heads).map_err(Failure::of)?;
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    let mut file = file.map_err(failed)?;
    writeln!(file, "{}", shape::pretty(&json)).map_err(failed)?;
    note(&format!(
        "{} written to {}; keep the file apart from the ledger",
        text::count(heads.heads.len(), "head"),
        path.display()
    ));
    Ok(())
}
