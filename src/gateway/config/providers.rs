//! `providers:` of `gateway.yaml` and of environment files.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::shape;
use super::text::Text;
use crate::gateway::provider::scripted::Scripted;
use crate::kit::fault::{Fault, FaultCode, Faults};
use crate::kit::read::{self, Fields, Reader};
use crate::kit::yaml::Node;

/// Like other clients of this API; replies of large models take their time.
const TIMEOUT_MS: u64 = 120_000;

/// A provider as its file has it: checked, without values of variables.
#[derive(Debug, Clone)]
pub(in crate::gateway) struct Plan {
    pub(in crate::gateway) name: String,
    /// The file that has it, as it is shown.
    pub(in crate::gateway) file: PathBuf,
    pub(in crate::gateway) kind: Kind,
}

/// What kind of provider it is.
#[derive(Debug, Clone)]
pub(in crate::gateway) enum Kind {
    OpenAi {
        base_url: Text,
        api_key: Text,
        timeout: Duration,
    },
    Scripted(Arc<Scripted>),
}

impl Plan {
    /// The texts that may mention variables.
    pub(in crate::gateway) fn texts(&self) -> Vec<&Text> {
        match &self.kind {
            Kind::OpenAi {
                base_url, api_key, ..
            } => vec![base_url, api_key],
            Kind::Scripted(_) => Vec::new(),
        }
    }
}

/// Where a file that has providers lies, and how it is shown.
pub(super) struct Origin<'a> {
    pub(super) real: &'a Path,
    pub(super) shown: &'a Path,
    /// Whether files that it names must lie in its folder: those of a kit do. An environment is the
    /// operator's own, and stands beside the kits it names.
    pub(super) kept: bool,
}

impl Origin<'_> {
    /// A file that it names: where it lies, and how it is shown; nothing if it lies where it must
    /// not.
    fn named(&self, name: &str) -> Option<(PathBuf, PathBuf)> {
        let folder = self.real.with_file_name("");
        if self.kept && (leaves(name) || !read::stays(&folder, &folder.join(name))) {
            return None;
        }
        Some((folder.join(name), self.shown.with_file_name("").join(name)))
    }
}

/// Whether a relative path leads out of where it starts, or is none.
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
pub(super) fn name<'n>(reader: &mut Reader<'_>, node: &'n Node) -> Option<&'n str> {
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
    reader: &mut Reader<'_>,
    node: &Node,
    name: &str,
    origin: &Origin<'_>,
    faults: &mut Faults,
) -> Option<Plan> {
    let fields = reader.shaped(node, &shape::PROVIDER)?;
    let kind = fields.get("type")?;
    let config = fields.get("config");
    let kind = match reader.string(kind, "the type of a provider")? {
        "openai" => openai(reader, config?)?,
        "scripted" => Kind::Scripted(scripted(reader, config?, origin, faults)?),
        "anthropic" => {
            let words = "providers of type anthropic are not built yet";
            let fault = Fault::new(FaultCode::BadValue, kind.place, words);
            reader.fault(fault.hint("use openai, or scripted"));
            return None;
        }
        other => {
            let words = format!("unknown provider type {other:?}");
            let fault = Fault::new(FaultCode::BadValue, kind.place, words);
            reader.fault(fault.hint("known types: openai, scripted"));
            return None;
        }
    };
    Some(Plan {
        name: name.to_owned(),
        file: origin.shown.to_owned(),
        kind,
    })
}

fn openai(reader: &mut Reader<'_>, node: &Node) -> Option<Kind> {
    let fields = reader.shaped(node, &shape::OPENAI)?;
    let timeout = fields
        .get("timeout_s")
        .and_then(|node| reader.seconds(node, "timeout_s"));
    let base_url = text(reader, &fields, "base_url");
    let api_key = text(reader, &fields, "api_key");
    Some(Kind::OpenAi {
        base_url: base_url?,
        api_key: api_key?,
        timeout: Duration::from_millis(timeout.unwrap_or(TIMEOUT_MS)),
    })
}

fn text(reader: &mut Reader<'_>, fields: &Fields<'_>, key: &str) -> Option<Text> {
    Text::read(reader, fields.get(key)?, key)
}

fn scripted(
    reader: &mut Reader<'_>,
    node: &Node,
    origin: &Origin<'_>,
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
        reader.fault(Fault::new(FaultCode::MissingKey, fields.place, words));
        return None;
    }
    Scripted::load(rules, recorded, faults).map(Arc::new)
}
