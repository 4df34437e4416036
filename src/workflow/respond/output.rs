//! The output of one entry, and the check whether it is valid.

use jmespath::Rcvar;
use ktsu_ledger::event::plan::world::{IfExists, RelationType};
use ktsu_ledger::event::{
    CommandKind, Derivation, ObjectCreated, ObjectPatched, OutputRejected, RelationCreated,
    RelationRemoved, ResponderFailed, Violation, WorldCommand, WorldEvent,
};
use ktsu_ledger::topic::is_topic;
use ktsu_ledger::{CanonicalJson, Cause, Draft, Event};
use ktsu_projections::world::derivation::{GOAL_ACTOR, relation_id};
use ktsu_projections::world::steps::is_step_object;
use ktsu_projections::world::{TriggerKey, World, object};
use serde_json::{Map, Value};

use super::names::{ResponderNames, shown};
use super::{RespondContext, Response, actor, output_key};
use crate::airlock::{self, Schema};
use crate::definition::{CompiledEntry, CompiledMake};
use crate::expression::{EvaluationError, from_json, truthy};
use crate::failure_text::{clipped, violations};
use crate::rules::DecisionRules;
use crate::template::{Template, text_of};
use crate::world::MAX_ID_CHARS;

/// Makes the outputs of one responder for one trigger.
pub(super) struct Maker<'a> {
    pub(super) context: RespondContext<'a>,
    /// The world that outputs are checked against.
    pub(super) head: &'a World,
    /// Nobody: the goal of the run.
    pub(super) responder: Option<&'a str>,
    pub(super) cause: Vec<Cause>,
    /// The trigger's.
    pub(super) key: Option<&'a TriggerKey>,
    /// For a reaction to a reply: the frame that the question followed from. What people changed
    /// behind it stays.
    pub(super) trigger: Option<u64>,
}

/// The output that an entry made.
pub(super) struct Made {
    /// Nothing: it is there already.
    pub(super) event: Option<WorldEvent>,
    /// The value that later entries see of it.
    pub(super) shown: Rcvar,
}

/// The reason why an entry made nothing, though it should have.
pub(super) enum Refused {
    /// It could not be evaluated.
    Failed(EvaluationError),
    /// It made something that is not valid.
    Rejected(Box<Rejection>),
}

/// An output that is not valid.
pub(super) struct Rejection {
    code: &'static str,
    message: String,
    errors: Vec<Violation>,
    /// As it would have been.
    event: WorldEvent,
}

impl From<EvaluationError> for Refused {
    fn from(error: EvaluationError) -> Self {
        Self::Failed(error)
    }
}

type At = (Option<u32>, u32);

