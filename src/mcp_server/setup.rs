//! The parts that a server is made of.

use std::path::{Path, PathBuf};

use ktsu_assemble::LedgerPlace;
use ktsu_environment::Environment;
use ktsu_history::indexed_reader::IndexedReader;
use ktsu_ledger::store::Reader;
use ktsu_opening::Failure;
use ktsu_opening::environment::load_environment;

/// The parts that a server is made of, as arguments and the process environment name them.
#[derive(Debug, Clone)]
pub struct ServerSetup {
    /// The ledger.
    pub ledger: LedgerPlace,
    /// The kit that continues after a decision, if one is named.
    pub kit: Option<PathBuf>,
    /// The environment file, if one is named.
    pub environment: Option<PathBuf>,
    /// The folder below which kits are.
    pub root: PathBuf,
    /// The functions of the command line for the server.
    pub console: Console,
}

/// A ledger, opened for reading.
pub type LedgerReader = IndexedReader<Box<dyn Reader>>;

/// The functions of the command line for the server: it alone prints.
#[derive(Debug, Clone, Copy)]
pub struct Console {
    /// Prints a line that is not part of a result.
    pub note: fn(&str),
    /// Opens a ledger for reading, and warns where its latest frames may not be visible.
    pub open_ledger: fn(&LedgerPlace) -> Result<LedgerReader, Failure>,
}

impl ServerSetup {
    /// The environment file of a folder.
    ///
    /// # Errors
    /// It is not valid.
    pub(crate) fn environment_of(&self, folder: &Path) -> Result<Option<Environment>, Failure> {
        load_environment(self.environment.as_deref(), folder)
    }

    /// The environment file of the kit that is named, otherwise of the working directory.
    ///
    /// # Errors
    /// It is not valid.
    pub fn load_environment(&self) -> Result<Option<Environment>, Failure> {
        self.environment_of(self.kit.as_deref().unwrap_or(Path::new(".")))
    }
}
