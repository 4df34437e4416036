//! The data that a tool server receives when its tools are listed outside any run.
//!
//! In a run, a server gets its params through a step and an agent. Here, the first step counts
//! whose agent uses the server and for which the environment has all values; values that only a run
//! has are empty.

use std::collections::{BTreeMap, BTreeSet};

use jmespath::Rcvar;
use ktsu_ledger::event::plan::{AgentPlan, AuthScheme, StepWork};
use serde_json::{Map, Value};

use ktsu_environment::{
    self as environment, Environment, Principals, ResolveError, VariableValues,
};
use ktsu_kit::Kit;
use ktsu_kit::server::KitServer;
use ktsu_secret::{Redactor, Secret};
use ktsu_workflow::definition::{CompiledAgent, CompiledServer, Definition, ServerParamError};
use ktsu_workflow::expression::{NameLookup, Root, from_value};
use ktsu_workflow::rules::DecisionRules;
use ktsu_workflow::template::Template;

/// A server, with the params it receives.
pub(super) struct ServerQuery {
    /// Its own name.
    pub(super) name: String,
    /// Its URL in this environment.
    pub(super) url: String,
    /// The header that authenticates the request, and its value.
    pub(super) auth: Option<(String, Secret)>,
    /// The params; may include secrets.
    pub(super) params: BTreeMap<String, String>,
}

/// The reasons why the tools of a server cannot be listed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListToolsError {
    /// Variables in its params have no usable value.
    #[error("{0}")]
    NoValue(ResolveError),
    /// Anything else.
    #[error("{0}")]
    Failed(String),
}

impl ListToolsError {
    /// Redacts secrets: a server may echo what it received.
    pub(super) fn redacted(self, redactor: &Redactor) -> Self {
        match self {
            Self::NoValue(error) => Self::NoValue(error),
            Self::Failed(words) => Self::Failed(redactor.redact_text(&words)),
        }
    }
}

/// The variables of a root workflow, as far as they have values.
pub(super) struct ResolvedVariables {
    pub(super) values: VariableValues,
    lacking: ResolveError,
}

/// By the name of the workflow.
pub(super) type Variables = BTreeMap<String, ResolvedVariables>;

/// The variables of all root workflows of a kit.
pub(super) fn resolve_variables(
    kit: &Kit,
    principals: &Principals,
    environment: Option<&Environment>,
    process: &BTreeMap<String, String>,
) -> Variables {
    let roots = kit.workflows.iter().filter_map(|(name, workflow)| {
        let declared = &workflow.definition.root_plan()?.env;
        let (values, lacking) =
            environment::resolve_each(principals, environment, declared, process, &[]);
        Some((name.clone(), ResolvedVariables { values, lacking }))
    });
    roots.collect()
}

