//! An agent of a definition: its prompts, its params and the schema of its output.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ktsu_ledger::event::plan::AgentFile;
use ktsu_ledger::topic::{TopicPattern, TopicPatternError};
use ktsu_projections::life::reserved::is_reserved;
use serde_json::{Map, Value, json};

use super::server::{CompiledServer, OnlyParams};
use super::{CompileErrors, output_schema, params_schema, text};
use crate::airlock::{self, Schema, SchemaViolation};
use crate::expression::{EvaluationError, Root};
use crate::params::{self, ParamsSchema};
use crate::rules::DecisionRules;
use crate::template::{Template, text_of};

/// An agent, compiled.
#[derive(Debug)]
pub struct CompiledAgent {
    /// The file that it was compiled from.
    pub file: Arc<AgentFile>,
    /// The schema of its output, reserved fields not required.
    pub output: Schema,
    params: Option<ParamsSchema>,
    secret: BTreeSet<String>,
    text: BTreeSet<String>,
    /// Params whose type names null: what rules 1 asked for.
    nullable: BTreeSet<String>,
    /// The schema of the reserved fields that an agent of this program gives with every output, as
    /// its own schema has them.
    promised: Option<Schema>,
    user: Option<Template>,
    reflect: Option<Template>,
    /// The topics it may emit; absent: none.
    pub emits: Option<TopicPattern>,
    /// The tool servers it uses, in the order of its file.
    pub servers: Vec<CompiledServer>,
}

/// The prompts that a model gets about one task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompts {
    /// The user message.
    pub user: String,
    /// The prompt of the reflection, if the agent reflects.
    pub reflect: Option<String>,
}

impl CompiledAgent {
    /// Compiles an agent file; what is wrong is added to `faults`.
    pub fn compile(file: &Arc<AgentFile>, path: &str, faults: &mut CompileErrors) -> Option<Self> {
        let before = faults.len();
        let at = |what: &str| format!("{path}/{what}");
        let params = params_schema(file.params.as_ref(), faults, &at("params/schema"));
        let output = output_schema(Some(&file.output), faults, &at("output/schema"));
        let mut prompt = |source: &Option<String>, what: &str| {
            let template = text(source.as_ref(), faults, &at(what))?;
            if template.roots().iter().any(|root| *root != Root::Params) {
                faults.push((at(what), "a prompt knows params alone".to_owned()));
            }
            Some(template)
        };
        let user = prompt(&file.prompt.user, "prompt/user");
        let reflect = prompt(&file.prompt.reflect, "prompt/reflect");
        let properties = file.params.as_ref().map(|schema| schema.to_value());
        let properties = properties
            .as_ref()
            .and_then(|schema| schema.get("properties"));
        let named = |holds: &dyn Fn(&Value) -> bool| {
            let members = properties.and_then(Value::as_object).into_iter().flatten();
            let names = members.filter(|(_, schema)| holds(schema));
            names.map(|(name, _)| name.clone()).collect()
        };
        let secret = named(&|schema| schema.get("secret") == Some(&Value::Bool(true)));
        let text = named(&|schema| schema.get("type") == Some(&Value::from("string")));
        let nullable = named(&|schema| {
            let kinds = schema.get("type").and_then(Value::as_array);
            kinds.is_some_and(|kinds| kinds.contains(&Value::from("null")))
        });
        let servers = servers(file, path, &secret, faults);
        let commands = file.commands.as_ref();
        let emits = commands.filter(|commands| !commands.emit.is_empty());
        let emits = emits.and_then(|commands| {
            let pattern = TopicPattern::of_list(commands.emit.iter().map(String::as_str));
            let wrong =
                |why: TopicPatternError| faults.push((at("commands/emit"), why.to_string()));
            pattern.map_err(wrong).ok()
        });
        let promised = path.starts_with(FIRST_PARTY);
        let promised = promised.then(|| reserved_and_required(&file.output.to_value()));
        let promised = promised.and_then(|schema| Schema::of_value(&schema).ok());
        (faults.len() == before).then_some(())?;
        Some(Self {
            file: Arc::clone(file),
            output: output?,
            params,
            secret,
            text,
            nullable,
            emits,
            promised,
            user,
            reflect,
            servers,
        })
    }

