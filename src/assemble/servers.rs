//! The tool servers of a kit, asked for their tools outside any run: for `ktsu lock --tools`.
//!
//! A run gives a server its params through a step and an agent. Here there is no run, so the first
//! step counts whose agent uses the server and that gives it every secret; what only a run can give
//! is left empty.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::HeaderName;
use jmespath::Rcvar;
use ktsu_ledger::event::plan::{AgentPlan, AuthScheme, Work};
use serde_json::{Map, Value, json};

use super::{policy, values};
use crate::egress;
use crate::environment::{Environment, Principals, Resolved};
use crate::kit::Kit;
use crate::kit::server::KitServer;
use crate::secret::{Redactor, Secret};
use crate::tools;
use crate::workflow::definition::{Agent, CompiledWork, Definition, Server};
use crate::workflow::expression::{Names, Root, from_value};
use crate::workflow::rules::DecisionRules;

/// A server, with what it is told.
pub struct Asked {
    /// Its own name.
    pub name: String,
    /// Where it is, in this environment.
    pub url: String,
    /// The header that proves who asks, and its value.
    pub auth: Option<(String, Secret)>,
    /// What it is told; secrets may be among it.
    pub params: BTreeMap<String, String>,
}

/// The digests of tools, by name.
pub type Digests = BTreeMap<String, String>;

/// Asks every tool server of a kit for its tools: the digests of those that an agent may call, by
/// the path of the server; or why there are none. Those that come with ktsu are of its version.
///
/// # Errors
/// What is wrong with the environment, in words.
pub async fn tools(
    kit: &Kit,
    environment: Option<&Environment>,
    process: &BTreeMap<String, String>,
) -> Result<Vec<(String, Result<Digests, String>)>, String> {
    let client = egress::Client::new(&policy(environment)).map_err(|error| error.to_string())?;
    let principals =
        Principals::resolve(environment, process).map_err(|found| found.to_string())?;
    let resolved = values::resolve(kit, &principals, environment, process);
    let resolved: BTreeMap<_, _> = resolved.into_iter().collect();
    let known = resolved.values().filter_map(|one| one.as_ref().ok());
    let secrets = known.flat_map(|one| one.secrets.values());
    let redactor = Redactor::new(secrets.chain(principals.secrets()));
    let mut found = Vec::new();
    for (path, server) in kit.servers.iter().filter(|(_, one)| !one.url.is_empty()) {
        let listed = match asked(kit, path, server, environment, &resolved) {
            Ok(asked) => list(&client, &asked).await,
            Err(why) => Err(why),
        };
        let listed = listed.map(|mut listed| {
            listed.retain(|tool, _| permitted(kit, path, server, tool));
            listed
        });
        let listed = listed.map_err(|why| redactor.redact_text(&why).to_string());
        found.push((path.clone(), listed));
    }
    Ok(found)
}

/// The tools a server offers.
async fn list(client: &egress::Client, asked: &Asked) -> Result<Digests, String> {
    let auth = match &asked.auth {
        None => None,
        Some((header, value)) => {
            let name = HeaderName::from_bytes(header.as_bytes());
            let name = name.map_err(|_| format!("{header:?} is not the name of a header"))?;
            Some((name, value.clone()))
        }
    };
    let server = tools::Server {
        name: asked.name.clone(),
        url: asked.url.clone(),
        auth,
        params: asked.params.clone(),
    };
    let session = tools::Tools::new(client.clone()).open(&server).await;
    let session = session.map_err(|error| error.to_string())?;
    let offered = session.tools();
    let digests = offered
        .iter()
        .map(|tool| (tool.name.clone(), tool.digest.clone()));
    let digests = digests.collect();
    session.close().await;
    Ok(digests)
}

/// Whether an agent of the kit may call a tool; one that no agent uses offers what it says.
fn permitted(kit: &Kit, path: &str, server: &KitServer, tool: &str) -> bool {
    let mut uses = kit.uses.values().flatten().filter(|one| one.server == path);
    match uses.next() {
        None => server.allowlist.permits(tool),
        Some(first) => first.allowlist.permits(tool) || uses.any(|one| one.allowlist.permits(tool)),
    }
}

type Values = BTreeMap<String, Result<Resolved, crate::environment::ResolveError>>;

