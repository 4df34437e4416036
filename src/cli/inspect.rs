//! `ktsu inspect`: the pages of a ledger or of an archive in a browser, for one who may read its file. Nothing is
//! written.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use ktsu_assemble::LedgerPlace;
use ktsu_evidence::archive_ledger::ArchiveLedger;
use ktsu_evidence::check::{self, ArchiveVerifyOptions, ClaimVerdict, EvidenceReport};
use ktsu_opening::files::unreadable;
use ktsu_opening::find::find_run;
use ktsu_opening::quoting::quoted;
use ktsu_projections::step_name::scoped_run;
use serde_json::json;

use super::location::nearby_ledger;
use super::output::{GOOD, WARN, line, note, note_dim, painted, symbols};
use super::reading::open_at;
use super::signals::Signals;
use super::{Common, Failure, pages, text};

/// The largest archive whose pages are shown.
const MAX_ARCHIVE_BYTES: u64 = 4 * 1024 * 1024 * 1024;
/// The most frames of an archive whose pages are shown: each takes some 300 bytes of memory.
const MAX_ARCHIVE_FRAMES: u64 = 1_000_000;
/// The place of a tar file's mark, and the mark.
const TAR_MARK: (usize, &[u8]) = (257, b"ustar");

/// What `inspect` takes.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// A ledger file or an evidence archive: a file that exists, or a name that ends in .db or .tar
    /// [default: the ledger that other commands read]; otherwise the run
    #[arg(value_name = "FILE|RUN")]
    first: Option<String>,
    /// The run or branch to begin with: its id, or a unique prefix or suffix of it [default: the list of runs]
    run: Option<String>,
    /// The port of 127.0.0.1; 0 for any free one
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Opens no browser
    #[arg(long)]
    no_open: bool,
}

impl Arguments {
    /// The file and the run that are named.
    fn named(&self) -> Result<(Option<PathBuf>, Option<&str>), Failure> {
        let Some(first) = self.first.as_deref() else {
            return Ok((None, None));
        };
        let path = Path::new(first);
        let is_named_so = first.ends_with(".db") || first.ends_with(".tar");
        match (is_named_so || path.is_file(), &self.run) {
            (true, run) => Ok((Some(path.to_owned()), run.as_deref())),
            (false, None) => Ok((None, Some(first))),
            (false, Some(_)) => {
                let words = format!("there is no file {first}");
                Err(Failure::could_not_run(words).hint("ktsu inspect [FILE] [RUN]"))
            }
        }
    }
}

/// Serves the pages until it is stopped.
pub(super) async fn run(common: &Common, arguments: Arguments) -> Result<ExitCode, Failure> {
    let (file, run) = arguments.named()?;
    let (ledger, verified) = match &file {
        None => (nearby_ledger(common)?.ledger, None),
        Some(path) if is_archive(path) => {
            let (archive, report) = archive(path)?;
            (LedgerPlace::Backend(Arc::new(archive)), Some(report))
        }
        Some(path) => (LedgerPlace::File(path.clone()), None),
    };
    let run = match run {
        None => None,
        Some(given) => {
            let (stream, scope) = find_run(&open_at(&ledger)?, given)?;
            Some(scoped_run(stream.name(), &scope))
        }
    };
    let mut signals = Signals::new()?;
    let engine = pages::serve(ledger, None, arguments.port).await?;
    let url = pages::address(&engine.url, run.as_deref());
    if common.json {
        let mut body = json!({"url": url, "pid": std::process::id()});
        if let Some(report) = &verified {
            body["archive"] = serde_json::to_value(report).map_err(Failure::of)?;
        }
        line(&body.to_string());
    } else {
        if let (Some(report), Some(path)) = (&verified, &file) {
            not_covered(report, path);
        }
        line(&url);
        note_dim("  Ctrl-C ends it");
    }
    if !arguments.no_open {
        pages::browse(common, &url);
    }
    signals.next().await;
    signals.unless_again(engine.close()).await;
    Ok(ExitCode::SUCCESS)
}

/// Returns `true` if a file begins as an archive does, or is named so.
fn is_archive(path: &Path) -> bool {
    let (at, mark) = TAR_MARK;
    let mut begin = vec![0; at + mark.len()];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut begin));
    let begins_so = read.is_ok() && begin.ends_with(mark);
    begins_so || path.extension().is_some_and(|end| *end == *"tar")
}

/// An archive in which no claim failed, as a ledger, and what became of each claim.
fn archive(path: &Path) -> Result<(ArchiveLedger, EvidenceReport), Failure> {
    let name = path.display().to_string();
    let refused = |why: &dyn std::fmt::Display| {
        let words = format!("{name} is not shown: {why}");
        Failure::could_not_run(words).hint(format!("ktsu evidence verify {}", quoted(path)))
    };
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    let bytes = file.metadata().map_err(Failure::of)?.len();
    if bytes > MAX_ARCHIVE_BYTES {
        let (bytes, most) = (text::bytes(bytes), text::bytes(MAX_ARCHIVE_BYTES));
        return Err(refused(&format!(
            "it has {bytes}, and at most {most} are read"
        )));
    }
    let against = ArchiveVerifyOptions {
        frames: MAX_ARCHIVE_FRAMES,
        ..ArchiveVerifyOptions::default()
    };
    let source = file.try_clone().map_err(Failure::of)?;
    let (report, index) = check::verify_and_index(source, &against).map_err(|why| refused(&why))?;
    let mut claims = report.claims.iter();
    if let Some(claim) = claims.find(|one| one.verdict == ClaimVerdict::Failed) {
        let frame = claim.frame.as_ref().map(|frame| format!("{frame}: "));
        let (frame, reason) = (frame.unwrap_or_default(), &claim.reason);
        return Err(refused(&format!("{} failed: {frame}{reason}", claim.claim)));
    }
    Ok((ArchiveLedger::open(&name, file, index)?, report))
}

/// Prints what the verification of an archive did not cover.
fn not_covered(report: &EvidenceReport, path: &Path) {
    note(&format!(
        "{} {}: nothing failed; {} of {}, {}",
        painted(GOOD, symbols().good()),
        text::line(&path.display().to_string()),
        text::count(report.frames, "frame"),
        text::count(report.streams, "stream"),
        text::line(&report.origin)
    ));
    let claims = report.claims.iter();
    for claim in claims.filter(|one| one.verdict == ClaimVerdict::NotCovered) {
        let words = format!("{:13} {}", claim.claim, text::line(&claim.reason));
        note(&format!("  {} {words}", painted(WARN, "not covered")));
    }
}
