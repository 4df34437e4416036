//! `subscriptions:` of an environment file: who is sent which frames of runs. Secrets are not
//! contained here, only the names of the variables that have them.

use std::collections::BTreeMap;

use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::read::{ConfigReader, Fields};
use ktsu_config::yaml::{YamlNode, YamlValue};
use ktsu_delivery::retry::{DEFAULT_ATTEMPTS, DEFAULT_BACKOFF_MS, MAX_ATTEMPTS, MAX_BACKOFF_MS};
use ktsu_delivery::{DeliveryFilter, DeliveryRetry, FramePattern, PatternError};
use ktsu_ledger::topic::TopicPattern;

use super::principals::{SecretReference, reference};
use super::{entry_name, settings, shape};

/// The most subscriptions of an engine, those that were added later included.
pub const MAX_SUBSCRIPTIONS: usize = 128;

/// The prefix of the ids of subscriptions that were not declared in a file.
pub const GIVEN_PREFIX: &str = "sub_";

/// A subscription as the file declares it: no value has been looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionDeclaration {
    /// Its name, which is its id.
    pub name: String,
    /// The frames, or the topics, that are sent.
    pub filter: DeliveryFilter,
    /// The URL that they are sent to.
    pub url: String,
    /// The variable that holds the secret they are signed with.
    pub secret: SecretReference,
    /// The number of attempts at a frame, and the pauses between them.
    pub retry: DeliveryRetry,
}

/// Reads the list.
pub(super) fn read(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Vec<SubscriptionDeclaration> {
    let entries = reader.list(node, "subscriptions").unwrap_or_default();
    if entries.len() > MAX_SUBSCRIPTIONS {
        let words = format!("there are more than {MAX_SUBSCRIPTIONS} subscriptions");
        reader.bad_value::<()>(node, words);
    }
    let mut names = BTreeMap::new();
    let entries = entries.iter().take(MAX_SUBSCRIPTIONS);
    entries
        .filter_map(|node| subscription(reader, node, &mut names))
        .collect()
}

fn subscription(
    reader: &mut ConfigReader<'_>,
    node: &YamlNode,
    names: &mut BTreeMap<String, usize>,
) -> Option<SubscriptionDeclaration> {
    let fields = reader.shaped(node, &shape::SUBSCRIPTION)?;
    let name = fields.read("name", |node| {
        entry_name::read(reader, node, "subscription", reserved, names)
    });
    let filter = filter_of(reader, node, &fields);
    let url = fields.read("url", |node| settings::http_url(reader, node));
    let secret = fields.read("secret", |node| reference(reader, node, "secret"));
    let attempts = fields.read("attempts", |node| {
        reader.integer(node, "attempts", 1, i64::from(MAX_ATTEMPTS))
    });
    let longest = ("10m", MAX_BACKOFF_MS);
    let backoff = fields.read("backoff", |node| {
        reader.duration_up_to(node, "backoff", longest)
    });
    Some(SubscriptionDeclaration {
        name: name?,
        filter: filter?,
        url: url?,
        secret: secret?,
        retry: DeliveryRetry {
            attempts: attempts.map_or(DEFAULT_ATTEMPTS, |attempts| {
                u32::try_from(attempts).unwrap_or(MAX_ATTEMPTS)
            }),
            backoff_ms: backoff.unwrap_or(DEFAULT_BACKOFF_MS),
        },
    })
}

/// The reason why a name is not allowed for a subscription of a file, if it is not.
fn reserved(name: &str) -> Option<String> {
    let words = || format!("names that begin with {GIVEN_PREFIX} are given by the API");
    name.starts_with(GIVEN_PREFIX).then(words)
}

/// `pattern` or `topics`, one of which has to be there.
fn filter_of(
    reader: &mut ConfigReader<'_>,
    node: &YamlNode,
    fields: &Fields<'_>,
) -> Option<DeliveryFilter> {
    match (fields.get("pattern"), fields.get("topics")) {
        (Some(pattern), None) => pattern_of(reader, pattern).map(DeliveryFilter::Frames),
        (None, Some(topics)) => topics_of(reader, topics).map(DeliveryFilter::Topics),
        (Some(_), Some(topics)) => {
            reader.bad_value(topics, "a subscription has pattern or topics, and not both")
        }
        (None, None) => {
            let words = "the subscription has neither pattern nor topics";
            let fault = Fault::new(FaultCode::MissingKey, node.place, words);
            reader.reject(fault.hint("pattern: run.completed, or topics: order.*"))
        }
    }
}

/// A pattern of topics, or a list of them.
fn topics_of(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<TopicPattern> {
    let entries = texts(reader, node, "topics")?;
    match TopicPattern::of_list(entries) {
        Ok(topics) => Some(topics),
        Err(error) => {
            let fault = Fault::new(FaultCode::BadValue, node.place, error.to_string());
            reader.reject(fault.hint("topics: claim.verified, claim.* or *"))
        }
    }
}

/// A text, or a list of them.
fn texts<'a>(
    reader: &mut ConfigReader<'_>,
    node: &'a YamlNode,
    name: &str,
) -> Option<Vec<&'a str>> {
    let YamlValue::List(_) = &node.data else {
        return Some(vec![reader.string(node, name)?]);
    };
    let entry = format!("an entry of {name}");
    let list = reader.list(node, name)?;
    list.iter().map(|one| reader.string(one, &entry)).collect()
}

