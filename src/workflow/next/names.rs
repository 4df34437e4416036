//! The values an expression may mention, taken from the state of a run.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};

use jmespath::{Rcvar, Variable};
use ktsu_ledger::CanonicalJson;
use ktsu_ledger::event::{EnvValue, Reference, StepInput};
use ktsu_projections::envelope::skip_marker;
use ktsu_projections::life::suspension::Resumption;
use ktsu_projections::run::{Effective, RunState, Scope, StepKey};
use serde_json::{Value, json};

use super::task::TaskSpec;
use crate::expression::{InvokedMention, NameLookup, Root, from_json, from_value};
use crate::respond::{ResponderMemo, goal_of};
use crate::rules::DecisionRules;
use crate::template::{Leaf, LeafSource, RenderedTemplate};

/// Values in the form expressions want, converted once and kept while a run is deciding.
#[derive(Default)]
pub struct Memo {
    values: RefCell<HashMap<(u32, MemoKey), Rcvar>>,
    kept: Cell<bool>,
    /// The goal of the run: params may be large, and it is asked for whenever something happened.
    goal: RefCell<Option<Option<Rcvar>>>,
    /// The specification of the task that was decided on last, with its step.
    task: RefCell<Option<(StepKey, TaskSpec)>>,
    /// The values that were evaluated of the trigger under way, for responders.
    pub(super) responders: RefCell<ResponderMemo>,
}

#[derive(PartialEq, Eq, Hash)]
enum MemoKey {
    Params,
    Step(u32),
    /// The items of a fan-out.
    Items(u32),
}

impl Memo {
    /// Lets go of what was converted, unless a fan-out has items to start: the next of them will
    /// ask for the same values, and reading them again for each item would cost the square of
    /// their number.
    pub fn clear(&mut self) {
        if !self.kept.get() {
            self.values = RefCell::default();
        }
        self.task = RefCell::default();
        self.responders = RefCell::default();
    }

    /// Lets go of everything: a person changed what was converted.
    pub fn invalidate(&self) {
        self.values.borrow_mut().clear();
        self.task.replace(None);
        self.goal.replace(None);
        self.responders.replace(ResponderMemo::default());
    }

    /// Keeps what a runtime is told of a task until that is dispatched, which is soon.
    pub(super) fn keep_task(&self, at: StepKey, task: TaskSpec) {
        self.task.replace(Some((at, task)));
    }

    /// The specification of a task, if it is the one that was decided on last.
    pub(super) fn take_task(&self, at: StepKey) -> Option<TaskSpec> {
        let (of, task) = self.task.take()?;
        (of == at).then_some(task)
    }

    /// Notes whether a fan-out has more items to start.
    pub(super) fn keep(&self, more: bool) {
        self.kept.set(more);
    }

    /// The params of a scope.
    pub(super) fn params(&self, state: &RunState, scope: u32) -> Rcvar {
        let made = || Some(from_value(&state.params(scope)));
        let params = self.get(scope, MemoKey::Params, made);
        params.unwrap_or_else(|| Rcvar::new(Variable::Null))
    }

    /// The goal of the run, if it was given one.
    pub(super) fn goal(&self, state: &RunState) -> Option<Rcvar> {
        let mut goal = self.goal.borrow_mut();
        goal.get_or_insert_with(|| goal_of(&self.params(state, 0)))
            .clone()
    }

    fn get(&self, scope: u32, key: MemoKey, make: impl FnOnce() -> Option<Rcvar>) -> Option<Rcvar> {
        if let Some(value) = self.values.borrow().get(&(scope, key.copy())) {
            return Some(value.clone());
        }
        let value = make()?;
        self.values.borrow_mut().insert((scope, key), value.clone());
        Some(value)
    }
}

impl MemoKey {
    fn copy(&self) -> Self {
        match self {
            Self::Params => Self::Params,
            Self::Step(step) => Self::Step(*step),
            Self::Items(step) => Self::Items(*step),
        }
    }
}

/// The names of one scope, and of one item in it.
pub struct ScopedNames<'a> {
    state: &'a RunState,
    scope: u32,
    memo: &'a Memo,
    /// The step that asks.
    step: Option<u32>,
    /// The item, if the step fans out.
    item: Option<u32>,
}

