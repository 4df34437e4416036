//! The gateway: the only part that calls models and knows the keys of providers (seed 000,
//! invariants 16 and 17).
//!
//! ```text
//! POST /invoke -> http: a strict body -> messages: a conversation? -> replay: answered lately?
//!              -> route: who is asked? -> limit: when? -> provider -> price -> redact -> reply
//! ```
//!
//! It knows nothing of runs, steps or agents: their ids in a request are for the log. Nothing is
//! retried unless `gateway.yaml` says so; an error says whether a retry might succeed. The
//! gateway's own keys are redacted from everything it returns (decision W6).

mod ask;
mod bill;
mod builder;
pub mod config;
pub mod error;
#[cfg(test)]
mod fallback_tests;
#[cfg(test)]
mod fixture_tests;
mod http;
mod in_process;
mod limit;
mod messages;
pub mod price;
mod provider;
mod replay;
pub mod retry;
mod route;
#[cfg(test)]
mod routing_tests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use ktsu_config::fault::Faults;
use ktsu_contract::gateway::{InvokeModel, ModelReply};
use ktsu_egress::Client;
use ktsu_environment::Environment;
use ktsu_secret::{Redactor, Secret};
use ktsu_server::InFlight;

use bill::Bill;
use builder::ProviderEntry;
pub use config::Config;
use config::ProviderModel;
pub use config::shape::GATEWAY;
use error::{Code, GatewayError};
pub use http::{MAX_BODY, openapi, router, router_as};
use provider::ProviderReply;
pub use provider::scripted::shape::RULES;
use replay::{CallDigest, GatewayReplyCache};
use route::Route;

/// A gateway, ready to be asked. Cloning is cheap.
#[derive(Clone)]
pub struct Gateway(Arc<Inner>);

#[derive(Default)]
struct Inner {
    routes: BTreeMap<String, Route>,
    providers: BTreeMap<String, ProviderEntry>,
    /// The keys of providers, and every other secret of the gateway's file.
    secrets: Vec<Secret>,
    redactor: Redactor,
    replies: Arc<GatewayReplyCache>,
    /// The calls that came over HTTP.
    calls: InFlight,
}

impl Gateway {
    /// Builds a gateway from `gateway.yaml`, or returns every reason why that is impossible.
    pub fn load(
        gateway_yaml: &Path,
        environment: Option<&Environment>,
        process: &BTreeMap<String, String>,
        client: &Client,
    ) -> Result<Self, Faults> {
        let config = Config::load(gateway_yaml, environment)?;
        Self::new(&config, environment, process, client)
    }

    /// Builds a gateway from what was loaded: the variables get their values.
    pub fn new(
        config: &Config,
        environment: Option<&Environment>,
        process: &BTreeMap<String, String>,
        client: &Client,
    ) -> Result<Self, Faults> {
        let values = config.resolve(environment, process)?;
        let mut faults = config.no_faults();
        let mut secrets: Vec<Secret> = values.secrets.values().cloned().collect();
        let mut providers = BTreeMap::new();
        for plan in config.providers() {
            match builder::build(plan, &values, client) {
                Ok((entry, api_key)) => {
                    secrets.extend(api_key);
                    providers.insert(plan.name.clone(), entry);
                }
                Err(found) => found
                    .into_iter()
                    .for_each(|fault| faults.add(fault.in_file(&plan.file))),
            }
        }
        if faults.has_errors() {
            faults.sort();
            return Err(faults);
        }
        let routes = config.groups().iter().map(|group| {
            warn_unpriced(group);
            (group.name.clone(), Route::new(group.clone()))
        });
        Ok(Self(Arc::new(Inner {
            routes: routes.collect(),
            providers,
            redactor: Redactor::new(&secrets),
            secrets,
            replies: Arc::default(),
            calls: InFlight::default(),
        })))
    }

    /// Takes no more calls over HTTP, and returns once those that it took are answered.
    pub async fn drain(&self) {
        self.0.calls.drain();
        self.0.calls.drained().await;
    }

