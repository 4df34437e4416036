//! The faults that files of a kit can have, and their places.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::yaml::{SourceSpan, YamlNode};
use ktsu_codes::nearest;

macro_rules! fault_codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// A kind of fault. Each has a page `docs/errors/CODE.md`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum FaultCode {
            $($(#[$doc])* $name,)*
        }

        impl FaultCode {
            /// The stable text.
            pub fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// Every code.
            pub fn all() -> &'static [Self] {
                &[$(Self::$name,)*]
            }
        }
    };
}

fault_codes! {
    /// An agent step names a file that is not there.
    AgentNotFound = "agent-not-found",
    /// A recursion of a schema comes to one definition at one place by two ways (a warning).
    AmbiguousRecursion = "ambiguous-recursion",
    /// A webhook waits for approvals that nobody is asked for (a warning).
    ApprovalNeverAsked = "approval-never-asked",
    /// An entry of an allowlist is neither a name nor the beginning of one.
    BadAllowlist = "bad-allowlist",
    /// An expression does not parse.
    BadExpression = "bad-expression",
    /// A step id breaks the rule for ids.
    BadId = "bad-id",
    /// A JSON Schema does not compile.
    BadSchema = "bad-schema",
    /// A template does not parse.
    BadTemplate = "bad-template",
    /// A literal URL is not http or https.
    BadUrl = "bad-url",
    /// A value of the right type that is not allowed.
    BadValue = "bad-value",
    /// A version that is not a semantic version.
    BadVersion = "bad-version",
    /// The file of a child workflow does not exist.
    ChildNotFound = "child-not-found",
    /// The file of a child workflow or of an agent is outside the kit.
    ChildOutsideKit = "child-outside-kit",
    /// More levels of child workflows than a run may have.
    ChildrenTooDeep = "children-too-deep",
    /// Two steps with one id.
    DuplicateId = "duplicate-id",
    /// Two providers, groups or values with one name.
    DuplicateName = "duplicate-name",
    /// A key twice in one map.
    DuplicateKey = "duplicate-key",
    /// A variable declared twice.
    DuplicateVariable = "duplicate-variable",
    /// A reflect prompt without words.
    EmptyPrompt = "empty-prompt",
    /// An agent file reaches for the environment.
    EnvInAgent = "env-in-agent",
    /// A server file reaches for the environment.
    EnvInServer = "env-in-server",
    /// A sub-workflow declares or uses variables.
    EnvInSubWorkflow = "env-in-sub-workflow",
    /// Responders set each other off without a guard (a warning).
    EndlessResponders = "endless-responders",
    /// A file is larger than 1 MiB.
    FileTooLarge = "file-too-large",
    /// A file cannot be read.
    FileUnreadable = "file-unreadable",
    /// `item` or `item_index` where there is no fan-out.
    ItemOutsideFanOut = "item-outside-fan-out",
    /// A value that must be a secret variable is written out.
    LiteralSecret = "literal-secret",
    /// A built-in agent gets a fixed text to look at (a warning).
    LiteralSource = "literal-source",
    /// A file is not the one that was locked (a warning, unless the kit must be as locked).
    LockDrift = "lock-drift",
    /// The lock is of a format that this version does not know.
    LockFormat = "lock-format",
    /// The kit must be as locked, and has no lock.
    LockMissing = "lock-missing",
    /// A guard against a second object that two triggers in a row pass (a warning).
    MadeTwice = "made-twice",
    /// A key on a step of another kind.
    MisplacedKey = "misplaced-key",
    /// A look-up of objects to whose arrival nothing reacts (a warning).
    MissedLater = "missed-later",
    /// A required key is absent.
    MissingKey = "missing-key",
    /// A required param of a child workflow or an agent is not given.
    MissingParam = "missing-param",
    /// The name in a file is not the name of the file.
    NameMismatch = "name-mismatch",
    /// A step that runs only in place of a suspended one, and that none can be resumed to.
    NeverResumed = "never-resumed",
    /// `!a.b`, which is read as `(!a).b`.
    NegatedPath = "negated-path",
    /// A step does nothing.
    NoPrimitive = "no-primitive",
    /// A variable that is needed has no value.
    NoValue = "no-value",
    /// A folder without workflows.
    NoWorkflows = "no-workflows",
    /// An optional param without default (a warning).
    OptionalWithoutDefault = "optional-without-default",
    /// `output.from`.
    OutputFrom = "output-from",
    /// An output that can never fit its schema.
    OutputMismatch = "output-mismatch",
    /// A service that asks nobody who they are would listen to other machines.
    OpenToAll = "open-to-all",
    /// A prompt names something that is no param.
    PromptBeyondParams = "prompt-beyond-params",
    /// `prompt.system` has an expression.
    PromptNotStatic = "prompt-not-static",
    /// An agent that reflects has a single turn (a warning).
    ReflectOneTurn = "reflect-one-turn",
    /// A step id that means something else.
    ReservedId = "reserved-id",
    /// A name that means something else.
    ReservedName = "reserved-name",
    /// Two principals with one token.
    SameToken = "same-token",
    /// A secret where it could leak.
    SecretNotAllowed = "secret-not-allowed",
    /// An agent names a server file that is not there.
    ServerNotFound = "server-not-found",
    /// A key or secret with fewer than 6 characters.
    ShortSecret = "short-secret",
    /// Nobody here could approve what a person is asked (a warning).
    NobodyToApprove = "nobody-to-approve",
    /// Steps wait for one another.
    StepCycle = "step-cycle",
    /// A threshold for an output that says nothing of confidence (a warning).
    ThresholdWithoutConfidence = "threshold-without-confidence",
    /// Arrays and maps nested deeper than 64 levels.
    TooDeep = "too-deep",
    /// More child workflows, and children of these, than a run may have.
    TooManyScopes = "too-many-scopes",
    /// An op with several keys.
    TwoOps = "two-ops",
    /// A step that does several things.
    TwoPrimitives = "two-primitives",
    /// A value that can never be what is done with it.
    TypeMismatch = "type-mismatch",
    /// A step may wait for people longer than runs are kept (a warning).
    WaitBeyondRetention = "wait-beyond-retention",
    /// A field that nothing declares, nearly named like one that is (a warning).
    UndeclaredField = "undeclared-field",
    /// A param that the agent or the child workflow does not declare (a warning).
    UndeclaredParam = "undeclared-param",
    /// A variable that is not declared.
    UndeclaredVariable = "undeclared-variable",
    /// `default` names no workflow.
    UnknownDefault = "unknown-default",
    /// An event that no responder can react to.
    UnknownEvent = "unknown-event",
    /// A field that a value cannot have.
    UnknownField = "unknown-field",
    /// A model group that the gateway does not have.
    UnknownGroup = "unknown-group",
    /// A key that does not exist.
    UnknownKey = "unknown-key",
    /// A name that a responder does not have.
    UnknownName = "unknown-name",
    /// A transform operation that does not exist.
    UnknownOp = "unknown-op",
    /// A param that the child workflow or the agent does not take.
    UnknownParam = "unknown-param",
    /// An output field that begins with `ktsu_` and means nothing (a warning).
    UnknownReserved = "unknown-reserved",
    /// A model of a provider that does not exist.
    UnknownProvider = "unknown-provider",
    /// A role that does not exist.
    UnknownRole = "unknown-role",
    /// A tool server that nothing declares.
    UnknownServer = "unknown-server",
    /// A step that does not exist.
    UnknownStep = "unknown-step",
    /// A type of objects or relations that no world declares.
    UnknownType = "unknown-type",
    /// A workflow has a budget, and a model that it may ask has no price (a warning).
    UnpricedModel = "unpriced-model",
    /// The step wants another version of its agent.
    VersionMismatch = "version-mismatch",
    /// An agent file says nothing of its version (a warning).
    VersionMissing = "version-missing",
    /// A responder none of whose events can happen (a warning).
    UnreachableResponder = "unreachable-responder",
    /// Parent and child do not agree on webhooks (a warning).
    WebhooksNotAgreed = "webhooks-not-agreed",
    /// Workflow files call one another.
    WorkflowCycle = "workflow-cycle",
    /// `kind` is not `workflow`.
    WrongKind = "wrong-kind",
    /// A value of the wrong type.
    WrongType = "wrong-type",
    /// YAML that would grow too large.
    YamlLimit = "yaml-limit",
    /// Not YAML.
    YamlSyntax = "yaml-syntax",
}

