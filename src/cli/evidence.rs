//! `ktsu evidence`: archives for auditors, their verification, and the key they rest on.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ktsu_ledger::Timestamp;
use ktsu_ledger::keys::TrustedKey;
use ktsu_ledger::note::PublicKey;
use serde_json::json;

use super::location::nearby_ledger;
use super::output::{BAD, GOOD, WARN, exit_code, line, note, painted, print_json, symbols};
use super::reading::{open, open_seeing_all};
use super::verify::read_checkpoints;
use super::{Common, Failure, text};
use ktsu_assemble::keys;
use ktsu_evidence::check::{self, ArchiveVerifyOptions, ClaimVerdict, EvidenceReport};
use ktsu_evidence::export::{self, ExportError, ExportSelection};
use ktsu_evidence::page;
use ktsu_evidence::summary::{KeyState, key_states};
use ktsu_opening::files::unwritable;
use ktsu_opening::find::find_record;
use ktsu_opening::quoting::quoted;

/// What `evidence` takes.
#[derive(Debug, clap::Subcommand)]
pub(super) enum EvidenceCommand {
    /// Writes runs, with the proof that they are what was recorded, to one archive
    Export(ExportArguments),
    /// Checks an archive: what is proven, what is not covered, what failed
    Verify(VerifyArguments),
    /// Writes the verifier for browsers, one page that works from a disk
    Page {
        /// The page, which must not exist yet [default: verify.html]
        file: Option<PathBuf>,
    },
    /// Shows or changes the key that signs checkpoints
    #[command(subcommand)]
    Key(KeyCommand),
}

