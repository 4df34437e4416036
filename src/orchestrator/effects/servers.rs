//! The tool servers of a task, with everything needed to call them. Built for one dispatch to a
//! runtime; it contains keys and secret params, so it is never recorded or logged.

use std::collections::BTreeMap;

use ktsu_ledger::StreamId;
use ktsu_ledger::event::plan::{AuthScheme, ServerPlan, ToolRule};
use ktsu_projections::run::{RunState, TaskId};

use super::secrets::SecretValues;
use crate::Shared;
use ktsu_contract::references::resolved;
use ktsu_contract::runtime::{ApprovalRule, ToolServer};
use ktsu_workflow::admit::tools::RECOMPUTE_KIND;
use ktsu_workflow::definition::{Definition, ServerParamError, ServerParamValues};
use ktsu_workflow::next::{Memo, ServerSpec, missing_value_code, secret_values};

/// The result of putting the servers of a task together.
pub(super) enum ServerSetupOutcome {
    /// They can be called.
    Ready(Vec<ToolServer>),
    /// This start lacks a secret: the task waits for one that has it.
    WaitsForSecret,
    /// No runtime can ever call them: the code of the failure, and words.
    Refused(&'static str, String),
}

/// The prefix of the files of servers that come with ktsu.
const BUILTIN_PREFIX: &str = "ktsu/";

/// Puts the servers of a task together.
pub(super) fn server_setup(
    shared: &Shared,
    state: &RunState,
    definition: &Definition,
    memo: &Memo,
    place: TaskId,
    specs: Vec<ServerSpec>,
) -> ServerSetupOutcome {
    let names = &state.created().references;
    let references = shared.references.get(state.stream().name());
    if !names.is_empty() && references.is_none() && specs.iter().any(|one| is_outside(&one.plan)) {
        let words = format!(
            "what {} stands for was known to the eval that started the run, and to nothing else",
            names.join(", ")
        );
        return ServerSetupOutcome::Refused("reference_gone", words);
    }
    let references = references.unwrap_or_default();
    let mut secrets = Vec::new();
    let secret = |one: &ServerSpec| one.plan.params.values().any(|param| param.secret);
    if specs.iter().any(secret) {
        match secrets_of(shared, state, definition, memo, place) {
            Some(Ok(values)) => secrets = values,
            Some(Err(missing)) => {
                let code = missing_value_code(&missing);
                return ServerSetupOutcome::Refused(code, missing.to_string());
            }
            None => return ServerSetupOutcome::WaitsForSecret,
        }
    }
    let mut secrets = secrets.into_iter();
    let servers = specs.into_iter().map(|mut one| {
        let secret = secrets.next().unwrap_or_default();
        let texts = references.texts(&one.plan);
        for param in one.params.values_mut() {
            *param = resolved(param, &texts);
        }
        ToolServer {
            url: match references.url(&one.plan) {
                Some(elsewhere) => elsewhere.to_owned(),
                None => url(shared, &one.plan),
            },
            references: match is_outside(&one.plan) {
                true => texts,
                false => BTreeMap::new(),
            },
            suppressed: one.plan.stateful && state.suppresses_tools(),
            pins: pins(state, definition, &one.plan),
            withheld: without_secrets(state.stream(), &one.plan),
            ..server(one, secret)
        }
    });
    ServerSetupOutcome::Ready(servers.collect())
}

fn secrets_of(
    shared: &Shared,
    state: &RunState,
    definition: &Definition,
    memo: &Memo,
    place: TaskId,
) -> Option<Result<Vec<ServerParamValues>, ServerParamError>> {
    let step = definition.acting_step(state, place.step)?;
    let names = SecretValues::new(shared, state, memo, place);
    if names.waits_for_secret(&step.id, step.work.roots()) {
        return None;
    }
    secret_values(definition, state, place.step, &names)
}

/// A server as its definition declares it, with its params.
fn server(spec: ServerSpec, mut secret: ServerParamValues) -> ToolServer {
    let ServerSpec { plan, mut params } = spec;
    let auth = plan.auth.as_ref().and_then(|auth| {
        let value = secret.remove(&auth.param)?;
        Some((auth.header.clone(), auth_header(auth.scheme, &value)))
    });
    params.append(&mut secret);
    let (auth_header, auth_value) = auth.unzip();
    ToolServer {
        allowlist: plan.tools.iter().map(|rule| rule.pattern.clone()).collect(),
        approval_rules: plan.tools.iter().filter_map(approval).collect(),
        auth_header,
        auth_value,
        params,
        stateful: plan.stateful,
        timeout_ms: plan.timeout_ms,
        name: plan.name,
        ..ToolServer::default()
    }
}

/// The tools that a recompute or a baseline does not call: all of a stateful server or of one that
/// reads the run, and all that need an approval.
fn without_secrets(stream: &StreamId, plan: &ServerPlan) -> Vec<String> {
    if stream.kind() != RECOMPUTE_KIND {
        return Vec::new();
    }
    if plan.stateful || plan.reads_its_run() {
        return vec!["*".to_owned()];
    }
    let gated = plan.tools.iter().filter(|rule| rule.approval.is_some());
    gated.map(|rule| rule.pattern.clone()).collect()
}

fn auth_header(scheme: AuthScheme, secret: &str) -> String {
    match scheme {
        AuthScheme::Bearer => format!("Bearer {secret}"),
        AuthScheme::Raw => secret.to_owned(),
    }
}

fn approval(rule: &ToolRule) -> Option<ApprovalRule> {
    let policy = rule.approval.as_ref()?;
    let timeout = policy.timeout.as_ref();
    Some(ApprovalRule {
        on_reject: policy.on_reject.as_str().to_owned(),
        pattern: rule.pattern.clone(),
        timeout_behavior: timeout.map(|timeout| timeout.behavior.as_str().to_owned()),
        timeout_ms: timeout.map_or(0, |timeout| timeout.ms),
    })
}

/// Returns `true` if a server is not one of ktsu's own.
fn is_outside(plan: &ServerPlan) -> bool {
    !plan.file.starts_with(BUILTIN_PREFIX)
}

/// The URL of a server: the environment's word goes before that of the file (seed 000, invariant
/// 13).
fn url(shared: &Shared, plan: &ServerPlan) -> String {
    if let Some(name) = plan.file.strip_prefix(BUILTIN_PREFIX) {
        return format!("ktsu:{name}");
    }
    let elsewhere = shared.peers.tool_servers.get(plan.own_name());
    elsewhere.unwrap_or(&plan.url).clone()
}

/// The tools a server was locked with, if the lock of the run speaks of the definition it has now:
/// a branch may have another one. Those of a server that comes with ktsu are of its version.
fn pins(
    state: &RunState,
    definition: &Definition,
    plan: &ServerPlan,
) -> Option<BTreeMap<String, String>> {
    let pins = state.created().pins.as_ref();
    let pins = pins.filter(|pins| pins.definition == definition.digest);
    pins.and_then(|pins| pins.servers.get(&plan.file)).cloned()
}

#[cfg(test)]
mod tests {
    use ktsu_ledger::event::plan::{
        ApprovalPolicy, ApprovalTimeout, OnReject, ServerAuth, ServerParam, TimeoutBehavior,
    };

