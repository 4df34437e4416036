//! The worlds of a definition, compiled: their types, and their responders in the order in which
//! they are asked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ktsu_ledger::event::plan::world::{
    EntryPlan, IfExists, MakePlan, RelationType, ResponderPlan, WorldBudget, WorldPlan,
};
use ktsu_ledger::{CanonicalJson, event::plan::world::ResponderWork};
use ktsu_projections::world::candidates::CandidateIndex;

use super::responder::{self, CompiledEntry, CompiledResponder};
use super::{CompileErrors, collect_error};
use crate::airlock::Schema;
use crate::expression::Root;
use crate::world::{GOAL_OBJECT, MAX_RESPONDERS, MAX_WORLD_TYPES, STEP_OBJECT, is_identifier};

/// One world, compiled.
#[derive(Debug)]
pub struct CompiledWorld {
    /// The plan that it was compiled from.
    pub plan: Arc<WorldPlan>,
    edges: Vec<CompiledResponder>,
    responders: Vec<CompiledResponder>,
    objects: BTreeMap<String, Option<Schema>>,
    relations: BTreeMap<String, CompiledRelation>,
    goal: Option<Vec<CompiledEntry>>,
    roots: BTreeSet<Root>,
}

/// A type of relations.
#[derive(Debug)]
pub struct CompiledRelation {
    /// The plan that it was compiled from.
    pub plan: RelationType,
    /// Of its data; absent: any object.
    pub schema: Option<Schema>,
}

/// Every world that a run of a definition loads.
#[derive(Debug)]
pub struct CompiledWorlds {
    /// By path, which is their order.
    worlds: BTreeMap<String, Arc<WorldPlan>>,
    responders: Vec<CompiledResponder>,
    candidates: CandidateIndex,
    objects: BTreeMap<String, Option<Schema>>,
    relations: BTreeMap<String, CompiledRelation>,
    goal: Vec<CompiledEntry>,
    /// The lowest of each limit.
    pub budget: WorldBudget,
    roots: BTreeSet<Root>,
}

impl CompiledWorld {
    /// Compiles one world; what is wrong is added to `faults`, each with a place that begins with
    /// `path`.
    pub fn compile(plan: &Arc<WorldPlan>, path: &str, faults: &mut CompileErrors) -> Option<Self> {
        let before = faults.len();
        for (count, what) in [
            (plan.objects.len(), "objects"),
            (plan.relations.len(), "relations"),
        ] {
            if count > MAX_WORLD_TYPES {
                let words = format!("{count} types are more than {MAX_WORLD_TYPES}");
                faults.push((format!("{path}/{what}"), words));
            }
        }
        let names = plan.objects.keys().chain(plan.relations.keys());
        for name in names.filter(|name| !is_identifier(name) || *name == STEP_OBJECT) {
            let words = format!("{name:?} cannot be the name of a type");
            faults.push((path.to_owned(), words));
        }
        let mut schema = |schema: Option<&CanonicalJson>, of: &str, name: &str| {
            let at = format!("{path}/{of}/{name}/schema");
            collect_error(Schema::compile(schema?), faults, &at)
        };
        let objects = plan.objects.iter().map(|(name, object)| {
            let schema = schema(object.schema.as_ref(), "objects", name);
            (name.clone(), schema)
        });
        let objects = objects.collect();
        let relations = plan.relations.iter().map(|(name, relation)| {
            let schema = schema(relation.schema.as_ref(), "relations", name);
            let plan = relation.clone();
            (name.clone(), CompiledRelation { plan, schema })
        });
        let relations = relations.collect();
        let mut compile = |plans: &[ResponderPlan], of: &str| -> Vec<CompiledResponder> {
            let at = format!("{path}/{of}");
            let plans = plans.iter();
            plans
                .filter_map(|plan| CompiledResponder::compile(plan, &at, faults))
                .collect()
        };
        let edges = compile(&plan.edges, "edges");
        let responders = compile(&plan.responders, "responders");
        let goal = plan.goal.as_deref();
        let goal = goal.map(|goal| responder::goal(goal, path, faults));
        let (goal, mut roots) = match goal {
            None => (None, BTreeSet::new()),
            Some(None) => return None,
            Some(Some((entries, roots))) => (Some(entries), roots),
        };
        let all = edges.iter().chain(&responders);
        roots.extend(all.flat_map(|one| one.roots().iter().cloned()));
        (faults.len() == before).then(|| Self {
            plan: Arc::clone(plan),
            edges,
            responders,
            objects,
            relations,
            goal,
            roots,
        })
    }
}

