//! Failures over files that are not valid: a headline, and every fault.

use crate::Failure;
use ktsu_config::fault::Faults;
use ktsu_config::render;

/// A headline followed by the rendered faults.
pub fn faults_text(verdict: &str, faults: &Faults) -> String {
    let shown = render::text(faults, false);
    format!("{verdict}\n\n{}", shown.trim_end())
}

/// The failure over a file that is not valid.
pub fn invalid_file(verdict: &str, faults: &Faults) -> Failure {
    Failure::could_not_run(faults_text(verdict, faults))
}
