//! The `webhook:` of a step, and its `retry:`.

use ktsu_ledger::event::plan::{RetryOn, RetryPlan, WebhookPlan};

use super::read::{Fields, KitReader, NameUsage, secret};
use super::shape::workflow as shape;
use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::retry;
use ktsu_config::yaml::YamlNode;

pub(super) fn read(
    reader: &mut KitReader<'_>,
    step: &Fields<'_>,
    body: &YamlNode,
) -> Option<WebhookPlan> {
    let fields = reader.shaped(body, &shape::WEBHOOK)?;
    let url = fields.read("url", |node| url_template(reader, node));
    let method = fields.read("method", |node| {
        let methods = ["GET", "POST", "PUT", "PATCH", "DELETE"].map(|word| (word, word));
        let lower = ["get", "post", "put", "patch", "delete"];
        let upper = lower
            .iter()
            .zip(methods)
            .map(|(lower, (word, _))| (*lower, word));
        let known: Vec<_> = methods.into_iter().chain(upper).collect();
        reader.keyword(node, "method", &known)
    });
    let on_approval = step
        .get("on")
        .is_some_and(|node| reader.keyword(node, "on", &[("approval", ())]).is_some());
    if on_approval {
        unheard(reader, step, &fields);
    }
    if let (Some(_), Some(place)) = (fields.key("retry"), step.key("retry")) {
        let words = "retry is set both on the step and in the webhook";
        reader.fault(Fault::new(FaultCode::MisplacedKey, place, words));
    }
    let retry = fields.get("retry").or_else(|| step.get("retry"));
    let retry = retry.and_then(|node| retry_plan(reader, node));
    let timeout = fields.read("timeout_s", |node| reader.seconds(node, "timeout_s"));
    let secret = fields.read("secret", |node| secret(reader, node, NameUsage::Signing));
    let tree = fields.read("body", |node| reader.template(node, NameUsage::Value));
    Some(WebhookPlan {
        body: tree,
        method: method.unwrap_or("POST").to_owned(),
        on_approval,
        retry,
        secret,
        timeout_ms: timeout.unwrap_or(30_000),
        url: url?,
    })
}

/// Reports the keys that a notice has no use for, so that they do not look as if they were heeded:
/// it goes out once for each call that waits, says what the call is, and is no step that others
/// could read from.
fn unheard(reader: &mut KitReader<'_>, step: &Fields<'_>, webhook: &Fields<'_>) {
    let told = "approvers are always notified; put the condition on the step that asks";
    let once = "a notice is sent once";
    let fixed = "what a notice says is fixed: the call that waits";
    for (fields, key, hint) in [
        (step, "condition", told),
        (step, "output", "a notice has no output"),
        (step, "retry", once),
        (webhook, "body", fixed),
        (webhook, "retry", once),
    ] {
        if let (Some(place), Some(_)) = (fields.key(key), fields.get(key)) {
            let words = format!("{key} does not go with on: approval");
            reader.fault(Fault::new(FaultCode::MisplacedKey, place, words).hint(hint));
        }
    }
}

fn url_template(reader: &mut KitReader<'_>, node: &YamlNode) -> Option<String> {
    let url = reader.string(node, "url")?;
    reader.template(node, NameUsage::Value)?;
    // What stands before the first expression decides; a URL that begins with one is checked
    // when it is known.
    let literal = url.split("{{").next().unwrap_or_default();
    let lower = literal.to_ascii_lowercase();
    let begins = |scheme: &str| {
        lower.starts_with(scheme) || (url.contains("{{") && scheme.starts_with(&lower))
    };
    if !begins("http://") && !begins("https://") {
        let words = format!("{url:?} is not an http or https URL");
        let hint = "begin it with http:// or https://, or with {{ env.NAME }}";
        return reader.reject(Fault::new(FaultCode::BadUrl, node.place, words).hint(hint));
    }
    if let Some(words) = no_url(url) {
        let words = format!("{url:?} is not a URL: {words}");
        return reader.reject(Fault::new(FaultCode::BadUrl, node.place, words));
    }
    Some(url.to_owned())
}

/// The reason why a URL can never be one, as far as it is written out: with expressions in it, host
/// and port can be checked if they end before the first.
fn no_url(url: &str) -> Option<String> {
    let literal = url.split("{{").next().unwrap_or_default();
    let host = literal.split_once("://").map_or("", |(_, rest)| rest);
    if literal.len() < url.len() && !host.contains(['/', '?', '#']) {
        return None;
    }
    match url::Url::parse(literal) {
        Ok(parsed) if parsed.host_str().is_some_and(|host| !host.is_empty()) => None,
        Ok(_) => Some("it has no host".to_owned()),
        Err(error) => Some(match error {
            url::ParseError::EmptyHost => "it has no host".to_owned(),
            url::ParseError::InvalidPort => "its port is not one".to_owned(),
            _ => "its host cannot be read".to_owned(),
        }),
    }
}

fn retry_plan(reader: &mut KitReader<'_>, node: &YamlNode) -> Option<RetryPlan> {
    let retry = retry::read(reader, node, &shape::RETRY)?;
    let usual = || vec![RetryOn::ServerError, RetryOn::Timeout, RetryOn::Unreachable];
    Some(RetryPlan {
        attempts: retry.attempts,
        backoff_ms: retry.backoff_ms.unwrap_or(1_000),
        on: retry.on.unwrap_or_else(usual),
    })
}