impl CompiledWorlds {
    /// Of the data of its objects and relations.
    pub(super) fn schemas(&self) -> impl Iterator<Item = &Schema> {
        let relations = self.relations.values();
        let relations = relations.filter_map(|relation| relation.schema.as_ref());
        self.objects.values().flatten().chain(relations)
    }

    /// Compiles the worlds of a plan; nothing if there are none. What is wrong is added to `faults`.
    pub fn compile(
        plans: &BTreeMap<String, Arc<WorldPlan>>,
        faults: &mut CompileErrors,
    ) -> Option<Self> {
        let before = faults.len();
        let mut worlds = Vec::new();
        for (path, plan) in plans {
            let world = CompiledWorld::compile(plan, path, faults);
            worlds.extend(world.map(|world| (path, world)));
        }
        references(plans, faults);
        if faults.len() > before || worlds.is_empty() {
            return None;
        }
        let budgets = worlds.iter().map(|(_, world)| world.plan.budget);
        let budget = budgets.reduce(WorldBudget::lowest)?;
        let mut all = Self {
            worlds: plans.clone(),
            responders: Vec::new(),
            candidates: CandidateIndex::default(),
            objects: BTreeMap::new(),
            relations: BTreeMap::new(),
            goal: Vec::new(),
            budget,
            roots: BTreeSet::new(),
        };
        let mut rest = Vec::new();
        let mut has_goal = false;
        for (_, world) in worlds {
            all.responders.extend(world.edges);
            rest.extend(world.responders);
            all.objects.extend(world.objects);
            all.relations.extend(world.relations);
            all.roots.extend(world.roots);
            has_goal |= world.goal.is_some();
            all.goal.extend(world.goal.into_iter().flatten());
        }
        all.responders.extend(rest);
        if !has_goal {
            let (entries, _) = responder::goal(&[default_goal()], "goal", faults)?;
            all.goal = entries;
            all.objects.entry(GOAL_OBJECT.to_owned()).or_default();
        }
        let named = all.responders.iter().map(|responder| &responder.plan);
        all.candidates = CandidateIndex::of(named);
        Some(all)
    }

    /// The worlds, by path, in their order.
    pub fn worlds(&self) -> &BTreeMap<String, Arc<WorldPlan>> {
        &self.worlds
    }

    /// Every responder in the order in which candidates are asked: the edges of all worlds, then
    /// their other responders, each in the order of worlds and within a world of its file.
    pub fn responders(&self) -> &[CompiledResponder] {
        &self.responders
    }

    /// A responder by its name.
    pub fn responder(&self, name: &str) -> Option<(u32, &CompiledResponder)> {
        let mut responders = (0u32..).zip(&self.responders);
        responders.find(|(_, responder)| responder.plan.name == name)
    }

    /// The positions in [`Self::responders`] of those that react to an event about an object or a
    /// relation of this type, ascending. `kind` is absent for an event without a type.
    pub fn candidates(&self, event: &str, kind: Option<&str>) -> &[u32] {
        self.candidates.find(event, kind)
    }

    /// The entries that the goal of a run becomes, in order.
    pub fn goal(&self) -> &[CompiledEntry] {
        &self.goal
    }

    /// The schema of a type of objects: nothing if there is no such type, and nothing within it if
    /// the type takes any data.
    pub fn object(&self, kind: &str) -> Option<Option<&Schema>> {
        self.objects.get(kind).map(Option::as_ref)
    }

    /// A type of relations.
    pub fn relation(&self, kind: &str) -> Option<&CompiledRelation> {
        self.relations.get(kind)
    }

    /// The (type, field) pairs that look-ups compare: what an index is kept for.
    pub fn indexed_fields(&self) -> BTreeSet<(&str, &str)> {
        let worlds = self.worlds.values();
        worlds.flat_map(|world| world.indexed_fields()).collect()
    }

    /// The variables that expressions of its worlds mention.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.roots.iter().filter_map(|root| match root {
            Root::Env(name) => Some(name.as_str()),
            Root::Params
            | Root::Step(_)
            | Root::Item
            | Root::ItemIndex
            | Root::Resume
            | Root::Name(_) => None,
        })
    }
}

