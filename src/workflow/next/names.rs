//! The values an expression may mention, taken from the state of a run.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

use jmespath::Rcvar;
use ktsu_ledger::Json;
use ktsu_ledger::event::{EnvValue, Given, Reference};
use ktsu_projections::envelope::marker;
use ktsu_projections::run::{Effective, RunState};
use serde_json::Value;

use crate::workflow::expression::{Names, Root, from_json, from_value};
use crate::workflow::template::{Leaf, Rendered, Source};

/// Values in the form expressions want, converted once and kept while a run is deciding.
#[derive(Default)]
pub struct Memo {
    values: RefCell<HashMap<(u32, Key), Rcvar>>,
}

#[derive(PartialEq, Eq, Hash)]
enum Key {
    Params,
    Step(u32),
}

impl Memo {
    /// Lets go of what was converted.
    pub fn clear(&mut self) {
        self.values = RefCell::default();
    }

    fn get(&self, scope: u32, key: Key, make: impl FnOnce() -> Option<Rcvar>) -> Option<Rcvar> {
        if let Some(value) = self.values.borrow().get(&(scope, key.copy())) {
            return Some(value.clone());
        }
        let value = make()?;
        self.values.borrow_mut().insert((scope, key), value.clone());
        Some(value)
    }
}

impl Key {
    fn copy(&self) -> Self {
        match self {
            Self::Params => Self::Params,
            Self::Step(step) => Self::Step(*step),
        }
    }
}

/// The names of one scope.
pub struct Scoped<'a> {
    state: &'a RunState,
    scope: u32,
    memo: &'a Memo,
}

impl Names for Scoped<'_> {
    fn get(&self, root: &Root) -> Option<Rcvar> {
        match root {
            Root::Params => self.memo.get(self.scope, Key::Params, || {
                Some(from_value(&self.state.params(self.scope)))
            }),
            Root::Env(name) => match self.state.created().env.get(name)? {
                EnvValue::Value(value) if self.scope == 0 => {
                    Some(from_value(&Value::from(value.as_str())))
                }
                EnvValue::Value(_) | EnvValue::Secret => None,
            },
            Root::Step(id) => {
                let step = self.state.scope(self.scope)?.shape.position(id)?;
                match self.state.effective(self.scope, step) {
                    Effective::Output(held) => self
                        .memo
                        .get(self.scope, Key::Step(step), || Some(from_json(&held.json))),
                    Effective::Absent => None,
                    skipped => marker(&skipped).map(|marker| from_value(&marker)),
                }
            }
            Root::Item | Root::ItemIndex => None,
        }
    }
}

impl<'a> Scoped<'a> {
    /// The names of a scope.
    pub fn new(state: &'a RunState, scope: u32, memo: &'a Memo) -> Self {
        Self { state, scope, memo }
    }

    /// Whether a variable is recorded as a secret.
    pub fn is_secret(&self, name: &str) -> bool {
        self.state.created().env.get(name) == Some(&EnvValue::Secret)
    }

    /// How the filled-in places of a rendered template are recorded, by pointer below `prefix`.
    pub(super) fn givens(&self, prefix: &str, rendered: &Rendered) -> BTreeMap<String, Given> {
        let given = |leaf: &Leaf| {
            let value = rendered.value.pointer(&leaf.at).unwrap_or(&Value::Null);
            (
                format!("{prefix}{}", leaf.at),
                self.given(&leaf.source, value),
            )
        };
        rendered.leaves.iter().map(given).collect()
    }

    /// How one value is recorded: by reference where it stands in an earlier frame as it is.
    pub(super) fn given(&self, source: &Source, value: &Value) -> Given {
        match source {
            Source::Secret => Given::Template(value.as_str().unwrap_or_default().to_owned()),
            Source::Path { root, pointer } => match self.place(root, pointer) {
                Some(reference) => Given::Ref(reference),
                None => computed(self.frames([root]), value),
            },
            Source::Computed { roots } => computed(self.frames(roots), value),
        }
    }

    /// Where the value of a path stands.
    pub(super) fn place(&self, root: &Root, pointer: &str) -> Option<Reference> {
        match root {
            Root::Params => self.state.param_place(self.scope, pointer),
            Root::Env(name) => Some(Reference {
                frame: 0,
                path: format!("/env/{name}/value"),
            }),
            Root::Step(id) => {
                let step = self.state.scope(self.scope)?.shape.position(id)?;
                match self.state.effective(self.scope, step) {
                    Effective::Output(held) => Some(Reference {
                        frame: held.place.frame,
                        path: format!("{}{pointer}", held.place.path),
                    }),
                    Effective::Skipped(_) | Effective::Suppressed(_) | Effective::Absent => None,
                }
            }
            Root::Item | Root::ItemIndex => None,
        }
    }

    /// The frames that hold the values of some names, ascending.
    pub(super) fn frames<'r>(&self, roots: impl IntoIterator<Item = &'r Root>) -> Vec<u64> {
        let mut frames: Vec<u64> = roots
            .into_iter()
            .filter_map(|root| self.frame(root))
            .collect();
        frames.sort_unstable();
        frames.dedup();
        frames
    }

    fn frame(&self, root: &Root) -> Option<u64> {
        let scope = self.state.scope(self.scope)?;
        match root {
            Root::Params => match scope.parent {
                None => Some(0),
                Some((parent, step)) => self.state.scope(parent)?.steps.get(step as usize)?.started,
            },
            Root::Env(_) => Some(0),
            Root::Step(id) => scope.steps.get(scope.shape.position(id)? as usize)?.ended,
            Root::Item | Root::ItemIndex => None,
        }
    }
}

pub(super) fn computed(from: Vec<u64>, value: &Value) -> Given {
    Given::Value {
        from,
        value: Json::from_value(value).unwrap_or_default(),
    }
}
