//! The persisted definition of a world: types of objects and relations, and responders (seed 002).
//!
//! Persisted, keep stable. As in the rest of a plan, defaults are filled in, expressions are bare
//! JMESPath and templates are `{{ }}` text; optional members are absent when empty. A world declares
//! no variables and no params of its own: those of the root workflow of its plan are the ones that
//! its expressions see.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::child::ChildPlan;
use crate::canonical::CanonicalJson;

/// One world file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorldPlan {
    /// The limits on its responders. The budget of a run is the lowest of each limit of its worlds.
    pub budget: WorldBudget,
    /// Responders to `relation.created`, which come before all others of a run, in file order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edges: Vec<ResponderPlan>,
    /// The entries that the goal of a run, its param `goal`, becomes in its first turn; a run
    /// without a goal makes nothing of this. Absent: this world makes nothing of it. A run none of
    /// whose worlds has this makes one object `Goal {goal}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<Vec<EntryPlan>>,
    /// The name, equal to the file's name without `.world.yaml`.
    pub name: String,
    /// Types of objects, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub objects: BTreeMap<String, ObjectType>,
    /// Types of relations, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub relations: BTreeMap<String, RelationType>,
    /// In file order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub responders: Vec<ResponderPlan>,
    /// Semantic version.
    pub version: String,
}

/// `budget:` of a world: bounds on the activity of responders (decision F5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorldBudget {
    /// World frames of a run.
    pub max_events: u64,
    /// True if the file itself limits the cost: then only models whose price is known are asked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub limits_cost: bool,
    /// Millionths of a US dollar.
    pub max_llm_cost_micro_usd: u64,
    /// Depth of a world frame below a root, which has 0.
    pub max_recursion_depth: u32,
    /// Milliseconds that a run has used up, without those in which it waited for a person.
    pub max_wall_ms: u64,
}

impl Default for WorldBudget {
    /// The limits of a world that sets none (design, section 4).
    fn default() -> Self {
        Self {
            max_events: 10_000,
            limits_cost: false,
            max_llm_cost_micro_usd: 10_000_000,
            max_recursion_depth: 50,
            max_wall_ms: 3_600_000,
        }
    }
}

impl WorldBudget {
    /// The lower of each limit.
    #[must_use]
    pub fn lowest(self, other: Self) -> Self {
        Self {
            max_events: self.max_events.min(other.max_events),
            limits_cost: self.limits_cost || other.limits_cost,
            max_llm_cost_micro_usd: self
                .max_llm_cost_micro_usd
                .min(other.max_llm_cost_micro_usd),
            max_recursion_depth: self.max_recursion_depth.min(other.max_recursion_depth),
            max_wall_ms: self.max_wall_ms.min(other.max_wall_ms),
        }
    }
}

/// A type of objects.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectType {
    /// The member of the data that names an object for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// JSON Schema of the data; absent: any object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<CanonicalJson>,
}

/// A type of relations.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelationType {
    /// The types of object it may begin at; empty: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<String>,
    /// JSON Schema of the data; absent: any object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<CanonicalJson>,
    /// The types of object it may end at; empty: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<String>,
}

/// A rule whose trigger is an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponderPlan {
    /// Milliseconds between the trigger and the evaluation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_ms: Option<u64>,
    /// It reacts to `object.patched` only where one of these fields is patched; empty: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
    /// The most model calls or workflows of it in flight at once; absent: any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// The items for each of which it acts once; absent: it acts once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_each: Option<ForEachPlan>,
    /// Unique among the responders of all worlds of a plan.
    pub name: String,
    /// Event types, or `*` for every event.
    pub on: Vec<String>,
    /// The effect of its failure on the run.
    #[serde(default, skip_serializing_if = "OnError::is_fail")]
    pub on_error: OnError,
    /// A command for external systems (seed 004, `emit`), made with what it emits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publish: Option<PublishPlan>,
    /// Its reaction to the reply of a model or the output of a workflow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub then: Vec<EntryPlan>,
    /// Types of the object or the relation that the event is about; empty: any.
    #[serde(default, rename = "type", skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<String>,
    /// Bare JMESPath; falsy: it does not fire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// Look-ups, in file order.
    #[serde(default, rename = "with", skip_serializing_if = "Vec::is_empty")]
    pub lookups: Vec<LookupPlan>,
    /// The work that it does.
    pub work: ResponderWork,
}