    /// The gateway of a kit without `gateway.yaml`: it has no groups, and says so when asked.
    pub fn empty() -> Self {
        Self(Arc::default())
    }

    /// The names of the groups, sorted.
    pub fn group_names(&self) -> impl Iterator<Item = &str> {
        self.0.routes.keys().map(String::as_str)
    }

    /// The routes of the calls of each group: which models of which providers, in which order, and
    /// with which temperature. Whatever else differs, equal requests of equal routes may get equal
    /// replies.
    pub fn routes(&self) -> BTreeMap<String, serde_json::Value> {
        let described = |(name, route): (&String, &Route)| {
            let provider = |name: &str| self.0.providers.get(name).map(|one| one.provider.place());
            (name.clone(), route.describe(provider))
        };
        self.0.routes.iter().map(described).collect()
    }

    /// The most that a million tokens of each group cost, sent and received, in millionths of a US
    /// dollar: the prices of its dearest models. Scripts cost nothing, unless the group prices
    /// them. Groups of which no price is known are left out.
    pub fn highest_prices(&self) -> BTreeMap<String, (u64, u64)> {
        let of_group = |(name, route): (&String, &Route)| {
            let models = route.group.models.iter();
            let prices = models.filter_map(|model| self.price_of(route, model));
            let highest = prices.reduce(|one, other| (one.0.max(other.0), one.1.max(other.1)))?;
            Some((name.clone(), highest))
        };
        self.0.routes.iter().filter_map(of_group).collect()
    }

    /// The first model of each group of which no price is known; all other groups are left out.
    pub fn unpriced_models(&self) -> BTreeMap<String, String> {
        let of_group = |(name, route): (&String, &Route)| {
            let mut models = route.group.models.iter();
            let unpriced = models.find(|model| self.price_of(route, model).is_none())?;
            Some((name.clone(), unpriced.to_string()))
        };
        self.0.routes.iter().filter_map(of_group).collect()
    }

    /// The price of a million tokens of a model, sent and received. A script costs nothing, unless
    /// the group prices it.
    fn price_of(&self, route: &Route, model: &ProviderModel) -> Option<(u64, u64)> {
        let price = route.group.prices.of(&model.id);
        let price = price.map(|price| (price.input, price.output));
        let entry = self.0.providers.get(&model.provider);
        let scripted = entry.is_some_and(|entry| entry.provider.is_script());
        price.or_else(|| scripted.then_some((0, 0)))
    }

    /// The groups that only scripts answer: no call of theirs leaves this machine.
    pub fn scripted_groups(&self) -> BTreeSet<String> {
        let is_script = |model: &ProviderModel| {
            let entry = self.0.providers.get(&model.provider);
            entry.is_some_and(|entry| entry.provider.is_script())
        };
        let routes = self.0.routes.iter();
        let scripted = routes.filter(|(_, route)| route.group.models.iter().all(is_script));
        scripted.map(|(name, _)| name.clone()).collect()
    }

    /// The keys of providers, and every other secret of the gateway's file: what an orchestrator in
    /// the same process takes out of all that it records.
    pub fn secrets(&self) -> &[Secret] {
        &self.0.secrets
    }

    /// Asks a model. A call with a `key` is made once for all who ask the same under that key, now
    /// or within ten minutes of the reply, and is carried on even if nobody waits for it any more.
    ///
    /// # Errors
    /// [`GatewayError`], without any key of a provider in it.
    pub async fn invoke(
        &self,
        mut invoke: InvokeModel,
        key: Option<&str>,
    ) -> Result<ModelReply, GatewayError> {
        self.check(&mut invoke)?;
        let Some(key) = key else {
            return self.call(invoke).await;
        };
        let name = digest(&identity(key, &mut invoke));
        self.ask_once(name, invoke).await
    }

    /// Makes a call once for all who ask for it by the same name.
    async fn ask_once(
        &self,
        name: CallDigest,
        invoke: InvokeModel,
    ) -> Result<ModelReply, GatewayError> {
        let gateway = self.clone();
        let call = async move { gateway.call(invoke).await };
        let (reply, cached) = self.0.replies.ask(name, call).await?;
        Ok(ModelReply {
            cached,
            ..ModelReply::clone(&reply)
        })
    }

