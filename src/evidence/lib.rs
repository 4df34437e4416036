//! Evidence: proof that a record is what was recorded, for somebody who trusts neither ktsu nor its
//! operator.
//!
//! ```text
//! notary        signs what was appended while the engine works     signing_key, store_stream, witness
//! export        one archive, the same bytes every time         archive, tar, derived
//! check         that archive, claim by claim                   check/
//! pages         that archive as a ledger that is read, and what is signed    archive_ledger, summary
//! ```

pub mod archive;
pub mod archive_ledger;
pub mod check;
mod derived;
pub mod export;
pub mod facts;
pub mod notary;
pub mod page;
pub mod signing_key;
pub mod store_stream;
pub mod summary;
pub mod tar;
pub mod transfer;
pub mod witness;

use ktsu_ledger::note::{Checkpoint, ParseNoteError, SignedNote};

/// The checkpoints of a text that holds signed notes one after another, empty lines between them or
/// not. Their signatures are not checked: whoever kept them knows where they are from.
///
/// # Errors
/// [`ParseNoteError`]; also where there is none.
pub fn notes(text: &str) -> Result<Vec<Checkpoint>, ParseNoteError> {
    let mut found = Vec::new();
    let mut rest = text.trim_start_matches('\n');
    loop {
        let (head, below) = rest.split_once("\n\n").unwrap_or((rest, ""));
        let signatures = below
            .split_inclusive('\n')
            .take_while(|line| line.starts_with('\u{2014}'));
        let (signatures, behind) = below.split_at(signatures.map(str::len).sum());
        let note: SignedNote = format!("{head}\n\n{signatures}").parse()?;
        found.push(note.text.parse()?);
        rest = behind.trim_start_matches('\n');
        if rest.is_empty() {
            return Ok(found);
        }
    }
}
