//! Readers for what every file of a kit has, and for the names that expressions mention.

use std::ops::{Deref, DerefMut};
use std::path::Path;

use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::read;
pub(crate) use ktsu_config::read::*;
use ktsu_config::yaml::{SourceSpan, YamlKey, YamlNode, YamlValue};
use ktsu_workflow::expression::{Root, Vocabulary};

use super::files::NO_VERSION;

/// Reads one file of a kit and gathers its faults.
pub(crate) struct KitReader<'a> {
    reader: read::ConfigReader<'a>,
    /// Names that expressions of the part being read mention.
    pub(super) mentions: Vec<Mention>,
}

/// A name in an expression or template.
#[derive(Debug, Clone)]
pub(super) struct Mention {
    pub(super) root: Root,
    /// The params that are taken by name, where the root is `params`.
    pub(super) params: Vec<String>,
    pub(super) place: SourceSpan,
    pub(super) usage: NameUsage,
    /// The text after the name, as it is written: `.x.y` of `steps.x.y`.
    pub(super) rest: String,
}

/// The use of a name, which decides whether it may be a secret or an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameUsage {
    Child,
    Condition,
    ForEach,
    Output,
    /// The words that people see of a step.
    Summary,
    Transform,
    Value,
    /// A value that a responder of a world sees, which may not be a secret.
    Responder,
    /// A value that a caller of the workflow has to know.
    Secret,
    /// The key that a webhook is signed with.
    Signing,
}

impl NameUsage {
    /// The names that expressions of this use have.
    pub(super) fn vocabulary(self) -> Vocabulary {
        match self {
            Self::Responder => Vocabulary::Responder,
            Self::Child
            | Self::Condition
            | Self::ForEach
            | Self::Output
            | Self::Summary
            | Self::Transform
            | Self::Value
            | Self::Secret
            | Self::Signing => Vocabulary::Workflow,
        }
    }

    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Child => "the params of a child workflow",
            Self::Condition => "a condition",
            Self::ForEach => "for_each",
            Self::Output => "the output",
            Self::Summary => "a summary",
            Self::Transform => "a transform",
            Self::Value => "a value",
            Self::Responder => "a responder",
            Self::Secret => "auth.secret",
            Self::Signing => "webhook.secret",
        }
    }
}

impl<'a> KitReader<'a> {
    pub(crate) fn new(file: &'a Path, text: &'a str) -> Self {
        Self {
            reader: read::ConfigReader::new(file, text),
            mentions: Vec::new(),
        }
    }

    /// The faults that were found.
    pub(crate) fn into_faults(self) -> Vec<Fault> {
        self.reader.faults
    }

    /// The version of an agent or a server, which may have none (decision K2).
    pub(super) fn own_version(&mut self, fields: &Fields<'_>, what: &str) -> Option<String> {
        if let Some(node) = fields.get("version") {
            return self.version(node);
        }
        let place = fields.key("version").unwrap_or(fields.place);
        let words = format!("{what} has no version and counts as {NO_VERSION}");
        let fault = Fault::new(FaultCode::VersionMissing, place, words).warning();
        self.fault(fault.hint("version: \"1.0.0\""));
        Some(NO_VERSION.to_owned())
    }
}

impl<'a> Deref for KitReader<'a> {
    type Target = read::ConfigReader<'a>;

    fn deref(&self) -> &Self::Target {
        &self.reader
    }
}

impl DerefMut for KitReader<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.reader
    }
}

/// A template that resolves through a secret variable, and through nothing that is written out.
pub(super) fn secret(
    reader: &mut KitReader<'_>,
    node: &YamlNode,
    usage: NameUsage,
) -> Option<String> {
    let what = usage.words();
    let secret = reader.secret_text(node, what)?;
    let before = reader.mentions.len();
    reader.template(node, usage)?;
    let is_variable = |mention: &Mention| matches!(mention.root, Root::Env(_));
    let mentions = reader.mentions.get(before..).unwrap_or_default();
    let fault = if !mentions.iter().any(is_variable) {
        let words = format!("{what} is written out");
        Some(Fault::new(FaultCode::LiteralSecret, node.place, words).hiding(node.place))
    } else if !mentions.iter().all(is_variable) {
        let words = format!("{what} is made of variables alone");
        Some(Fault::new(FaultCode::BadValue, node.place, words))
    } else if !is_one_variable(secret) {
        // Nobody would look for half a secret in the text around it, or in a call.
        let words = format!("{what} is one variable and nothing else");
        Some(Fault::new(FaultCode::LiteralSecret, node.place, words).hiding(node.place))
    } else {
        None
    };
    let hint = "secret: \"{{ env.NAME }}\", with NAME declared as a secret";
    if let Some(fault) = fault {
        reader.fault(fault.hint(hint));
    }
    Some(secret.to_owned())
}

/// Returns `true` if a text is `{{ env.NAME }}` and nothing else.
fn is_one_variable(text: &str) -> bool {
    let inner = text.trim().strip_prefix("{{");
    let inner = inner.and_then(|inner| inner.strip_suffix("}}"));
    let name = inner.and_then(|inner| inner.trim().strip_prefix("env."));
    name.is_some_and(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
}

/// A member of a map, by name.
pub(super) fn member<'n>(node: Option<&'n YamlNode>, name: &str) -> Option<&'n YamlNode> {
    let members = members(node);
    let found = members.iter().find(|(key, _)| key.text == name);
    found.map(|(_, node)| node)
}

/// The members of a map; none of anything else.
pub(super) fn members(node: Option<&YamlNode>) -> &[(YamlKey, YamlNode)] {
    match node.map(|node| &node.data) {
        Some(YamlValue::Map(members)) => members,
        _ => &[],
    }
}

/// The items of a list; none of anything else.
pub(super) fn items(node: Option<&YamlNode>) -> &[YamlNode] {
    match node.map(|node| &node.data) {
        Some(YamlValue::List(items)) => items,
        _ => &[],
    }
}

/// Ids that mean something else in expressions or in paths of the HTTP interface (decision S1).
const RESERVED_STEP_IDS: &str = "\
    approval cancel complete diff env envelope fork frames item item_index overlay params \
    pause replay report resume retry run step steps terminate trace";

/// Returns `true` if an id is one of these.
pub(super) fn is_reserved_step_id(id: &str) -> bool {
    RESERVED_STEP_IDS.split(' ').any(|reserved| reserved == id)
}