/// What `evidence export` takes.
#[derive(Debug, clap::Args)]
pub(super) struct ExportArguments {
    /// The runs; their branches, and the runs they were forked from, are included
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    runs: Vec<String>,
    /// Every run of the ledger
    #[arg(long)]
    all: bool,
    /// Only runs that began at this time or later: 2026-11, or 2026-11-20T10:00
    #[arg(long, value_name = "TIME", requires = "all")]
    from: Option<String>,
    /// Only runs that began before this time
    #[arg(long, value_name = "TIME", requires = "all")]
    to: Option<String>,
    /// With the verdicts about these runs, and the other runs that those are about
    #[arg(long)]
    evals: bool,
    /// The archive, which must not exist yet [default: evidence.tar]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// What `evidence verify` takes.
#[derive(Debug, clap::Args)]
pub(super) struct VerifyArguments {
    /// The archive
    file: PathBuf,
    /// Signed checkpoints kept elsewhere: the ledger must continue from each
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,
    /// The known public key of the ledger, or a file that contains it
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// A claim that has to be proven, such as chain; may be given several times
    #[arg(long, value_name = "CLAIM")]
    require: Vec<String>,
    /// The largest run that is replayed, by its frames and blobs, in MiB [default: 24]
    #[arg(long, value_name = "MIB")]
    run_size: Option<u32>,
}

/// What `evidence key` takes.
#[derive(Debug, clap::Subcommand)]
pub(super) enum KeyCommand {
    /// Shows the public keys; auditors keep the one in force
    Show,
    /// Generates a new key, which the previous one vouches for
    Rotate,
    /// Declares an earlier key worthless
    Revoke {
        /// The id of the key, eight hexadecimal digits
        id: String,
        /// The reason
        #[arg(long)]
        reason: String,
    },
}

/// Does it.
pub(super) async fn run(common: &Common, arguments: EvidenceCommand) -> Result<ExitCode, Failure> {
    match arguments {
        EvidenceCommand::Export(arguments) => export(common, &arguments),
        EvidenceCommand::Verify(arguments) => verify(common, &arguments),
        EvidenceCommand::Page { file } => write_page(common, file),
        EvidenceCommand::Key(KeyCommand::Show) => show(common),
        EvidenceCommand::Key(change) => {
            let place = nearby_ledger(common)?;
            let process = super::location::signing_environment()?;
            let done = tokio::task::spawn_blocking(move || match change {
                KeyCommand::Rotate => keys::rotate(&place.ledger, &process),
                KeyCommand::Revoke { id, reason } => {
                    keys::revoke(&place.ledger, &process, &id, &reason)
                }
                KeyCommand::Show => Ok(Vec::new()),
            });
            let known = done.await.map_err(Failure::of)?;
            let known = known.map_err(Failure::could_not_run)?;
            print_keys(common, &known)
        }
    }
}

/// The failure of an export.
pub(super) fn not_exported(error: ExportError) -> Failure {
    match error {
        ExportError::Store(error) => error.into(),
        ExportError::Damaged(_) => Failure::verdict(error.to_string()).hint("ktsu verify"),
        // The command line has no bound.
        ExportError::TooLarge => Failure::could_not_run(error.to_string()),
    }
}

fn export(common: &Common, arguments: &ExportArguments) -> Result<ExitCode, Failure> {
    let (reader, _) = open_seeing_all(common)?;
    for time in arguments.from.iter().chain(&arguments.to) {
        is_time(time)?;
    }
    let mut wanted = ExportSelection {
        all: arguments.all,
        from: arguments.from.clone(),
        to: arguments.to.clone(),
        evals: arguments.evals,
        ..ExportSelection::default()
    };
    for run in &arguments.runs {
        wanted.streams.push(find_record(&reader, run)?.0);
    }
    wanted.streams.sort();
    wanted.streams.dedup();
    let path = arguments
        .output
        .clone()
        .unwrap_or_else(|| PathBuf::from("evidence.tar"));
    if path.exists() {
        return Err(exists(&path));
    }
    let exported = export::export(&reader, &wanted).map_err(not_exported)?;
    if exported.streams == 0 {
        return Err(
            Failure::could_not_run("no runs selected; nothing was written")
                .hint("ktsu runs lists the runs and when they started"),
        );
    }
    write_new(&path, &exported.bytes)?;
    let file = path.display().to_string();
    if common.json {
        let body = json!({
            "bytes": exported.bytes.len(), "file": file, "frames": exported.frames,
            "streams": exported.streams, "unsigned": exported.unsigned,
        });
        return print_json(&body);
    }
    line(&format!(
        "{} {} holds {} of {}",
        painted(GOOD, symbols().good()),
        text::line(&file),
        text::count(exported.frames, "frame"),
        text::count(exported.streams, "run")
    ));
    if exported.unsigned > 0 {
        note(&painted(
            WARN,
            &format!(
                "not signed yet: {}",
                text::count(exported.unsigned, "frame")
            ),
        ));
    }
    note(&format!(
        "to verify it: ktsu evidence verify {}",
        quoted(&path)
    ));
    Ok(ExitCode::SUCCESS)
}

/// Checks that a text is the beginning of a time as frames write them, down to whole fields.
fn is_time(given: &str) -> Result<(), Failure> {
    match Timestamp::beginning(given) {
        Some(_) => Ok(()),
        None => Err(Failure::could_not_run(format!("{given} is not a time"))
            .hint("give a time such as 2026, 2026-11-20 or 2026-11-20T10:00")),
    }
}

/// Writes a new file that only its owner may read, completely or not at all.
pub(super) fn write_new(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => exists(path),
        _ => unwritable(path, &error),
    };
    let mut chance = [0; 8];
    getrandom::fill(&mut chance).map_err(Failure::of)?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{:016x}.tmp", u64::from_le_bytes(chance)));
    let beside = path.with_file_name(name);
    // The random name cannot exist yet, not even as a symlink.
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut file = options.open(&beside).map_err(failed)?;
    let write = file.write_all(bytes).and_then(|()| file.sync_all());
    // Never over a file that came meanwhile.
    let written = write.and_then(|()| std::fs::hard_link(&beside, path));
    let _ = std::fs::remove_file(&beside);
    written.map_err(failed)
}

fn exists(path: &Path) -> Failure {
    let words = format!("{} already exists", path.display());
    Failure::could_not_run(words).hint("choose another name: -o FILE")
}

fn verify(common: &Common, arguments: &VerifyArguments) -> Result<ExitCode, Failure> {
    let against = ArchiveVerifyOptions {
        held: match &arguments.checkpoint {
            Some(path) => read_checkpoints(path)?,
            None => Vec::new(),
        },
        key: arguments.key.as_deref().map(key).transpose()?,
        run_bytes: arguments.run_size.map_or(check::MAX_RUN_BYTES, |mib| {
            u64::from(mib).saturating_mul(1024 * 1024)
        }),
        ..ArchiveVerifyOptions::default()
    };
    let name = arguments.file.display().to_string();
    let failed = |why: &dyn std::fmt::Display| {
        Failure::could_not_run(format!("cannot verify {name}: {why}"))
    };
    let file = std::fs::File::open(&arguments.file).map_err(|error| failed(&error))?;
    let outcome = check::verify_from(file, &against);
    let outcome = outcome
        .map_err(|error| failed(&error).hint("to make an archive: ktsu evidence export RUN"))?;
    if common.json {
        let body = json!({"file": name, "sound": outcome.is_sound(), "outcome": outcome});
        print_json(&body)?;
    } else {
        print(&outcome, &name);
    }
    let claims = || outcome.claims.iter();
    let is_proven =
        |name: &str| claims().any(|one| one.claim == name && one.verdict == ClaimVerdict::Proven);
    let required = arguments.require.iter();
    let open: Vec<&String> = required.filter(|name| !is_proven(name)).collect();
    for name in &open {
        let words = format!("required and not proven: {}", text::line(name));
        note(&painted(BAD, &words));
    }
    Ok(exit_code(outcome.is_sound() && open.is_empty()))
}

