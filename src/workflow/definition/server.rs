//! A tool server of an agent: its params, computed from the agent's params and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use jmespath::Rcvar;
use ktsu_ledger::event::plan::ServerPlan;
use serde_json::{Map, Value};

use super::{CompileErrors, collect_error};
use crate::expression::{EvaluationError, NameLookup, Root, from_value};
use crate::rules::DecisionRules;
use crate::template::{Template, text_of};

/// A tool server, compiled.
#[derive(Debug)]
pub struct CompiledServer {
    /// The plan that it was compiled from.
    pub plan: ServerPlan,
    params: BTreeMap<String, Template>,
}

/// The values that a server gets, by param.
pub type ServerParamValues = BTreeMap<String, String>;

/// The reason why a param of a server has no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServerParamError {
    /// The agent's own params cannot be made.
    #[error("the params of the step cannot be made with their secrets in place")]
    Params,
    /// The value that it is made of is not there.
    #[error("the server {server:?} gets no value for its param {param:?}")]
    Value {
        /// The server.
        server: String,
        /// The param.
        param: String,
    },
    /// Its expression cannot be evaluated.
    #[error("the param {param:?} of the server {server:?}: {message}")]
    Expression {
        /// The server.
        server: String,
        /// The param.
        param: String,
        /// The reason.
        message: String,
    },
}

impl CompiledServer {
    /// Compiles a server; what is wrong is added to `faults`. `secret` are the params of the agent
    /// that no prompt may show.
    pub(super) fn compile(
        plan: &ServerPlan,
        at: &str,
        secret: &BTreeSet<String>,
        faults: &mut CompileErrors,
    ) -> Option<Self> {
        let before = faults.len();
        let mut params = BTreeMap::new();
        for (name, param) in &plan.params {
            let at = format!("{at}/params/{name}");
            let Some(template) = collect_error(Template::text(&param.value), faults, &at) else {
                continue;
            };
            if template.roots().iter().any(|root| *root != Root::Params) {
                faults.push((at, "a server knows the agent's params alone".to_owned()));
            } else if mentions(&template, secret) != param.secret {
                let words = match param.secret {
                    true => "a secret param is made of a secret param",
                    false => "no secret goes into a param that is none",
                };
                faults.push((at, words.to_owned()));
            }
            params.insert(name.clone(), template);
        }
        if let Some(auth) = &plan.auth
            && !plan.params.get(&auth.param).is_some_and(|one| one.secret)
        {
            let words = format!("{:?} is no secret param of it", auth.param);
            faults.push((format!("{at}/auth"), words));
        }
        let policies = plan.tools.iter().filter_map(|rule| rule.approval.as_ref());
        if policies.into_iter().any(|policy| policy.quorum == 0) {
            let words = "a quorum is at least 1".to_owned();
            faults.push((format!("{at}/tools"), words));
        }
        if !reachable(plan) {
            let words = "the url of a tool server is http or https".to_owned();
            faults.push((format!("{at}/url"), words));
        }
        (faults.len() == before).then(|| Self {
            plan: plan.clone(),
            params,
        })
    }

    /// The values that it gets of all params that are no secrets, or of the secrets alone. `given`:
    /// the params of the agent.
    ///
    /// # Errors
    /// [`ServerParamError`], for the first param without a value.
    pub fn values(
        &self,
        given: &Map<String, Value>,
        secret: bool,
        rules: DecisionRules,
    ) -> Result<ServerParamValues, ServerParamError> {
        let names = OnlyParams::of(given);
        let mut values = ServerParamValues::new();
        for (name, template) in &self.params {
            let Some(param) = self
                .plan
                .params
                .get(name)
                .filter(|one| one.secret == secret)
            else {
                continue;
            };
            let rendered = template.render(&names, &|_| false, rules);
            let rendered = rendered.map_err(|error| self.failed(name, secret, error))?;
            let value = match (rendered.value, &param.default) {
                (Value::Null, Some(default)) => default.clone(),
                (Value::Null, None) => {
                    return Err(ServerParamError::Value {
                        server: self.plan.name.clone(),
                        param: name.clone(),
                    });
                }
                (value, _) => text_of(&value, rules),
            };
            values.insert(name.clone(), value);
        }
        Ok(values)
    }

    /// The error for an evaluation that failed. The message of one with a secret is left out: it
    /// may hold the values that the evaluation failed with.
    fn failed(&self, param: &str, secret: bool, error: EvaluationError) -> ServerParamError {
        ServerParamError::Expression {
            server: self.plan.name.clone(),
            param: param.to_owned(),
            message: match secret {
                true => "it cannot be made with its secret in place".to_owned(),
                false => error.message,
            },
        }
    }
}

/// Servers that come with ktsu are where it is; others are where they say.
fn reachable(plan: &ServerPlan) -> bool {
    match plan.file.starts_with("ktsu/") {
        true => plan.url.is_empty(),
        false => {
            url::Url::parse(&plan.url).is_ok_and(|url| matches!(url.scheme(), "http" | "https"))
        }
    }
}

