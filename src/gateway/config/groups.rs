//! `model_groups:` of `gateway.yaml`.

use std::fmt;
use std::time::Duration;

use super::shape::{CACHED, GROUP, INPUT, OUTPUT, PRICE, RETRY, STRATEGIES};
use crate::price::{self, Price, Prices};
use crate::retry::RetryPolicy;
use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::read::{ConfigReader, Fields};
use ktsu_config::retry::{self, RetryOn};
use ktsu_config::yaml::{SourceSpan, YamlNode, YamlValue};

/// A group of models, which an agent names as its model (seed 000, invariant 17).
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// At least one.
    pub models: Vec<ProviderModel>,
    /// The rule that decides which of them is asked.
    pub strategy: Strategy,
    /// The rule for asking again; never if nothing is said.
    pub retry: Option<RetryPolicy>,
    /// Of a whole call, whatever it waits for; a usual one if nothing is said.
    pub deadline: Option<Duration>,
    /// For requests that give none.
    pub temperature: Option<f64>,
    /// The prices of its models.
    pub prices: Prices,
}

/// The rule that decides which model of a group is asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Strategy {
    /// They take turns.
    #[default]
    RoundRobin,
    /// The first, and the next where one fails.
    Fallback,
    /// The cheapest first, then as a fallback.
    CostOptimized,
}

/// A model of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderModel {
    /// The provider's name.
    pub provider: String,
    /// The provider's name of the model; it may hold slashes.
    pub id: String,
}

impl ProviderModel {
    /// Splits `provider/model-id` at the first slash.
    pub fn parse(text: &str) -> Option<Self> {
        let (provider, id) = text.split_once('/')?;
        (!provider.is_empty() && !id.is_empty()).then(|| Self {
            provider: provider.to_owned(),
            id: id.to_owned(),
        })
    }
}

impl fmt::Display for ProviderModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.provider, self.id)
    }
}

/// A group, with the places of its models.
pub(super) struct ParsedGroup {
    pub(super) group: Group,
    pub(super) places: Vec<SourceSpan>,
}

