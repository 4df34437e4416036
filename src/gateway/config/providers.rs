//! `providers:` of `gateway.yaml` and of environment files.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::shape;
use super::text::ConfigText;
use crate::provider::scripted::Scripted;
use ktsu_config::fault::{Fault, FaultCode, Faults};
use ktsu_config::read::{self, ConfigReader, Fields};
use ktsu_config::yaml::YamlNode;

/// Like other clients of this API; replies of large models take their time.
const TIMEOUT_MS: u64 = 120_000;

/// A provider as its file has it: checked, without values of variables.
#[derive(Debug, Clone)]
pub(crate) struct ProviderPlan {
    pub(crate) name: String,
    /// The file that has it, as it is shown.
    pub(crate) file: PathBuf,
    pub(crate) kind: ProviderKind,
    pub(crate) limit: RateLimit,
}

/// The limits on calls of a provider.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RateLimit {
    /// Calls that begin within any minute.
    pub(crate) per_minute: Option<u32>,
    /// Calls under way at once.
    pub(crate) concurrent: Option<u32>,
}

/// The kind of a provider.
#[derive(Debug, Clone)]
pub(crate) enum ProviderKind {
    Anthropic(RemoteProvider),
    OpenAi {
        remote: RemoteProvider,
        max_tokens_as: &'static str,
    },
    Scripted(Arc<Scripted>),
}

/// A provider that is reached over HTTP.
#[derive(Debug, Clone)]
pub(crate) struct RemoteProvider {
    /// The one of its type if the file names none.
    pub(crate) base_url: Option<ConfigText>,
    pub(crate) api_key: ConfigText,
    /// Of one call.
    pub(crate) timeout: Duration,
}

impl ProviderPlan {
    /// The texts that may mention variables.
    pub(crate) fn texts(&self) -> Vec<&ConfigText> {
        let Some(remote) = self.remote() else {
            return Vec::new();
        };
        let base_url = remote.base_url.iter();
        base_url.chain([&remote.api_key]).collect()
    }

    /// The settings of a provider over HTTP.
    pub(crate) fn remote(&self) -> Option<&RemoteProvider> {
        match &self.kind {
            ProviderKind::Anthropic(remote) | ProviderKind::OpenAi { remote, .. } => Some(remote),
            ProviderKind::Scripted(_) => None,
        }
    }
}

/// The path of a file that has providers, and the path under which it is shown.
pub(super) struct ConfigOrigin<'a> {
    pub(super) real: &'a Path,
    pub(super) shown: &'a Path,
    /// True if files that it names must lie in its folder: those of a kit do. An environment is the
    /// operator's own, and lies beside the kits it names.
    pub(super) kept: bool,
}

impl ConfigOrigin<'_> {
    /// A file that it names: where it lies, and how it is shown; nothing if it lies where it must
    /// not.
    fn named(&self, name: &str) -> Option<(PathBuf, PathBuf)> {
        let folder = self.real.with_file_name("");
        if self.kept && (leaves(name) || !read::is_within(&folder, &folder.join(name))) {
            return None;
        }
        Some((folder.join(name), self.shown.with_file_name("").join(name)))
    }
}

/// Returns `true` if a path leads out of the folder where it starts, or is not relative.
fn leaves(name: &str) -> bool {
    let mut depth = 0_i32;
    !Path::new(name).components().all(|part| {
        depth += match part {
            Component::Normal(_) => 1,
            Component::CurDir => 0,
            Component::ParentDir => -1,
            Component::RootDir | Component::Prefix(_) => return false,
        };
        depth >= 0
    })
}

/// The name of a provider, if it has one.
pub(super) fn name<'n>(reader: &mut ConfigReader<'_>, node: &'n YamlNode) -> Option<&'n str> {
    let fields = reader.open_map(node, "the provider")?;
    let node = reader.required(&fields, "name", "a provider")?;
    let name = reader.string(node, "the name of a provider")?;
    if name.is_empty() || name.contains('/') {
        let words = format!("{name:?} is not the name of a provider: text without a slash");
        return reader.bad_value(node, words);
    }
    Some(name)
}