/// Returns `true` if a template takes the value of one of these params.
fn mentions(template: &Template, secret: &BTreeSet<String>) -> bool {
    template.expressions().any(|expression| {
        let taken = expression.params();
        taken.whole && !secret.is_empty() || taken.names.iter().any(|name| secret.contains(name))
    })
}

/// The names in a prompt, and in the params of a tool server: `params` alone.
pub(super) struct OnlyParams(Rcvar);

impl OnlyParams {
    pub(super) fn of_value(params: &Value) -> Self {
        Self(from_value(params))
    }

    pub(super) fn of(params: &Map<String, Value>) -> Self {
        Self::of_value(&Value::Object(params.clone()))
    }
}

impl NameLookup for OnlyParams {
    fn get(&self, root: &Root) -> Option<Rcvar> {
        (*root == Root::Params).then(|| self.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use ktsu_ledger::event::plan::{AuthScheme, ServerAuth, ServerParam};
    use serde_json::json;

    use super::*;

    fn param(secret: bool, value: &str, default: Option<&str>) -> ServerParam {
        ServerParam {
            default: default.map(str::to_owned),
            secret,
            value: value.to_owned(),
        }
    }

    fn compiled(
        params: &[(&str, ServerParam)],
        auth: Option<&str>,
    ) -> Result<CompiledServer, CompileErrors> {
        let params = params.iter();
        let plan = ServerPlan {
            auth: auth.map(|param| ServerAuth {
                header: "Authorization".to_owned(),
                param: param.to_owned(),
                scheme: AuthScheme::Bearer,
            }),
            declared: None,
            file: "servers.yaml#s".to_owned(),
            name: "s".to_owned(),
            params: params
                .map(|(name, one)| ((*name).to_owned(), one.clone()))
                .collect(),
            stateful: false,
            timeout_ms: None,
            tools: Vec::new(),
            url: "http://s".to_owned(),
            version: "1.0.0".to_owned(),
        };
        let mut faults = CompileErrors::new();
        let secret = BTreeSet::from(["key".to_owned()]);
        CompiledServer::compile(&plan, "s", &secret, &mut faults).ok_or(faults)
    }

    #[test]
    fn secrets_and_the_rest_are_made_apart() {
        let server = compiled(
            &[
                ("k", param(true, "{{ params.key }}", None)),
                ("n", param(false, "{{ params.n }}", Some("7"))),
                ("l", param(false, "eu", None)),
                ("t", param(false, "a {{ params.n }}", None)),
            ],
            Some("k"),
        );
        let server = server.unwrap_or_else(|faults| panic!("{faults:?}"));
        let Value::Object(given) = json!({"key": "s3cret", "n": 12_345_678}) else {
            panic!()
        };
        let told = |secret| {
            server
                .values(&given, secret, DecisionRules::NEWEST)
                .unwrap()
        };
        assert_eq!(
            told(true),
            ServerParamValues::from([("k".into(), "s3cret".into())])
        );
        let plain = [("l", "eu"), ("n", "12345678"), ("t", "a 12345678")];
        let plain = plain.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(told(false), ServerParamValues::from(plain));
        let none = server
            .values(&Map::new(), false, DecisionRules::NEWEST)
            .unwrap();
        assert_eq!((none["n"].as_str(), none["t"].as_str()), ("7", "a "));
        let missing = server
            .values(&Map::new(), true, DecisionRules::NEWEST)
            .unwrap_err();
        assert_eq!(
            missing.to_string(),
            "the server \"s\" gets no value for its param \"k\""
        );
    }

    #[test]
    fn what_a_secret_param_cannot_be_made_of_is_not_reported() {
        let text = "{{ to_number(params.key) && abs(params.key) || abs(params.key) }}";
        let server = compiled(&[("k", param(true, text, None))], None).unwrap();
        let Value::Object(given) = json!({"key": "s3cret"}) else {
            panic!()
        };
        let error = server
            .values(&given, true, DecisionRules::NEWEST)
            .unwrap_err()
            .to_string();
        assert!(
            !error.contains("s3cret") && error.contains("\"k\""),
            "{error}"
        );
    }

    #[test]
    fn a_definition_from_elsewhere_leads_no_secret_astray() {
        for (name, one, auth) in [
            ("p", param(false, "{{ params.key }}", None), None),
            ("p", param(false, "{{ params }}", None), None),
            ("p", param(true, "written", None), None),
            ("p", param(true, "{{ params.other }}", None), None),
            ("p", param(false, "{{ step.a.x }}", None), None),
            ("p", param(false, "{{ env.KEY }}", None), None),
            ("p", param(false, "{{ params.", None), None),
            ("p", param(false, "x", None), Some("p")),
            ("p", param(false, "x", None), Some("absent")),
        ] {
            let found = compiled(&[(name, one.clone())], auth);
            assert!(found.is_err(), "{one:?} {auth:?}");
        }
    }
}
