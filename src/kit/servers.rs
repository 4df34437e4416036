//! Checks between agents and the tool servers they use: the file or the entry of `servers.yaml`,
//! its version, its params, and how secrets are passed from one to the other (seed 000, invariants
//! 3 and 10).
//!
//! ```text
//! workflow env[].secret -> agent params.….secret -> server params.….secret -> auth.secret
//!            `calls` checks this step    `servers` this one        `server` this one
//! ```
//!
//! Each fault is reported at the layer that has to change.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ktsu_ledger::event::plan::{ServerParam, ServerPlan};

use super::agent::AgentDraft;
use super::allowlist::Allowlist;
use super::builtin;
use super::files::{CENTRAL, SERVER_SUFFIX, file_of};
use super::loader::Loader;
use super::reference;
use super::schemas::missing_params;
use super::server::{self, KitServer, ServerDraft};
use super::tools::{ServerArgument, ServerCall};
use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::yaml::SourceSpan;

/// A tool server, as one agent uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerUse {
    /// The name under which the agent knows it.
    pub name: String,
    /// The place of the name in the agent's file.
    pub place: SourceSpan,
    /// Its key in [`super::Kit::servers`].
    pub server: String,
    /// Templates over the agent's params.
    pub params: BTreeMap<String, String>,
    /// The tools that both files allow (decision K5).
    pub allowlist: Allowlist,
}

impl ServerUse {
    pub(super) fn new(call: &ServerCall, key: &str, server: &KitServer) -> Self {
        let params = call.params.iter();
        Self {
            name: call.name.clone(),
            place: call.place,
            server: key.to_owned(),
            params: params
                .map(|given| (given.name.clone(), given.text.clone()))
                .collect(),
            allowlist: server.allowlist.intersection(&call.allowlist),
        }
    }

    /// As a definition has it: everything the files say, and nothing an environment does.
    pub(super) fn plan(&self, server: &KitServer) -> ServerPlan {
        let value = |name: &String, param: &server::KitServerParam| {
            let given = self.params.get(name);
            // What a literal cannot fail to give needs no second value.
            let default = given
                .filter(|text| text.contains("{{"))
                .and(param.default.clone());
            Some(ServerParam {
                default,
                secret: param.secret,
                value: given.or(param.default.as_ref())?.clone(),
            })
        };
        let params = server.params.iter();
        ServerPlan {
            auth: server.auth.clone(),
            declared: (server.name != self.name).then(|| server.name.clone()),
            file: match builtin::is_builtin(&self.server) {
                true => reference::split(&self.server).0.to_owned(),
                false => self.server.clone(),
            },
            name: self.name.clone(),
            params: params
                .filter_map(|(name, param)| Some((name.clone(), value(name, param)?)))
                .collect(),
            stateful: server.stateful,
            timeout_ms: server.timeout_ms,
            tools: self.allowlist.rules(),
            url: server.url.clone(),
            version: server.version.clone(),
        }
    }
}

/// The key of the server that an agent's entry means. `central` are the names of the central list,
/// `None` if it cannot be read, which is reported where it is read.
pub(super) fn resolve(
    root: &Path,
    agent: &str,
    call: &ServerCall,
    central: Option<&BTreeSet<String>>,
) -> Result<Option<String>, Fault> {
    if let Some((name, place)) = &call.path
        && builtin::is_builtin(name)
    {
        return builtin::resolve_server(name, *place).map(Some);
    }
    if builtin::is_builtin(&call.name) {
        let words = format!(
            "{:?} is the name of a server that comes with ktsu",
            call.name
        );
        let fault = Fault::new(FaultCode::ReservedName, call.place, words);
        return Err(fault.hint("give the server of your own another name"));
    }
    if let Some(reference) = call.reference() {
        return reference::resolve(root, agent, &reference).map(Some);
    }
    let Some(central) = central else {
        return Ok(None);
    };
    if central.contains(&call.name) {
        return Ok(Some(central_key(&call.name)));
    }
    let words = format!(
        "the server {:?} has no path, and {CENTRAL} does not declare it",
        call.name
    );
    let fault = Fault::new(FaultCode::UnknownServer, call.place, words);
    Err(fault.suggest_or(
        &call.name,
        central.iter().map(String::as_str),
        format!(
            "add it to {CENTRAL}, or give it path: ../servers/{}{SERVER_SUFFIX}",
            call.name
        ),
    ))
}

/// The key of an entry of the central list.
pub(super) fn central_key(name: &str) -> String {
    format!("{CENTRAL}#{name}")
}

/// Checks every use of a server.
pub(super) fn check(loader: &mut Loader) {
    let mut found = Vec::new();
    let mut unmarked = BTreeSet::new();
    for ((path, position), key) in &loader.uses {
        let agent = loader.agents.get(path).and_then(Option::as_ref);
        let server = loader.servers.get(key).and_then(Option::as_ref);
        let Some((agent, server)) = agent.zip(server) else {
            continue;
        };
        let Some(call) = agent.servers.get(*position) else {
            continue;
        };
        let mut faults = Vec::new();
        version(call, server, &mut faults);
        names(call, server, &mut faults);
        given(call, server, &mut faults);
        for given in &call.params {
            let marks = secrecy(given, agent, server, key, &mut faults);
            unmarked.extend(marks.into_iter().map(|name| (path.clone(), name)));
        }
        let here = faults.into_iter();
        found.extend(here.map(|fault| fault.in_file(Path::new(path))));
    }
    found.extend(same_name(loader));
    found.into_iter().for_each(|fault| loader.faults.add(fault));
    loader.unmarked = unmarked;
}