impl NameLookup for ScopedNames<'_> {
    fn get(&self, root: &Root) -> Option<Rcvar> {
        match root {
            Root::Params => Some(self.memo.params(self.state, self.scope)),
            Root::Env(name) => match self.state.created().env.get(name)? {
                EnvValue::Value(value) if self.scope == 0 => {
                    Some(from_value(&Value::from(value.as_str())))
                }
                EnvValue::Value(_) | EnvValue::Secret => None,
            },
            Root::Step(id) => {
                let step = self.state.scope(self.scope)?.shape.position(id)?;
                match self.state.effective(StepKey::of(self.scope, step)) {
                    Effective::Output(held) => {
                        self.memo.get(self.scope, MemoKey::Step(step), || {
                            Some(from_json(&held.json))
                        })
                    }
                    Effective::Absent => None,
                    skipped => skip_marker(&skipped).map(|marker| from_value(&marker)),
                }
            }
            Root::Item => {
                let (step, item) = (self.step?, self.item?);
                let items = self.items(step)?;
                items.as_array()?.get(item as usize).cloned()
            }
            Root::ItemIndex => self.item.map(|item| from_value(&Value::from(item))),
            Root::Resume => {
                let given = self.resumption();
                let value = |part: fn(&Resumption) -> &CanonicalJson| {
                    given.map_or(Value::Null, |given| part(given).to_value())
                };
                let both = json!({
                    "checkpoint": value(|given| &given.checkpoint),
                    "data": value(|given| &given.data),
                });
                Some(from_value(&both))
            }
            Root::Name(_) => None,
        }
    }

    fn invoked(&self, id: &str, mention: InvokedMention) -> Option<Rcvar> {
        let step = self.state.scope(self.scope)?.shape.position(id)?;
        let at = StepKey::of(self.scope, step);
        let ended = matches!(self.state.effective(at), Effective::Output(_));
        let mut children = self.state.invoked_children(at).peekable();
        let some = ended && children.peek().is_some();
        if !DecisionRules::of(self.state).has_invoked(some, mention) {
            return None;
        }
        if !ended {
            return Some(Rcvar::new(Variable::Array(Vec::new())));
        }
        let output = |child: &Scope| match &child.ended.as_ref()?.output {
            Some(held) => Some(from_json(&held.json)),
            None => Some(from_value(&json!({}))),
        };
        let outputs = children.filter_map(output).collect();
        Some(Rcvar::new(Variable::Array(outputs)))
    }
}

impl<'a> ScopedNames<'a> {
    /// The scope.
    pub(super) fn scope(&self) -> u32 {
        self.scope
    }

    /// The names of a scope.
    pub fn new(state: &'a RunState, scope: u32, memo: &'a Memo) -> Self {
        Self {
            state,
            scope,
            memo,
            step: None,
            item: None,
        }
    }

    /// The same names, with `resume` of a step.
    pub fn of_step(self, step: Option<u32>) -> Self {
        Self { step, ..self }
    }