    use super::*;

    fn spec(auth: Option<(&str, AuthScheme)>) -> ServerSpec {
        let param = |secret| ServerParam {
            default: None,
            secret,
            value: String::new(),
        };
        let plan = ServerPlan {
            auth: auth.map(|(param, scheme)| ServerAuth {
                header: "X-Key".to_owned(),
                param: param.to_owned(),
                scheme,
            }),
            declared: None,
            file: "servers.yaml#s".to_owned(),
            name: "s".to_owned(),
            params: [("key", true), ("more", true), ("n", false)]
                .map(|(name, secret)| (name.to_owned(), param(secret)))
                .into(),
            stateful: true,
            timeout_ms: Some(120_000),
            tools: vec![
                ToolRule {
                    approval: Some(ApprovalPolicy {
                        not_by_proposer: true,
                        on_reject: OnReject::Recover,
                        quorum: 2,
                        timeout: Some(ApprovalTimeout {
                            behavior: TimeoutBehavior::Reject,
                            ms: 5,
                        }),
                    }),
                    pattern: "put-*".to_owned(),
                },
                ToolRule {
                    approval: None,
                    pattern: "get".to_owned(),
                },
            ],
            url: "http://s".to_owned(),
            version: "1.0.0".to_owned(),
        };
        ServerSpec {
            plan,
            params: values(&[("n", "7")]),
        }
    }

    fn values(pairs: &[(&str, &str)]) -> ServerParamValues {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn a_key_goes_into_the_header_and_nowhere_else() {
        let secret = values(&[("key", "s3cret"), ("more", "hidden")]);
        for (scheme, value) in [
            (AuthScheme::Bearer, "Bearer s3cret"),
            (AuthScheme::Raw, "s3cret"),
        ] {
            let server = server(spec(Some(("key", scheme))), secret.clone());
            assert_eq!(server.auth_header.as_deref(), Some("X-Key"));
            assert_eq!(server.auth_value.as_deref(), Some(value));
            assert_eq!(server.params, values(&[("more", "hidden"), ("n", "7")]));
        }
        let server = server(spec(None), secret);
        assert_eq!((server.auth_header, server.auth_value), (None, None));
        assert_eq!(server.params.len(), 3, "what the server asked for");
    }

    #[test]
    fn a_runtime_learns_what_may_be_called_and_what_is_asked_first() {
        let server = server(spec(None), ServerParamValues::new());
        assert_eq!(server.allowlist, ["put-*", "get"]);
        let rule = ApprovalRule {
            on_reject: "recover".to_owned(),
            pattern: "put-*".to_owned(),
            timeout_behavior: Some("reject".to_owned()),
            timeout_ms: 5,
        };
        assert_eq!(server.approval_rules, [rule]);
        assert!(server.stateful && !server.suppressed);
        assert_eq!(server.timeout_ms, Some(120_000));
    }
}
