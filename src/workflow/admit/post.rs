//! Checks what people and peers post to a run that loads worlds (seed 002): the result is the frames
//! of one input, or a refusal that writes nothing.

mod event;

use std::collections::BTreeSet;

use ktsu_ledger::event::plan::world::WorldBudget;
use ktsu_ledger::event::{
    Note, ObjectCreated, ObjectPatched, Post, Posted, Principal, RelationCreated, RelationRemoved,
    Violation, WorldEvent,
};
use ktsu_ledger::{Actor, CanonicalJson, Draft, Event, Hash};
use ktsu_projections::life::reserved::is_reserved;
use ktsu_projections::run::RunState;
use ktsu_projections::world::steps::is_step_object;
use ktsu_projections::world::{Responding, World, object};
use serde_json::{Value, json};

use crate::airlock::Schema;
use crate::definition::{CompiledWorlds, Definition};
use crate::failure_text::violations;
use crate::respond::misfit;
use crate::rules::{DecisionRules, UnknownRulesError};
pub use event::{EventMembers, PostedEvent};

/// The most events of one post. They are one append, and nothing comes between them.
pub const MAX_POST_EVENTS: usize = 256;

/// Events that come with one request.
#[derive(Debug, Clone)]
pub struct PostCommand {
    /// In order, at most [`MAX_POST_EVENTS`].
    pub events: Vec<PostedEvent>,
    /// The principal that posts them.
    pub by: Principal,
    /// Requests with the same key and events are recorded once.
    pub key: Option<String>,
    /// A frame since which nobody changed the object or the relation that the events are about, as
    /// far as the client knows.
    pub expected: Option<u64>,
}

/// A post that can be answered.
#[derive(Debug)]
pub enum PostAdmission {
    /// These frames are one input.
    New {
        /// The number of the post.
        n: u64,
        /// An event each.
        drafts: Vec<Draft>,
    },
    /// It was recorded before.
    Repeated {
        /// The number of the post.
        n: u64,
        /// Its first frame.
        first: u64,
    },
}

