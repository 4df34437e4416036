//! A responder of a world, compiled: its look-ups, its guard, and what it makes or asks.
//!
//! Every name at the root of an expression is known where the expression stands; what a trigger
//! does not have is null. A guard or a template never sees a secret.

use std::collections::BTreeSet;

use ktsu_ledger::CanonicalJson;
use ktsu_ledger::event::plan::world::{
    AskPlan, EntryPlan, FindPlan, ForEachPlan, IfExists, LookupPlan, MakePlan, MatchPlan,
    MessageRole, ResponderPlan, ResponderWork, WithoutPlan,
};
use serde_json::Value;

use super::{CompileErrors, collect_error, output_schema};
use crate::airlock::Schema;
use crate::expression::{Expression, Root, Vocabulary};
use crate::template::Template;
use crate::world::{self, TriggerKind};

/// A responder, compiled.
#[derive(Debug)]
pub struct CompiledResponder {
    /// The plan that it was compiled from.
    pub plan: ResponderPlan,
    /// In file order: each sees those before it.
    pub lookups: Vec<CompiledLookup>,
    /// Falsy: it does not fire.
    pub when: Option<Expression>,
    /// The items that it goes through; absent: it acts once.
    pub for_each: Option<CompiledForEach>,
    /// The work that it does for each item.
    pub work: CompiledResponse,
    /// Its reaction to a reply or a result.
    pub then: Vec<CompiledEntry>,
    roots: BTreeSet<Root>,
}

/// A name of `with`.
#[derive(Debug)]
pub struct CompiledLookup {
    /// The name.
    pub name: String,
    /// The look-up that finds its value.
    pub find: CompiledFind,
}

/// A look-up, compiled.
#[derive(Debug)]
pub enum CompiledFind {
    /// The number of objects.
    Count(CompiledQuery),
    /// The object that was created first, or null.
    First(CompiledQuery),
    /// The object with this id, or null.
    Object(Template),
    /// The objects, in order of creation.
    Objects(CompiledQuery),
}

/// Objects of a type with given fields.
#[derive(Debug)]
pub struct CompiledQuery {
    /// The type of the objects.
    pub kind: String,
    /// Conditions on fields: all of them hold.
    pub fields: Vec<CompiledMatch>,
    /// The objects that must not exist beside an object, which is `item` in these conditions.
    pub without: Option<(String, Vec<CompiledMatch>)>,
}

/// A condition on one field.
#[derive(Debug)]
pub struct CompiledMatch {
    /// The name of the field.
    pub field: String,
    /// The value, or with `any` the array of values, one of which the field equals.
    pub value: Template,
    /// True if one of several values is enough.
    pub any: bool,
}

/// The items that a responder goes through.
#[derive(Debug)]
pub enum CompiledForEach {
    /// The items of this array.
    From(Expression),
    /// These values, a list.
    Items(Template),
}

/// The work that a responder does for an item.
#[derive(Debug)]
pub enum CompiledResponse {
    /// It asks a model.
    Ask(CompiledAsk),
    /// It makes these, in order.
    Emit(Vec<CompiledEntry>),
    /// It runs a workflow inline.
    Run {
        /// A key of the plan's workflows.
        workflow: String,
        /// An object of templates.
        params: Option<Template>,
    },
}

/// A question to a model.
#[derive(Debug)]
pub struct CompiledAsk {
    /// The messages, in order.
    pub messages: Vec<(MessageRole, Template)>,
    /// The schema of `reply.output`, reserved fields not required.
    pub output: Option<Schema>,
}

/// One entry of `emit`, `then` or `goal`.
#[derive(Debug)]
pub struct CompiledEntry {
    /// The name that later entries of the item have for it.
    pub as_name: Option<String>,
    /// The object is made once for each value of this.
    pub key: Option<Template>,
    /// The rule for an object whose key exists.
    pub if_exists: IfExists,
    /// The event that it makes.
    pub make: CompiledMake,
    /// Falsy: nothing is made.
    pub when: Option<Expression>,
}