    /// Of its output, its params, and the fields that it promises.
    pub(super) fn schemas(&self) -> impl Iterator<Item = &Schema> {
        let params = self.params.as_ref().map(ParamsSchema::schema);
        let promised = self.promised.as_ref();
        [&self.output].into_iter().chain(params).chain(promised)
    }

    /// Returns `true` if a param is kept from every prompt.
    pub fn is_secret(&self, param: &str) -> bool {
        self.secret.contains(param)
    }

    /// The schema of its params.
    pub(crate) fn params_schema(&self) -> Option<&ParamsSchema> {
        self.params.as_ref()
    }

    /// Returns `true` if it may look at its draft once more.
    pub fn reflects(&self) -> bool {
        self.reflect.is_some()
    }

    /// The reserved fields that this agent, one of those that come with ktsu, gives with each
    /// output and that an output lacks, or has otherwise than its schema says. `output` still has
    /// its reserved fields.
    pub fn missing_reserved(&self, output: &Value, rules: DecisionRules) -> Vec<SchemaViolation> {
        let promised = self.promised.as_ref();
        promised.map_or_else(Vec::new, |promised| airlock::check(promised, output, rules))
    }

    /// The params as the agent gets them: nulls left out where the schema does not allow them
    /// (decision K4), texts made of scalars (decision T6), defaults filled in, checked by the
    /// schema. `filled`: where the template that gives them has expressions.
    ///
    /// # Errors
    /// What breaks the schema.
    pub fn params(
        &self,
        mut given: Value,
        filled: &[String],
        rules: DecisionRules,
    ) -> Result<Map<String, Value>, Vec<SchemaViolation>> {
        // A null is no text: the schema of one refuses it below.
        for (name, value) in given.as_object_mut().into_iter().flatten() {
            let scalar = !value.is_object() && !value.is_array() && !value.is_null();
            if scalar && self.text.contains(name) {
                *value = Value::String(text_of(value, rules));
            }
        }
        if rules.nulls_are_absence() {
            params::without_refused_nulls(self.params.as_ref(), &mut given, filled, rules);
        }
        let mut given = match given {
            Value::Object(members) => members,
            _ => Map::new(),
        };
        if !rules.nulls_are_absence() {
            given.retain(|name, value| !value.is_null() || self.nullable.contains(name));
        }
        match params::resolve(self.params.as_ref(), Value::Object(given), rules)? {
            Value::Object(members) => Ok(members),
            _ => Ok(Map::new()),
        }
    }

    /// The messages for params that were checked. Without a `prompt.user` the model gets the params
    /// that are not secret, as a JSON object.
    ///
    /// # Errors
    /// [`EvaluationError`], if an expression of a prompt cannot be evaluated.
    pub fn prompts(
        &self,
        mut params: Map<String, Value>,
        rules: DecisionRules,
    ) -> Result<Prompts, EvaluationError> {
        params.retain(|name, _| !self.is_secret(name));
        let params = Value::Object(params);
        let names = OnlyParams::of_value(&params);
        let text = |template: &Template| {
            let rendered = template.render(&names, &|_| false, rules)?;
            Ok(text_of(&rendered.value, rules))
        };
        Ok(Prompts {
            user: match &self.user {
                Some(template) => text(template)?,
                None => params.to_string(),
            },
            reflect: self.reflect.as_ref().map(text).transpose()?,
        })
    }
}

/// The prefix of the paths of agents that come with ktsu.
const FIRST_PARTY: &str = "ktsu/";

