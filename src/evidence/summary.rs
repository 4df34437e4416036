//! What is signed of a ledger, and by which keys.

use ktsu_ledger::event::CheckpointSigned;
use ktsu_ledger::keys::TrustedKey;
use ktsu_ledger::store::{Reader, StoreError};
use ktsu_ledger::{StreamId, Timestamp};

use super::facts;

/// The most frames of the stream `store` that are read for it.
const MAX_FACTS: u64 = 200_000;
/// Of a longer stream, as many of its last frames: they have a checkpoint, as one follows a thousand frames at most.
const LAST_FACTS: u64 = 5_000;

/// What is signed of a ledger, and by which keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EvidenceSummary {
    /// The name of the ledger; none while it has no frames.
    pub origin: Option<String>,
    /// The number of frames that were appended to it.
    pub frames: u64,
    /// The last checkpoint.
    pub checkpoint: Option<LastCheckpoint>,
    /// The keys in the order they were added; none if the ledger has too many facts to look at all of them.
    pub keys: Option<Vec<TrustedKey>>,
}

/// The last checkpoint of a ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastCheckpoint {
    /// What was signed.
    pub signed: CheckpointSigned,
    /// The time at which it was recorded, which is not signed.
    pub at: Timestamp,
}

/// What a key is to its ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyState {
    /// It signs.
    InForce,
    /// A later one signs.
    Replaced,
    /// It is declared worthless.
    Revoked,
}

impl KeyState {
    /// In words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InForce => "in force",
            Self::Replaced => "replaced",
            Self::Revoked => "revoked",
        }
    }
}

/// All keys of a ledger, in the order they were added, each with what it is to the ledger.
pub fn key_states(keys: &[TrustedKey]) -> impl Iterator<Item = (&TrustedKey, KeyState)> {
    let last = keys.len().saturating_sub(1);
    keys.iter().enumerate().map(move |(at, key)| {
        let state = match &key.revoked {
            Some(_) => KeyState::Revoked,
            None if at == last => KeyState::InForce,
            None => KeyState::Replaced,
        };
        (key, state)
    })
}

/// Reads it.
///
/// # Errors
/// [`StoreError`].
pub fn summary(reader: &dyn Reader) -> Result<EvidenceSummary, StoreError> {
    let store = StreamId::store();
    let last = reader.tail(&store)?.map_or(0, |tail| tail.seq);
    let from = match last > MAX_FACTS {
        true => last - LAST_FACTS,
        false => 0,
    };
    let facts = facts::read_from(reader, from)?;
    let mut checkpoint = None;
    if let Some((seq, signed)) = facts.last {
        let record = reader.read(&store, seq, 1)?;
        let frame = record.first().and_then(|record| record.decode_bare().ok());
        checkpoint = frame.map(|frame| LastCheckpoint {
            signed,
            at: frame.at,
        });
    }
    Ok(EvidenceSummary {
        origin: Some(facts.keys.origin().to_owned()).filter(|origin| !origin.is_empty()),
        frames: facts::size(reader)?,
        checkpoint,
        keys: (from == 0).then(|| facts.keys.all().to_vec()),
    })
}
