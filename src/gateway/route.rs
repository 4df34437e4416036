//! From a group to a model: round robin, beginning with the first.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::config::{Group, Model};

/// A group with its turn.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) group: Group,
    calls: AtomicUsize,
}

impl Route {
    pub(super) fn new(group: Group) -> Self {
        let calls = AtomicUsize::new(0);
        Self { group, calls }
    }

    /// The model whose turn it is; a group that has none gives none.
    pub(super) fn next(&self) -> Option<&Model> {
        let models = &self.group.models;
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        models.get(call.checked_rem(models.len())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_take_turns_beginning_with_the_first() {
        let models = ["a/1", "b/2", "c/x/y"].map(|name| Model::parse(name).unwrap());
        let route = Route::new(Group {
            name: "g".to_owned(),
            models: models.to_vec(),
            temperature: None,
            prices: crate::gateway::price::Prices::default(),
        });
        let turns: Vec<String> = (0..4).map(|_| route.next().unwrap().to_string()).collect();
        assert_eq!(turns, ["a/1", "b/2", "c/x/y", "a/1"]);
        assert_eq!(route.group.models[2].provider, "c");
        assert_eq!(route.group.models[2].id, "x/y");
    }
}
