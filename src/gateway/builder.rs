//! Creates providers from their plans: variables get their values, and invalid values are reported
//! with their location.

use std::sync::Arc;
use std::time::Duration;

use super::config::{ProviderKind, ProviderPlan, RemoteProvider};
use super::error::ErrorCause;
use super::limit::RateLimiter;
use super::provider::Provider;
use super::provider::anthropic::{Anthropic, BASE_URL};
use super::provider::openai::OpenAi;
use super::provider::wire::ProviderEndpoint;
use ktsu_config::fault::{Fault, FaultCode};
use ktsu_egress::Client;
use ktsu_environment::VariableValues;
use ktsu_secret::{MIN_LENGTH, Redactor, Secret};

/// A provider, and its rate limiter.
pub(super) struct ProviderEntry {
    pub(super) provider: Provider,
    pub(super) limiter: RateLimiter,
    /// Of one call there, where it has one.
    pub(super) timeout: Option<Duration>,
    /// The variables that its key is made of.
    key_variables: Vec<String>,
}

impl ProviderEntry {
    /// The settings to look at where a call failed for a reason that is in them: the provider, its
    /// URL, and the variable that has its key.
    pub(super) fn place_of_failure(&self, name: &str, cause: ErrorCause) -> Option<String> {
        let place = || format!("provider {name}, {}", self.provider.place());
        match cause {
            _ if self.provider.is_script() => None,
            ErrorCause::Unreachable | ErrorCause::Timeout => Some(place()),
            // The key is written out in the file.
            ErrorCause::Key if self.key_variables.is_empty() => None,
            ErrorCause::Key => {
                let variables = self.key_variables.join(" and ");
                Some(format!("{}, key from {variables}", place()))
            }
            ErrorCause::Request
            | ErrorCause::Provider
            | ErrorCause::RateLimited
            | ErrorCause::ServerError => None,
        }
    }
}

/// Builds a provider, or returns every reason why it cannot. Its key is kept out of everything the
/// gateway says.
pub(super) fn build(
    plan: &ProviderPlan,
    values: &VariableValues,
    client: &Client,
) -> Result<(ProviderEntry, Option<Secret>), Vec<Fault>> {
    let endpoint = |remote| endpoint(&plan.name, remote, values, client);
    let provider = match &plan.kind {
        ProviderKind::Scripted(script) => Provider::Scripted(Arc::clone(script)),
        ProviderKind::Anthropic(remote) => Provider::Anthropic(Arc::new(Anthropic {
            endpoint: endpoint(remote)?,
        })),
        ProviderKind::OpenAi {
            remote,
            max_tokens_as,
        } => Provider::OpenAi(Arc::new(OpenAi {
            endpoint: endpoint(remote)?,
            max_tokens_as,
        })),
    };
    let remote = plan.remote();
    let api_key = remote.map(|remote| Secret::new(remote.api_key.fill(values)));
    let entry = ProviderEntry {
        provider,
        limiter: RateLimiter::new(plan.limit),
        timeout: remote.map(|remote| remote.timeout),
        key_variables: remote.map_or_else(Vec::new, |remote| {
            remote.api_key.variables().map(str::to_owned).collect()
        }),
    };
    Ok((entry, api_key))
}

fn endpoint(
    name: &str,
    remote: &RemoteProvider,
    values: &VariableValues,
    client: &Client,
) -> Result<ProviderEndpoint, Vec<Fault>> {
    let mut faults = Vec::new();
    let (key, place) = (remote.api_key.fill(values), remote.api_key.place);
    if key.is_empty() {
        let words = format!("the api_key of {name} is empty");
        faults.push(Fault::new(FaultCode::BadValue, place, words));
    } else if key.chars().count() < MIN_LENGTH {
        let words = format!("the api_key of {name} has fewer than {MIN_LENGTH} characters");
        faults.push(Fault::new(FaultCode::ShortSecret, place, words));
    }
    let base_url = remote.base_url.as_ref();
    let url = base_url.map_or_else(|| BASE_URL.to_owned(), |base_url| base_url.fill(values));
    if let (Some(base_url), false) = (base_url, is_http(&url)) {
        let words = format!("the base_url of {name} is not an http or https URL");
        let fault = Fault::new(FaultCode::BadUrl, base_url.place, words);
        faults.push(fault.hint("base_url: https://api.openai.com/v1"));
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let api_key = Secret::new(key);
    Ok(ProviderEndpoint {
        base_url: url,
        redactor: Redactor::new([&api_key]),
        api_key,
        timeout: remote.timeout,
        client: client.clone(),
    })
}

/// Returns `true` if requests could go there at all; whether they may is checked with each of them.
fn is_http(url: &str) -> bool {
    url::Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}
