//! An envelope in which every member has its provenance.

use ktsu_ledger::event::EnvValue;
use ktsu_ledger::event::plan::StepWork;
use ktsu_projections::life::reserved::{CONFIDENCE, FLAGS, RATIONALE, SKIP_REASON};
use ktsu_projections::run::StepKey;
use serde_json::{Map, Value};

use super::facts::StepFacts;
use super::story::TracedRun;
use super::track::object;
use ktsu_workflow::expression::provenance::{FramePointer, Provenance, Tracked, union};
use ktsu_workflow::expression::{EvaluatedValue, from_value};

/// The code and the message of a failure, and the places that they were made of.
#[derive(Clone)]
struct FailureTrace {
    code: (String, Provenance),
    message: (String, Provenance),
}

impl TracedRun<'_> {
    /// The envelope of the run (`""`) or of an inline child, tracked.
    pub fn envelope(&self, path: &str) -> Option<Tracked> {
        let envelope = self.fold.envelope(path)?;
        let Ok(Value::Object(members)) = serde_json::to_value(&envelope) else {
            return None;
        };
        let scope = self.state().scope_at(path)?;
        let failure = self.failure();
        let replies = self.facts.replies(path, None);
        let member = |name: &str, value: &Value| -> Tracked {
            match name {
                "params" => self
                    .params(scope)
                    .map_or_else(|| plain(value), |params| params.aligned(&from_value(value))),
                "env" => self.env(value),
                "output" => self.output(scope).cloned().unwrap_or_else(|| plain(value)),
                "steps" => self.step_views(scope, path, value, failure.as_ref()),
                "error" => fault(value, failure.as_ref()),
                "totals" => self.metrics(value, &replies),
                _ => plain(value),
            }
        };
        let members = members.iter();
        Some(object(
            members.map(|(name, value)| (name.as_str(), member(name, value))),
        ))
    }

    fn env(&self, shown: &Value) -> Tracked {
        let env = &self.state().created().env;
        mapped(shown, |name, value| match env.get(name) {
            Some(EnvValue::Value(_)) => {
                let place = FramePointer::new(0, "/env").below(name).below("value");
                Tracked::recorded(place, from_value(value))
            }
            Some(EnvValue::Secret) | None => plain(value),
        })
    }

    fn step_views(
        &self,
        scope: u32,
        path: &str,
        shown: &Value,
        failure: Option<&FailureTrace>,
    ) -> Tracked {
        let views = shown.as_array().map(Vec::as_slice).unwrap_or_default();
        let views = (0u32..).zip(views);
        let views =
            views.map(|(position, view)| self.step_view(scope, position, path, view, failure));
        Tracked::list(views.collect(), Provenance::default())
    }

    fn step_view(
        &self,
        scope: u32,
        position: u32,
        path: &str,
        shown: &Value,
        failure: Option<&FailureTrace>,
    ) -> Tracked {
        let id = shown["id"].as_str().unwrap_or_default();
        let facts = self.facts.get(path, id, None);
        let replies = self.facts.replies(path, Some(id));
        let track = self
            .step(StepKey::of(scope, position))
            .cloned()
            .unwrap_or_default();
        let own = self.own_failure(scope, position, &facts, shown, failure);
        mapped(shown, |name, value| match name {
            "output" => track.value.clone().unwrap_or_else(|| plain(value)),
            "raw_output" => self.raw(&facts, value, track.refused.as_ref()),
            "error" => fault(value, own.as_ref().or(failure)),
            "metrics" => self.metrics(value, &replies),
            "items" => {
                let views = value.as_array().map(Vec::as_slice).unwrap_or_default();
                let views = (0u32..).zip(views).map(|(index, view)| {
                    let facts = self.facts.get(path, id, Some(index));
                    let results = track
                        .value
                        .as_ref()
                        .and_then(|value| value.find("/results"));
                    let given = results.and_then(|results| results.item(index as usize));
                    let replied = track.items.get(index as usize).cloned().flatten();
                    self.item_view(&facts, view, given.or(replied))
                });
                Tracked::list(views.collect(), Provenance::default())
            }
            _ => self.told(&facts, name, value, &replies),
        })
    }

    fn item_view(&self, facts: &StepFacts, shown: &Value, given: Option<Tracked>) -> Tracked {
        let own = self.agent_failure(facts, shown);
        mapped(shown, |name, value| match name {
            "output" => match &given {
                Some(given) => given.aligned(&from_value(value)),
                None => plain(value),
            },
            "raw_output" => self.raw(facts, value, None),
            "error" => fault(value, own.as_ref()),
            "metrics" => self.metrics(value, &facts.replies),
            _ => self.told(facts, name, value, &facts.replies),
        })
    }

    /// A remark of an agent beside its output, or the model that answered.
    fn told(&self, facts: &StepFacts, name: &str, value: &Value, replies: &[u64]) -> Tracked {
        let field = match name {
            "skip_reason" => SKIP_REASON,
            "flags" => FLAGS,
            "rationale" => RATIONALE,
            "confidence" => CONFIDENCE,
            "model" => {
                let last = replies.last();
                let last = last.map(|seq| self.repeated(*seq).unwrap_or(*seq));
                let places = last.into_iter().flat_map(|seq| {
                    [
                        FramePointer::new(seq, "/provider"),
                        FramePointer::new(seq, "/model"),
                    ]
                });
                return Tracked::computed(from_value(value), places.collect());
            }
            _ => return plain(value),
        };
        let below = FramePointer::new(0, "/output").below(field).path;
        let there = facts.finished;
        match there.and_then(|seq| self.in_outcome(seq, &below, value)) {
            Some(place) => Tracked::recorded(place, from_value(value)),
            None => plain(value),
        }
    }

    /// The reply that another one repeats.
    fn repeated(&self, seq: u64) -> Option<u64> {
        self.frame(seq)?.event.response()?.repeats
    }

    /// A part of the outcome of an agent's task, if it is this value.
    fn in_outcome(&self, seq: u64, below: &str, value: &Value) -> Option<FramePointer> {
        let there = self.frame(seq)?.event.finished()?.outcome.pointer(below)?;
        let place = || FramePointer::new(seq, format!("/outcome{below}"));
        (there == *value).then(place)
    }

    fn raw(&self, facts: &StepFacts, value: &Value, refused: Option<&Tracked>) -> Tracked {
        let there = facts.finished.and_then(|seq| {
            let mut places = ["/output", "/raw_output"].into_iter();
            places.find_map(|below| self.in_outcome(seq, below, value))
        });
        match (there, refused) {
            (Some(place), _) => Tracked::recorded(place, from_value(value)),
            (None, Some(refused)) => refused.aligned(&from_value(value)),
            (None, None) => plain(value),
        }
    }

    fn metrics(&self, shown: &Value, replies: &[u64]) -> Tracked {
        mapped(shown, |name, value| {
            let field = match name {
                "tokens_in" | "tokens_out" | "cost_micro_usd" => name,
                "cost_usd" => "cost_micro_usd",
                _ => return plain(value),
            };
            // A reply that is repeated costs nothing, whatever it repeats.
            let called = replies.iter().filter(|seq| self.repeated(**seq).is_none());
            let places = called.map(|seq| FramePointer::new(*seq, "").below(field));
            Tracked::computed(from_value(value), places.collect())
        })
    }

    /// The failure of the run, if a step failed it.
    fn failure(&self) -> Option<FailureTrace> {
        let failing = self.state().failing()?;
        let scope = self.state().scope(failing.scope)?;
        let plan = scope.shape.step(failing.step?)?;
        let facts = self.facts.get(&scope.path, &plan.id, None);
        let view = self.fold.envelope(&scope.path)?;
        let view = view.steps.into_iter().nth(failing.step? as usize)?;
        let shown = serde_json::to_value(view).ok()?;
        self.own_failure(failing.scope, failing.step?, &facts, &shown, None)
    }

    /// The failure of a step, seen from its own frames.
    fn own_failure(
        &self,
        scope: u32,
        position: u32,
        facts: &StepFacts,
        shown: &Value,
        around: Option<&FailureTrace>,
    ) -> Option<FailureTrace> {
        shown.get("error")?;
        let plan = self.state().scope(scope)?.shape.step(position)?;
        match &plan.work {
            StepWork::Agent(agent) if agent.for_each.is_some() => {
                let items = shown.get("items")?.as_array()?;
                let scope = self.state().scope(scope)?;
                let mut found = (0u32..).zip(items).filter_map(|(index, item)| {
                    let facts = self.facts.get(&scope.path, &plan.id, Some(index));
                    let own = self.agent_failure(&facts, item)?;
                    let words = shown["error"]["message"].as_str()?;
                    words.ends_with(&own.message.0).then_some(own)
                });
                found.next()
            }
            StepWork::Agent(_) => self.agent_failure(facts, shown),
            StepWork::Webhook(_) => self.webhook_failure(facts, shown),
            StepWork::Workflow(_) | StepWork::Transform(_) => None,
        }
        .or_else(|| around.cloned())
    }

    fn agent_failure(&self, facts: &StepFacts, shown: &Value) -> Option<FailureTrace> {
        let words = |name: &str| shown["error"][name].as_str().unwrap_or_default().to_owned();
        shown.get("error")?;
        let marks = |name: &str| {
            let said = self.said(facts, &format!("/outcome/error/{name}"), &words(name));
            said.source()
        };
        Some(FailureTrace {
            code: (words("code"), marks("code")),
            message: (words("message"), marks("message")),
        })
    }

    fn webhook_failure(&self, facts: &StepFacts, shown: &Value) -> Option<FailureTrace> {
        let seq = *facts.answers.last()?;
        let answer = self.frame(seq)?.event.webhook_answer()?;
        let words = |name: &str| shown["error"][name].as_str().unwrap_or_default().to_owned();
        let at = |name: &str| Provenance::at(FramePointer::new(seq, name));
        let code = answer.code.as_ref().map(|_| at("/code"));
        let status = answer.status.map(|_| at("/status"));
        let code = code.unwrap_or_default();
        Some(FailureTrace {
            message: (words("message"), status.unwrap_or_else(|| code.clone())),
            code: (words("code"), code),
        })
    }
}

/// An error as it is shown: where it repeats what a failure said, it is made of the same.
fn fault(shown: &Value, failure: Option<&FailureTrace>) -> Tracked {
    let Some(failure) = failure else {
        return plain(shown);
    };
    mapped(shown, |name, value| {
        let words = value.as_str().unwrap_or_default();
        match name {
            "code" if words == failure.code.0 => {
                Tracked::computed(from_value(value), failure.code.1.clone())
            }
            "message" if words.ends_with(&failure.message.0) => {
                Tracked::computed(from_value(value), failure.message.1.clone())
            }
            _ => plain(value),
        }
    })
}

/// A value nothing recorded is part of: it says how the run went.
fn plain(value: &Value) -> Tracked {
    match value {
        Value::Object(_) => mapped(value, |_, value| plain(value)),
        Value::Array(items) => Tracked::list(items.iter().map(plain).collect(), union(&[])),
        _ => Tracked::literal(from_value(value)),
    }
}

fn mapped(shown: &Value, mut member: impl FnMut(&str, &Value) -> Tracked) -> Tracked {
    let empty = Map::new();
    let members = shown.as_object().unwrap_or(&empty).iter();
    object(members.map(|(name, value)| (name.as_str(), member(name, value))))
}
