//! Files of invariants: `evals/NAME.eval.yaml`.

use std::path::{Path, PathBuf};

use ktsu_config::fault::{Fault, FaultCode, Faults};
use ktsu_config::read;
use ktsu_config::yaml::SourceSpan;
use ktsu_eval::EvalSpec;
use ktsu_ledger::Hash;

/// The folder of a kit that holds them.
pub const FOLDER: &str = "evals";

/// The suffix of their names.
const SUFFIX: &str = ".eval.yaml";

/// A file of invariants.
#[derive(Debug, Clone)]
pub struct EvalFile {
    /// Its content.
    pub spec: EvalSpec,
    /// Its text.
    pub text: String,
    /// BLAKE3 of its text.
    pub digest: Hash,
    /// The warnings about it.
    pub warnings: Faults,
}

impl EvalFile {
    /// Reads a file, which is `shown` by another name.
    ///
    /// # Errors
    /// What is wrong with it, warnings included.
    pub fn load(path: &Path, shown: &Path) -> Result<Self, Faults> {
        let mut warnings = Faults::default();
        let Some(text) = read::source(path, shown, &mut warnings) else {
            return Err(warnings);
        };
        let (spec, found) = EvalSpec::parse(shown, &text)?;
        warnings.faults = found;
        Ok(Self {
            spec,
            digest: Hash::of(text.as_bytes()),
            text,
            warnings,
        })
    }
}

fn leads_out(file: &Path) -> Faults {
    let words = "the file is a link that leads out of the kit";
    let fault = Fault::new(FaultCode::ChildOutsideKit, SourceSpan::default(), words);
    let mut faults = Faults::default();
    faults.add(fault.in_file(file));
    faults
}

/// The kit that has a file in its `evals/`, by its name.
pub fn kit_of(file: &Path) -> Option<PathBuf> {
    let folder = file.parent().filter(|folder| folder.ends_with(FOLDER))?;
    Some(folder.join(".."))
}

/// The files of a kit, as seen from its folder.
pub fn files_of(kit: &Path) -> impl Iterator<Item = PathBuf> {
    let names = ktsu_kit::file_names(&kit.join(FOLDER)).into_iter();
    let files = names.filter(|name| name.ends_with(SUFFIX));
    files.map(|name| PathBuf::from(FOLDER).join(name))
}

/// The faults and warnings of the eval files of a kit.
pub fn faults_of(kit: &Path) -> Vec<Faults> {
    let loaded = files_of(kit).map(|file| {
        let path = kit.join(&file);
        match read::is_within(kit, &path) {
            true => EvalFile::load(&path, &file),
            false => Err(leads_out(&file)),
        }
    });
    let found = loaded.map(|loaded| loaded.map_or_else(|faults| faults, |file| file.warnings));
    found.collect()
}
