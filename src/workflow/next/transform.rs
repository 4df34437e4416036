//! Transform steps: started, checked and ended in one unit.

use std::collections::BTreeMap;

use jmespath::Rcvar;
use ktsu_ledger::event::StepInput;

use super::names::computed;
use super::{StepContext, StepDecision, WorkOutcome};
use crate::definition::CompiledWork;
use crate::expression::{Expression, to_value};

impl StepDecision<'_> {
    /// Evaluates the transform and adds what is not recorded of it yet.
    pub(super) fn run_transform(&mut self, started: Option<u64>) {
        let CompiledWork::Transform(transform) = &self.step.work else {
            return;
        };
        let inputs = transform.inputs(&self.names);
        let started = started.unwrap_or_else(|| {
            let given = match &inputs {
                Ok(values) => self.inputs(transform.mentions(), values),
                Err(_) => BTreeMap::new(),
            };
            self.started(given)
        });
        let result = inputs.and_then(|inputs| transform.run(&inputs, &self.names));
        let outcome = match result {
            Ok(value) => WorkOutcome::Output(value),
            Err(error) => WorkOutcome::failed("transform_failed", error.message),
        };
        self.settle(self.attempt(), outcome, vec![started]);
    }
}

impl StepContext<'_> {
    /// The inputs and the arguments of `merge` as they are recorded. The values of the inputs are
    /// at hand; those of `merge` are looked up where they are no plain path.
    fn inputs<'e>(
        &self,
        mentions: impl IntoIterator<Item = (String, &'e Expression)>,
        values: &[Rcvar],
    ) -> BTreeMap<String, StepInput> {
        let mut given = BTreeMap::new();
        for (number, (at, expression)) in mentions.into_iter().enumerate() {
            let known = values.get(number);
            let missing = known.is_some_and(|value| value.is_null());
            let place = expression
                .as_path()
                .filter(|_| !missing)
                .and_then(|(root, pointer)| self.names.reference_to(&root, &pointer));
            let one = match place {
                Some(reference) => StepInput::Ref(reference),
                None => {
                    let value = known
                        .cloned()
                        .or_else(|| expression.evaluate(&self.names).ok());
                    let value = value.map_or(serde_json::Value::Null, |value| to_value(&value));
                    computed(self.names.frames(expression.roots()), &value)
                }
            };
            given.insert(at, one);
        }
        given
    }
}
