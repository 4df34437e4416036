//! Outputs of runs that people changed after the end.
//!
//! The last frame of a run contains the output it ended with. A later overlay changes the step for
//! everything that follows, and so the output that is shown; the frame stays as it is.

use ktsu_ledger::Frame;
use ktsu_projections::envelope::EnvelopeFold;
use ktsu_projections::run::FoldError;

use crate::newest_definition::newest_definition;
use crate::next::output_now;

/// The fold behind the envelopes of recorded frames, each output as its steps stand now.
///
/// An output that cannot be made again is shown as it is recorded.
///
/// # Errors
/// [`FoldError`] names the first frame that does not follow from those before it.
pub fn fold(frames: &[Frame]) -> Result<EnvelopeFold, FoldError> {
    Ok(with_current_outputs(EnvelopeFold::of(frames)?, frames))
}

/// A fold of recorded frames, each output as its steps are now.
pub fn with_current_outputs(mut fold: EnvelopeFold, frames: &[Frame]) -> EnvelopeFold {
    let scopes = (0u32..).zip(fold.state().scopes()).map(|(at, _)| at);
    let changed = scopes.filter(|scope| fold.has_overlay_after_end(*scope));
    let changed: Vec<u32> = changed.collect();
    if changed.is_empty() {
        return fold;
    }
    let Some(definition) = newest_definition(frames) else {
        return fold;
    };
    for scope in changed {
        if let Some(output) = output_now(&definition, fold.state(), scope) {
            fold.override_output(scope, output);
        }
    }
    fold
}