impl Maker<'_> {
    /// The output that an entry makes; `None` if its guard is falsy or cannot be evaluated.
    pub(super) fn make(
        &self,
        entry: &CompiledEntry,
        at: At,
        names: &ResponderNames<'_>,
    ) -> Result<Option<Made>, Refused> {
        if let Some(when) = &entry.when
            && !when.evaluate(names).is_ok_and(|value| truthy(&value))
        {
            return Ok(None);
        }
        let derived = self.derivation(at);
        let made = match &entry.make {
            CompiledMake::Object { kind, data } => {
                let data = self.data(data.as_ref(), names)?;
                let key = entry.key.as_ref().map(|key| self.key_text(key, names));
                self.object(
                    kind,
                    data,
                    (key.transpose()?, entry.if_exists),
                    (derived, at),
                )?
            }
            CompiledMake::Patch { id, data } => {
                let id = self.text(id, names)?;
                let patch = self.data(Some(data), names)?;
                self.patch(id, patch, derived)?
            }
            CompiledMake::Relation {
                kind,
                from,
                to,
                id,
                data,
            } => {
                let (from, to) = (self.text(from, names)?, self.text(to, names)?);
                let given = id.as_ref().map(|id| self.text(id, names)).transpose()?;
                let event = RelationCreated {
                    by: None,
                    data: self.data(data.as_ref(), names)?,
                    derived: Some(derived),
                    id: given.unwrap_or_else(|| relation_id(kind, &from, &to)),
                    kind: kind.clone(),
                    post: None,
                    source_id: from,
                    target_id: to,
                };
                self.relation(event)?
            }
            CompiledMake::Publish { topic, payload } => {
                let shown = from_json(&CanonicalJson::null());
                let event = Some(self.command((topic, payload.as_ref()), derived, names)?);
                Made { event, shown }
            }
            CompiledMake::Remove { relation } => {
                let id = self.text(relation, names)?;
                let shown = shown(&id, "", from_json(&CanonicalJson::null()), []);
                let event = WorldEvent::RelationRemoved(RelationRemoved {
                    by: None,
                    derived: Some(derived),
                    id,
                    post: None,
                });
                let event = Some(within_limits(event)?);
                Made { event, shown }
            }
        };
        Ok(Some(made))
    }

    /// A draft of an event.
    pub(super) fn draft(&self, event: WorldEvent) -> Draft {
        Draft {
            scope: String::new(),
            actor: actor(self.responder),
            cause: self.cause.clone(),
            event: Event::World(event),
        }
    }

    /// The response to a refusal. `address`: of the task whose reply it was made of.
    pub(super) fn refuse(&self, at: At, address: Option<&str>, refused: Refused) -> Response {
        let failed = |code: &str, message: &str| {
            self.draft(WorldEvent::Failed(ResponderFailed {
                address: address.map(str::to_owned),
                code: code.to_owned(),
                entry: Some(at.1),
                item: at.0,
                message: clipped(message.to_owned()),
                responder: self.responder.unwrap_or(GOAL_ACTOR).to_owned(),
            }))
        };
        match &refused {
            Refused::Failed(error) => {
                Response::Failed(Box::new(failed("expression_failed", &error.message)))
            }
            Refused::Rejected(rejection) => {
                let failed = failed(rejection.code, &rejection.message);
                Response::Rejected(Box::new([self.rejection(at, refused), failed]))
            }
        }
    }

    /// `output.rejected`.
    pub(super) fn rejection(&self, at: At, refused: Refused) -> Draft {
        let derived = self.derivation(at);
        let rejected = match refused {
            Refused::Failed(error) => OutputRejected {
                code: "expression_failed".to_owned(),
                derived,
                errors: Vec::new(),
                kind: "object.created".to_owned(),
                message: clipped(error.message),
                output: CanonicalJson::null(),
            },
            Refused::Rejected(rejection) => {
                let event = Event::World(rejection.event);
                let output = CanonicalJson::from_value(&event.data()).unwrap_or_default();
                OutputRejected {
                    code: rejection.code.to_owned(),
                    derived,
                    errors: rejection.errors,
                    kind: event.kind().to_owned(),
                    message: clipped(rejection.message),
                    output,
                }
            }
        };
        self.draft(WorldEvent::Rejected(rejected))
    }

    fn derivation(&self, at: At) -> Derivation {
        Derivation {
            entry: at.1,
            item: at.0,
            responder: self.responder.map(str::to_owned),
        }
    }

    fn object(
        &self,
        kind: &str,
        data: CanonicalJson,
        (key, if_exists): (Option<String>, IfExists),
        (derived, at): (Derivation, At),
    ) -> Result<Made, Refused> {
        let id = match &key {
            Some(key) => TriggerKey::keyed(kind, key).object_id(kind),
            None => output_key(self.key, self.responder, at).object_id(kind),
        };
        let shown = shown(&id, kind, from_json(&data), []);
        // The first one is judged by what is there when it is appended.
        if key.is_some() && self.head.object(&id).is_some() {
            return match if_exists {
                IfExists::Keep => Ok(Made { event: None, shown }),
                IfExists::Patch => self.patch(id, data, derived),
            };
        }
        let schema = self.context.worlds.object(kind).flatten();
        let value = data.to_value();
        let event = WorldEvent::ObjectCreated(ObjectCreated {
            by: None,
            data,
            derived: Some(derived),
            id,
            key,
            kind: kind.to_owned(),
            post: None,
        });
        let event = Some(checked(
            schema,
            &value,
            within_limits(event)?,
            self.context.rules,
        )?);
        Ok(Made { event, shown })
    }

    fn patch(
        &self,
        id: String,
        patch: CanonicalJson,
        derived: Derivation,
    ) -> Result<Made, Refused> {
        let before = self.head.object(&id).cloned();
        let (patch, withheld) = match (&before, self.trigger) {
            (Some(before), Some(since)) => {
                divide(&patch, |member| before.changed_by_person(member, since))
            }
            _ => (patch, CanonicalJson::null()),
        };
        let event = within_limits(WorldEvent::ObjectPatched(ObjectPatched {
            by: None,
            derived: Some(derived),
            id: id.clone(),
            patch: patch.clone(),
            post: None,
            withheld,
        }))?;
        let Some(before) = before.filter(|_| !is_step_object(&id)) else {
            let message = match is_step_object(&id) {
                true => format!("{id:?} stands for a step, which no responder patches"),
                false => format!("there is no object {id:?}"),
            };
            return Err(rejected("unknown_object", message, Vec::new(), event));
        };
        let merged = object::merge(&before.data, &patch);
        let shown = shown(&id, &before.kind, from_json(&merged), []);
        let schema = self.context.worlds.object(&before.kind).flatten();
        let event = Some(checked(
            schema,
            &merged.to_value(),
            event,
            self.context.rules,
        )?);
        Ok(Made { event, shown })
    }

    fn relation(&self, event: RelationCreated) -> Result<Made, Refused> {
        let ends = [
            ("source_id", &*event.source_id),
            ("target_id", &*event.target_id),
        ];
        let shown = shown(&event.id, &event.kind, from_json(&event.data), ends);
        let declared = self.context.worlds.relation(&event.kind);
        let wrong = declared.and_then(|declared| misfit(&declared.plan, self.head, &event));
        let schema = declared.and_then(|declared| declared.schema.as_ref());
        let value = event.data.to_value();
        let event = within_limits(WorldEvent::RelationCreated(event))?;
        if let Some(message) = wrong {
            return Err(rejected("schema_violation", message, Vec::new(), event));
        }
        let event = Some(checked(schema, &value, event, self.context.rules)?);
        Ok(Made { event, shown })
    }

    /// Data that templates make: an object.
    fn data(
        &self,
        template: Option<&Template>,
        names: &ResponderNames<'_>,
    ) -> Result<CanonicalJson, Refused> {
        let value = match template {
            None => Value::Object(Map::new()),
            Some(template) => self.render(template, names)?,
        };
        if !value.is_object() {
            return Err(failed("expression_type", "the data is not an object"));
        }
        CanonicalJson::from_value(&value)
            .map_err(|_| failed("result_depth", "the data is nested too deeply"))
    }

    /// `command.requested`: what is told to other systems.
    fn command(
        &self,
        (topic, payload): (&Template, Option<&Template>),
        derived: Derivation,
        names: &ResponderNames<'_>,
    ) -> Result<WorldEvent, Refused> {
        let topic = match self.render(topic, names)? {
            Value::String(text) if is_topic(&text) => text,
            _ => return Err(failed("expression_type", "the topic is not a topic")),
        };
        let payload = match payload {
            None => Value::Object(Map::new()),
            Some(payload) => self.render(payload, names)?,
        };
        let payload = CanonicalJson::from_value(&payload)
            .map_err(|_| failed("result_depth", "the payload is nested too deeply"))?;
        Ok(WorldEvent::Commanded(WorldCommand {
            derived,
            payload,
            suppressed: self.context.suppresses,
            topic,
            kind: CommandKind::Emit,
        }))
    }

    /// An id: some text.
    fn text(&self, template: &Template, names: &ResponderNames<'_>) -> Result<String, Refused> {
        match self.render(template, names)? {
            Value::String(text) if !text.is_empty() => Ok(text),
            _ => Err(failed("expression_type", "an id is not a text")),
        }
    }

    /// A key: text, or a number as its text.
    fn key_text(&self, template: &Template, names: &ResponderNames<'_>) -> Result<String, Refused> {
        match self.render(template, names)? {
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => Err(failed(
                "expression_type",
                "a key is neither text nor number",
            )),
            value => Ok(text_of(&value, self.context.rules)),
        }
    }

    fn render(&self, template: &Template, names: &ResponderNames<'_>) -> Result<Value, Refused> {
        let secret = |name: &str| names.is_secret(name);
        Ok(template.render(names, &secret, self.context.rules)?.value)
    }
}

