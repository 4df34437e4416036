//! The faults of a value, in the form in which frames carry them.

use ktsu_ledger::event::Violation;
use ktsu_schema::SchemaViolation;

/// The most bytes of a message. The message of a failure stands in every frame the failure goes
/// up through; what it was made of stands whole in a frame before.
const MAX_MESSAGE: usize = 8 * 1024;

/// A message that fits into a frame.
pub(crate) fn clipped(mut message: String) -> String {
    if message.len() > MAX_MESSAGE {
        let end = (0..=MAX_MESSAGE)
            .rev()
            .find(|at| message.is_char_boundary(*at));
        message.truncate(end.unwrap_or_default());
        message.push('…');
    }
    message
}

/// Findings in the form frames carry them.
pub(crate) fn violations(found: Vec<SchemaViolation>) -> Vec<Violation> {
    let convert = |one: SchemaViolation| Violation {
        message: one.message,
        path: one.pointer,
        rule: one.rule,
    };
    found.into_iter().map(convert).collect()
}