/// The work of a responder when it fires.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResponderWork {
    /// A model is asked, once.
    Ask(AskPlan),
    /// Objects and relations are made or changed. May be empty beside `publish`.
    Emit(Vec<EntryPlan>),
    /// A workflow runs inline.
    Run(ChildPlan),
}

impl ResponderWork {
    /// The workflow it runs.
    pub fn child(&self) -> Option<&ChildPlan> {
        match self {
            Self::Run(child) => Some(child),
            Self::Ask(_) | Self::Emit(_) => None,
        }
    }

    /// As [`ResponderWork::child`], to be changed.
    pub fn child_mut(&mut self) -> Option<&mut ChildPlan> {
        match self {
            Self::Run(child) => Some(child),
            Self::Ask(_) | Self::Emit(_) => None,
        }
    }

    /// The entries that it makes, without those that it makes of a reply.
    pub fn entries(&self) -> &[EntryPlan] {
        match self {
            Self::Emit(entries) => entries,
            Self::Ask(_) | Self::Run(_) => &[],
        }
    }
}

/// The effect of a responder's failure on its run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// The run fails.
    #[default]
    Fail,
    /// The run continues.
    Continue,
}

impl OnError {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde passes a reference"
    )]
    fn is_fail(&self) -> bool {
        *self == Self::Fail
    }
}

/// `for_each:` of a responder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForEachPlan {
    /// Bare JMESPath that gives an array.
    From(String),
    /// A list of templates.
    Items(CanonicalJson),
}

/// One name of `with:`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookupPlan {
    /// The look-up.
    pub find: FindPlan,
    /// The name that expressions use.
    pub name: String,
}

/// A look-up, whose cost does not grow with the world.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FindPlan {
    /// The number of objects.
    Count(QueryPlan),
    /// The object that was created first, or null.
    First(QueryPlan),
    /// The object with the id that this template gives, or null.
    Object(String),
    /// The objects, in order of creation.
    Objects(QueryPlan),
}

impl FindPlan {
    /// The query, unless it finds an object by its id.
    pub fn query(&self) -> Option<&QueryPlan> {
        match self {
            Self::Count(query) | Self::First(query) | Self::Objects(query) => Some(query),
            Self::Object(_) => None,
        }
    }
}

/// Objects of a type with given fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryPlan {
    /// The type of the objects.
    #[serde(rename = "type")]
    pub kind: String,
    /// Conditions on members of the data, by name: all of them hold.
    #[serde(default, rename = "where", skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, MatchPlan>,
    /// And no such object exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without: Option<WithoutPlan>,
}

/// `without:`: objects that must not exist for the `item` that is looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WithoutPlan {
    /// The type of the objects.
    #[serde(rename = "type")]
    pub kind: String,
    /// Conditions on members of the data, by name.
    #[serde(default, rename = "where", skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, MatchPlan>,
}

/// A condition on one field. Null matches nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MatchPlan {
    /// The field equals the value of this template.
    Equals(CanonicalJson),
    /// The field equals one of the values of the array that this template gives.
    In(CanonicalJson),
}

/// One entry of `emit:`, `then:` or `goal:`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryPlan {
    /// The name that later entries of the same item have for the object or relation that this one
    /// makes.
    #[serde(default, rename = "as", skip_serializing_if = "Option::is_none")]
    pub as_name: Option<String>,
    /// The treatment of an object whose type and key exist already.
    #[serde(default, skip_serializing_if = "IfExists::is_keep")]
    pub if_exists: IfExists,
    /// A template: the object is made once for each of its values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The event that it makes.
    pub make: MakePlan,
    /// Bare JMESPath; falsy: nothing is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
}

