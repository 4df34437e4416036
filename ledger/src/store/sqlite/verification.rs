//! Verification of a ledger file in any state.

use std::path::Path;

use super::files::Paths;
use super::reader::SqliteReader;
use crate::store::StoreError;
use crate::verify::{ProblemKind, VerifyObserver, VerifyOptions, VerifyReport, verify_before};

/// Verifies the ledger at a path, without any lock. A file that is too damaged to be opened is a
/// [`StoreError`] only if there is no file or it may not be read; all other problems are in the [`VerifyReport`].
pub(crate) fn verify_file(
    path: &Path,
    options: &VerifyOptions,
    onlooker: &mut dyn VerifyObserver,
) -> Result<VerifyReport, StoreError> {
    let paths = Paths::of(path);
    paths.must_be_file()?;
    std::fs::File::open(&paths.db).map_err(|error| StoreError::failed("read the ledger", error))?;
    Ok(match SqliteReader::open(path) {
        Ok(reader) => verify_before(&reader, options, onlooker),
        Err(error) => {
            let mut report = VerifyReport::default();
            report.find(None, None, ProblemKind::Container, error.to_string());
            report
        }
    })
}