/// The event that an entry makes.
#[derive(Debug)]
pub enum CompiledMake {
    /// `object.created`.
    Object {
        /// The type.
        kind: String,
        /// An object of templates.
        data: Option<Template>,
    },
    /// `object.patched`.
    Patch {
        /// The id of the object.
        id: Template,
        /// An object of templates.
        data: Template,
    },
    /// `relation.created`.
    Relation {
        /// The type.
        kind: String,
        /// The id of the object it begins at.
        from: Template,
        /// The id of the object it ends at.
        to: Template,
        /// Its id; absent: the type and both ends identify it.
        id: Option<Template>,
        /// An object of templates.
        data: Option<Template>,
    },
    /// `command.requested`: told to other systems.
    Publish {
        /// Makes text.
        topic: Template,
        /// A tree of templates.
        payload: Option<Template>,
    },
    /// `relation.removed`.
    Remove {
        /// The id of the relation.
        relation: Template,
    },
}

impl CompiledResponder {
    /// Compiles a responder; what is wrong is added to `faults`, each with a place that begins with
    /// `path`.
    pub fn compile(plan: &ResponderPlan, path: &str, faults: &mut CompileErrors) -> Option<Self> {
        let at = format!("{path}/{}", plan.name);
        let mut parts = PartCompiler::new(&at, faults);
        parts.triggers(plan);
        let lookups: Vec<_> = plan
            .lookups
            .iter()
            .filter_map(|lookup| parts.lookup(lookup))
            .collect();
        let when = parts.expression(plan.when.as_ref(), "when");
        let for_each = match &plan.for_each {
            None => None,
            Some(ForEachPlan::From(from)) => {
                let from = parts.expression(Some(from), "for_each/from");
                from.map(CompiledForEach::From)
            }
            Some(ForEachPlan::Items(items)) => {
                let items = parts.tree(Some(items), "for_each/items");
                items.map(CompiledForEach::Items)
            }
        };
        if plan.for_each.is_some() {
            parts.know(["item", "item_index"]);
        }
        let (work, gives) = parts.work(&plan.work);
        parts.know(gives.iter().copied());
        let mut then = parts.entries(&plan.then, "then");
        let publish = plan.publish.as_ref().and_then(|publish| {
            let payload = parts.tree(publish.payload.as_ref(), "publish/payload");
            let topic = parts.text(&publish.topic, "publish/topic")?;
            Some(CompiledEntry {
                as_name: None,
                key: None,
                if_exists: IfExists::default(),
                make: CompiledMake::Publish { topic, payload },
                when: None,
            })
        });
        let roots = parts.finish()?;
        // What is told to other systems comes behind all else that the responder makes.
        let mut work = work?;
        if let CompiledResponse::Emit(entries) = &mut work {
            entries.extend(publish);
        } else {
            then.extend(publish);
        }
        Some(Self {
            plan: plan.clone(),
            lookups,
            when,
            for_each,
            work,
            then,
            roots,
        })
    }

    /// Every name that its expressions mention.
    pub fn roots(&self) -> &BTreeSet<Root> {
        &self.roots
    }
}

/// Compiles the entries of `goal:`, which know the goal, the params and the environment.
pub(super) fn goal(
    entries: &[EntryPlan],
    at: &str,
    faults: &mut CompileErrors,
) -> Option<(Vec<CompiledEntry>, BTreeSet<Root>)> {
    let mut parts = PartCompiler::new(at, faults);
    parts.know(["goal"]);
    let entries = parts.entries(entries, "goal");
    Some((entries, parts.finish()?))
}

/// Compiles the parts of a responder, and checks the names in them.
struct PartCompiler<'a> {
    at: &'a str,
    faults: &'a mut CompileErrors,
    before: usize,
    known: BTreeSet<String>,
    roots: BTreeSet<Root>,
}

impl<'a> PartCompiler<'a> {
    fn new(at: &'a str, faults: &'a mut CompileErrors) -> Self {
        Self {
            at,
            before: faults.len(),
            faults,
            known: BTreeSet::new(),
            roots: BTreeSet::new(),
        }
    }

    /// The names that were mentioned, unless something is wrong.
    fn finish(self) -> Option<BTreeSet<Root>> {
        (self.faults.len() == self.before).then_some(self.roots)
    }

