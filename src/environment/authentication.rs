//! Principals with their tokens and keys resolved: who the caller is, and which secrets are theirs.
//!
//! A token is identified by its digest, which is compared in constant time with that of every
//! principal: the response time reveals neither a nearly correct token nor the number of
//! principals.

use std::collections::{BTreeMap, BTreeSet};

use ktsu_ledger::Hash;
use subtle::{Choice, ConditionallySelectable as _, ConstantTimeEq as _};

use super::Environment;
use super::principals::{PrincipalDeclaration, PrincipalRole, SecretReference};
use super::variable::value;
use ktsu_config::fault::{Fault, FaultCode, Faults};
use ktsu_secret::{MIN_LENGTH, Secret, is_too_short};

/// The authentication that frames record of a principal that has shown its token.
pub const TOKEN_AUTHENTICATION: &str = "token";

/// A principal that can be identified by its token.
#[derive(Debug, Clone)]
pub struct ResolvedPrincipal {
    /// The name.
    pub name: String,
    /// The roles that it has.
    pub roles: BTreeSet<PrincipalRole>,
    digest: [u8; 32],
    token: Secret,
    secrets: BTreeMap<String, Secret>,
}

impl ResolvedPrincipal {
    /// The digest of its token.
    pub fn token_digest(&self) -> Hash {
        Hash::of(self.token.expose().as_bytes())
    }
}

/// Everybody who may ask. Without principals nobody is asked who they are.
#[derive(Debug, Clone, Default)]
pub struct Principals {
    known: Vec<ResolvedPrincipal>,
}

impl Principals {
    /// Looks up every token and every key.
    ///
    /// # Errors
    /// Everything that is wrong, at its place in the file.
    pub fn resolve(
        environment: Option<&Environment>,
        process: &BTreeMap<String, String>,
    ) -> Result<Self, Faults> {
        Self::resolve_if(environment, process, |_| true)
    }

    /// Looks up the tokens of services alone: a runtime or a gateway needs no others.
    ///
    /// # Errors
    /// As [`Principals::resolve`].
    pub fn resolve_services(
        environment: Option<&Environment>,
        process: &BTreeMap<String, String>,
    ) -> Result<Self, Faults> {
        Self::resolve_if(environment, process, |one| {
            one.roles.iter().any(|role| role.is_of_service())
        })
    }

    fn resolve_if(
        environment: Option<&Environment>,
        process: &BTreeMap<String, String>,
        wanted: impl Fn(&PrincipalDeclaration) -> bool,
    ) -> Result<Self, Faults> {
        let Some(file) = environment else {
            return Ok(Self::default());
        };
        let mut boot = PrincipalResolver {
            file,
            process,
            faults: Vec::new(),
        };
        let known: Vec<ResolvedPrincipal> = file
            .principals
            .iter()
            .filter(|one| wanted(one))
            .filter_map(|one| boot.known(one))
            .collect();
        boot.check_distinct_tokens(&known);
        if boot.faults.is_empty() {
            return Ok(Self { known });
        }
        let mut faults = Faults::default();
        let text = (file.path.clone(), file.outline());
        faults.sources.insert(text.0, text.1);
        faults.faults = boot.faults;
        faults.sort();
        Err(faults)
    }

    /// Returns `true` if no principal is configured.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// The principal with this token. It is compared with the tokens of all principals.
    pub fn authenticate(&self, token: &[u8]) -> Option<&ResolvedPrincipal> {
        let digest = Hash::of(token);
        let mut found = u32::MAX;
        let mut any = Choice::from(0);
        for (place, known) in (0u32..).zip(&self.known) {
            let same = known.digest.ct_eq(digest.as_bytes());
            found.conditional_assign(&place, same);
            any |= same;
        }
        let place = bool::from(any).then_some(found)?;
        self.known.get(usize::try_from(place).ok()?)
    }

    /// The principal whose token has this digest.
    pub fn with_digest(&self, digest: &Hash) -> Option<&ResolvedPrincipal> {
        let mut known = self.known.iter();
        known.find(|known| known.digest == *digest.as_bytes())
    }

