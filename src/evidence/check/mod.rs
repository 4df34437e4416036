//! Verifies an archive of evidence claim by claim: each is proven, not covered, or failed.
//!
//! ```text
//! frames      manifest, chain, causes, blobs, completeness    check/frames
//! tree        inclusion, signatures, keys, held checkpoints   check/tree
//! content     extracts, definitions, replay                   check/content
//! beside      the verifier in it, tables for people           check/companion_files
//! outputs     outputs, compared with replies and responses    check/outputs, check/review_order
//! world       objects, relations, responders, posts, budgets  check/world, check/world_outputs
//! lock        the locks of runs                               check/lock
//! evals       verdicts, judged again by their runs         check/evals
//! tools       every call requested, permitted, answered       check/tools ─┐ check/agent_timeline,
//! approvals   every required decision made                check/approvals ─┤ check/history
//!                                                         check/reviews   ─┤
//!                                                     check/suspensions   ─┘
//! ```
//!
//! Nothing that an archive states about itself is trusted: it is compared with what its bytes show.

mod agent_timeline;
mod approvals;
mod called;
mod companion_files;
mod content;
mod evals;
mod frames;
mod history;
mod invoked;
mod lock;
mod models;
mod outputs;
mod reading;
mod repeated;
mod resumptions;
mod review_order;
mod reviewed_outputs;
mod reviews;
mod step_outputs;
mod suspend_order;
mod suspensions;
mod tools;
mod tree;
mod world;
mod world_outputs;

use ktsu_ledger::note::{Checkpoint, PublicKey};
use serde::Serialize;

use self::reading::EvidenceArchive;
use super::archive_ledger::ArchiveIndex;
use super::tar::ArchiveSource;

/// The options of a verification: what an archive is checked against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveVerifyOptions {
    /// Checkpoints that the auditor has kept, or got from a witness.
    pub held: Vec<Checkpoint>,
    /// The key that the auditor knows the ledger by.
    pub key: Option<PublicKey>,
    /// The most bytes of one run, blobs put back, that are held in memory: what is larger is not
    /// decided again, and its calls are not checked.
    pub run_bytes: u64,
    /// The most frames that are read; an archive with more is refused.
    pub frames: u64,
}

/// The largest run that is held in memory, where nobody says otherwise.
pub const MAX_RUN_BYTES: u64 = 24 * 1024 * 1024;

impl Default for ArchiveVerifyOptions {
    fn default() -> Self {
        Self {
            held: Vec::new(),
            key: None,
            run_bytes: MAX_RUN_BYTES,
            frames: u64::MAX,
        }
    }
}

/// The verdict on one claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimVerdict {
    /// It holds.
    Proven,
    /// Nothing speaks against it, and not everything for it.
    NotCovered,
    /// It does not hold.
    Failed,
}

/// One claim, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Claim {
    /// Its name, the same in every verifier.
    pub claim: &'static str,
    /// The frame that decides it, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame: Option<String>,
    /// In words.
    pub reason: String,
    /// The verdict.
    pub verdict: ClaimVerdict,
}

/// The result of a check: the verdict, the frame that decides it, and the reason; or what speaks
/// against the claim.
type CheckResult = Result<(ClaimVerdict, Option<String>, String), ClaimFailure>;

fn proven(reason: impl Into<String>) -> CheckResult {
    Ok((ClaimVerdict::Proven, None, reason.into()))
}

fn not_covered(reason: impl Into<String>) -> CheckResult {
    Ok((ClaimVerdict::NotCovered, None, reason.into()))
}

/// The result for a claim that is not covered because of this frame.
fn not_covered_at(frame: String, reason: &str) -> CheckResult {
    Ok((ClaimVerdict::NotCovered, Some(frame), reason.to_owned()))
}

/// `1 key`, `2 keys`.
fn counted<N: std::fmt::Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let ending = for_one(&count, "", "s");
    format!("{count} {noun}{ending}")
}

/// The first text for one, the second for more.
fn for_one<'a, N: PartialEq + From<u8>>(count: &N, one: &'a str, more: &'a str) -> &'a str {
    if *count == N::from(1) { one } else { more }
}