/// The treatment of an object whose type and key exist already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IfExists {
    /// It stays as it is, and nothing is emitted.
    #[default]
    Keep,
    /// The data is merged into it.
    Patch,
}

impl IfExists {
    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde passes a reference"
    )]
    fn is_keep(&self) -> bool {
        *self == Self::Keep
    }
}

/// The event that an entry makes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MakePlan {
    /// `object.created`.
    Object {
        /// An object of templates.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        data: Option<CanonicalJson>,
        /// The type.
        #[serde(rename = "type")]
        kind: String,
    },
    /// `object.patched`.
    Patch {
        /// An object of templates: fields that replace those of the object.
        data: CanonicalJson,
        /// A template.
        id: String,
    },
    /// `relation.created`.
    Relation {
        /// An object of templates.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        data: Option<CanonicalJson>,
        /// A template: the id of the object it begins at.
        from: String,
        /// A template; absent: the type and both ends identify the relation.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        /// The type.
        #[serde(rename = "type")]
        kind: String,
        /// A template: the id of the object it ends at.
        to: String,
    },
    /// `relation.removed`.
    Remove {
        /// A template: the id of a relation.
        relation: String,
    },
}

/// `ask:`: one call of a model, without tools.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskPlan {
    /// The model group; the gateway decides everything else (seed 000, invariant 17).
    pub group: String,
    /// The most tokens of the reply.
    pub max_tokens: u32,
    /// In order.
    pub messages: Vec<MessagePlan>,
    /// JSON Schema of `reply.output`; absent: the reply is text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<CanonicalJson>,
    /// Millionths: 0.7 is 700000, so that the plan has no floats to compare.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_millionths: Option<u32>,
}

/// A message for a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessagePlan {
    /// A template that makes text.
    pub content: String,
    /// Whose message it is.
    pub role: MessageRole,
}

/// Whose a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageRole {
    /// An example of a reply.
    Assistant,
    /// Instructions.
    System,
    /// A question.
    User,
}

impl MessageRole {
    /// The persisted form, which is the one of the gateway.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Assistant => "assistant",
            Self::System => "system",
            Self::User => "user",
        }
    }
}

/// `publish:`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishPlan {
    /// A tree of templates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<CanonicalJson>,
    /// A template that makes text.
    pub topic: String,
}

impl WorldPlan {
    /// Its responders: edges first, then the others, each in file order.
    pub fn all_responders(&self) -> impl Iterator<Item = &ResponderPlan> {
        self.edges.iter().chain(&self.responders)
    }

    /// The (type, field) pairs that look-ups of its responders compare: what an index is kept for.
    pub fn indexed_fields(&self) -> BTreeSet<(&str, &str)> {
        let lookups = self.all_responders().flat_map(|one| &one.lookups);
        let queries = lookups.filter_map(|lookup| lookup.find.query());
        let mut pairs = BTreeSet::new();
        for query in queries {
            let fields = query.fields.keys();
            pairs.extend(fields.map(|field| (query.kind.as_str(), field.as_str())));
            if let Some(without) = &query.without {
                let fields = without.fields.keys();
                pairs.extend(fields.map(|field| (without.kind.as_str(), field.as_str())));
            }
        }
        pairs
    }

    /// The workflows that its responders run, by their keys in [`Plan::workflows`].
    ///
    /// [`Plan::workflows`]: super::Plan::workflows
    pub fn workflows(&self) -> impl Iterator<Item = &str> {
        let children = self.all_responders().filter_map(|one| one.work.child());
        children.map(|child| child.workflow.as_str())
    }

    /// The model groups that its responders ask.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        self.all_responders().filter_map(|one| match &one.work {
            ResponderWork::Ask(ask) => Some(ask.group.as_str()),
            ResponderWork::Run(_) | ResponderWork::Emit(_) => None,
        })
    }
}