/// A server as it is asked: by the first step that can.
fn asked(
    kit: &Kit,
    path: &str,
    server: &KitServer,
    environment: Option<&Environment>,
    resolved: &Values,
) -> Result<Asked, String> {
    let elsewhere = environment.and_then(|one| one.servers.get(&server.name));
    let url = elsewhere.unwrap_or(&server.url).clone();
    let mut why = None;
    for (workflow, one) in &kit.workflows {
        let values = resolved.get(workflow).and_then(|one| one.as_ref().ok());
        for (params, agent) in calls(&one.definition, values) {
            let used = agent.servers.iter().filter(|one| one.plan.file == path);
            for used in used {
                match told(used, &given(agent, &params)) {
                    Ok((auth, params)) => {
                        return Ok(Asked {
                            name: server.name.clone(),
                            url,
                            auth,
                            params,
                        });
                    }
                    Err(missing) => why = why.or(Some(missing)),
                }
            }
        }
    }
    if let Some(why) = why {
        return Err(why);
    }
    if let Some((name, _)) = server.params.iter().find(|(_, param)| param.secret) {
        return Err(format!("no step gives the secret {name:?}"));
    }
    let params = server.params.iter();
    let params = params.map(|(name, one)| (name.clone(), one.default.clone().unwrap_or_default()));
    Ok(Asked {
        name: server.name.clone(),
        url,
        auth: None,
        params: params.collect(),
    })
}

/// The agent steps of a definition: what each gives its agent, as far as that is known.
fn calls<'d>(definition: &'d Definition, values: Option<&Resolved>) -> Vec<(Value, &'d Agent)> {
    let mut calls = Vec::new();
    for (path, workflow) in &definition.workflows {
        // Variables are the root's alone.
        let names = Variables(values.filter(|_| *path == definition.plan.root));
        for (step, plan) in workflow.steps.iter().zip(&workflow.plan.steps) {
            let Work::Agent(AgentPlan { file, .. }) = &plan.work else {
                continue;
            };
            let CompiledWork::Agent { params, .. } = &step.work else {
                continue;
            };
            let rendered = params
                .as_ref()
                .map(|one| one.render(&names, &|_| false, DecisionRules::NEWEST));
            let given = rendered.and_then(Result::ok).map(|one| one.value);
            let agent = definition.agents.get(file);
            calls.extend(agent.map(|agent| (given.unwrap_or_else(|| json!({})), agent)));
        }
    }
    calls
}

/// The params of an agent: what is not known outside a run is its default, or empty.
fn given(agent: &Agent, params: &Value) -> Map<String, Value> {
    let mut given = params.as_object().cloned().unwrap_or_default();
    given.retain(|_, value| !value.is_null());
    let schema = agent.file.params.as_ref().map(|schema| schema.to_value());
    let properties = schema.as_ref().and_then(|schema| schema.get("properties"));
    for (name, property) in properties.and_then(Value::as_object).into_iter().flatten() {
        if agent.is_secret(name) || given.contains_key(name) {
            continue;
        }
        let default = property.get("default").cloned();
        given.insert(name.clone(), default.unwrap_or_else(|| Value::from("")));
    }
    given
}

type Told = (Option<(String, Secret)>, BTreeMap<String, String>);

fn told(server: &Server, given: &Map<String, Value>) -> Result<Told, String> {
    let words = |missing: crate::workflow::definition::Missing| missing.to_string();
    let mut params = server
        .values(given, false, DecisionRules::NEWEST)
        .map_err(words)?;
    let mut secret = server
        .values(given, true, DecisionRules::NEWEST)
        .map_err(words)?;
    let auth = server.plan.auth.as_ref().and_then(|auth| {
        let value = secret.remove(&auth.param)?;
        let value = match auth.scheme {
            AuthScheme::Bearer => format!("Bearer {value}"),
            AuthScheme::Raw => value,
        };
        Some((auth.header.clone(), Secret::new(value)))
    });
    params.append(&mut secret);
    Ok((auth, params))
}

/// The variables of an environment, secrets by value.
struct Variables<'a>(Option<&'a Resolved>);

impl Names for Variables<'_> {
    fn get(&self, root: &Root) -> Option<Rcvar> {
        let Root::Env(name) = root else { return None };
        let resolved = self.0?;
        let secret = resolved.secrets.get(name).map(Secret::expose);
        let value = secret.or_else(|| resolved.values.get(name).map(String::as_str))?;
        Some(from_value(&Value::from(value)))
    }
}