    /// The token of the first principal with a role: what a service shows of itself.
    pub fn token_of(&self, role: PrincipalRole) -> Option<&Secret> {
        let first = self.known.iter().find(|known| known.roles.contains(&role));
        first.map(|known| &known.token)
    }

    /// Returns `true` if a principal of this name is configured.
    pub fn contains(&self, principal: &str) -> bool {
        self.known.iter().any(|known| known.name == principal)
    }

    /// The value a principal has of its own for a variable.
    pub fn secret(&self, principal: &str, variable: &str) -> Option<&Secret> {
        let known = self.known.iter().find(|known| known.name == principal)?;
        known.secrets.get(variable)
    }

    /// Whatever must not be recorded: every token, and every key of every principal.
    pub fn secrets(&self) -> impl Iterator<Item = &Secret> {
        self.known
            .iter()
            .flat_map(|known| std::iter::once(&known.token).chain(known.secrets.values()))
    }

    /// Returns `true` if a principal has a value of its own for a variable.
    pub(super) fn any_has(&self, variable: &str) -> bool {
        let mut known = self.known.iter();
        known.any(|known| known.secrets.contains_key(variable))
    }

    /// The principals that may start runs and have no value of their own for a variable.
    pub(super) fn invoking_without(&self, variable: &str) -> Vec<String> {
        let invoking = self
            .known
            .iter()
            .filter(|known| known.roles.iter().any(|role| role.invokes()));
        invoking
            .filter(|known| !known.secrets.contains_key(variable))
            .map(|known| known.name.clone())
            .collect()
    }
}

/// Looking values up, and gathering what is wrong with them.
struct PrincipalResolver<'a> {
    file: &'a Environment,
    process: &'a BTreeMap<String, String>,
    faults: Vec<Fault>,
}

impl PrincipalResolver<'_> {
    fn known(&mut self, declared: &PrincipalDeclaration) -> Option<ResolvedPrincipal> {
        let what = format!("the token of {}", declared.name);
        let token = self.value(&declared.token, &what);
        let secrets = declared.secrets.iter().map(|(name, reference)| {
            let what = format!("{name} of {}", declared.name);
            Some((name.clone(), self.value(reference, &what)?))
        });
        let secrets: Vec<_> = secrets.collect();
        let token = token?;
        Some(ResolvedPrincipal {
            name: declared.name.clone(),
            roles: declared.roles.clone(),
            digest: *Hash::of(token.expose().as_bytes()).as_bytes(),
            token,
            secrets: secrets.into_iter().flatten().collect(),
        })
    }

    fn value(&mut self, reference: &SecretReference, what: &str) -> Option<Secret> {
        let variable = &reference.variable;
        match value(variable, Some(self.file), self.process) {
            None => {
                let words = format!("{what}: the variable {variable:?} has no value");
                let fault = Fault::new(FaultCode::NoValue, reference.place, words);
                self.fault(fault.hint(format!("export {variable}=…")));
                None
            }
            Some(value) if is_too_short(value) => {
                let words = format!("{what} needs at least {MIN_LENGTH} characters");
                let fault = Fault::new(FaultCode::ShortSecret, reference.place, words);
                self.fault(fault.hint(format!("export {variable}=$(openssl rand -hex 32)")));
                None
            }
            Some(value) => Some(Secret::new(value.clone())),
        }
    }

    /// One token for two would make it a guess who is asking.
    fn check_distinct_tokens(&mut self, known: &[ResolvedPrincipal]) {
        for (place, later) in known.iter().enumerate() {
            let before = known.iter().take(place);
            let Some(earlier) = before.into_iter().find(|one| one.digest == later.digest) else {
                continue;
            };
            let declared = &self.file.principals;
            let declared = declared.iter().find(|one| one.name == later.name);
            let words = format!("{} and {} have the same token", earlier.name, later.name);
            if let Some(declared) = declared {
                let fault = Fault::new(FaultCode::SameToken, declared.token.place, words);
                self.fault(fault.hint("give each principal a token of its own"));
            }
        }
    }

    fn fault(&mut self, fault: Fault) {
        self.faults.push(fault.in_file(&self.file.path));
    }
}