/// The groups, each name once.
pub(super) fn read(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Vec<ParsedGroup> {
    let mut groups: Vec<ParsedGroup> = Vec::new();
    for node in reader.list(node, "model_groups").unwrap_or_default() {
        let Some(read) = group(reader, node) else {
            continue;
        };
        let name = &read.group.name;
        if groups.iter().any(|other| other.group.name == *name) {
            let words = format!("two groups are called {:?}", read.group.name);
            reader.fault(Fault::new(FaultCode::DuplicateName, node.place, words));
        }
        groups.push(read);
    }
    groups
}

fn group(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<ParsedGroup> {
    let fields = reader.shaped(node, &GROUP)?;
    let strategy = fields.read("strategy", |node| strategy(reader, node));
    let retry = fields.read("retry", |node| retried(reader, node));
    let deadline = fields
        .read("deadline", |node| reader.duration(node, "deadline"))
        .map(Duration::from_millis);
    let temperature = fields.read("default_temperature", |node| {
        reader.number(node, "default_temperature", 0.0, 2.0)
    });
    let (models, places): (Vec<ProviderModel>, Vec<SourceSpan>) =
        models(reader, &fields).into_iter().unzip();
    let prices = fields
        .get("pricing")
        .map(|node| prices(reader, node, &models));
    let node = fields.get("name")?;
    let name = reader.string(node, "name")?;
    if name.is_empty() {
        return reader.bad_value(node, "the name of a model group is empty");
    }
    let group = Group {
        name: name.to_owned(),
        models,
        strategy: strategy.unwrap_or_default(),
        retry,
        deadline,
        temperature,
        prices: prices.unwrap_or_default(),
    };
    Some(ParsedGroup { group, places })
}

fn strategy(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<Strategy> {
    let word = reader.string(node, "strategy")?;
    match word {
        "cost_optimized" => Some(Strategy::CostOptimized),
        "fallback" => Some(Strategy::Fallback),
        "round_robin" => Some(Strategy::RoundRobin),
        _ => {
            let words = format!("there is no strategy {word:?}");
            let fault = Fault::new(FaultCode::BadValue, node.place, words);
            reader.reject(fault.suggest_or(
                word,
                STRATEGIES,
                format!("known: {}", STRATEGIES.join(", ")),
            ))
        }
    }
}

fn retried(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<RetryPolicy> {
    let retry = retry::read(reader, node, &RETRY)?;
    let all = vec![
        RetryOn::RateLimited,
        RetryOn::ServerError,
        RetryOn::Timeout,
        RetryOn::Unreachable,
    ];
    Some(RetryPolicy {
        attempts: retry.attempts,
        backoff: Duration::from_millis(retry.backoff_ms.unwrap_or(1_000)),
        on: retry.on.unwrap_or(all),
    })
}

fn models(reader: &mut ConfigReader<'_>, fields: &Fields<'_>) -> Vec<(ProviderModel, SourceSpan)> {
    let mut models = Vec::new();
    let Some(node) = fields.get("models") else {
        return models;
    };
    let list = reader.list(node, "models");
    if list.is_some_and(<[YamlNode]>::is_empty) {
        reader.bad_value::<()>(node, "a model group needs at least one model");
    }
    for node in list.unwrap_or_default() {
        let Some(text) = reader.string(node, "a model") else {
            continue;
        };
        match ProviderModel::parse(text) {
            Some(model) => models.push((model, node.place)),
            None => {
                let words = format!("{text:?} is not a model: write provider/model-id");
                reader.bad_value::<()>(node, words);
            }
        }
    }
    models
}

fn prices(reader: &mut ConfigReader<'_>, node: &YamlNode, models: &[ProviderModel]) -> Prices {
    let mut prices = Prices::default();
    for node in reader.list(node, "pricing").unwrap_or_default() {
        if let Some((model, price)) = priced(reader, node, models) {
            prices.set(&model, price);
        }
    }
    prices
}

fn priced(
    reader: &mut ConfigReader<'_>,
    node: &YamlNode,
    models: &[ProviderModel],
) -> Option<(String, Price)> {
    let fields = reader.shaped(node, &PRICE)?;
    let input = amount(reader, &fields, INPUT);
    let output = amount(reader, &fields, OUTPUT);
    let cached = CACHED
        .iter()
        .any(|name| fields.key(name).is_some())
        .then(|| amount(reader, &fields, CACHED));
    let node = fields.get("model")?;
    let name = reader.string(node, "model")?;
    if !models.iter().any(|model| model.id == name) {
        let words = format!("no model of the group has the id {name:?}");
        let fault = Fault::new(FaultCode::BadValue, node.place, words);
        reader.fault(fault.suggest_or(
            name,
            models.iter().map(|model| model.id.as_str()),
            "prices go by the id after the provider's name",
        ));
    }
    let (input, output) = (input?, output?);
    let price = Price {
        input,
        output,
        cached: cached.flatten(),
    };
    Some((name.to_owned(), price))
}

fn amount(reader: &mut ConfigReader<'_>, fields: &Fields<'_>, names: [&str; 2]) -> Option<u64> {
    let given = names.iter().filter(|name| fields.key(name).is_some());
    let given: Vec<&str> = given.copied().collect();
    if let ([one, _], Some(place)) = (given.as_slice(), fields.key(names[1])) {
        let words = format!("{} is another name of {one}: keep one", names[1]);
        reader.fault(Fault::new(FaultCode::DuplicateKey, place, words));
    }
    let name = given.first().copied().unwrap_or(names[0]);
    let node = reader.required(fields, name, "a price")?;
    let amount = match &node.data {
        YamlValue::Number(number) => price::parse(&number.to_string()),
        _ => None,
    };
    amount.or_else(|| {
        let words = format!("{name} must be US dollars from 0 to 1000000, at most 6 decimals");
        reader.bad_value(node, words)
    })
}