/// Writes the page, and shows the digest that an auditor compares.
fn write_page(common: &Common, file: Option<PathBuf>) -> Result<ExitCode, Failure> {
    let path = file.unwrap_or_else(|| PathBuf::from(page::NAME));
    let text = &page::verifier_page().text;
    write_new(&path, text.as_bytes())?;
    let (name, digest) = (path.display().to_string(), page::sha256());
    if common.json {
        let body = json!({"bytes": text.len(), "file": name, "sha256": digest});
        return print_json(&body);
    }
    let good = painted(GOOD, symbols().good());
    line(&format!("{good} {}: SHA-256 {digest}", text::line(&name)));
    Ok(ExitCode::SUCCESS)
}

fn print(outcome: &EvidenceReport, name: &str) {
    let (mark, word) = match outcome.is_sound() {
        true => (painted(GOOD, symbols().good()), "nothing failed"),
        false => (painted(BAD, symbols().bad()), "verification failed"),
    };
    line(&format!(
        "{mark} {}: {word}; {} of {}, {}",
        text::line(name),
        text::count(outcome.frames, "frame"),
        text::count(outcome.streams, "stream"),
        text::line(&outcome.origin)
    ));
    for claim in &outcome.claims {
        let verdict = match claim.verdict {
            ClaimVerdict::Proven => painted(GOOD, "proven     "),
            ClaimVerdict::NotCovered => painted(WARN, "not covered"),
            ClaimVerdict::Failed => painted(BAD, "FAILED     "),
        };
        let place = claim.frame.as_ref().map(|frame| format!("{frame}: "));
        let words = format!("{}{}", place.unwrap_or_default(), claim.reason);
        line(&format!(
            "  {verdict} {:13} {}",
            claim.claim,
            text::line(&words)
        ));
    }
}

/// A public key, given directly or as a file.
fn key(given: &str) -> Result<PublicKey, Failure> {
    if let Ok(key) = given.parse() {
        return Ok(key);
    }
    let text = std::fs::read_to_string(given).map_err(|error| {
        Failure::could_not_run(format!(
            "{given} is neither a public key nor a file: {error}"
        ))
        .hint("to print the key: ktsu evidence key show")
    })?;
    // As `key show` prints it, or as an archive has it.
    let first = text.split_whitespace().next().unwrap_or_default();
    first
        .parse()
        .map_err(|error| Failure::could_not_run(format!("{given}: {error}")))
}

fn show(common: &Common) -> Result<ExitCode, Failure> {
    let (reader, _) = open(common)?;
    let facts = ktsu_evidence::facts::read(&reader)?;
    if facts.keys.all().is_empty() {
        return Err(Failure::could_not_run("this ledger has no signing key yet")
            .hint("the next run creates one"));
    }
    print_keys(common, facts.keys.all())
}

fn print_keys(common: &Common, known: &[TrustedKey]) -> Result<ExitCode, Failure> {
    let state = |known: &TrustedKey, state: KeyState| match &known.revoked {
        Some(reason) => format!("{}: {reason}", state.as_str()),
        None => state.as_str().to_owned(),
    };
    if common.json {
        let keys = key_states(known).map(|(one, is)| {
            json!({
                "id": one.key.id_text(), "public_key": one.key.to_string(),
                "state": state(one, is), "vouched": one.vouched,
            })
        });
        return print_json(&json!({"keys": keys.collect::<Vec<_>>()}));
    }
    for (one, is) in key_states(known) {
        let vouched = match one.vouched {
            true => "",
            false => ", no earlier key vouches for it",
        };
        let words = format!("{}  {}{vouched}", one.key, state(one, is));
        line(&text::line(&words));
    }
    Ok(ExitCode::SUCCESS)
}