/// Reads a provider whose name is known already.
pub(super) fn read(
    reader: &mut ConfigReader<'_>,
    node: &YamlNode,
    name: &str,
    origin: &ConfigOrigin<'_>,
    faults: &mut Faults,
) -> Option<ProviderPlan> {
    let fields = reader.shaped(node, &shape::PROVIDER)?;
    let kind = fields.get("type")?;
    let config = fields.get("config");
    let limit = fields
        .get("rate_limit")
        .map(|node| limit(reader, node).unwrap_or_default());
    let kind = match reader.string(kind, "the type of a provider")? {
        "anthropic" => anthropic(reader, config?)?,
        "openai" => openai(reader, config?)?,
        "scripted" => ProviderKind::Scripted(scripted(reader, config?, origin, faults)?),
        other => {
            let words = format!("unknown provider type {other:?}");
            let fault = Fault::new(FaultCode::BadValue, kind.place, words);
            let types = shape::TYPES;
            return reader.reject(fault.suggest_or(
                other,
                types,
                format!("known types: {}", types.join(", ")),
            ));
        }
    };
    Some(ProviderPlan {
        name: name.to_owned(),
        file: origin.shown.to_owned(),
        kind,
        limit: limit.unwrap_or_default(),
    })
}

fn limit(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<RateLimit> {
    let fields = reader.shaped(node, &shape::RATE_LIMIT)?;
    if fields.get("concurrent").is_none() && fields.get("requests_per_minute").is_none() {
        let words = "a rate_limit needs \"requests_per_minute\", \"concurrent\" or both";
        reader.fault(Fault::new(FaultCode::MissingKey, node.place, words));
    }
    let mut count = |key: &str| {
        let node = fields.get(key)?;
        let count = reader.integer(node, key, 1, shape::MAX_CALLS)?;
        u32::try_from(count).ok()
    };
    Some(RateLimit {
        per_minute: count("requests_per_minute"),
        concurrent: count("concurrent"),
    })
}

fn anthropic(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<ProviderKind> {
    let fields = reader.shaped(node, &shape::ANTHROPIC)?;
    remote(reader, &fields).map(ProviderKind::Anthropic)
}

fn openai(reader: &mut ConfigReader<'_>, node: &YamlNode) -> Option<ProviderKind> {
    let fields = reader.shaped(node, &shape::OPENAI)?;
    let words = shape::MAX_TOKENS_AS.map(|word| (word, word));
    let max_tokens_as = fields
        .get("max_tokens_as")
        .map(|node| reader.keyword(node, "max_tokens_as", &words));
    let remote = remote(reader, &fields);
    Some(ProviderKind::OpenAi {
        remote: remote.filter(|remote| remote.base_url.is_some())?,
        max_tokens_as: max_tokens_as.unwrap_or(Some("max_tokens"))?,
    })
}

fn remote(reader: &mut ConfigReader<'_>, fields: &Fields<'_>) -> Option<RemoteProvider> {
    let timeout = fields.read("timeout_s", |node| reader.seconds(node, "timeout_s"));
    let mut text = |key: &str| {
        let node = fields.get(key)?;
        Some(ConfigText::read(reader, node, key))
    };
    let (base_url, api_key) = (text("base_url"), text("api_key"));
    Some(RemoteProvider {
        // A text that is there and cannot be read is a fault, and no provider.
        base_url: base_url.map(|read| read.ok_or(())).transpose().ok()?,
        api_key: api_key??,
        timeout: Duration::from_millis(timeout.unwrap_or(TIMEOUT_MS)),
    })
}

fn scripted(
    reader: &mut ConfigReader<'_>,
    node: &YamlNode,
    origin: &ConfigOrigin<'_>,
    faults: &mut Faults,
) -> Option<Arc<Scripted>> {
    let fields = reader.shaped(node, &shape::SCRIPTED)?;
    let mut file = |key: &str| {
        let node = fields.get(key)?;
        let name = reader.string(node, key)?;
        if name.contains("{{") {
            return reader.bad_value(node, format!("{key} is a path, without expressions"));
        }
        let named = origin.named(name);
        if named.is_none() {
            let words = format!("{name:?} is outside the folder of this file");
            let fault = Fault::new(FaultCode::ChildOutsideKit, node.place, words);
            reader.fault(fault.hint("copy it there; an environment file may name files elsewhere"));
        }
        named
    };
    let (rules, recorded) = (file("rules"), file("replies_from"));
    if fields.get("rules").is_none() && fields.get("replies_from").is_none() {
        let words = "a scripted provider needs \"rules\", \"replies_from\" or both";
        return reader.reject(Fault::new(FaultCode::MissingKey, fields.place, words));
    }
    Scripted::load(rules, recorded, faults).map(Arc::new)
}
