//! Reads and checks one tool server, in a file of its own or as an entry of `servers.yaml`.
//!
//! A reference and no more (seed 000, invariant 2): where the server is, how callers authenticate,
//! which params it needs. Nothing here starts anything.

use std::collections::{BTreeMap, BTreeSet};

use ktsu_ledger::event::plan::{AuthScheme, ServerAuth};

use super::allowlist::{self, Allowlist};
use super::env_isolation;
use super::read::KitReader;
use super::shape::server as shape;
use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::yaml::{SourceSpan, YamlNode};
use ktsu_workflow::expression::Root;
use ktsu_workflow::template::Template;

/// A tool server of a kit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KitServer {
    /// Its own name.
    pub name: String,
    /// Semantic version, `0.0.0` where the file says none.
    pub version: String,
    /// Its URL, unless the environment says otherwise.
    pub url: String,
    /// The authentication of callers, if they have to prove themselves.
    pub auth: Option<ServerAuth>,
    /// The params that it takes, by name.
    pub params: BTreeMap<String, KitServerParam>,
    /// The tools it offers to anybody at all.
    pub allowlist: Allowlist,
    /// True if its calls change something that lasts (seed 000, invariant 1).
    pub stateful: bool,
    /// The time that a call may take, where the file says so.
    pub timeout_ms: Option<u64>,
}

/// One of a server's `params:`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KitServerParam {
    /// The value where an agent gives none.
    pub default: Option<String>,
    /// True if its value is a secret.
    pub secret: bool,
}

/// A server as read.
pub(super) struct ServerDraft {
    pub(super) server: KitServer,
    /// Of the name.
    pub(super) place: SourceSpan,
    /// True if the file itself says which version it is.
    pub(super) has_version: bool,
    /// Params whose own `secret` mark is wrong, which was reported already.
    pub(super) told: BTreeSet<String>,
}

/// The longest that a call may take, in milliseconds: an hour.
const MAX_CALL_MS: u64 = 60 * 60 * 1000;

/// Reads a server; nothing when it is too broken to be used by an agent.
pub(super) fn read(reader: &mut KitReader<'_>, root: &YamlNode) -> Option<ServerDraft> {
    env_isolation::check(reader, root, env_isolation::SERVER);
    let fields = reader.shaped(root, &shape::SERVER)?;
    if let Some(node) = fields.get("kind") {
        reader.keyword(node, "kind", &[("tool-server", ())]);
    }
    let name = reader.name(&fields);
    let version = reader.own_version(&fields, "the server");
    let url = fields.read("url", |node| url(reader, node));
    let declared = fields
        .get("params")
        .map(|node| params(reader, node))
        .unwrap_or_default();
    let mut told = BTreeSet::new();
    let node = fields.get("auth");
    let auth = node.map(|node| auth(reader, node, &declared, &mut told));
    let allowlist = allowlist::of(reader, &fields);
    let stateful = fields
        .get("stateful")
        .map(|node| reader.flag(node, "stateful"));
    let timeout_ms = fields.read("timeout", |node| timeout(reader, node));
    let params = declared
        .into_iter()
        .map(|(name, (param, _))| (name, param))
        .collect();
    let (name, place) = name?;
    Some(ServerDraft {
        server: KitServer {
            name,
            version: version?,
            url: url?,
            auth: auth.flatten(),
            params,
            allowlist: allowlist?,
            stateful: stateful.flatten().unwrap_or(false),
            timeout_ms,
        },
        place,
        has_version: fields.key("version").is_some(),
        told,
    })
}

fn timeout(reader: &mut KitReader<'_>, node: &YamlNode) -> Option<u64> {
    let ms = reader.duration_up_to(node, "timeout", ("1h", MAX_CALL_MS))?;
    if ms > MAX_CALL_MS {
        let words = "a call may take an hour at the most";
        let fault = Fault::new(FaultCode::BadValue, node.place, words);
        return reader.reject(fault.hint("timeout: 1h"));
    }
    Some(ms)
}

/// Written out, so that it can be read in a review; the environment may set another one.
fn url(reader: &mut KitReader<'_>, node: &YamlNode) -> Option<String> {
    let text = reader.string(node, "url")?;
    if env_isolation::mentions_environment(text).is_some() {
        return None;
    }
    let hint = "tools are reached over http: url: http://HOST/PATH or https://HOST/PATH";
    let lower = text.to_ascii_lowercase();
    let plain = lower.starts_with("http://") || lower.starts_with("https://");
    let plain = plain && !text.contains(['\\', ' ']) && !lower.starts_with("http:///");
    let fault = match url::Url::parse(text) {
        Ok(_) if !plain && !text.contains("{{") => {
            let words = format!("{text:?} is not an http or https URL");
            Fault::new(FaultCode::BadUrl, node.place, words).hint(hint)
        }
        Ok(_) | Err(_) if text.contains("{{") => {
            let words = "the url of a server is written out";
            Fault::new(FaultCode::BadUrl, node.place, words)
                .hint("where it differs between environments, the environment file sets it")
        }
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            let words = "the url of a server holds a name or a password";
            Fault::new(FaultCode::LiteralSecret, node.place, words)
                .hiding(node.place)
                .hint("auth: {secret: \"{{ params.NAME }}\"}")
        }
        Ok(_) => return Some(text.to_owned()),
        Err(_) => {
            let words = format!("{text:?} is not a URL");
            Fault::new(FaultCode::BadUrl, node.place, words).hint(hint)
        }
    };
    reader.reject(fault)
}