    /// The data that the step which asks is given after a suspension.
    fn resumption(&self) -> Option<&'a Resumption> {
        self.state.resumption(StepKey::of(self.scope, self.step?))
    }

    /// The same names, with `item` and `item_index`.
    pub fn with_item(&self, item: u32) -> ScopedNames<'a> {
        ScopedNames {
            item: Some(item),
            ..*self
        }
    }

    /// The items of a fan-out that has begun, as its `step.started` has them.
    fn items(&self, step: u32) -> Option<Rcvar> {
        self.memo.get(self.scope, MemoKey::Items(step), || {
            match self.from(step)? {
                StepInput::Ref(reference) => Some(from_value(&self.state.value_at(reference)?)),
                StepInput::Value { value, .. } => Some(from_json(value)),
                StepInput::Template(_) => None,
            }
        })
    }

    fn from(&self, step: u32) -> Option<&'a StepInput> {
        let step = self.state.scope(self.scope)?.steps.get(step as usize)?;
        step.input.get(FAN_OUT_INPUT)
    }

    /// The place of an item.
    fn item_place(&self, pointer: &str) -> Option<Reference> {
        let (step, item) = (self.step?, self.item?);
        match self.from(step)? {
            StepInput::Ref(reference) => Some(Reference {
                frame: reference.frame,
                path: format!("{}/{item}{pointer}", reference.path),
            }),
            StepInput::Value { .. } => {
                let step = self.state.scope(self.scope)?.steps.get(step as usize)?;
                Some(Reference {
                    frame: step.started?,
                    path: format!("/input/~1for_each~1from/value/value/{item}{pointer}"),
                })
            }
            StepInput::Template(_) => None,
        }
    }

    /// Returns `true` if a variable is recorded as a secret.
    pub fn is_secret(&self, name: &str) -> bool {
        self.state.created().env.get(name) == Some(&EnvValue::Secret)
    }

    /// The filled-in places of a rendered template as they are recorded, by pointer below `prefix`.
    pub(super) fn recorded_inputs(
        &self,
        prefix: &str,
        rendered: &RenderedTemplate,
    ) -> BTreeMap<String, StepInput> {
        let given = |leaf: &Leaf| {
            let value = rendered.value.pointer(&leaf.at).unwrap_or(&Value::Null);
            (
                format!("{prefix}{}", leaf.at),
                self.recorded_input(&leaf.source, value),
            )
        };
        rendered.leaves.iter().map(given).collect()
    }

    /// One value as it is recorded: by reference where an earlier frame has it as it is.
    pub(super) fn recorded_input(&self, source: &LeafSource, value: &Value) -> StepInput {
        match source {
            LeafSource::Secret => {
                StepInput::Template(value.as_str().unwrap_or_default().to_owned())
            }
            LeafSource::Path { root, pointer } => match self.reference_to(root, pointer) {
                Some(reference) => StepInput::Ref(reference),
                None => computed(self.frames([root]), value),
            },
            LeafSource::Computed { roots } => computed(self.frames(roots), value),
        }
    }

    /// The place of the value of a path.
    pub(super) fn reference_to(&self, root: &Root, pointer: &str) -> Option<Reference> {
        match root {
            Root::Params => self.state.locate_param(self.scope, pointer),
            Root::Env(name) => Some(Reference {
                frame: self.state.env_frame(),
                path: format!("/env/{name}/value"),
            }),
            Root::Step(id) => {
                let step = self.state.scope(self.scope)?.shape.position(id)?;
                let step = StepKey::of(self.scope, step);
                if let Some(rest) = pointer.strip_prefix(INVOKED_POINTER) {
                    let at = rest.strip_prefix('/')?;
                    let (at, rest) = at.split_at(at.find('/').unwrap_or(at.len()));
                    let mut children = self.state.invoked_children(step);
                    let child = children.nth(at.parse().ok()?)?;
                    return child.ended.as_ref()?.output.as_ref()?.locate(rest);
                }
                match self.state.effective(step) {
                    Effective::Output(held) => held.locate(pointer),
                    Effective::Skipped(_) | Effective::Suppressed(_) | Effective::Absent => None,
                }
            }
            Root::Item => self.item_place(pointer),
            Root::Resume => self.resumption()?.locate(pointer),
            Root::ItemIndex | Root::Name(_) => None,
        }
    }

    /// The frames that hold the values of some names, ascending.
    pub(super) fn frames<'r>(&self, roots: impl IntoIterator<Item = &'r Root>) -> Vec<u64> {
        let mut frames: Vec<u64> = roots
            .into_iter()
            .flat_map(|root| {
                let given = self.resumption().filter(|_| *root == Root::Resume);
                let given = given.map(|given| [given.finished, given.resumed]);
                let own = self.frame(root).into_iter().chain(self.overlays(root));
                own.chain(given.into_iter().flatten())
            })
            .collect();
        frames.sort_unstable();
        frames.dedup();
        frames
    }

    /// The frames that hold what a person laid over the value of a name.
    fn overlays(&self, root: &Root) -> Vec<u64> {
        let Root::Step(id) = root else {
            return Vec::new();
        };
        let step = self.state.scope(self.scope).and_then(|scope| {
            let step = scope.shape.position(id)?;
            scope.steps.get(step as usize)
        });
        let held = step.and_then(|step| step.effective.as_ref());
        held.map_or_else(Vec::new, |held| {
            let places = held.overlaid.values();
            places.map(|place| place.frame).collect()
        })
    }

    fn frame(&self, root: &Root) -> Option<u64> {
        let scope = self.state.scope(self.scope)?;
        match root {
            Root::Params => match scope.parent {
                None => Some(self.state.params_frame()),
                Some(_) if scope.invoked.is_some() => scope.started,
                Some(parent) => self.state.step(parent)?.started,
            },
            Root::Env(_) => Some(self.state.env_frame()),
            Root::Step(id) => scope.steps.get(scope.shape.position(id)? as usize)?.ended,
            Root::Item | Root::ItemIndex => {
                let step = self.step.filter(|_| self.item.is_some())?;
                scope.steps.get(step as usize)?.started
            }
            Root::Resume | Root::Name(_) => None,
        }
    }
}

/// The place of what the commands of a step ran, beside its output.
const INVOKED_POINTER: &str = "/ktsu_invoked";

/// The place of `for_each.from` among a step's inputs.
pub(super) const FAN_OUT_INPUT: &str = "/for_each/from";

pub(super) fn computed(from: Vec<u64>, value: &Value) -> StepInput {
    StepInput::Value {
        from,
        value: CanonicalJson::from_value(value).unwrap_or_default(),
    }
}
