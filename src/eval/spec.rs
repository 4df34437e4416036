//! A spec: what is checked of a finished run, and how much each check counts.

use std::collections::BTreeSet;
use std::path::PathBuf;

use ktsu_ledger::CanonicalJson;
use ktsu_workflow::expression::Expression;
use serde_json::Value;

use crate::conditions::OutputCheck;
use crate::filter::FrameFilter;
use crate::glob::Glob;
use crate::http_mock::check::MockCheck;
use crate::model_judge::check::{JudgeCheck, JudgeInput};
use crate::pattern::TextPattern;
use crate::programs::{CommandCheck, CustomCheck, SqlCheck};
use crate::suite::Suite;

/// The most bytes of a file.
pub const MAX_FILE: usize = 1 << 20;

/// The most invariants of a file, forbidden ones included.
pub const MAX_INVARIANTS: usize = 1_000;

/// A file `NAME.eval.yaml`, read.
#[derive(Debug, Clone)]
pub struct EvalSpec {
    /// The file.
    pub path: PathBuf,
    /// In the order of the file; what is forbidden comes last.
    pub invariants: Vec<Invariant>,
    /// The composite at which a scenario passes.
    pub pass_threshold: f64,
    /// The suite that is run to be checked; none if the file only checks.
    pub suite: Option<Suite>,
    /// The content of the file, as an eval records it: `{checks: [{check, gate, index, name,
    /// weight}], pass_threshold}`.
    pub as_json: CanonicalJson,
}

/// A condition that has to hold once a run has finished.
#[derive(Debug, Clone)]
pub struct Invariant {
    /// Its place in the file, from 0.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// For readers.
    pub description: Option<String>,
    /// Its weight in the composite.
    pub weight: f64,
    /// True if a score below 1 makes the composite 0.
    pub gate: bool,
    /// Its check.
    pub check: CheckKind,
    /// The same, as the file has it.
    pub(crate) written: Value,
}

/// The check of an invariant.
#[derive(Debug, Clone)]
pub enum CheckKind {
    /// A value of the envelope.
    Output(Box<OutputCheck>),
    /// The frames.
    Trace(Box<TraceCheck>),
    /// No frame may match.
    Forbidden(FrameFilter),
    /// A file is there.
    FileExists(String),
    /// A file is not there.
    FileAbsent(String),
    /// The content of a file.
    FileContent(Box<Content>),
    /// The exit of a command.
    CommandExit(Box<CommandCheck>),
    /// The verdict of a script.
    Custom(Box<CustomCheck>),
    /// The verdict of a model.
    Judge(Box<JudgeCheck>),
    /// The result of a query of a database.
    Sql(Box<SqlCheck>),
    /// The requests that an HTTP server of a suite received.
    HttpMock(Box<MockCheck>),
}

/// A condition on the frames.
#[derive(Debug, Clone)]
pub enum TraceCheck {
    /// The number of frames that match.
    Count(FrameFilter, CountRange),
    /// No frame matches.
    None(FrameFilter),
    /// Every match of the first comes before the first match of the second.
    Before(FrameFilter, FrameFilter),
    /// Every match of the first comes after the last match of the second.
    After(FrameFilter, FrameFilter),
    /// An expression is true of every match.
    All(FrameFilter, Expression),
    /// Every call of these tools was approved before it was sent.
    ApprovedTools(ToolPattern),
    /// The tools that were called.
    ToolsUsed(ToolUse),
    /// The cost of the run, in millionths of a US dollar.
    Cost(CountRange),
    /// The number of model calls.
    ModelCalls(CountRange),
    /// The most milliseconds that the run was at work.
    Duration(u64),
}

/// A pattern of tools.
#[derive(Debug, Clone)]
pub struct ToolPattern(pub(crate) Glob);

/// The tools that may be called, and those that have to be called.
#[derive(Debug, Clone, Default)]
pub struct ToolUse {
    /// Only these.
    pub(crate) only: Option<Vec<Glob>>,
    /// Each of these at least once.
    pub(crate) all_of: Vec<Glob>,
    /// None of these.
    pub(crate) none_of: Vec<Glob>,
}

/// Bounds of a count, both included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CountRange {
    /// The least.
    pub min: Option<u64>,
    /// The most.
    pub max: Option<u64>,
    /// Exactly.
    pub equals: Option<u64>,
}

/// Conditions on the content of a file. All given conditions must hold.
#[derive(Debug, Clone)]
pub struct Content {
    /// The file, within the workspace.
    pub path: String,
    /// Text that it has.
    pub contains: Option<String>,
    /// Text that it does not have.
    pub not_contains: Option<String>,
    /// A pattern that matches within it.
    pub(crate) pattern: Option<TextPattern>,
}