/// What differs between the tools a server was locked with and those it offers, in words.
pub fn difference(locked: &Digests, offered: &Digests) -> Option<String> {
    let names: BTreeSet<&String> = locked.keys().chain(offered.keys()).collect();
    let words = names
        .into_iter()
        .filter_map(|name| match (locked.get(name), offered.get(name)) {
            (Some(was), Some(is)) if was == is => None,
            (Some(_), Some(_)) => Some(format!("{name} changed")),
            (Some(_), None) => Some(format!("{name} gone")),
            (None, _) => Some(format!("{name} added")),
        });
    let words: Vec<String> = words.collect();
    (!words.is_empty()).then(|| words.join(", "))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::kit;

    const FILES: [(&str, &str); 6] = [
        (
            "workflows/w.workflow.yaml",
            "kind: workflow\nname: w\nversion: 1.0.0\nenv: [{name: KEY, secret: true}]\nparams: {schema: {type: object, properties: {who: {type: string, default: x}}}}\npipeline:\n  - {id: s, agent: agents/a.agent.yaml, params: {k: '{{ env.KEY }}', who: '{{ params.who }}'}}\n",
        ),
        (
            "agents/a.agent.yaml",
            "name: a\nversion: 1.0.0\nmodel: m\nprompt: {system: s}\noutput: {schema: {type: object}}\nparams: {schema: {type: object, required: [k, who], properties: {k: {type: string, secret: true}, who: {type: string}, zone: {type: string, default: z}}}}\nservers:\n  - {name: crm, path: ../servers/crm.server.yaml, params: {key: '{{ params.k }}', who: '{{ params.who }}', zone: '{{ params.zone }}'}, access: {allowlist: [crm-*]}}\n  - {name: ktsu/kv}\n",
        ),
        (
            "agents/b.agent.yaml",
            "name: b\nversion: 1.0.0\nmodel: m\nprompt: {system: s}\noutput: {schema: {type: object}}\nservers: [{name: mail, access: {allowlist: [read]}}]\n",
        ),
        (
            "servers/crm.server.yaml",
            "name: crm\nversion: 1.0.0\nurl: http://crm\nparams: {key: {secret: true}, who: {}, zone: {}}\nauth: {secret: '{{ params.key }}'}\n",
        ),
        (
            "servers/lone.server.yaml",
            "name: lone\nversion: 1.0.0\nurl: http://lone\nparams: {key: {secret: true}}\nauth: {secret: '{{ params.key }}'}\n",
        ),
        (
            "servers.yaml",
            "servers: [{name: mail, version: 1.0.0, url: 'http://mail'}]\n",
        ),
    ];

    fn load() -> (tempfile::TempDir, Kit) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in FILES {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let kit = kit::load(dir.path()).unwrap_or_else(|faults| panic!("{faults}"));
        (dir, kit)
    }

    fn ask(kit: &Kit, path: &str, pairs: &[(&str, &str)]) -> Result<Asked, String> {
        let pairs = pairs.iter();
        let process: BTreeMap<_, _> = pairs
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let resolved = values::resolve(kit, &Principals::default(), None, &process);
        let resolved = resolved.into_iter().collect();
        asked(kit, path, &kit.servers[path], None, &resolved)
    }

    #[test]
    fn a_server_is_asked_with_the_key_of_the_first_step_that_has_one() {
        let (_dir, kit) = load();
        let crm = ask(&kit, "servers/crm.server.yaml", &[("KEY", "s3cret")]);
        let crm = crm.unwrap_or_else(|why| panic!("{why}"));
        let (header, value) = crm.auth.unwrap();
        assert_eq!(
            (header.as_str(), value.expose()),
            ("Authorization", "Bearer s3cret")
        );
        let told: Vec<_> = crm
            .params
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_str()))
            .collect();
        assert_eq!(told, [("who", ""), ("zone", "z")], "a run would say who");
        assert_eq!(crm.url, "http://crm");
        let mail = ask(&kit, "servers.yaml#mail", &[]).ok().unwrap();
        assert!(mail.auth.is_none() && mail.params.is_empty());
        for path in ["servers/crm.server.yaml", "servers/lone.server.yaml"] {
            let why = ask(&kit, path, &[]).err().unwrap();
            assert!(why.contains("\"key\""), "{path}: {why}");
        }
    }

    #[test]
    fn what_no_agent_may_call_is_not_locked() {
        let (_dir, kit) = load();
        for (path, tool, is) in [
            ("servers/crm.server.yaml", "crm-read", true),
            ("servers/crm.server.yaml", "mail-send", false),
            ("servers.yaml#mail", "read", true),
            ("servers.yaml#mail", "send", false),
            ("servers/lone.server.yaml", "any", true),
        ] {
            assert_eq!(
                permitted(&kit, path, &kit.servers[path], tool),
                is,
                "{path} {tool}"
            );
        }
    }

    #[tokio::test]
    async fn servers_that_come_with_ktsu_are_not_asked() {
        let (_dir, kit) = load();
        let found = tools(&kit, None, &BTreeMap::new()).await.unwrap();
        let paths: Vec<_> = found.iter().map(|(path, _)| path.as_str()).collect();
        let own = [
            "servers.yaml#mail",
            "servers/crm.server.yaml",
            "servers/lone.server.yaml",
        ];
        assert_eq!(paths, own);
        assert!(kit.servers.contains_key("ktsu/kv@1.0.0"));
    }

    #[test]
    fn what_differs_is_named() {
        let digests = |pairs: &[(&str, &str)]| -> Digests {
            let pairs = pairs.iter();
            pairs
                .map(|(name, digest)| ((*name).to_owned(), (*digest).to_owned()))
                .collect()
        };
        let was = digests(&[("a", "1"), ("b", "1"), ("c", "1")]);
        let is = digests(&[("a", "1"), ("b", "2"), ("d", "1")]);
        let words = difference(&was, &is);
        assert_eq!(words.as_deref(), Some("b changed, c gone, d added"));
        assert_eq!(difference(&was, &was), None);
    }
}
