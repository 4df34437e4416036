//! Further checks of a definition that somebody sends, beyond what compiles. The loader of kits
//! makes the same checks; a recorded definition is compiled unchecked, whatever an earlier version
//! accepted.

use ktsu_ledger::CanonicalJson;
use ktsu_projections::life::reserved::is_reserved;
use serde_json::Value;

use super::{CompiledWorkflow, Definition};
use crate::defaults;
use crate::expression::Root;

impl Definition {
    /// The reason why this definition is not one that a kit could have, if it is not.
    pub fn refusal(&self) -> Option<String> {
        if let Some(name) = self.undeclared() {
            return Some(format!("it uses env.{name} without declaring it"));
        }
        let called = self.workflows().filter(|(path, _)| *path != self.plan.root);
        for (path, workflow) in called {
            if has_variables(workflow) {
                return Some(format!(
                    "{path} is called inline and has variables, which only the root has"
                ));
            }
        }
        let reserved = self.workflows().find_map(|(path, workflow)| {
            let name = reserved_field(workflow)?;
            Some(format!(
                "{path} has the reserved field {name} in its output"
            ))
        });
        reserved.or_else(|| self.endless())
    }

    /// A schema whose defaults have no end, or come to too much.
    fn endless(&self) -> Option<String> {
        let workflows = self.plan.workflows.iter().flat_map(|(path, workflow)| {
            let steps = workflow
                .steps
                .iter()
                .filter_map(|step| step.schema.as_ref());
            let schemas = workflow.params.iter().chain(steps);
            schemas.map(move |schema| (path, schema))
        });
        let agents = self.plan.agents.iter().flat_map(|(path, agent)| {
            let schemas = agent.params.iter().chain([&agent.output]);
            schemas.map(move |schema| (path, schema))
        });
        workflows.chain(agents).find_map(|(path, schema)| {
            let found = defaults::check(&schema.to_value()).err()?;
            Some(format!("{path}: {found} at {}", found.pointer))
        })
    }

    /// A variable that an expression mentions though the root does not declare it.
    fn undeclared(&self) -> Option<String> {
        let declared = self.declared();
        let declares = |name: &String| declared.iter().any(|variable| variable.name == *name);
        self.mentioned.iter().find(|name| !declares(name)).cloned()
    }
}

/// Returns `true` if a workflow declares or mentions variables: where it is called inline, none has
/// a value (decision K4).
fn has_variables(workflow: &CompiledWorkflow) -> bool {
    let mentions = |root: &Root| matches!(root, Root::Env(_));
    !workflow.plan.env.is_empty() || workflow.roots().iter().any(mentions)
}

/// A reserved field of the workflow's own output, which nobody would check.
fn reserved_field(workflow: &CompiledWorkflow) -> Option<String> {
    let map = workflow.plan.output.as_ref()?.map.as_ref()?;
    let Value::Object(members) = CanonicalJson::to_value(map) else {
        return None;
    };
    members
        .into_iter()
        .map(|(name, _)| name)
        .find(|name| is_reserved(name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plans_tests::{plan, transform, workflow};

    #[test]
    fn a_definition_with_a_default_that_never_ends_is_used_where_recorded_and_not_taken() {
        let mut main = workflow("main", json!([transform("t", json!([]), "params.n")]));
        main["params"] = json!({"properties": {"n": {"$ref": "#", "default": {}}}});
        let plan = serde_json::from_value(plan(json!({"main": main}))).unwrap();
        let compiled = Definition::compile(plan).unwrap();
        let why = compiled.refusal().unwrap();
        let words = "main: the default never ends: it holds itself at /properties/n/default";
        assert_eq!(why, words);
    }
}