/// The entry that a goal becomes where no world says otherwise (seed 002).
fn default_goal() -> EntryPlan {
    let data = serde_json::json!({"goal": "{{ goal }}"});
    EntryPlan {
        as_name: None,
        if_exists: IfExists::Keep,
        key: None,
        make: MakePlan::Object {
            data: CanonicalJson::from_value(&data).ok(),
            kind: GOAL_OBJECT.to_owned(),
        },
        when: None,
    }
}

/// Checks what worlds say of each other: names of responders are unique, a type is declared alike
/// wherever it is, and every type that is named is declared by one of them.
fn references(plans: &BTreeMap<String, Arc<WorldPlan>>, faults: &mut CompileErrors) {
    let mut names = BTreeSet::new();
    let mut count = 0;
    for (path, plan) in plans {
        for responder in plan.all_responders() {
            count += 1;
            if !names.insert(&responder.name) {
                let words = "this name appears twice".to_owned();
                faults.push((format!("{path}/{}", responder.name), words));
            }
        }
    }
    if count > MAX_RESPONDERS {
        let words = format!("{count} responders are more than {MAX_RESPONDERS}");
        faults.push(("worlds".to_owned(), words));
    }
    let mut objects = BTreeMap::new();
    let mut relations = BTreeMap::new();
    for (path, plan) in plans {
        for (name, object) in &plan.objects {
            if objects
                .insert(name, object)
                .is_some_and(|other| other != object)
            {
                let words = "another world declares this type otherwise".to_owned();
                faults.push((format!("{path}/objects/{name}"), words));
            }
        }
        for (name, relation) in &plan.relations {
            let other = relations.insert(name, relation);
            if other.is_some_and(|other| other != relation) {
                let words = "another world declares this type otherwise".to_owned();
                faults.push((format!("{path}/relations/{name}"), words));
            }
        }
    }
    for (path, plan) in plans {
        let named = NamedTypes::of(plan);
        let unknown = named
            .objects
            .into_iter()
            .filter(|name| !objects.contains_key(name) && !is_built_in(name, plans));
        for name in unknown {
            let words = format!("there is no type of objects {name:?}");
            faults.push((path.clone(), words));
        }
        let unknown = named.relations.into_iter();
        for name in unknown.filter(|name| !relations.contains_key(name)) {
            let words = format!("there is no type of relations {name:?}");
            faults.push((path.clone(), words));
        }
    }
}

/// Returns `true` if a type of objects is one that no world declares: that of the objects that
/// represent steps, or that of the goal where no world says otherwise.
fn is_built_in(name: &str, plans: &BTreeMap<String, Arc<WorldPlan>>) -> bool {
    name == STEP_OBJECT || name == GOAL_OBJECT && plans.values().all(|plan| plan.goal.is_none())
}

/// The types that a world names, but for those in the triggers of its responders: an event may be
/// about either.
struct NamedTypes {
    objects: BTreeSet<String>,
    relations: BTreeSet<String>,
}

impl NamedTypes {
    fn of(plan: &WorldPlan) -> Self {
        let mut named = Self {
            objects: BTreeSet::new(),
            relations: BTreeSet::new(),
        };
        for relation in plan.relations.values() {
            let ends = relation.from.iter().chain(&relation.to);
            named.objects.extend(ends.cloned());
        }
        for responder in plan.all_responders() {
            let queries = responder.lookups.iter();
            for query in queries.filter_map(|lookup| lookup.find.query()) {
                named.objects.insert(query.kind.clone());
                let without = query.without.as_ref();
                named.objects.extend(without.map(|one| one.kind.clone()));
            }
            named.entries(&responder.then);
            if let ResponderWork::Emit(entries) = &responder.work {
                named.entries(entries);
            }
        }
        named.entries(plan.goal.as_deref().unwrap_or_default());
        named
    }

    fn entries(&mut self, entries: &[EntryPlan]) {
        for entry in entries {
            match &entry.make {
                MakePlan::Object { kind, .. } => drop(self.objects.insert(kind.clone())),
                MakePlan::Relation { kind, .. } => drop(self.relations.insert(kind.clone())),
                MakePlan::Patch { .. } | MakePlan::Remove { .. } => {}
            }
        }
    }
}
