//! Signed notes and checkpoints, as C2SP writes them: a text, and Ed25519 signatures below it.
//!
//! ```text
//! ktsu/ledger/0123456789abcdef        origin
//! 4711                                how many frames
//! nND/nri/U0xuHUrYSy0HtMeal2vzD9V…    the root over them
//!
//! — ktsu/ledger/0123456789abcdef 5Hr…  key id and signature
//! ```
//!
//! It knows nothing of frames, and reads no file and no clock.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use sha2::{Digest as _, Sha256};

use crate::merkle::Node;

/// The kind of key, as notes number it.
const ED25519_KIND: u8 = 1;
/// The longest note that is read: a checkpoint has some three hundred bytes.
pub const MAX_NOTE: usize = 16 * 1024;
/// The beginning of a line with a signature.
const DASH: &str = "\u{2014} ";

/// The reason why a text is no note, no checkpoint or no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseNoteError(&'static str);

/// A key that signs. It neither prints nor serialises.
pub struct SigningKey(Ed25519KeyPair);

impl SigningKey {
    /// From the 32 bytes it is made of.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        // Every 32 bytes are a seed; the error is about another length.
        match Ed25519KeyPair::from_seed_unchecked(seed) {
            Ok(pair) => Self(pair),
            Err(_) => unreachable!("32 bytes make a key"),
        }
    }

    /// The other half, under a name.
    pub fn public(&self, name: &str) -> PublicKey {
        let bytes = self.0.public_key().as_ref();
        PublicKey {
            name: name.to_owned(),
            bytes: bytes.try_into().unwrap_or_default(),
        }
    }

    /// A text with this key's signature below it. The text ends with a new line.
    pub fn sign(&self, name: &str, text: &str) -> String {
        let mut line = self.public(name).id().to_vec();
        line.extend_from_slice(self.0.sign(text.as_bytes()).as_ref());
        format!("{text}\n{DASH}{name} {}\n", BASE64.encode(line))
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey")
    }
}

/// A key that verifies, written `NAME+ID+KEY` as tools for notes take it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PublicKey {
    /// Whose it is: the origin of the ledger.
    pub name: String,
    /// Its 32 bytes.
    pub bytes: [u8; 32],
}

impl PublicKey {
    /// From the base64 of its 32 bytes.
    ///
    /// # Errors
    /// [`ParseNoteError`].
    pub fn from_base64(name: &str, text: &str) -> Result<Self, ParseNoteError> {
        let bytes = BASE64.decode(text).ok().and_then(|it| it.try_into().ok());
        Ok(Self {
            name: name.to_owned(),
            bytes: bytes.ok_or(ParseNoteError("the key is not the base64 of 32 bytes"))?,
        })
    }

    /// Its bytes in base64.
    pub fn to_base64(&self) -> String {
        BASE64.encode(self.bytes)
    }

    /// Its id in notes: four bytes, a hint and no proof.
    pub fn id(&self) -> [u8; 4] {
        let hash = Sha256::new()
            .chain_update(self.name.as_bytes())
            .chain_update([b'\n', ED25519_KIND])
            .chain_update(self.bytes)
            .finalize();
        let [a, b, c, d, ..] = <[u8; 32]>::from(hash);
        [a, b, c, d]
    }

    /// [`PublicKey::id`] in eight hexadecimal digits.
    pub fn id_text(&self) -> String {
        format!("{:08x}", u32::from_be_bytes(self.id()))
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut key = vec![ED25519_KIND];
        key.extend_from_slice(&self.bytes);
        let key = BASE64.encode(key);
        write!(f, "{}+{}+{key}", self.name, self.id_text())
    }
}

impl FromStr for PublicKey {
    type Err = ParseNoteError;

    fn from_str(text: &str) -> Result<Self, ParseNoteError> {
        let wrong =
            ParseNoteError("a public key is NAME+ID+KEY, as `ktsu evidence key show` prints it");
        let mut parts = text.trim().splitn(3, '+');
        let (Some(name), Some(id), Some(key)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(wrong);
        };
        let bytes = BASE64.decode(key).map_err(|_| wrong.clone())?;
        let [ED25519_KIND, bytes @ ..] = bytes.as_slice() else {
            return Err(wrong);
        };
        let key = Self {
            name: name.to_owned(),
            bytes: bytes.try_into().map_err(|_| wrong.clone())?,
        };
        if key.id_text() == id {
            Ok(key)
        } else {
            Err(wrong)
        }
    }
}

/// A text and the signatures below it, none of them checked yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedNote {
    /// The signed text, with its final newline.
    pub text: String,
    signatures: Vec<(String, Vec<u8>)>,
}

impl SignedNote {
    /// Returns `true` if a key has signed this text.
    pub fn is_signed_by(&self, key: &PublicKey) -> bool {
        let verifier = UnparsedPublicKey::new(&ED25519, key.bytes);
        self.signatures.iter().any(|(name, line)| {
            let named = *name == key.name && line.starts_with(&key.id());
            let signature = line.get(4..).unwrap_or_default();
            named && verifier.verify(self.text.as_bytes(), signature).is_ok()
        })
    }
}

