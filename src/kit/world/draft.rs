//! A world file as read: its workflows, and the types it names, are not resolved yet.

use std::collections::BTreeMap;

use ktsu_config::yaml::SourceSpan;
use ktsu_ledger::CanonicalJson;
use ktsu_ledger::event::plan::Variable;
use ktsu_ledger::event::plan::world::WorldPlan;

use crate::step::ChildDraft;

/// A world file.
pub(crate) struct WorldDraft {
    /// The workflows of its responders are as written.
    pub(crate) plan: WorldPlan,
    /// The variables it declares, each with its place.
    pub(crate) env: Vec<(Variable, SourceSpan)>,
    /// The schema of the params that its own expressions may name.
    pub(crate) params: Option<CanonicalJson>,
    /// The schema that it declares, and where: other worlds of the kit may declare more.
    pub(crate) declared_params: Option<(CanonicalJson, SourceSpan)>,
    /// Of its responders: edges first, as in the plan.
    pub(crate) responders: Vec<ResponderDraft>,
    /// Every type that it names.
    pub(crate) types: Vec<TypeMention>,
    /// The places at which it declares types.
    pub(crate) declared: BTreeMap<(TypeKind, String), SourceSpan>,
}

/// The parts of a responder beside its plan, and their places.
pub(crate) struct ResponderDraft {
    /// Of its name.
    pub(crate) place: SourceSpan,
    /// Of its `when`, broken or not.
    pub(crate) guard: Option<SourceSpan>,
    /// Of its `on`, or its name.
    pub(crate) on: SourceSpan,
    /// The names of `with`.
    pub(crate) lookups: BTreeMap<String, SourceSpan>,
    /// The workflow it runs.
    pub(crate) run: Option<ChildDraft>,
    /// The model group it asks.
    pub(crate) group: Option<(String, SourceSpan)>,
}

/// A type that is named somewhere.
pub(crate) struct TypeMention {
    pub(crate) kind: TypeKind,
    pub(crate) name: String,
    pub(crate) place: SourceSpan,
}

/// The kind of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TypeKind {
    /// Of objects.
    Object,
    /// Of relations.
    Relation,
    /// Of either: a responder that reacts to both.
    Either,
}

impl TypeKind {
    /// As in "there is no type of objects".
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Object => "objects",
            Self::Relation => "relations",
            Self::Either => "objects or relations",
        }
    }

    /// Returns `true` if a declaration of another kind is what is named.
    pub(crate) fn takes(self, declared: Self) -> bool {
        self == Self::Either || self == declared
    }
}

/// The worlds of a kit that could be read, by path.
pub(super) type Worlds<'l> = Vec<(&'l str, &'l WorldDraft)>;
