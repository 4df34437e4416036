//! The commands of outcomes as people read them: `invoke verify`, `emit verdict.told`.

use std::collections::HashMap;

use ktsu_ledger::{CanonicalJson, Frame};
use serde_json::Value;

/// The commands of the last outcome of each step, by scope and id.
#[derive(Debug, Clone, Default)]
pub(crate) struct CommandNames {
    of_steps: HashMap<(String, String), Vec<String>>,
}

impl CommandNames {
    /// Takes a frame: the end of a task has its commands.
    pub(crate) fn take(&mut self, frame: &Frame) {
        let Some(end) = frame.event.finished() else {
            return;
        };
        if end.item.is_none() {
            let step = (frame.scope.clone(), end.step.clone());
            match names(&end.outcome) {
                names if names.is_empty() => drop(self.of_steps.remove(&step)),
                names => drop(self.of_steps.insert(step, names)),
            }
        }
    }

    /// The commands at these places of the outcome of a step; where that is not known, their places.
    pub(crate) fn at(&self, scope: &str, step: &str, indexes: &[u32]) -> String {
        let known = self.of_steps.get(&(scope.to_owned(), step.to_owned()));
        let named = |index: &u32| known?.get(*index as usize).cloned();
        match indexes.iter().map(named).collect::<Option<Vec<_>>>() {
            Some(names) => names.join(", "),
            None => {
                let places: Vec<String> = indexes.iter().map(u32::to_string).collect();
                format!("commands {}", places.join(", "))
            }
        }
    }
}

fn names(outcome: &CanonicalJson) -> Vec<String> {
    let commands = outcome.pointer("/commands").unwrap_or_default();
    let commands = commands.as_array().map_or(&[][..], Vec::as_slice);
    commands.iter().map(name).collect()
}

/// A command by its type, and what it runs or what it is about.
fn name(command: &Value) -> String {
    let text = |member: &str| command[member].as_str();
    let kind = text("type").unwrap_or("?");
    match text("step").or_else(|| text("topic")) {
        Some(about) => format!("{kind} {about}"),
        None => kind.to_owned(),
    }
}