fn version(call: &ServerCall, server: &ServerDraft, faults: &mut Vec<Fault>) {
    // Of one that comes with ktsu it is checked where its name is looked up.
    let file = call
        .reference()
        .filter(|file| !builtin::is_builtin(file.name));
    let (version, own) = (&server.server.version, server.has_version);
    faults.extend(file.and_then(|file| reference::version(&file, version, own, "the agent")));
}

/// The environment and the lock speak of a server by its own name.
fn names(call: &ServerCall, server: &ServerDraft, faults: &mut Vec<Fault>) {
    let own = &server.server.name;
    if call.name != *own && !builtin::is_builtin(own) {
        let words = format!("the server calls itself {own:?}, not {:?}", call.name);
        let fault = Fault::new(FaultCode::NameMismatch, call.place, words).warning();
        faults.push(fault.hint(format!("name: {own}")));
    }
}

/// Checks that what the server needs is given, and nothing it does not know.
fn given(call: &ServerCall, server: &ServerDraft, faults: &mut Vec<Fault>) {
    let (name, params) = (&server.server.name, &server.server.params);
    let what = format!("the server {name:?}");
    let required = params.iter().filter(|(_, param)| param.default.is_none());
    let required = required.map(|(name, _)| name.as_str());
    let is_given = |name: &str| call.params.iter().any(|given| given.name == name);
    missing_params(&what, required, is_given, call.params_place, faults);
    let known: Vec<&str> = params.keys().map(String::as_str).collect();
    for given in &call.params {
        if params.contains_key(&given.name) {
            continue;
        }
        let words = format!("{what} takes no param {:?}", given.name);
        let fault = Fault::new(FaultCode::UnknownParam, given.place, words);
        faults.push(fault.suggest(&given.name, known.iter().copied()));
    }
}

/// A secret param of the agent goes into a secret param of the server, and nothing else does. Gives
/// the params of the agent that lack their mark.
fn secrecy(
    given: &ServerArgument,
    agent: &AgentDraft,
    server: &ServerDraft,
    key: &str,
    faults: &mut Vec<Fault>,
) -> Option<String> {
    let param = server.server.params.get(&given.name)?;
    let params = agent.params.as_ref();
    let secrets = params.map(|params| params.secrets.as_slice());
    let mut mentions = given.mentions.iter();
    let secret = mentions.find(|name| secrets.unwrap_or_default().contains(name));
    let q = &given.name;
    match (param.secret, secret) {
        (true, Some(_)) | (false, None) => None,
        (false, Some(p)) => {
            // The server's own file is wrong, and says so.
            if server.told.contains(q) {
                return None;
            }
            let words = format!(
                "the secret agent param {p:?} goes into the server param {q:?}, which the server \
                 does not mark as secret"
            );
            let fault = Fault::new(FaultCode::SecretNotAllowed, given.text_place, words);
            let file = file_of(key);
            faults.push(fault.hint(format!("in {file}: params: {{{q}: {{secret: true}}}}")));
            None
        }
        (true, None) => {
            let declared = params.and_then(|params| {
                let mut mentions = given.mentions.iter();
                mentions.find_map(|name| Some((name, *params.places.get(name)?)))
            });
            let Some((p, place)) = declared else {
                let words = match given.text.contains("{{") {
                    true => format!("the secret server param {q:?} gets no secret param"),
                    false => format!("the secret server param {q:?} is written out"),
                };
                let fault = Fault::new(FaultCode::LiteralSecret, given.text_place, words)
                    .hiding(given.text_place);
                faults.push(fault.hint(
                    "\"{{ params.NAME }}\", with NAME marked as secret in this agent's params",
                ));
                return None;
            };
            let words = format!(
                "the agent param {p:?} goes into the secret server param {q:?} and is not marked \
                 as secret"
            );
            let fault = Fault::new(FaultCode::LiteralSecret, place, words);
            faults.push(fault.hint(format!("{p}: {{type: string, secret: true}}")));
            Some(p.clone())
        }
    }
}

/// The environment gives a URL to a name: servers that share one share it.
fn same_name(loader: &Loader) -> Vec<Fault> {
    let mut first: BTreeMap<&str, &str> = BTreeMap::new();
    let mut faults = Vec::new();
    for (key, server) in &loader.servers {
        let Some(server) = server else { continue };
        let name = server.server.name.as_str();
        let file = file_of(key);
        let Some(other) = first.get(name) else {
            first.insert(name, file);
            continue;
        };
        // Within the central list it is an error, reported where the list is read.
        if *other == file {
            continue;
        }
        let words = format!("{other} has a server {name:?}, too");
        let fault = Fault::new(FaultCode::DuplicateName, server.place, words).warning();
        let hint = "an environment that sets the url of this name sets both";
        faults.push(fault.hint(hint).in_file(Path::new(file)));
    }
    faults
}