/// The query for a server, through the first step that provides its params.
///
/// # Errors
/// Why the first step that uses it cannot.
pub(super) fn server_query(
    kit: &Kit,
    path: &str,
    server: &KitServer,
    environment: Option<&Environment>,
    known: &Variables,
) -> Result<ServerQuery, ListToolsError> {
    let elsewhere = environment.and_then(|one| one.servers.get(&server.name));
    let url = elsewhere.unwrap_or(&server.url).clone();
    let mut why = None;
    for (workflow, one) in &kit.workflows {
        for call in agent_uses(&one.definition, known.get(workflow)) {
            let used = call.agent.servers.iter();
            for used in used.filter(|one| one.plan.file == path) {
                match call.server_arguments(used) {
                    Ok((auth, params)) => {
                        return Ok(ServerQuery {
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
        let words = format!("no step gives the secret {name:?}");
        return Err(ListToolsError::Failed(words));
    }
    let params = server.params.iter();
    let params = params.map(|(name, one)| (name.clone(), one.default.clone().unwrap_or_default()));
    Ok(ServerQuery {
        name: server.name.clone(),
        url,
        auth: None,
        params: params.collect(),
    })
}

/// An agent step, as far as it is known outside a run.
struct AgentUse<'d> {
    agent: &'d CompiledAgent,
    /// The params that the step gives its agent, each a template.
    params: Map<String, Value>,
    /// Those of its workflow; a child has none.
    known: Option<&'d ResolvedVariables>,
}

type ServerArguments = (Option<(String, Secret)>, BTreeMap<String, String>);

/// The agent steps of a definition.
fn agent_uses<'d>(
    definition: &'d Definition,
    known: Option<&'d ResolvedVariables>,
) -> Vec<AgentUse<'d>> {
    let mut calls = Vec::new();
    for (path, workflow) in &definition.plan.workflows {
        // Only the root workflow has variables.
        let known = known.filter(|_| *path == definition.plan.root);
        for step in &workflow.steps {
            let StepWork::Agent(AgentPlan { file, params, .. }) = &step.work else {
                continue;
            };
            let params = match params.as_ref().map(|params| params.to_value()) {
                Some(Value::Object(params)) => params,
                _ => Map::new(),
            };
            let agent = definition.agents.get(file);
            calls.extend(agent.map(|agent| AgentUse {
                agent,
                params,
                known,
            }));
        }
    }
    calls
}

impl AgentUse<'_> {
    /// The params that a server receives through this step.
    fn server_arguments(&self, server: &CompiledServer) -> Result<ServerArguments, ListToolsError> {
        self.has_values_for(server)?;
        let given = self.declared_env();
        let words = |missing: ServerParamError| ListToolsError::Failed(missing.to_string());
        let mut params = server
            .values(&given, false, DecisionRules::NEWEST)
            .map_err(words)?;
        let mut secret = server
            .values(&given, true, DecisionRules::NEWEST)
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

    /// Checks that all variables in the params have values.
    fn has_values_for(&self, server: &CompiledServer) -> Result<(), ListToolsError> {
        let Some(known) = self.known else {
            return Ok(());
        };
        let needed = self.variables_of(server);
        let lacking = known.lacking.only(|name| needed.contains(name));
        let personal = known.values.principal_secrets.iter();
        let personal = personal.filter(|name| needed.contains(*name)).cloned();
        let lacking = ResolveError {
            missing: lacking.missing.into_iter().chain(personal).collect(),
            ..lacking
        };
        match lacking.first() {
            None => Ok(()),
            Some(_) => Err(ListToolsError::NoValue(lacking)),
        }
    }

    /// The variables used in the params of a server.
    fn variables_of(&self, server: &CompiledServer) -> BTreeSet<String> {
        let templates = server.plan.params.values();
        let templates = templates.filter_map(|param| Template::text(&param.value).ok());
        let mut given: BTreeSet<String> = BTreeSet::new();
        for template in templates {
            for expression in template.expressions() {
                let taken = expression.params();
                match taken.whole {
                    true => given.extend(self.params.keys().cloned()),
                    false => given.extend(taken.names.iter().cloned()),
                }
            }
        }
        let values = given.iter().filter_map(|name| self.params.get(name));
        let templates = values.filter_map(|value| Template::from_value(value).ok());
        let roots = templates.flat_map(|template| template.roots().to_vec());
        let names = roots.filter_map(|root| match root {
            Root::Env(name) => Some(name),
            Root::Params
            | Root::Step(_)
            | Root::Item
            | Root::ItemIndex
            | Root::Resume
            | Root::Name(_) => None,
        });
        names.collect()
    }

    /// The params of the agent: values unknown outside a run are their defaults, or empty.
    fn declared_env(&self) -> Map<String, Value> {
        let names = DeclaredEnv(self.known.map(|known| &known.values));
        let rendered = self.params.iter().filter_map(|(name, value)| {
            let template = Template::from_value(value).ok()?;
            let value = template
                .render(&names, &|_| false, DecisionRules::NEWEST)
                .ok()?
                .value;
            (!value.is_null()).then(|| (name.clone(), value))
        });
        let mut given: Map<String, Value> = rendered.collect();
        let schema = self.agent.file.params.as_ref();
        let schema = schema.map(|schema| schema.to_value());
        let properties = schema.as_ref().and_then(|schema| schema.get("properties"));
        for (name, property) in properties.and_then(Value::as_object).into_iter().flatten() {
            if self.agent.is_secret(name) || given.contains_key(name) {
                continue;
            }
            let default = property.get("default").cloned();
            given.insert(name.clone(), default.unwrap_or_else(|| Value::from("")));
        }
        given
    }
}

/// The variables of an environment, secrets by value.
struct DeclaredEnv<'a>(Option<&'a VariableValues>);

impl NameLookup for DeclaredEnv<'_> {
    fn get(&self, root: &Root) -> Option<Rcvar> {
        let Root::Env(name) = root else { return None };
        let resolved = self.0?;
        let secret = resolved.secrets.get(name).map(Secret::expose);
        let value = secret.or_else(|| resolved.values.get(name).map(String::as_str))?;
        Some(from_value(&Value::from(value)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::load;
    use super::*;

    fn ask(kit: &Kit, path: &str, pairs: &[(&str, &str)]) -> Result<ServerQuery, ListToolsError> {
        let pairs = pairs.iter();
        let process: BTreeMap<_, _> = pairs
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let known = resolve_variables(kit, &Principals::default(), None, &process);
        server_query(kit, path, &kit.servers[path], None, &known)
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
        let lone = ask(&kit, "servers/lone.server.yaml", &[]).err().unwrap();
        assert_eq!(lone.to_string(), "no step gives the secret \"key\"");
    }

    #[test]
    fn only_the_variables_that_a_server_is_given_are_needed_and_the_missing_one_is_named() {
        let (_dir, kit) = load();
        let crm = "servers/crm.server.yaml";
        let why = |pairs: &[(&str, &str)]| ask(&kit, crm, pairs).err().map(|why| why.to_string());
        // The workflow declares HOOK, too, and no server is told of it.
        assert_eq!(why(&[("KEY", "s3cret")]), None);
        let missing = Some("no value for KEY".to_owned());
        assert_eq!(why(&[]), missing);
        assert_eq!(why(&[("HOOK", "http://hook")]), missing);
        let short = Some("secrets need at least 6 characters: KEY".to_owned());
        assert_eq!(why(&[("KEY", "abc")]), short);
    }
}