type DeclaredParams = BTreeMap<String, (KitServerParam, SourceSpan)>;

fn params(reader: &mut KitReader<'_>, node: &YamlNode) -> DeclaredParams {
    let mut declared = DeclaredParams::new();
    for (key, node) in reader.members(node, "params") {
        let Some(fields) = reader.shaped(node, &shape::PARAM) else {
            continue;
        };
        let secret = fields
            .read("secret", |node| reader.flag(node, "secret"))
            .unwrap_or(false);
        let node = fields.get("default");
        if let Some(node) = node.filter(|_| secret) {
            let words = format!("the secret server param {:?} has a default", key.text);
            let fault = Fault::new(FaultCode::LiteralSecret, node.place, words).hiding(node.place);
            reader.fault(fault.hint("a secret comes from a variable of the workflow"));
        }
        let default = node.and_then(|node| written_out(reader, node));
        let param = KitServerParam {
            default: default.map(str::to_owned),
            secret,
        };
        declared
            .entry(key.text.clone())
            .or_insert((param, key.place));
    }
    declared
}

/// A default is a literal: nothing is there that a template in it could speak of.
fn written_out<'n>(reader: &mut KitReader<'_>, node: &'n YamlNode) -> Option<&'n str> {
    let text = reader.string(node, "default")?;
    // That it uses the environment was reported already.
    if text.contains("{{") && env_isolation::mentions_environment(text).is_none() {
        let words = "the default of a server's param is written out";
        let fault = Fault::new(FaultCode::BadValue, node.place, words);
        return reader
            .reject(fault.hint("agents give what differs: params: {NAME: \"{{ params.NAME }}\"}"));
    }
    Some(text)
}

/// The last layer of a secret's way: the header takes a secret param of this server, whole.
fn auth(
    reader: &mut KitReader<'_>,
    node: &YamlNode,
    declared: &DeclaredParams,
    told: &mut BTreeSet<String>,
) -> Option<ServerAuth> {
    let fields = reader.secret_map(node, &shape::AUTH)?;
    let header = fields.get("header").map(|node| reader.header(node));
    let scheme = fields.get("scheme").map(|node| {
        let schemes = [("bearer", AuthScheme::Bearer), ("raw", AuthScheme::Raw)];
        reader.keyword(node, "scheme", &schemes)
    });
    let node = fields.get("secret")?;
    let text = reader.secret_text(node, "auth.secret")?;
    if env_isolation::mentions_environment(text).is_some() {
        return None;
    }
    let Some(param) = only_param(text) else {
        let words = match text.contains("{{") {
            true => "auth.secret is one param of this server and nothing else",
            false => "auth.secret is written out",
        };
        let fault = Fault::new(FaultCode::LiteralSecret, node.place, words).hiding(node.place);
        return reader
            .reject(fault.hint("secret: \"{{ params.NAME }}\", with NAME: {secret: true}"));
    };
    match declared.get(&param) {
        None => {
            let words = format!("auth.secret uses {param:?}, which params does not declare");
            let fault = Fault::new(FaultCode::UnknownParam, node.place, words);
            reader.fault(fault.suggest_or(
                &param,
                declared.keys().map(String::as_str),
                format!("params: {{{param}: {{secret: true}}}}"),
            ));
        }
        Some((found, place)) if !found.secret => {
            let words = format!("auth.secret uses the server param {param:?}, which is not secret");
            let fault = Fault::new(FaultCode::LiteralSecret, *place, words);
            reader.fault(fault.hint(format!("{param}: {{secret: true}}")));
            told.insert(param.clone());
        }
        Some(_) => {}
    }
    Some(ServerAuth {
        header: header.flatten().unwrap_or_else(|| "Authorization".into()),
        param,
        scheme: scheme.flatten().unwrap_or(AuthScheme::Bearer),
    })
}

/// The param that a text is, if it is a single expression that names one.
fn only_param(text: &str) -> Option<String> {
    let inner = text.trim().strip_prefix("{{")?.strip_suffix("}}")?;
    let template = Template::text(text.trim()).ok()?;
    let mut expressions = template.expressions();
    let (expression, None) = (expressions.next()?, expressions.next()) else {
        return None;
    };
    let (root, pointer) = expression.as_path()?;
    let name = pointer.strip_prefix('/')?;
    let whole = root == Root::Params && !name.contains('/') && expression.source() == inner.trim();
    whole.then(|| name.replace("~1", "/").replace("~0", "~"))
}

#[cfg(test)]
mod tests {
    use super::only_param;

    #[test]
    fn a_header_takes_one_param_whole() {
        for (text, param) in [
            ("{{ params.key }}", Some("key")),
            ("  {{params.api-key}} ", Some("api-key")),
            ("Bearer {{ params.key }}", None),
            ("{{ params.key }}{{ params.key }}", None),
            ("{{ params.a.b }}", None),
            ("{{ params }}", None),
            ("{{ join('', [params.key]) }}", None),
            ("{{ step.s.key }}", None),
            ("{{ params.", None),
            ("hunter2", None),
            ("", None),
        ] {
            assert_eq!(only_param(text).as_deref(), param, "{text}");
        }
    }
}