/// The reason why a post is refused. Nothing is recorded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// It loads none.
    #[error("the run loads no worlds")]
    NoWorlds,
    /// It has failed or was cancelled, or is a branch that waits.
    #[error("the run is {0}, so nothing can be posted to it")]
    NotOpen(&'static str),
    /// It is a branch of all frames of a complete run, and was not resumed.
    #[error("the branch was not resumed, so nothing can be posted to it")]
    NotResumed,
    /// A recompute asks what was asked, and nothing else.
    #[error("this is a recompute, not a run, so nothing can be posted to it")]
    IsRecompute,
    /// The budget has no room for it.
    #[error("the budget of the world is used up: {0}")]
    Exhausted(String),
    /// The key was used for other events.
    #[error("the idempotency key was used for another request")]
    KeyReused,
    /// Somebody else changed what the post is about.
    #[error("{}", stale_words(.id, *.actual, *.expected))]
    Stale {
        /// The object or the relation.
        id: String,
        /// The frame that was named.
        expected: u64,
        /// The last frame about it; nothing: it is not there.
        actual: Option<u64>,
    },
    /// A precondition names a frame that the run does not have.
    #[error("the run has no frame {expected}: its last is {last}")]
    NoSuchFrame {
        /// The frame that was named.
        expected: u64,
        /// The last frame of the run.
        last: u64,
    },
    /// A precondition, and several objects or none that it could be about.
    #[error("If-Match needs a post about one object or relation, and this one is about {0}")]
    NoSubject(usize),
    /// An event that does not fit the world.
    #[error("event {at}: {why}")]
    Unfit {
        /// The position of the event.
        at: usize,
        /// The reason.
        why: String,
        /// The violations of the schema of its type, if they are the reason.
        violations: Vec<Violation>,
    },
    /// It was decided by rules that this version does not have.
    #[error("the run is {0}")]
    Rules(#[from] UnknownRulesError),
}

fn stale_words(id: &str, actual: Option<u64>, expected: u64) -> String {
    match actual {
        Some(actual) => format!("frame {actual} changed {id:?}, after frame {expected}"),
        None => format!("there is no {id:?}, which frame {expected} should be about"),
    }
}

/// Checks a post.
///
/// # Errors
/// [`PostError`].
pub fn post(
    definition: &Definition,
    state: &RunState,
    command: PostCommand,
) -> Result<PostAdmission, PostError> {
    let worlds = definition.worlds().ok_or(PostError::NoWorlds)?;
    let responding = state.responding().ok_or(PostError::NoWorlds)?;
    DecisionRules::from_recorded(state.rules())?;
    let digest = digest(&command.events);
    if let Some(key) = &command.key
        && let Some(before) = responding.post_with_key(&command.by.id, key)
    {
        return match before.digest == digest {
            true => Ok(PostAdmission::Repeated {
                n: before.n,
                first: before.first,
            }),
            false => Err(PostError::KeyReused),
        };
    }
    check_open(worlds.budget, state, responding, command.events.len())?;
    if let Some(expected) = command.expected {
        let last = state.next_seq().saturating_sub(1);
        if expected > last {
            return Err(PostError::NoSuchFrame { expected, last });
        }
        check_unchanged(responding.head(), &command.events, expected)?;
    }
    let n = responding.next_post();
    let mut maker = PostMaker {
        worlds,
        // Each event is checked against the world that those before it leave.
        world: responding.head().clone(),
        by: &command.by,
        post: Post {
            digest,
            key: command.key,
            n,
        },
        next_seq: state.next_seq(),
        drafts: Vec::new(),
    };
    for (place, event) in (0u32..).zip(command.events) {
        maker.add(place, event)?;
    }
    let drafts = maker.drafts;
    Ok(PostAdmission::New { n, drafts })
}

/// BLAKE3 of the canonical text of events.
fn digest(events: &[PostedEvent]) -> String {
    let event = |event: &PostedEvent| {
        let ends = match event {
            PostedEvent::Relation {
                source_id,
                target_id,
                ..
            } => json!([source_id, target_id]),
            _ => Value::Null,
        };
        let kind = match event {
            PostedEvent::Object { kind, .. } | PostedEvent::Relation { kind, .. } => json!(kind),
            _ => Value::Null,
        };
        json!([event.event_type(), kind, event.named(), ends, event.data()])
    };
    let all: Value = events.iter().map(event).collect();
    let text = CanonicalJson::from_value(&all).unwrap_or_default();
    Hash::of(text.as_str().as_bytes()).to_string()
}

/// Checks that the run accepts so many events.
fn check_open(
    of_worlds: WorldBudget,
    state: &RunState,
    responding: &Responding,
    events: usize,
) -> Result<(), PostError> {
    if state.stream().kind() == "recompute" {
        return Err(PostError::IsRecompute);
    }
    if let Some(exhausted) = responding.exhausted() {
        return Err(PostError::Exhausted(exhausted.reasons.join(", ")));
    }
    if state.opens_when_resumed() && !state.takes_posts() {
        return Err(PostError::NotResumed);
    }
    if !state.takes_posts() {
        return Err(PostError::NotOpen(super::steer::status_text(state)));
    }
    let budget = responding.budget(of_worlds);
    let after = responding.activity().events().saturating_add(events as u64);
    match after > budget.max_events {
        true => Err(PostError::Exhausted(format!(
            "max_events={}",
            budget.max_events
        ))),
        false => Ok(()),
    }
}

/// Checks that the subject of a post has not changed since a frame: the last one about it, or any
/// behind that.
fn check_unchanged(world: &World, events: &[PostedEvent], expected: u64) -> Result<(), PostError> {
    let named = events
        .iter()
        .filter_map(|event| Some((event.is_about_relation(), event.named()?)));
    let named: BTreeSet<(bool, String)> = named.collect();
    let about = named.len();
    let mut named = named.into_iter();
    let (Some((is_relation, id)), None) = (named.next(), named.next()) else {
        return Err(PostError::NoSubject(about));
    };
    let actual = match is_relation {
        true => world.relation(&id).map(|relation| relation.changed),
        false => world.object(&id).map(|object| object.changed),
    };
    match actual.is_some_and(|actual| actual <= expected) {
        true => Ok(()),
        false => Err(PostError::Stale {
            id,
            expected,
            actual,
        }),
    }
}

/// Makes the frames of a post.
struct PostMaker<'a> {
    worlds: &'a CompiledWorlds,
    /// As the events so far leave it.
    world: World,
    by: &'a Principal,
    post: Post,
    next_seq: u64,
    drafts: Vec<Draft>,
}

