//! Evidence: what shows, to somebody who trusts nobody here, that a record is what was recorded.
//!
//! ```text
//! notary        signs what was appended while the engine works     signing_key, store_stream, witness
//! export        one archive, the same bytes every time         archive, tar, derived
//! check         that archive, claim by claim                   check/
//! ```

pub mod archive;
pub mod check;
mod derived;
pub mod export;
pub mod facts;
pub mod notary;
pub mod signing_key;
pub mod store_stream;
pub mod tar;
pub mod transfer;
pub mod witness;

use ktsu_ledger::note::{Checkpoint, NotANote, Note};

/// The checkpoints of a text that holds signed notes one after another, each with an empty line
/// behind it. Their signatures are not checked: whoever kept them knows where they are from.
///
/// # Errors
/// [`NotANote`].
pub fn notes(text: &str) -> Result<Vec<Checkpoint>, NotANote> {
    let mut parts = text
        .split("\n\n")
        .map(str::trim_start)
        .filter(|part| !part.is_empty());
    let mut found = Vec::new();
    while let Some(head) = parts.next() {
        let below = parts.next().unwrap_or_default();
        let note: Note = format!("{head}\n\n{below}").parse()?;
        found.push(note.text.parse()?);
    }
    Ok(found)
}
