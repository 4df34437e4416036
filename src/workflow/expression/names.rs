//! The names at the root of an expression.

use std::collections::{BTreeMap, BTreeSet};

use jmespath::Rcvar;

/// The member of a step that no output has: what its commands ran.
pub const INVOKED: &str = "ktsu_invoked";

/// A name an expression mentions at its root.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Root {
    /// `params`.
    Params,
    /// `env.NAME`.
    Env(String),
    /// `step.ID` or just `ID`.
    Step(String),
    /// `item`, inside a fan-out.
    Item,
    /// `item_index`, inside a fan-out.
    ItemIndex,
    /// `resume` of a step that may wait for data: `{checkpoint, data}`, both null before its first
    /// suspension. Never in a responder.
    Resume,
    /// A name of a responder: `object`, `event`, a look-up of its own. Never in a workflow.
    Name(String),
}

/// The names that expressions have at their root.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Vocabulary {
    /// Those of a workflow: a step has its id, with or without `step.`.
    #[default]
    Workflow,
    /// Those of a responder of a world: what is neither `params`, `env.NAME`, `item` nor
    /// `item_index` is a [`Root::Name`], `step` included.
    Responder,
}

/// The params that an expression takes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParamNames {
    /// Single params, by name.
    pub names: BTreeSet<String>,
    /// It looks at all of them.
    pub whole: bool,
}

/// The form in which an expression names what the commands of a step ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum InvokedMention {
    /// In a projection, a slice, a multi-select, or by an index from the end.
    Within,
    /// By a path of fields and indexes.
    Path,
}

/// The source of the values of names.
pub trait NameLookup<V = Rcvar> {
    /// The value of a name, or nothing: then it is null.
    fn get(&self, root: &Root) -> Option<V>;

    /// The outputs of what the commands of a step ran, in their order, as `step.ID.ktsu_invoked`
    /// names them. They are no part of the step's output. `mention` is how the expression names
    /// them: under decision rules 5 some mentions are null.
    fn invoked(&self, _: &str, _mention: InvokedMention) -> Option<V> {
        None
    }
}

/// No names at all.
impl<V> NameLookup<V> for () {
    fn get(&self, _: &Root) -> Option<V> {
        None
    }
}

impl<V: Clone> NameLookup<V> for BTreeMap<Root, V> {
    fn get(&self, root: &Root) -> Option<V> {
        self.get(root).cloned()
    }
}
