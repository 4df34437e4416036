//! Checks a whole project folder: the kit, its gateway, its environments and its evals.
//!
//! `kit` knows nothing of gateways and environments, and vice versa; this module checks them
//! together before anything starts.

mod budgets;
pub mod eval_file;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ktsu_assemble as assemble;
use ktsu_config::fault::{Fault, Faults};
use ktsu_egress as egress;
use ktsu_environment::principals::{PrincipalDeclaration, PrincipalRole};
use ktsu_environment::{self as environment, Environment, Principals, subscription_secrets};
use ktsu_gateway::{self as gateway, Gateway};
use ktsu_kit::approval_checks::{self, Approvers};
use ktsu_kit::person_waits;
use ktsu_kit::{self as kit, GATEWAY, Kit};

/// The result of a check.
#[derive(Debug)]
pub struct CheckedProject {
    /// The kit, if its own files are sound.
    pub kit: Option<Kit>,
    /// All problems, by file and position.
    pub faults: Faults,
    /// Variables without a usable value, in words.
    pub unset: Vec<String>,
}

impl CheckedProject {
    /// Returns `true` if nothing hinders a start.
    pub fn is_sound(&self) -> bool {
        self.kit.is_some() && !self.faults.has_errors() && self.unset.is_empty()
    }

    fn take(&mut self, found: Faults) {
        self.faults.sources.extend(found.sources);
        self.faults.faults.extend(found.faults);
    }
}

/// The values to check a folder with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckWith<'a> {
    /// None: variables need no values.
    Nothing,
    /// The process environment only, as for a start without an environment file.
    Process,
    /// An environment file, and the process environment before it.
    File(&'a Path),
}

const ENVIRONMENTS: &str = "environments";

/// Checks a folder and, unless `under` is [`CheckWith::Nothing`], that all values exist. `locked`:
/// the kit must match its lock.
pub fn check(
    dir: &Path,
    under: CheckWith<'_>,
    process: &BTreeMap<String, String>,
    locked: bool,
) -> CheckedProject {
    let (kit, faults) = match kit::load(dir) {
        Ok(kit) => {
            let mut found = kit.warnings.clone();
            if locked {
                require_sound(&kit, &mut found);
            }
            (Some(kit), found)
        }
        Err(faults) => (None, faults),
    };
    let mut judged = CheckedProject {
        kit,
        faults,
        unset: Vec::new(),
    };
    let environment = match under {
        CheckWith::File(path) => Some(path),
        CheckWith::Nothing | CheckWith::Process => None,
    };
    let chosen = environment.map(Environment::load);
    let (chosen, broken) = match chosen {
        Some(Ok(environment)) => (Some(environment), None),
        Some(Err(faults)) => (None, Some(faults)),
        None => (None, None),
    };
    let own = own_environments(dir, environment);
    check_files(&mut judged, chosen.as_ref(), own.is_empty());
    // An unreadable file may contain anything, so nothing is reported as missing from it.
    let starts = under == CheckWith::Process || chosen.is_some();
    let (gateway, built) = check_gateway(dir, chosen.as_ref(), starts.then_some(process));
    let unpriced = judged.kit.as_ref();
    let unpriced = unpriced.map(|kit| budgets::unpriced(kit, dir, chosen.as_ref()));
    judged.faults.faults.extend(unpriced.unwrap_or_default());
    let evals = eval_file::faults_of(dir);
    let found = broken.into_iter().chain(own).chain(Some(gateway));
    for faults in found.chain(evals) {
        judged.take(faults);
    }
    if let Some(environment) = &chosen {
        judged.take(environment.warnings.clone());
    }
    if starts {
        match values(
            chosen.as_ref(),
            judged.kit.as_ref(),
            process,
            built.as_ref(),
        ) {
            Ok(unset) => judged.unset = unset,
            Err(faults) => judged.take(faults),
        }
    }
    judged.faults.sort();
    judged
}

/// Makes drift an error instead of a warning, where the lock is required.
fn require_sound(kit: &Kit, found: &mut Faults) {
    if let Err(refused) = kit.must_be_locked() {
        let again = |fault: &Fault| {
            let mut others = refused.faults.iter();
            others
                .any(|one| (one.code, &one.file, one.line) == (fault.code, &fault.file, fault.line))
        };
        found.faults.retain(|fault| !again(fault));
        found.faults.extend(refused.faults.iter().cloned());
        found.sources.extend(refused.sources);
    }
}

/// Finds policies that nobody could meet: in the chosen environment, or if there is none at all.
fn check_files(judged: &mut CheckedProject, chosen: Option<&Environment>, no_other: bool) {
    let Some(kit) = judged.kit.as_ref().filter(|_| chosen.is_some() || no_other) else {
        return;
    };
    judged.faults.faults.extend(unmeetable(kit, chosen));
}