    fn know<'n>(&mut self, names: impl IntoIterator<Item = &'n str>) {
        self.known.extend(names.into_iter().map(str::to_owned));
    }

    fn fault(&mut self, place: &str, words: impl Into<String>) {
        self.faults
            .push((format!("{}/{place}", self.at), words.into()));
    }

    fn limit(&mut self, count: usize, most: usize, place: &str, what: &str) {
        if count > most {
            self.fault(place, format!("{count} {what} are more than {most}"));
        }
    }

    fn triggers(&mut self, plan: &ResponderPlan) {
        if !world::is_identifier(&plan.name) {
            self.fault("name", "this is no name");
        }
        self.limit(plan.on.len(), world::MAX_TRIGGERS, "on", "events");
        let after = plan.after_ms.unwrap_or(1);
        if !(1..=world::MAX_AFTER_MS).contains(&after) {
            let words = format!("{after} ms are not between 1 and {}", world::MAX_AFTER_MS);
            self.fault("after", words);
        }
        for event in &plan.on {
            match TriggerKind::of(event) {
                Some(kind) => self.know(kind.names().iter().copied()),
                None => self.fault("on", format!("there is no event {event:?}")),
            }
        }
        self.know(["event", "goal"]);
        let entries = plan.then.len()
            + match &plan.work {
                ResponderWork::Emit(entries) => entries.len(),
                ResponderWork::Ask(_) | ResponderWork::Run(_) => 0,
            };
        self.limit(entries, world::MAX_ENTRIES, "emit", "entries");
        self.limit(plan.lookups.len(), world::MAX_LOOKUPS, "with", "look-ups");
        let no_reply = matches!(plan.work, ResponderWork::Emit(_));
        if no_reply && !plan.then.is_empty() {
            self.fault("then", "there is no reply to react to");
        }
    }

    /// A template whose names were all known where it stands.
    fn template(&mut self, value: &Value, place: &str) -> Option<Template> {
        let at = format!("{}/{place}", self.at);
        let template = Template::parse_with(value, Vocabulary::Responder);
        let template = collect_error(template, self.faults, &at)?;
        self.mentioned(template.roots(), place);
        Some(template)
    }

    fn tree(&mut self, tree: Option<&CanonicalJson>, place: &str) -> Option<Template> {
        self.template(&tree?.to_value(), place)
    }

    fn text(&mut self, text: &str, place: &str) -> Option<Template> {
        self.template(&Value::from(text), place)
    }

    fn expression(&mut self, source: Option<&String>, place: &str) -> Option<Expression> {
        let at = format!("{}/{place}", self.at);
        let expression = Expression::parse_with(source?, Vocabulary::Responder);
        let expression = collect_error(expression, self.faults, &at)?;
        self.mentioned(expression.roots(), place);
        Some(expression)
    }

    fn mentioned(&mut self, roots: &[Root], place: &str) {
        for root in roots {
            let name = match root {
                Root::Params | Root::Env(_) => None,
                Root::Item => Some("item"),
                Root::ItemIndex => Some("item_index"),
                Root::Resume => Some("resume"),
                Root::Name(name) | Root::Step(name) => Some(name.as_str()),
            };
            if let Some(name) = name.filter(|name| !self.known.contains(*name)) {
                self.fault(place, format!("there is no name {name:?} here"));
            }
        }
        self.roots.extend(roots.iter().cloned());
    }

    /// A new name, which must not be known yet.
    fn name(&mut self, name: &str, place: &str) {
        if !world::is_identifier(name) || world::is_reserved_name(name) {
            self.fault(place, format!("{name:?} cannot be a name"));
        } else if !self.known.insert(name.to_owned()) {
            self.fault(place, format!("the name {name:?} appears twice"));
        }
    }

    fn lookup(&mut self, plan: &LookupPlan) -> Option<CompiledLookup> {
        let place = format!("with/{}", plan.name);
        let find = match &plan.find {
            FindPlan::Object(id) => self.text(id, &place).map(CompiledFind::Object),
            FindPlan::Count(_) | FindPlan::First(_) | FindPlan::Objects(_) => {
                let query = self.query(plan, &place);
                query.map(|query| match &plan.find {
                    FindPlan::Count(_) => CompiledFind::Count(query),
                    FindPlan::First(_) => CompiledFind::First(query),
                    FindPlan::Objects(_) | FindPlan::Object(_) => CompiledFind::Objects(query),
                })
            }
        };
        self.name(&plan.name, &place);
        Some(CompiledLookup {
            name: plan.name.clone(),
            find: find?,
        })
    }

    fn query(&mut self, plan: &LookupPlan, place: &str) -> Option<CompiledQuery> {
        let query = plan.find.query()?;
        let fields = self.conditions(&query.fields, &format!("{place}/where"));
        let without = query.without.as_ref().map(|without| {
            let WithoutPlan { kind, fields } = without;
            // Here `item` is the object that is looked at, whatever the responder goes through.
            self.know(["item"]);
            let fields = self.conditions(fields, &format!("{place}/without/where"));
            self.known.remove("item");
            (kind.clone(), fields)
        });
        Some(CompiledQuery {
            kind: query.kind.clone(),
            fields,
            without,
        })
    }

    fn conditions(
        &mut self,
        fields: &std::collections::BTreeMap<String, MatchPlan>,
        place: &str,
    ) -> Vec<CompiledMatch> {
        self.limit(fields.len(), world::MAX_CONDITIONS, place, "conditions");
        let compiled = fields.iter().filter_map(|(field, condition)| {
            let (value, any) = match condition {
                MatchPlan::Equals(value) => (value, false),
                MatchPlan::In(value) => (value, true),
            };
            Some(CompiledMatch {
                field: field.clone(),
                value: self.tree(Some(value), &format!("{place}/{field}"))?,
                any,
            })
        });
        compiled.collect()
    }

    /// The work, and the names that its outcome adds.
    fn work(
        &mut self,
        plan: &ResponderWork,
    ) -> (Option<CompiledResponse>, &'static [&'static str]) {
        match plan {
            ResponderWork::Emit(entries) => {
                let entries = self.entries(entries, "emit");
                (Some(CompiledResponse::Emit(entries)), &[])
            }
            ResponderWork::Ask(ask) => {
                let ask = self.ask(ask);
                (Some(CompiledResponse::Ask(ask)), &["reply"])
            }
            ResponderWork::Run(child) => {
                let params = self.tree(child.params.as_ref(), "run/params");
                let workflow = child.workflow.clone();
                let run = CompiledResponse::Run { workflow, params };
                (Some(run), &["result"])
            }
        }
    }

    fn ask(&mut self, plan: &AskPlan) -> CompiledAsk {
        let count = plan.messages.len();
        self.limit(count, world::MAX_MESSAGES, "ask/messages", "messages");
        let messages = plan.messages.iter().enumerate();
        let messages = messages.filter_map(|(place, message)| {
            let content = self.text(&message.content, &format!("ask/messages/{place}"))?;
            Some((message.role, content))
        });
        let messages = messages.collect();
        let at = format!("{}/ask/output/schema", self.at);
        CompiledAsk {
            messages,
            output: output_schema(plan.output.as_ref(), self.faults, &at),
        }
    }

    fn entries(&mut self, entries: &[EntryPlan], place: &str) -> Vec<CompiledEntry> {
        let entries = entries.iter().enumerate();
        let compiled =
            entries.filter_map(|(at, entry)| self.entry(entry, &format!("{place}/{at}")));
        compiled.collect()
    }

    fn entry(&mut self, plan: &EntryPlan, place: &str) -> Option<CompiledEntry> {
        let when = self.expression(plan.when.as_ref(), &format!("{place}/when"));
        let key = plan.key.as_ref();
        let key = key.and_then(|key| self.text(key, &format!("{place}/key")));
        let make = self.make(&plan.make, place);
        if let Some(name) = &plan.as_name {
            self.name(name, &format!("{place}/as"));
        }
        Some(CompiledEntry {
            as_name: plan.as_name.clone(),
            key,
            if_exists: plan.if_exists,
            make: make?,
            when,
        })
    }

    fn make(&mut self, plan: &MakePlan, place: &str) -> Option<CompiledMake> {
        let data_at = format!("{place}/data");
        match plan {
            MakePlan::Object { kind, data } => Some(CompiledMake::Object {
                kind: kind.clone(),
                data: self.tree(data.as_ref(), &data_at),
            }),
            MakePlan::Patch { id, data } => {
                let id = self.text(id, &format!("{place}/id"));
                let data = self.tree(Some(data), &data_at)?;
                Some(CompiledMake::Patch { id: id?, data })
            }
            MakePlan::Relation {
                kind,
                from,
                to,
                id,
                data,
            } => {
                let from = self.text(from, &format!("{place}/from"));
                let to = self.text(to, &format!("{place}/to"));
                let id = id.as_ref();
                Some(CompiledMake::Relation {
                    kind: kind.clone(),
                    id: id.and_then(|id| self.text(id, &format!("{place}/id"))),
                    data: self.tree(data.as_ref(), &data_at),
                    from: from?,
                    to: to?,
                })
            }
            MakePlan::Remove { relation } => Some(CompiledMake::Remove {
                relation: self.text(relation, &format!("{place}/remove"))?,
            }),
        }
    }
}