impl PostMaker<'_> {
    fn add(&mut self, place: u32, event: PostedEvent) -> Result<(), PostError> {
        let at = place as usize;
        let made = self
            .event(place, event)
            .map_err(|(why, violations)| PostError::Unfit {
                at,
                why,
                violations,
            })?;
        if let Event::World(event) = &made {
            let seq = self.next_seq.saturating_add(u64::from(place));
            self.world.apply_event(seq, event);
        }
        // A root of its own: it follows from nothing in the run.
        self.drafts.push(Draft {
            scope: String::new(),
            actor: Actor::Principal(self.by.id.clone()),
            cause: Vec::new(),
            event: made,
        });
        Ok(())
    }

    fn event(&self, place: u32, event: PostedEvent) -> Result<Event, Unfit> {
        if let Some(name) = event
            .data()
            .and_then(|data| data.keys().find(|name| is_reserved(name)))
        {
            let words = format!("{name:?} is reserved: agents report such fields about themselves");
            return Err(unfit(words));
        }
        let subject = event.subject(self.post.n, place);
        if let Some(id) = subject.as_deref().filter(|id| is_step_object(id)) {
            return Err(unfit(format!("{id:?} stands for a step")));
        }
        let id = subject.unwrap_or_default();
        let post = self.post_of(place);
        let by = Some(self.by.clone());
        Ok(Event::World(match event {
            PostedEvent::Object { kind, data, .. } => {
                WorldEvent::ObjectCreated(self.object(id, kind, data, post)?)
            }
            PostedEvent::Patch { patch, .. } => {
                WorldEvent::ObjectPatched(self.patch(id, patch, post)?)
            }
            PostedEvent::Relation {
                kind,
                source_id,
                target_id,
                data,
                ..
            } => {
                let ends = (source_id, target_id);
                WorldEvent::RelationCreated(self.relation(id, kind, ends, data, post)?)
            }
            PostedEvent::Removal { .. } => WorldEvent::RelationRemoved(RelationRemoved {
                by,
                derived: None,
                id,
                post: Some(post),
            }),
            PostedEvent::Note { data } => WorldEvent::Noted(Note {
                by,
                data: canonical(Value::Object(data))?,
                derived: None,
                post: Some(post),
            }),
            PostedEvent::Kit { kind, data } => {
                let posted = Posted {
                    by: self.by.clone(),
                    data: canonical(Value::Object(data))?,
                    post,
                };
                let data = serde_json::to_value(&posted).unwrap_or_default();
                let data = canonical(data)?;
                return Ok(Event::Foreign { kind, data });
            }
        }))
    }

    fn object(
        &self,
        id: String,
        kind: String,
        data: EventMembers,
        post: Post,
    ) -> Result<ObjectCreated, Unfit> {
        let Some(schema) = self.worlds.object(&kind) else {
            return Err(unfit(format!("there is no type of objects {kind:?}")));
        };
        Ok(ObjectCreated {
            by: Some(self.by.clone()),
            data: checked(schema, data)?,
            derived: None,
            id,
            key: None,
            kind,
            post: Some(post),
        })
    }

    fn patch(&self, id: String, patch: EventMembers, post: Post) -> Result<ObjectPatched, Unfit> {
        let Some(before) = self.world.object(&id) else {
            return Err(unfit(format!("there is no object {id:?}")));
        };
        let patch = canonical(Value::Object(patch))?;
        let merged = object::merge(&before.data, &patch);
        let schema = self.worlds.object(&before.kind).flatten();
        check_schema(schema, &merged.to_value())?;
        Ok(ObjectPatched {
            by: Some(self.by.clone()),
            derived: None,
            id,
            patch,
            post: Some(post),
            withheld: CanonicalJson::null(),
        })
    }

    fn relation(
        &self,
        id: String,
        kind: String,
        (source_id, target_id): (String, String),
        data: EventMembers,
        post: Post,
    ) -> Result<RelationCreated, Unfit> {
        let Some(declared) = self.worlds.relation(&kind) else {
            return Err(unfit(format!("there is no type of relations {kind:?}")));
        };
        let event = RelationCreated {
            by: Some(self.by.clone()),
            data: checked(declared.schema.as_ref(), data)?,
            derived: None,
            id,
            kind,
            post: Some(post),
            source_id,
            target_id,
        };
        match misfit(&declared.plan, &self.world, &event) {
            Some(words) => Err(unfit(words)),
            None => Ok(event),
        }
    }

    /// The post as an event has it: the first one alone has the key.
    fn post_of(&self, place: u32) -> Post {
        Post {
            key: self.post.key.clone().filter(|_| place == 0),
            ..self.post.clone()
        }
    }
}

/// The reason why an event does not fit, and the violations of the schema of its type.
type Unfit = (String, Vec<Violation>);

fn unfit(why: String) -> Unfit {
    (why, Vec::new())
}

fn canonical(value: Value) -> Result<CanonicalJson, Unfit> {
    CanonicalJson::from_value(&value).map_err(|_| unfit("the data is nested too deeply".to_owned()))
}

fn checked(schema: Option<&Schema>, data: EventMembers) -> Result<CanonicalJson, Unfit> {
    let data = Value::Object(data);
    check_schema(schema, &data)?;
    canonical(data)
}

fn check_schema(schema: Option<&Schema>, value: &Value) -> Result<(), Unfit> {
    let found = schema.map_or_else(Vec::new, |schema| schema.check(value));
    let Some(first) = found.first() else {
        return Ok(());
    };
    let words = ktsu_schema::message_at(&first.message, &first.pointer);
    Err((words, violations(found)))
}