impl FromStr for SignedNote {
    type Err = ParseNoteError;

    fn from_str(note: &str) -> Result<Self, ParseNoteError> {
        if note.len() > MAX_NOTE {
            return Err(ParseNoteError("the note is too long"));
        }
        let divided = note.rsplit_once("\n\n");
        let (text, below) = divided.ok_or(ParseNoteError("the note has no signature"))?;
        let mut signatures = Vec::new();
        for line in below.strip_suffix('\n').unwrap_or(below).split('\n') {
            let line = line.strip_prefix(DASH).and_then(|it| it.split_once(' '));
            let (name, signature) =
                line.ok_or(ParseNoteError("a signature of the note is damaged"))?;
            let signature = BASE64.decode(signature);
            let signature = signature.map_err(|_| ParseNoteError("a signature is not base64"))?;
            signatures.push((name.to_owned(), signature));
        }
        Ok(Self {
            text: format!("{text}\n"),
            signatures,
        })
    }
}

/// The content of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The name of the ledger.
    pub origin: String,
    /// The number of frames.
    pub size: u64,
    /// The root over them.
    pub root: Node,
}

impl Checkpoint {
    /// The text that is signed.
    pub fn text(&self) -> String {
        let root = BASE64.encode(self.root.as_bytes());
        format!("{}\n{}\n{root}\n", self.origin, self.size)
    }
}

impl FromStr for Checkpoint {
    type Err = ParseNoteError;

    fn from_str(text: &str) -> Result<Self, ParseNoteError> {
        let wrong = ParseNoteError("a checkpoint is an origin, a size and a root, each on a line");
        let mut lines = text.split('\n');
        let (Some(origin), Some(size), Some(root)) = (lines.next(), lines.next(), lines.next())
        else {
            return Err(wrong);
        };
        let root = BASE64.decode(root).ok();
        let read = Self {
            origin: origin.to_owned(),
            size: size.parse().map_err(|_| wrong.clone())?,
            root: root
                .and_then(|bytes| Node::from_bytes(&bytes))
                .ok_or_else(|| wrong.clone())?,
        };
        // One text for one checkpoint.
        if read.text() == text {
            Ok(read)
        } else {
            Err(wrong)
        }
    }
}

/// The text that a key signs when it vouches for the next one.
pub fn key_added(origin: &str, key: &PublicKey) -> String {
    format!("{origin}\nsigning key added\n{}\n", key.to_base64())
}

/// The text that a key signs when it revokes another.
pub fn key_revoked(origin: &str, key: &PublicKey) -> String {
    format!("{origin}\nsigning key revoked\n{}\n", key.to_base64())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first test vector of RFC 8032, section 7.1.
    const SEED: &str = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
    const PUBLIC: &str = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";

    fn key() -> SigningKey {
        let seed: crate::Hash = SEED.parse().unwrap_or_default();
        SigningKey::from_seed(seed.as_bytes())
    }

    #[test]
    fn a_checkpoint_is_signed_read_and_recognised() {
        let key = key();
        let public = key.public("ktsu/ledger/1");
        assert_eq!(
            Node::from_bytes(&public.bytes)
                .map(|it| it.to_string())
                .as_deref(),
            Some(PUBLIC)
        );
        assert_eq!(public.to_string().parse(), Ok(public.clone()));
        let checkpoint = Checkpoint {
            origin: "ktsu/ledger/1".to_owned(),
            size: 7,
            root: Node::leaf(b"x"),
        };
        let signed = key.sign("ktsu/ledger/1", &checkpoint.text());
        let note: Result<SignedNote, _> = signed.parse();
        let Ok(note) = note else { panic!("{signed}") };
        assert_eq!(note.text.parse(), Ok(checkpoint));
        assert!(note.is_signed_by(&public));
        let other = SigningKey::from_seed(&[7; 32]).public("ktsu/ledger/1");
        assert!(!note.is_signed_by(&other));
        assert!(!note.is_signed_by(&key.public("another")));
        let changed: Result<SignedNote, _> = signed.replacen("\n7\n", "\n8\n", 1).parse();
        assert!(changed.is_ok_and(|note| !note.is_signed_by(&public)));
    }

    #[test]
    fn what_is_no_note_no_checkpoint_or_no_key_is_refused() {
        for text in [
            "",
            "x\n",
            "x\n\ny\n",
            "x\n\n\u{2014} name\n",
            "x\n\n\u{2014} name ?\n",
        ] {
            assert!(text.parse::<SignedNote>().is_err(), "{text:?}");
        }
        let root = BASE64.encode([0; 32]);
        for text in [
            "",
            "a\nb\nc\n",
            &format!("a\n07\n{root}\n"),
            &format!("a\n7\n{root}\nmore\n"),
        ] {
            assert!(text.parse::<Checkpoint>().is_err(), "{text:?}");
        }
        for text in ["", "a+b", "a+00000000+AQ=="] {
            assert!(text.parse::<PublicKey>().is_err(), "{text:?}");
        }
        assert_eq!(format!("{:?}", key()), "SigningKey");
    }
}