fn failed(code: &'static str, message: &str) -> Refused {
    Refused::Failed(EvaluationError {
        code,
        message: message.to_owned(),
    })
}

/// An id that is longer than [`MAX_ID_CHARS`]: it is rejected before anything looks at it.
fn is_too_long(id: &str) -> bool {
    id.chars().count() > MAX_ID_CHARS
}

fn too_long(member: &str, text: &str, event: WorldEvent) -> Refused {
    let message = format!(
        "{member} has {} characters, and may have {MAX_ID_CHARS}",
        text.chars().count()
    );
    let errors = vec![Violation {
        message: format!("must have at most {MAX_ID_CHARS} characters"),
        path: format!("/{member}"),
        rule: "maxLength".to_owned(),
    }];
    rejected("schema_violation", message, errors, event)
}

/// The event, if none of the ids and keys in it is too long.
fn within_limits(event: WorldEvent) -> Result<WorldEvent, Refused> {
    let names: [Option<(&str, &str)>; 3] = match &event {
        WorldEvent::ObjectCreated(made) => {
            let key = made.key.as_deref().map(|key| ("key", key));
            [key, None, None]
        }
        WorldEvent::RelationCreated(made) => [
            Some(("id", &*made.id)),
            Some(("source_id", &*made.source_id)),
            Some(("target_id", &*made.target_id)),
        ],
        WorldEvent::ObjectPatched(_) | WorldEvent::RelationRemoved(_) => {
            [event.subject().map(|id| ("id", id)), None, None]
        }
        WorldEvent::Noted(_)
        | WorldEvent::Commanded(_)
        | WorldEvent::Fired(_)
        | WorldEvent::Completed(_)
        | WorldEvent::Failed(_)
        | WorldEvent::Rejected(_)
        | WorldEvent::Loaded(_)
        | WorldEvent::BudgetExhausted(_)
        | WorldEvent::BudgetRaised(_) => [None, None, None],
    };
    let found = names
        .into_iter()
        .flatten()
        .find(|(_, text)| is_too_long(text));
    let found = found.map(|(member, text)| (member, text.to_owned()));
    match found {
        None => Ok(event),
        Some((member, text)) => Err(too_long(member, &text, event)),
    }
}