/// The part of a schema about the reserved names that it requires at its top level. The schema
/// itself never checks them, since they are taken out of an output before (decision R5).
fn reserved_and_required(schema: &Value) -> Value {
    let names = schema.get("required").and_then(Value::as_array);
    let names = names.into_iter().flatten().filter_map(Value::as_str);
    let names: Vec<&str> = names.filter(|name| is_reserved(name)).collect();
    let said = schema.get("properties");
    let of = names
        .iter()
        .map(|name| (*name, said.and_then(|said| said.get(name))));
    let properties: BTreeMap<&str, &Value> =
        of.filter_map(|(name, of)| Some((name, of?))).collect();
    json!({"properties": properties, "required": names})
}

fn servers(
    file: &AgentFile,
    path: &str,
    secret: &BTreeSet<String>,
    faults: &mut CompileErrors,
) -> Vec<CompiledServer> {
    let mut servers: Vec<CompiledServer> = Vec::new();
    for plan in &file.servers {
        let at = format!("{path}/servers/{}", plan.name);
        if servers.iter().any(|known| known.plan.name == plan.name) {
            faults.push((at.clone(), "this name appears twice".to_owned()));
        }
        servers.extend(CompiledServer::compile(plan, &at, secret, faults));
    }
    servers
}

#[cfg(test)]
mod tests {
    use ktsu_ledger::CanonicalJson;
    use ktsu_ledger::event::plan::Prompt;

    use super::*;

    fn agent(user: Option<&str>) -> CompiledAgent {
        let json = |value: Value| CanonicalJson::from_value(&value).unwrap();
        let file = AgentFile {
            commands: None,
            group: "std".to_owned(),
            max_turns: 10,
            name: "a".to_owned(),
            output: json(json!({"type": "object"})),
            params: Some(json(json!({
                "required": ["msg"],
                "properties": {
                    "msg": {"type": "string"},
                    "n": {"type": "integer", "default": 3},
                    "key": {"type": "string", "secret": true},
                    "maybe": {"type": ["string", "null"]},
                },
            }))),
            prompt: Prompt {
                reflect: None,
                system: "s".to_owned(),
                user: user.map(str::to_owned),
            },
            servers: Vec::new(),
            version: "1.0.0".to_owned(),
        };
        let mut faults = CompileErrors::new();
        CompiledAgent::compile(&Arc::new(file), "a.agent.yaml", &mut faults)
            .unwrap_or_else(|| panic!("{faults:?}"))
    }

    fn of(agent: &CompiledAgent, given: Value) -> Result<Map<String, Value>, Vec<SchemaViolation>> {
        agent.params(given, &[], DecisionRules::NEWEST)
    }

    #[test]
    fn a_text_param_takes_any_scalar_and_a_null_is_missing() {
        let agent = agent(None);
        let params = of(&agent, json!({"msg": 12_345_678, "key": null})).unwrap();
        assert_eq!(Value::Object(params), json!({"msg": "12345678", "n": 3}));
        let params = of(&agent, json!({"msg": "m", "maybe": null})).unwrap();
        assert_eq!(
            params.get("maybe"),
            Some(&Value::Null),
            "its schema names null"
        );
        assert_eq!(
            of(&agent, json!({"msg": null})).unwrap_err()[0].rule,
            "required"
        );
        assert_eq!(
            of(&agent, json!({"msg": {"a": 1}})).unwrap_err()[0].rule,
            "type"
        );
        assert_eq!(
            of(&agent, json!({"msg": "", "n": "x"})).unwrap_err()[0].pointer,
            "/n"
        );
    }

    #[test]
    fn a_prompt_shows_params_and_never_a_secret_one() {
        let given = json!({"msg": "hi", "key": "s3cret"});
        for (user, shown) in [
            (
                Some("say {{ params.msg }} {{ params.n }} {{ params.key }}!"),
                "say hi 3 !",
            ),
            (None, r#"{"msg":"hi","n":3}"#),
        ] {
            let agent = agent(user);
            let params = of(&agent, given.clone()).unwrap();
            assert_eq!(
                agent.prompts(params, DecisionRules::NEWEST).unwrap().user,
                shown
            );
        }
    }
}