/// A pattern of types, or a list of them.
fn pattern_of(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<FramePattern> {
    let entries = texts(reader, node, "pattern")?;
    match FramePattern::of_list(entries) {
        Ok(pattern) => Some(pattern),
        Err(error) => {
            let fault = Fault::new(FaultCode::BadValue, node.place, error.to_string());
            reader.reject(match error {
                PatternError::Unknown { .. } => fault.hint("ktsu frames RUN shows types"),
                PatternError::Empty | PatternError::TooMany | PatternError::Malformed => {
                    fault.hint("pattern: run.completed, object.* or *")
                }
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use ktsu_config::fault::Faults;

    use super::*;
    use crate::Environment;
    use crate::subscription_secrets::resolve;

    fn load(text: &str) -> Result<Environment, Faults> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.env.yaml");
        std::fs::write(&path, text).unwrap();
        Environment::load(&path)
    }

    #[test]
    fn subscriptions_are_read_with_their_defaults() {
        let file = load(
            r#"
variables: {B: whsec_c2VjcmV0IGtleQ==}
subscriptions:
  - {name: a, pattern: run.completed, url: "https://a.example/x", secret: "{{ env.A }}"}
  - name: b
    pattern: [object.*, run.failed]
    url: http://127.0.0.1:9/b
    secret: {env: B}
    attempts: 3
    backoff: 250ms
"#,
        )
        .unwrap();
        let [a, b] = file.subscriptions.as_slice() else {
            panic!("{:?}", file.subscriptions);
        };
        assert_eq!(
            (a.retry, a.secret.variable.as_str()),
            (DeliveryRetry::default(), "A")
        );
        assert_eq!(b.filter.to_recorded().0, "object.*,run.failed");
        assert_eq!((b.retry.attempts, b.retry.backoff_ms), (3, 250));
        let process = BTreeMap::from([("A".to_owned(), "long enough".to_owned())]);
        let resolved = resolve(Some(&file), &process).unwrap();
        assert_eq!(resolved[0].secret.expose(), "long enough");
        assert_eq!(resolved[1].secret.expose(), "whsec_c2VjcmV0IGtleQ==");
        assert!(!format!("{resolved:?}").contains("long enough"));
        let missing = resolve(Some(&file), &BTreeMap::new()).unwrap_err();
        assert!(
            missing.to_string().contains("\"A\" has no value"),
            "{missing}"
        );
        let short = BTreeMap::from([("A".to_owned(), "whsec_short".to_owned())]);
        let short = resolve(Some(&file), &short).unwrap_err().to_string();
        assert!(
            short.contains("at least 6") && !short.contains("short\""),
            "{short}"
        );
    }

    #[test]
    fn what_cannot_be_a_subscription_is_a_fault_that_names_the_place() {
        let one = |rest: &str| {
            let text = format!("subscriptions:\n  - {{name: a, {rest}}}\n");
            load(&text).unwrap_err().to_string()
        };
        let good = [
            "pattern: '*'",
            "url: 'https://a.example'",
            "secret: {env: A}",
        ];
        let with = |at: usize, other: &str| {
            let mut members = good;
            members[at] = other;
            one(&members.join(", "))
        };
        for (found, words) in [
            (
                with(0, "pattern: run.complete"),
                "did you mean run.completed?",
            ),
            (with(0, "pattern: []"), "empty entry"),
            (with(0, "x: 1"), "x"),
            (
                with(1, "url: 'ftp://a.example'"),
                "not an http or https URL",
            ),
            (
                with(1, "url: 'https://u:p@a.example'"),
                "a user or a password",
            ),
            (with(2, "secret: canary-in-clear"), "written out"),
            (one("pattern: '*'"), "url"),
        ] {
            assert!(found.contains(words), "{found}");
            assert!(!found.contains("canary-in-clear"), "{found}");
        }
        let named = |name: &str| {
            let [pattern, url, secret] = good;
            format!("  - {{name: {name}, {pattern}, {url}, {secret}}}\n")
        };
        let twice = format!("subscriptions:\n{}{}", named("a"), named("a"));
        let found = load(&twice).unwrap_err().to_string();
        assert!(found.contains("two subscriptions are named"), "{found}");
        let reserved = format!("subscriptions:\n{}", named("sub_1"));
        assert!(load(&reserved).is_err());
        let many: String = (0..=MAX_SUBSCRIPTIONS)
            .map(|at| named(&format!("n{at}")))
            .collect();
        let found = load(&format!("subscriptions:\n{many}")).unwrap_err();
        assert!(found.to_string().contains("more than 128"), "{found}");
    }
}