    /// Refuses what no provider is asked for.
    fn check(&self, invoke: &mut InvokeModel) -> Result<(), GatewayError> {
        check(invoke)?;
        match self.0.routes.contains_key(&invoke.group) {
            true => Ok(()),
            false => Err(self.unknown_group(&invoke.group)),
        }
    }

    async fn call(&self, invoke: InvokeModel) -> Result<ModelReply, GatewayError> {
        let Some(route) = self.0.routes.get(&invoke.group) else {
            return Err(self.unknown_group(&invoke.group));
        };
        let (model, answer, bill) = self.0.ask(route, invoke).await?;
        Ok(self.reply(route, model, answer, &bill))
    }

    fn reply(
        &self,
        route: &Route,
        model: &config::ProviderModel,
        answer: ProviderReply,
        bill: &Bill,
    ) -> ModelReply {
        let redactor = &self.0.redactor;
        let prices = &route.group.prices;
        let used = bill.total;
        let mut tool_calls = answer.tool_calls;
        for call in &mut tool_calls {
            redactor.redact_value(&mut call.arguments);
        }
        ModelReply {
            content: redactor.redact_reply(&answer.content),
            model_resolved: model.to_string(),
            tokens_in: used.tokens_in,
            tokens_out: used.tokens_out,
            tokens_cached: used.tokens_cached,
            tokens_reasoning: used.tokens_reasoning,
            cost_usd: dollars(used.cost_micro_usd),
            cost_micro_usd: Some(used.cost_micro_usd),
            prices: Some(prices.version(&model.id)),
            cached: false,
            tool_calls,
            attempts: bill.attempts(),
            unpriced: bill.unpriced,
        }
    }

    fn unknown_group(&self, name: &str) -> GatewayError {
        let known: Vec<&str> = self.group_names().collect();
        let known = if known.is_empty() {
            "no groups are configured: gateway.yaml declares them under model_groups".to_owned()
        } else {
            format!("known groups: {}", known.join(", "))
        };
        let name: String = name.chars().take(64).collect();
        let message = format!("there is no model group {name:?}; {known}");
        GatewayError::new(Code::UnknownGroup, self.0.redactor.redact_text(&message))
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "for reading; cost_micro_usd is exact"
)]
fn dollars(micro: u64) -> f64 {
    micro as f64 / 1e6
}

/// A key and all that a provider sees, as bytes; ids for the log do not count.
fn identity(key: &str, invoke: &mut InvokeModel) -> Vec<u8> {
    let (run_id, step_id) = (invoke.run_id.take(), invoke.step_id.take());
    let text = serde_json::to_vec(&(key, &*invoke)).unwrap_or_default();
    (invoke.run_id, invoke.step_id) = (run_id, step_id);
    text
}

fn digest(identity: &[u8]) -> CallDigest {
    *blake3::hash(identity).as_bytes()
}

/// Checks what the types of a request cannot express.
fn check(invoke: &mut InvokeModel) -> Result<(), GatewayError> {
    let refuse = |words: String| Err(GatewayError::new(Code::InvalidRequest, words));
    if invoke.messages.is_empty() {
        return refuse("messages is empty".to_owned());
    }
    messages::check(&mut invoke.messages)?;
    if invoke.max_tokens == 0 {
        return refuse("max_tokens must be at least 1".to_owned());
    }
    for (at, tool) in invoke.tools.iter().enumerate() {
        if tool.name.is_empty() {
            return refuse(format!("tools[{at}].name is empty"));
        }
    }
    Ok(())
}

/// Said once, when the gateway is built, and not with every call.
fn warn_unpriced(group: &config::Group) {
    let unpriced = group.models.iter();
    for model in unpriced.filter(|model| group.prices.of(&model.id).is_none()) {
        tracing::info!(group = group.name, %model, "no known price: calls count as free, and are refused under a budget");
    }
}