fn rejected(
    code: &'static str,
    message: String,
    errors: Vec<Violation>,
    event: WorldEvent,
) -> Refused {
    Refused::Rejected(Box::new(Rejection {
        code,
        message,
        errors,
        event,
    }))
}

/// The message about the end of a relation that is an object of a type which the relation's type
/// does not relate, if there is such an end.
pub(crate) fn misfit(plan: &RelationType, head: &World, event: &RelationCreated) -> Option<String> {
    let fits = |id: &str, kinds: &[String]| {
        // An end need not exist, and may come later.
        let object = head.object(id);
        object.is_none_or(|object| {
            kinds.is_empty() || kinds.iter().any(|kind| **kind == *object.kind)
        })
    };
    let from = !fits(&event.source_id, &plan.from);
    let to = !fits(&event.target_id, &plan.to);
    let end = if from {
        Some(&event.source_id)
    } else {
        to.then_some(&event.target_id)
    };
    end.map(|id| format!("{:?} does not relate the type of {id:?}", event.kind))
}

/// The event, if its data fits the schema of its type.
fn checked(
    schema: Option<&Schema>,
    value: &Value,
    event: WorldEvent,
    rules: DecisionRules,
) -> Result<WorldEvent, Refused> {
    let found = schema.map_or_else(Vec::new, |schema| airlock::check(schema, value, rules));
    let Some(first) = found.first() else {
        return Ok(event);
    };
    let message = ktsu_schema::message_at(&first.message, &first.pointer);
    Err(rejected(
        airlock::code_of(&first.rule, "schema_violation"),
        message,
        violations(found),
        event,
    ))
}

/// The members of a patch that are applied, and those that are withheld: null if there are none.
fn divide(
    patch: &CanonicalJson,
    withhold: impl Fn(&str) -> bool,
) -> (CanonicalJson, CanonicalJson) {
    let Value::Object(members) = patch.to_value() else {
        return (patch.clone(), CanonicalJson::null());
    };
    let (withheld, applied): (Map<_, _>, Map<_, _>) = members
        .into_iter()
        .partition(|(member, _)| withhold(member));
    if withheld.is_empty() {
        return (patch.clone(), CanonicalJson::null());
    }
    let text = |members| CanonicalJson::from_value(&Value::Object(members)).unwrap_or_default();
    (text(applied), text(withheld))
}