impl Serialize for FaultCode {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.text())
    }
}

/// The severity of a fault: whether a kit can be used in spite of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// It cannot.
    Error,
    /// It can.
    Warning,
}

/// One thing that is wrong, at its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Relative to the kit.
    pub file: PathBuf,
    /// Counted from 1.
    pub line: usize,
    /// Counted from 1, in characters.
    pub column: usize,
    /// In characters.
    pub length: usize,
    /// The kind of fault.
    pub code: FaultCode,
    /// A lower-case fragment.
    pub message: String,
    /// Something to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Error or warning.
    pub severity: Severity,
    /// The places where a secret is, or may be, written out, which no report shows.
    #[serde(skip)]
    pub hidden: Box<[SourceSpan]>,
}

impl Fault {
    /// An error without a file yet.
    pub fn new(code: FaultCode, place: SourceSpan, message: impl Into<String>) -> Self {
        Self {
            file: PathBuf::new(),
            line: place.line.max(1),
            column: place.column.max(1),
            length: place.length.max(1),
            code,
            message: message.into(),
            hint: None,
            severity: Severity::Error,
            hidden: Box::default(),
        }
    }

    /// About a secret that is written out at a place: no report shows it.
    #[must_use]
    pub fn hiding(mut self, place: SourceSpan) -> Self {
        self.hide([place]);
        self
    }

