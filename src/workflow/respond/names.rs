//! The names that expressions of responders see (those of a world file).

use std::collections::{BTreeMap, BTreeSet};

use jmespath::{Rcvar, Variable};
use ktsu_ledger::event::EnvValue;
use ktsu_projections::world::{Trigger, TriggerSubject, World, WorldObject, WorldRelation};
use serde_json::Value;

use super::RespondContext;
use crate::expression::{NameLookup, Root, from_json, from_value};

/// The names of one responder, at one item.
#[derive(Clone)]
pub(super) struct ResponderNames<'a> {
    context: RespondContext<'a>,
    /// A trigger, and the world as of it. The goal of a run has neither.
    trigger: Option<(&'a Trigger, &'a World)>,
    /// Later ones come before earlier ones; they do not have the same names.
    locals: Vec<&'a BTreeMap<String, Rcvar>>,
    item: Option<(Rcvar, u32)>,
    reply: Option<&'a (&'static str, Rcvar)>,
}

impl<'a> ResponderNames<'a> {
    /// Of what the goal of a run becomes.
    pub(super) fn of_goal(context: RespondContext<'a>) -> Self {
        Self {
            context,
            trigger: None,
            locals: Vec::new(),
            item: None,
            reply: None,
        }
    }

    /// Of a trigger, in the world as of it.
    pub(super) fn of_trigger(
        context: RespondContext<'a>,
        trigger: &'a Trigger,
        world: &'a World,
    ) -> Self {
        Self {
            trigger: Some((trigger, world)),
            ..Self::of_goal(context)
        }
    }

    /// More names: what look-ups found, or what entries made.
    pub(super) fn with_locals<'b>(&self, more: &'b BTreeMap<String, Rcvar>) -> ResponderNames<'b>
    where
        'a: 'b,
    {
        let mut names: ResponderNames<'b> = self.clone();
        names.locals.push(more);
        names
    }

    /// With `item` and `item_index`.
    pub(super) fn with_item(mut self, item: Option<Rcvar>, index: u32) -> Self {
        self.item = item.map(|item| (item, index));
        self
    }

    /// With `reply` or `result`.
    pub(super) fn with_reply(mut self, reply: &'a (&'static str, Rcvar)) -> Self {
        self.reply = Some(reply);
        self
    }

    /// Returns `true` if a variable is a secret, which no expression of a responder sees.
    pub(super) fn is_secret(&self, name: &str) -> bool {
        self.context.env.get(name) == Some(&EnvValue::Secret)
    }

    /// The values that a responder mentions of its trigger, converted once: expressions mention
    /// them for every item and entry.
    pub(super) fn of_trigger_once(&self, mentioned: &BTreeSet<Root>) -> BTreeMap<String, Rcvar> {
        let names = mentioned.iter().filter_map(|root| match root {
            Root::Name(name) | Root::Step(name) => Some(name),
            Root::Params | Root::Env(_) | Root::Item | Root::ItemIndex | Root::Resume => None,
        });
        let values = names.filter_map(|name| Some((name.clone(), self.named(name)?)));
        values.collect()
    }

    fn named(&self, name: &str) -> Option<Rcvar> {
        if let Some(value) = self.locals.iter().rev().find_map(|locals| locals.get(name)) {
            return Some(value.clone());
        }
        if let Some((_, value)) = self.reply.filter(|(reply, _)| *reply == name) {
            return Some(value.clone());
        }
        if name == "goal" {
            return (self.context.goal)();
        }
        let (trigger, world) = self.trigger?;
        let end = |id: &str| world.object(id).map(|object| shown_object(object));
        match (name, &trigger.subject) {
            ("event", subject) => Some(shown_event(trigger, subject)),
            ("object", TriggerSubject::Object { object, .. }) => Some(shown_object(object)),
            ("before", TriggerSubject::Object { before, .. }) => {
                before.as_deref().map(shown_object)
            }
            ("patch", TriggerSubject::Object { patch, .. }) => patch.as_ref().map(from_json),
            ("relation", TriggerSubject::Relation(relation)) => Some(shown_relation(relation)),
            ("source", TriggerSubject::Relation(relation)) => end(&relation.source_id),
            ("target", TriggerSubject::Relation(relation)) => end(&relation.target_id),
            _ => None,
        }
    }
}

impl NameLookup for ResponderNames<'_> {
    fn get(&self, root: &Root) -> Option<Rcvar> {
        match root {
            Root::Params => Some((self.context.params)()),
            Root::Env(name) => match self.context.env.get(name)? {
                EnvValue::Value(value) => Some(from_value(&Value::from(value.as_str()))),
                EnvValue::Secret => None,
            },
            Root::Item => self.item.as_ref().map(|(item, _)| item.clone()),
            Root::ItemIndex => {
                let (_, index) = self.item.as_ref()?;
                Some(from_value(&Value::from(*index)))
            }
            Root::Name(name) | Root::Step(name) => self.named(name),
            Root::Resume => None,
        }
    }
}

/// `{data, id, type}`.
pub(super) fn shown_object(object: &WorldObject) -> Rcvar {
    shown(&object.id, &object.kind, from_json(&object.data), [])
}

/// An object or a relation by its parts.
pub(super) fn shown<const N: usize>(
    id: &str,
    kind: &str,
    data: Rcvar,
    more: [(&str, &str); N],
) -> Rcvar {
    let text = |text: &str| Rcvar::new(Variable::String(text.to_owned()));
    let more = more
        .into_iter()
        .map(|(name, value)| (name.to_owned(), text(value)));
    let mut members: BTreeMap<String, Rcvar> = more.collect();
    members.insert("data".to_owned(), data);
    members.insert("id".to_owned(), text(id));
    members.insert("type".to_owned(), text(kind));
    Rcvar::new(Variable::Object(members))
}

/// `{data, id, source_id, target_id, type}`.
fn shown_relation(relation: &WorldRelation) -> Rcvar {
    let ends = [
        ("source_id", &*relation.source_id),
        ("target_id", &*relation.target_id),
    ];
    shown(
        &relation.id,
        &relation.kind,
        from_json(&relation.data),
        ends,
    )
}

/// `{actor, type}`, and `data` of what was posted.
fn shown_event(trigger: &Trigger, subject: &TriggerSubject) -> Rcvar {
    let text = |text: &str| Rcvar::new(Variable::String(text.to_owned()));
    let mut members = BTreeMap::from([
        ("actor".to_owned(), text(&trigger.actor)),
        ("type".to_owned(), text(&trigger.kind)),
    ]);
    if let TriggerSubject::Posted(data) = subject {
        members.insert("data".to_owned(), from_json(data));
    }
    Rcvar::new(Variable::Object(members))
}
