//! Opening kits, environments and engines, with failures a person can act on.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Common, Failure};
use crate::assemble::{self, Engine, LedgerPlace, NotOpened, Setup};
use crate::environment::Environment;
use crate::kit::{self, Kit};

/// Where the ledger is, unless said otherwise.
const LEDGER: &str = ".ktsu/ledger.db";

/// The ledger's path.
pub(super) fn ledger_path(common: &Common, environment: Option<&Environment>) -> PathBuf {
    let named = environment.and_then(|environment| environment.ledger.as_ref());
    let named = named.map(PathBuf::from);
    common
        .ledger
        .clone()
        .or(named)
        .unwrap_or_else(|| PathBuf::from(LEDGER))
}

/// Reads a kit; what is wrong with it is said in full.
pub(super) fn load_kit(dir: &Path) -> Result<Arc<Kit>, Failure> {
    kit::load(dir).map(Arc::new).map_err(|faults| {
        Failure::could_not_run(format!(
            "the kit is not valid\n\n{}",
            kit::render::text(&faults, false)
        ))
        .hint(format!("ktsu validate {}", dir.display()))
    })
}

/// The environment file: the one named, else the nearest `environments/local.env.yaml`.
pub(super) fn load_environment(
    named: Option<&Path>,
    kit: &Path,
) -> Result<Option<Environment>, Failure> {
    let path = named.map(Path::to_owned).or_else(|| Environment::find(kit));
    let Some(path) = path else { return Ok(None) };
    Environment::load(&path).map(Some).map_err(|faults| {
        let shown = kit::render::text(&faults, false);
        Failure::could_not_run(format!("the environment file is not valid\n\n{shown}"))
    })
}

/// The process environment, as far as it is text.
pub(super) fn process_environment() -> BTreeMap<String, String> {
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os().filter_map(text).collect()
}

/// Any port of this machine, chosen by the system.
pub(super) fn any_port() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

/// Opens an engine.
pub(super) async fn open(setup: Setup) -> Result<Engine, Failure> {
    let path = match &setup.ledger {
        LedgerPlace::File(path) => path.display().to_string(),
        LedgerPlace::Memory => "memory".to_owned(),
    };
    assemble::open(setup)
        .await
        .map_err(|refused| explain(refused, &path))
}

fn explain(refused: NotOpened, path: &str) -> Failure {
    match refused {
        NotOpened::Owned(holder) => {
            let url = holder.as_ref().and_then(|holder| holder.url.clone());
            let who =
                holder.map_or_else(String::new, |holder| format!(" (process {})", holder.pid));
            let failure = Failure::could_not_run(format!("{path} is owned by another ktsu{who}"));
            match url {
                Some(url) => failure.hint(format!(
                    "it listens on {url}: `ktsu invoke WORKFLOW` goes through it; or give this one \
                     its own ledger with --ledger FILE"
                )),
                None => failure.hint("give this one its own ledger with --ledger FILE"),
            }
        }
        NotOpened::Environment { workflow, error } => {
            let first = error.missing.first().or(error.short.first()).cloned();
            let name = first.unwrap_or_default();
            Failure::could_not_run(format!("workflow {workflow}: {error}")).hint(format!(
                "export {name}=…, or set it under `variables` of the environment file"
            ))
        }
        other => Failure::could_not_run(other.to_string()),
    }
}