/// Policies of a kit that the people of an environment could never meet, and waits that are longer than it
/// keeps runs.
pub fn unmeetable(kit: &Kit, environment: Option<&Environment>) -> Vec<Fault> {
    let principals = environment.map(|one| one.principals.as_slice());
    let principals = principals.unwrap_or_default();
    let approvers = people(principals, PrincipalRole::approves);
    let mut found = approval_checks::unmeetable_policies(kit, &approvers);
    found.extend(approval_checks::unmeetable_reviews(kit, |roles| {
        people(principals, |role| {
            role == PrincipalRole::Admin || roles.iter().any(|one| one == role.as_str())
        })
    }));
    let kept = environment.map(|one| one.retention);
    let kept = kept.and_then(|kept| kept.complete_days.into_iter().chain(kept.failed_days).min());
    found.extend(
        kept.into_iter()
            .flat_map(|days| person_waits::beyond_retention(&kit.waits, days)),
    );
    found
}

/// The principals with a role that permits something. Without principals, the local caller may.
fn people(
    principals: &[PrincipalDeclaration],
    permits: impl Fn(PrincipalRole) -> bool,
) -> Approvers {
    let may = |one: &&PrincipalDeclaration| one.roles.iter().any(|role| permits(*role));
    match principals.is_empty() {
        true => Approvers::Anybody,
        false => Approvers::Named(principals.iter().filter(may).count()),
    }
}

/// The environment files of the folder, except one that is checked already.
fn own_environments(dir: &Path, but: Option<&Path>) -> Vec<Faults> {
    let real = |path: &Path| path.canonicalize().ok();
    let judged = but.and_then(real);
    let names = kit::file_names(&dir.join(ENVIRONMENTS));
    let files = names
        .into_iter()
        .filter(|name| name.ends_with(environment::SUFFIX))
        .map(|name| PathBuf::from(ENVIRONMENTS).join(name))
        .filter(|file| judged.is_none() || real(&dir.join(file)) != judged);
    files
        .map(|file| match Environment::load_in(dir, &file) {
            Ok(environment) => environment.warnings,
            Err(faults) => faults,
        })
        .collect()
}

/// Checks that the principals and subscriptions of an environment have their secrets, and returns,
/// in words, the variables of the kit that have no usable value. `gateway`: the one that it is served with.
fn values(
    environment: Option<&Environment>,
    kit: Option<&Kit>,
    process: &BTreeMap<String, String>,
    gateway: Option<&Gateway>,
) -> Result<Vec<String>, Faults> {
    let mut process = process.clone();
    // `run` and `start` give this one a value themselves.
    if let Some(variable) = environment.and_then(|one| one.receiver.as_ref()) {
        process
            .entry(variable.clone())
            .or_insert_with(|| "http://127.0.0.1:9".to_owned());
    }
    let principals = Principals::resolve(environment, &process)?;
    let subscriptions = subscription_secrets::resolve(environment, &process)?;
    let resolved =
        kit.map(|kit| assemble::values::resolve(kit, &principals, environment, &process));
    let (mut unset, mut sound) = (Vec::new(), BTreeMap::new());
    for (name, resolved) in resolved.into_iter().flatten() {
        match resolved {
            Ok(values) => drop(sound.insert(name, values)),
            Err(error) => unset.push(format!("workflow {name}: {error}")),
        }
    }
    let mut keys = gateway.map_or(Vec::new(), |gateway| gateway.secrets().to_vec());
    keys.extend(subscriptions.into_iter().map(|one| one.secret));
    let unfit = environment.map(|environment| assemble::mismatch(environment, &process));
    if assemble::values::put_signing_key(environment, &mut process).is_ok() {
        keys.extend(assemble::values::given_signing_key(&process));
    }
    let shown = kit.map(|kit| assemble::values::shows_none_of(kit, &sound, &keys));
    unset.extend(shown.and_then(Result::err).map(|shown| shown.to_string()));
    unset.extend(unfit.into_iter().flatten());
    Ok(unset)
}

/// Checks the kit's `gateway.yaml` with this environment, and builds the gateway. `process`: the process
/// environment of a start, if one is intended.
fn check_gateway(
    dir: &Path,
    environment: Option<&Environment>,
    process: Option<&BTreeMap<String, String>>,
) -> (Faults, Option<Gateway>) {
    let file = Path::new(GATEWAY);
    if !dir.join(file).is_file() {
        return Default::default();
    }
    let config = match gateway::Config::load_in(dir, file, environment) {
        Ok(config) => config,
        Err(faults) => return (faults, None),
    };
    // Keys and addresses have values only where they are used.
    let client = egress::Client::new(&egress::EgressPolicy::default());
    match (process, client) {
        (Some(process), Ok(client)) => match Gateway::new(&config, environment, process, &client) {
            Ok(gateway) => (Faults::default(), Some(gateway)),
            Err(faults) => (faults, None),
        },
        _ => Default::default(),
    }
}

#[cfg(test)]
mod tests;