impl Claim {
    fn of(claim: &'static str, checked: CheckResult) -> Self {
        let failed = |failure: ClaimFailure| (ClaimVerdict::Failed, failure.frame, failure.reason);
        let (verdict, frame, reason) = checked.unwrap_or_else(failed);
        Self {
            claim,
            frame,
            reason,
            verdict,
        }
    }
}

/// The reason why a claim failed, and the frame that shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ClaimFailure {
    frame: Option<String>,
    reason: String,
}

impl ClaimFailure {
    fn new(reason: impl Into<String>) -> Self {
        Self {
            frame: None,
            reason: reason.into(),
        }
    }

    fn at(frame: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            frame: Some(frame.into()),
            reason: reason.into(),
        }
    }
}

/// The outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EvidenceReport {
    /// Every claim, in one order.
    pub claims: Vec<Claim>,
    /// Frames in the archive.
    pub frames: u64,
    /// The name of the ledger that it says it is of.
    pub origin: String,
    /// The number of frames that the tree of the last checkpoint is over.
    pub size: u64,
    /// Streams in the archive.
    pub streams: u64,
}

impl EvidenceReport {
    /// Returns `true` if no claim failed.
    pub fn is_sound(&self) -> bool {
        self.claims
            .iter()
            .all(|claim| claim.verdict != ClaimVerdict::Failed)
    }
}

/// Checks an archive.
///
/// # Errors
/// Why there is nothing to check: it is no archive of evidence, or not one this version reads.
pub fn verify(bytes: &[u8], against: &ArchiveVerifyOptions) -> Result<EvidenceReport, String> {
    verify_from(std::io::Cursor::new(bytes.to_vec()), against)
}

/// As [`verify`], read piece by piece: the memory it takes grows with the number of frames, and not
/// with what they and their blobs weigh.
///
/// # Errors
/// As [`verify`]; also where the archive changes meanwhile.
pub fn verify_from(
    source: impl ArchiveSource + 'static,
    against: &ArchiveVerifyOptions,
) -> Result<EvidenceReport, String> {
    let evidence = EvidenceArchive::read(source, against.frames)?;
    report(&evidence, against)
}

/// As [`verify_from`]; also gives where everything is in the archive.
///
/// # Errors
/// As [`verify_from`].
pub fn verify_and_index(
    source: impl ArchiveSource + 'static,
    against: &ArchiveVerifyOptions,
) -> Result<(EvidenceReport, ArchiveIndex), String> {
    let evidence = EvidenceArchive::read(source, against.frames)?;
    Ok((report(&evidence, against)?, evidence.index()))
}

fn report(
    evidence: &EvidenceArchive,
    against: &ArchiveVerifyOptions,
) -> Result<EvidenceReport, String> {
    let signed = tree::Signed::of(evidence);
    let claims = [
        ("manifest", evidence.manifest()),
        ("chain", evidence.chain_claim()),
        ("causes", evidence.causes()),
        ("blobs", evidence.blobs()),
        ("completeness", evidence.completeness()),
        ("inclusion", signed.inclusion(evidence)),
        ("signatures", signed.signatures()),
        ("rotation", signed.rotation()),
        ("key", signed.key(against)),
        ("held", signed.held(evidence, against)),
        ("extracts", evidence.extracts()),
        ("definitions", evidence.definitions()),
        ("lock", evidence.lock()),
        ("verifier", evidence.verifier()),
        ("derived", evidence.derived(against)),
        ("outputs", evidence.outputs(against)),
        ("world", evidence.world(against)),
        ("replay", evidence.replay(against)),
        ("approvals", evidence.approvals(against)),
        ("tools", evidence.tools(against)),
        ("evals", evidence.evals(against)),
    ];
    if evidence.has_changed() {
        return Err("the archive changed while it was read".to_owned());
    }
    let claims = claims.into_iter();
    let claims = claims.map(|(claim, checked)| Claim::of(claim, checked));
    Ok(EvidenceReport {
        claims: claims.collect(),
        frames: evidence.count() as u64,
        origin: evidence.manifest.origin.clone(),
        size: evidence.tree.size,
        streams: evidence.manifest.streams.len() as u64,
    })
}