impl EvalSpec {
    /// Returns `true` if any check needs the folder that a run left.
    pub fn needs_workspace(&self) -> bool {
        self.invariants.iter().any(|one| match &one.check {
            CheckKind::Judge(check) => matches!(check.input, JudgeInput::Workspace),
            CheckKind::Output(_)
            | CheckKind::Trace(_)
            | CheckKind::Forbidden(_)
            | CheckKind::Sql(_)
            | CheckKind::HttpMock(_) => false,
            CheckKind::FileExists(_)
            | CheckKind::FileAbsent(_)
            | CheckKind::FileContent(_)
            | CheckKind::CommandExit(_)
            | CheckKind::Custom(_) => true,
        })
    }

    /// The invariants that a model judges, with their checks.
    pub fn judges(&self) -> impl Iterator<Item = (&Invariant, &JudgeCheck)> {
        self.invariants.iter().filter_map(|one| match &one.check {
            CheckKind::Judge(check) => Some((one, check.as_ref())),
            CheckKind::Output(_)
            | CheckKind::Trace(_)
            | CheckKind::Forbidden(_)
            | CheckKind::FileExists(_)
            | CheckKind::FileAbsent(_)
            | CheckKind::FileContent(_)
            | CheckKind::CommandExit(_)
            | CheckKind::Custom(_)
            | CheckKind::Sql(_)
            | CheckKind::HttpMock(_) => None,
        })
    }

    /// The model groups that judge, each once.
    pub fn judge_groups(&self) -> BTreeSet<&str> {
        self.judges().map(|(_, check)| &*check.group).collect()
    }

    /// Returns `true` if any check asks a model.
    pub fn asks_models(&self) -> bool {
        self.judges().next().is_some()
    }

    /// Returns `true` if any check looks at what a service received.
    pub fn looks_at_services(&self) -> bool {
        let mut checks = self.invariants.iter().map(|one| &one.check);
        checks.any(|check| check.receiver().is_some())
    }

    /// The first invariant that only a suite can check, since it has the services.
    pub fn needs_suite(&self) -> Option<&Invariant> {
        let is_of_suite =
            |check: &CheckKind| matches!(check, CheckKind::Sql(_)) || check.receiver().is_some();
        let mut all = self.invariants.iter();
        all.find(|one| is_of_suite(&one.check))
    }

    /// Returns `true` if any check runs a program.
    pub fn runs_programs(&self) -> bool {
        let mut checks = self.invariants.iter().map(|one| &one.check);
        checks.any(CheckKind::runs_program)
    }
}

impl CheckKind {
    /// Returns `true` if it runs a program, whose output may hold anything.
    pub fn runs_program(&self) -> bool {
        matches!(self, Self::CommandExit(_) | Self::Custom(_) | Self::Sql(_))
    }

    /// The service that it looks at what was received of, and the key of the check that names it.
    pub(crate) fn receiver(&self) -> Option<(&str, &'static str)> {
        match self {
            Self::HttpMock(check) => Some((&check.service, "service")),
            Self::Judge(check) => match &check.input {
                JudgeInput::Service { service, .. } => Some((service, "input_from")),
                JudgeInput::Output | JudgeInput::Workspace => None,
            },
            Self::Output(_)
            | Self::Trace(_)
            | Self::Forbidden(_)
            | Self::FileExists(_)
            | Self::FileAbsent(_)
            | Self::FileContent(_)
            | Self::CommandExit(_)
            | Self::Custom(_)
            | Self::Sql(_) => None,
        }
    }

    /// The type, as the file has it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Output(_) => "output",
            Self::Trace(_) => "trace",
            Self::Forbidden(_) => "forbidden",
            Self::FileExists(_) => "file_exists",
            Self::FileAbsent(_) => "file_absent",
            Self::FileContent(_) => "file_content",
            Self::CommandExit(_) => "command_exit",
            Self::Custom(_) => "custom",
            Self::Judge(_) => "llm_as_judge",
            Self::Sql(_) => "sql",
            Self::HttpMock(_) => "http_mock_assertions",
        }
    }
}

impl CountRange {
    /// Returns `true` if a count is within the bounds.
    pub fn has(&self, count: u64) -> bool {
        self.min.is_none_or(|min| count >= min)
            && self.max.is_none_or(|max| count <= max)
            && self.equals.is_none_or(|equals| count == equals)
    }

    /// The bounds in words, each number as `shown` has it.
    pub(crate) fn words(&self, shown: impl Fn(u64) -> String) -> String {
        let bounds = [
            ("exactly", self.equals),
            ("at least", self.min),
            ("at most", self.max),
        ];
        let given = bounds.into_iter();
        let given = given.filter_map(|(word, bound)| Some(format!("{word} {}", shown(bound?))));
        given.collect::<Vec<_>>().join(", ")
    }
}
