//! Reads the files of a kit: what every file has, and the names that expressions mention.

use std::ops::{Deref, DerefMut};
use std::path::Path;

use ktsu_config::fault::{Fault, FaultCode};
pub(crate) use ktsu_config::read::*;
use ktsu_config::{read, yaml::SourceSpan};
use ktsu_workflow::expression::Root;

use super::agent::NO_VERSION;

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
}

/// What a name is used for; decides whether it may be a secret or an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameUsage {
    Child,
    Condition,
    ForEach,
    Output,
    Transform,
    Value,
    /// What a caller of the workflow has to know.
    Secret,
    /// What a webhook is signed with.
    Signing,
}

impl NameUsage {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Child => "the params of a child workflow",
            Self::Condition => "a condition",
            Self::ForEach => "for_each",
            Self::Output => "the output",
            Self::Transform => "a transform",
            Self::Value => "a value",
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
