//! The signing keys of a ledger: which one is in force, which key vouches for it, and what it
//! signed.
//!
//! Keys are events in the `store` stream. A key is in force from its `signing_key.added` until
//! another is added or it is revoked; the first vouches for itself, every later one is vouched for
//! by its predecessor. This shows only that the signer has not changed; to prove more, somebody
//! else has to keep a key.

use crate::event::{CheckpointSigned, KeyAdded, KeyRevoked, StoreEvent};
use crate::hash::Hash;
use crate::merkle::Frontier;
use crate::note::{self, Checkpoint, PublicKey, SignedNote};

/// The stable name of a ledger, made from the hash of its first frame.
pub fn origin_of(first: &Hash) -> String {
    let first = first.to_string();
    format!("ktsu/ledger/{}", first.get(..16).unwrap_or(&first))
}

/// One key and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedKey {
    /// The key.
    pub key: PublicKey,
    /// True if the key before it vouches for it. Always true of the first key.
    pub vouched: bool,
    /// The reason why it was revoked, if it was.
    pub revoked: Option<String>,
}

/// The keys of a ledger, in the order they were added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    origin: String,
    keys: Vec<TrustedKey>,
}

impl Keys {
    /// None yet.
    pub fn new(origin: &str) -> Self {
        Self {
            origin: origin.to_owned(),
            keys: Vec::new(),
        }
    }

    /// The name of the ledger.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// All of them.
    pub fn all(&self) -> &[TrustedKey] {
        &self.keys
    }

    /// The one that signs now.
    pub fn in_force(&self) -> Option<&TrustedKey> {
        self.keys.last().filter(|last| last.revoked.is_none())
    }

    /// Takes an event about keys or checkpoints. Returns a parsed checkpoint.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn take(&mut self, event: &StoreEvent) -> Result<Option<Checkpoint>, String> {
        match event {
            StoreEvent::KeyAdded(added) => self.add(added).map(|()| None),
            StoreEvent::KeyRevoked(revoked) => self.revoke(revoked).map(|()| None),
            StoreEvent::CheckpointSigned(signed) => self.check(signed).map(Some),
            StoreEvent::Opened(_)
            | StoreEvent::Recovered(_)
            | StoreEvent::RunHead(_)
            | StoreEvent::HoldPlaced(_)
            | StoreEvent::HoldLifted(_)
            | StoreEvent::RunRemoved(_) => Ok(None),
        }
    }

    fn add(&mut self, added: &KeyAdded) -> Result<(), String> {
        let key = self.key(&added.public_key)?;
        let by = self.key(&added.signed_by)?;
        if key.id_text() != added.id {
            return Err("the id of the key is not made from the key".to_owned());
        }
        let note = read(&added.note)?;
        if note.text != note::key_added(&self.origin, &key) || !note.is_signed_by(&by) {
            return Err("the note that vouches for the key is not signed for it".to_owned());
        }
        let before = self.in_force().map(|known| &known.key);
        if by != key && before != Some(&by) {
            return Err("a key that was not in force vouches for the key".to_owned());
        }
        let vouched = self.keys.is_empty() || by != key;
        let revoked = None;
        self.keys.push(TrustedKey {
            key,
            vouched,
            revoked,
        });
        Ok(())
    }

    fn revoke(&mut self, revoked: &KeyRevoked) -> Result<(), String> {
        let key = self.key(&revoked.public_key)?;
        let by = self.key(&revoked.signed_by)?;
        let note = read(&revoked.note)?;
        if note.text != note::key_revoked(&self.origin, &key) || !note.is_signed_by(&by) {
            return Err("the note that revokes the key is not signed for it".to_owned());
        }
        if self.in_force().is_none_or(|known| known.key != by) {
            return Err("a key that was not in force revokes the key".to_owned());
        }
        for known in self.keys.iter_mut().filter(|known| known.key == key) {
            known.revoked = Some(revoked.reason.clone());
        }
        Ok(())
    }

    fn check(&self, signed: &CheckpointSigned) -> Result<Checkpoint, String> {
        let note = read(&signed.note)?;
        let checkpoint: Checkpoint = note.text.parse().map_err(|error| format!("{error}"))?;
        let (root, size) = (checkpoint.root, checkpoint.size);
        if checkpoint.origin != self.origin || signed.origin != self.origin {
            return Err(format!("the checkpoint is of {}", checkpoint.origin));
        }
        if (root, size) != (signed.root, signed.size) {
            return Err("the signed note says something else than its frame".to_owned());
        }
        let frontier = Frontier::resume(size, signed.frontier.clone());
        if frontier.is_none_or(|frontier| frontier.root() != root) {
            return Err("the frontier of the checkpoint is not that of its root".to_owned());
        }
        let Some(known) = self.in_force() else {
            return Err("no key was in force for the checkpoint".to_owned());
        };
        if known.key.id_text() != signed.key {
            let id = &signed.key;
            return Err(format!(
                "the checkpoint is signed by the key {id}, which was not in force"
            ));
        }
        if !note.is_signed_by(&known.key) {
            return Err("the signature of the checkpoint is not that of its key".to_owned());
        }
        Ok(checkpoint)
    }

    fn key(&self, base64: &str) -> Result<PublicKey, String> {
        PublicKey::from_base64(&self.origin, base64).map_err(|error| error.to_string())
    }
}

fn read(note: &str) -> Result<SignedNote, String> {
    note.parse()
        .map_err(|error| format!("the note is damaged: {error}"))
}