    /// About a value in which a secret may be written out, whatever its type.
    #[must_use]
    pub fn hiding_all_of(mut self, node: &YamlNode) -> Self {
        self.hide(node.scalars());
        self
    }

    /// Keeps more places out of reports.
    pub fn hide(&mut self, places: impl IntoIterator<Item = SourceSpan>) {
        let known = std::mem::take(&mut self.hidden).into_vec();
        self.hidden = known.into_iter().chain(places).collect();
    }

    /// With something to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// With the known name that is most similar to the given one as a hint, if one is similar.
    #[must_use]
    pub fn suggest<'k>(self, name: &str, known: impl IntoIterator<Item = &'k str>) -> Self {
        match nearest(name, known) {
            Some(near) => self.hint(format!("did you mean {near}?")),
            None => self,
        }
    }

    /// As [`Fault::suggest`], with another hint if no name is similar.
    #[must_use]
    pub fn suggest_or<'k>(
        self,
        name: &str,
        known: impl IntoIterator<Item = &'k str>,
        otherwise: impl Into<String>,
    ) -> Self {
        self.hint(otherwise).suggest(name, known)
    }

    /// As a warning.
    #[must_use]
    pub fn warning(mut self) -> Self {
        self.severity = Severity::Warning;
        self
    }

    /// In a file.
    #[must_use]
    pub fn in_file(mut self, file: &Path) -> Self {
        self.file = file.to_owned();
        self
    }
}

/// Everything that is wrong with a kit, with the texts it stands in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Faults {
    /// By file, line and column.
    pub faults: Vec<Fault>,
    /// The files as read.
    pub sources: BTreeMap<PathBuf, String>,
}

impl Faults {
    /// Returns `true` if any is an error.
    pub fn has_errors(&self) -> bool {
        self.faults
            .iter()
            .any(|fault| fault.severity == Severity::Error)
    }

    /// The same faults, with other paths to the files.
    #[must_use]
    pub fn with_paths(&self, path_of: impl Fn(&Path) -> PathBuf) -> Self {
        let faults = self.faults.iter().map(|fault| Fault {
            file: path_of(&fault.file),
            ..fault.clone()
        });
        let sources = self.sources.iter();
        let sources = sources.map(|(file, text)| (path_of(file), text.clone()));
        Self {
            faults: faults.collect(),
            sources: sources.collect(),
        }
    }

    /// Adds a fault.
    pub fn add(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    /// Sorts the faults by file and place.
    pub fn sort(&mut self) {
        self.faults.sort_by(|a, b| {
            let key = |fault: &Fault| (fault.file.clone(), fault.line, fault.column, fault.code);
            key(a).cmp(&key(b))
        });
        self.faults.dedup();
    }
}
