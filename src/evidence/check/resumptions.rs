//! The check of what steps are given that run again after a suspension: whatever their inputs take
//! of a checkpoint or of data has to be their own, of the suspension that they were resumed from
//! last.

use std::collections::BTreeMap;

use ktsu_ledger::CanonicalJson;
use ktsu_ledger::event::plan::{AgentPlan, Plan};
use ktsu_ledger::event::{Reference, StepInput};
use ktsu_projections::life::suspension::Resumption;
use serde_json::{Value, json};

/// A step: its scope and its id.
type StepAddress = (String, String);

const STRAY: &str = "it takes the data or the checkpoint of another suspension";
const ELSEWHERE: &str = "it does not run by the step that it was resumed to";
const OTHER: &str = "it is not the data or the checkpoint that its step was given";

/// The checkpoints and data that the steps of a run are given.
#[derive(Debug, Default)]
pub(super) struct Resumptions {
    /// The checkpoint and the data of each step, and the frame since which it has them.
    given: BTreeMap<StepAddress, (u64, Resumption)>,
    /// By which other steps' definitions steps run.
    acting: BTreeMap<StepAddress, String>,
    /// Every frame with data, with its step.
    data: BTreeMap<u64, StepAddress>,
    /// The number of the last frame by which a person had steps of the run begin again.
    begun_again: u64,
    /// True if the run has another definition than before, so that some steps may have lost what
    /// they were given.
    blurred: bool,
    /// True if any step was suspended.
    any: bool,
}

impl Resumptions {
    /// Returns `true` if no step was suspended.
    pub(super) fn is_empty(&self) -> bool {
        !self.any
    }

    /// A step is to be suspended.
    pub(super) fn suspend(&mut self) {
        self.any = true;
    }

    /// Data come for a step.
    pub(super) fn resume(&mut self, seq: u64, scope: &str, step: &str) {
        self.data.insert(seq, (scope.to_owned(), step.to_owned()));
    }

    /// Steps of the run may begin again because a person wants it.
    pub(super) fn begin_again(&mut self, seq: u64) {
        self.begun_again = seq;
    }

    /// Returns `true` if no person wanted steps to begin again since this frame.
    pub(super) fn is_since(&self, seq: u64) -> bool {
        seq >= self.begun_again
    }

    /// The run has another definition.
    pub(super) fn blur(&mut self) {
        self.blurred = true;
    }

    /// A step is as if it had not begun: it gets what it waited for, or keeps what it had. Steps that
    /// need it lose what they had, since it may be about something else now.
    pub(super) fn reset(
        &mut self,
        seq: u64,
        (scope, step): (&str, &str),
        given: Option<Resumption>,
        plan: Option<&Plan>,
    ) {
        if let Some(given) = given {
            let at = (scope.to_owned(), step.to_owned());
            self.given.insert(at, (seq, given));
        }
        let root = plan.and_then(|plan| plan.workflows.get(&plan.root));
        let Some(root) = root.filter(|_| scope.is_empty()) else {
            return;
        };
        let steps = &root.steps;
        let needs = |id: &str| {
            let needs = steps.iter().find(|one| one.id == id).map(|one| &one.needs);
            let mut needs = needs.into_iter().flatten();
            needs.any(|at| steps.get(*at as usize).is_some_and(|one| one.id == step))
        };
        let begun_again = self.begun_again;
        self.given
            .retain(|(at, id), (since, _)| !(at.is_empty() && *since < begun_again && needs(id)));
    }

    /// A step begins by the definition of another, or by its own. Says what is wrong with that.
    pub(super) fn start(
        &mut self,
        (scope, step): (&str, &str),
        named: Option<&str>,
        may: impl Fn(&str) -> bool,
    ) -> Option<&'static str> {
        let at = (scope.to_owned(), step.to_owned());
        let given = self.given.get(&at);
        let given = given.and_then(|(_, given)| given.resume_step.as_deref());
        let wrong = match self.blurred {
            true => named.is_some_and(|named| !may(named)),
            false => given.filter(|given| may(given)) != named,
        };
        match named {
            Some(named) => self.acting.insert(at, named.to_owned()),
            None => self.acting.remove(&at),
        };
        wrong.then_some(ELSEWHERE)
    }

    /// The step by whose definition another runs, if not by its own.
    pub(super) fn acting(&self, scope: &str, step: &str) -> Option<&str> {
        if self.acting.is_empty() {
            return None;
        }
        let at = (scope.to_owned(), step.to_owned());
        self.acting.get(&at).map(String::as_str)
    }

    /// A child begins anew.
    pub(super) fn begin(&mut self, scope: &str) {
        let within = format!("{scope}/");
        let stays = |at: &str| at != scope && !at.starts_with(&within);
        self.given.retain(|(at, _), _| stays(at));
        self.acting.retain(|(at, _), _| stays(at));
    }

    /// The fault in the input of a step, or of what has no data.
    pub(super) fn judge<'i>(
        &self,
        step: Option<(&str, &str)>,
        mut inputs: impl Iterator<Item = &'i StepInput>,
    ) -> Option<&'static str> {
        let wrong = inputs.any(|input| match input {
            StepInput::Ref(place) => !self.is_own(step, place),
            StepInput::Value { from, .. } => {
                let mut data = from.iter().filter(|seq| self.data.contains_key(seq));
                data.any(|seq| !self.has_data(step, *seq))
            }
            StepInput::Template(_) => false,
        });
        wrong.then_some(STRAY)
    }

    /// The fault in the params of a step that are nothing but a mention of what it was given.
    pub(super) fn judge_mentions(
        &self,
        (scope, step): (&str, &str),
        agent: &AgentPlan,
        input: &BTreeMap<String, StepInput>,
    ) -> Option<&'static str> {
        let params = agent.params.as_ref()?;
        if self.blurred || agent.for_each.is_some() || !params.as_str().contains("resume") {
            return None;
        }
        let at = (scope.to_owned(), step.to_owned());
        let given = self.given.get(&at).map(|(_, given)| given);
        let mut mentions = Vec::new();
        mentioned(&params.to_value(), "/params".to_owned(), &mut mentions);
        let wrong = mentions.iter().any(|(at, pointer)| match input.get(at) {
            None => false,
            Some(StepInput::Ref(place)) => {
                given.and_then(|given| given.locate(pointer)).as_ref() != Some(place)
            }
            Some(StepInput::Value { value, .. }) => {
                let right = value_of(given, pointer);
                CanonicalJson::from_value(&right).as_ref() != Ok(value)
            }
            Some(StepInput::Template(_)) => true,
        });
        wrong.then_some(OTHER)
    }

    fn given(&self, step: Option<(&str, &str)>) -> Option<&Resumption> {
        let (scope, step) = step?;
        let at = (scope.to_owned(), step.to_owned());
        self.given.get(&at).map(|(_, given)| given)
    }

    /// Returns `true` if a step has the data of a frame.
    fn has_data(&self, step: Option<(&str, &str)>, seq: u64) -> bool {
        let owner = self.data.get(&seq);
        let owner = owner.map(|(scope, step)| (scope.as_str(), step.as_str()));
        let current = self.given(step).is_some_and(|given| given.resumed == seq);
        owner.is_some() && owner == step && (current || self.blurred)
    }

    /// Returns `true` if a place is not of any suspension, or of that of the step.
    fn is_own(&self, step: Option<(&str, &str)>, place: &Reference) -> bool {
        if self.data.contains_key(&place.frame) {
            let path = place.path.strip_prefix("/data");
            let within = path.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
            return within && self.has_data(step, place.frame);
        }
        let Some(index) = checkpoint_of(&place.path) else {
            return true;
        };
        let same =
            |given: &Resumption| given.finished == place.frame && index.parse() == Ok(given.index);
        self.blurred || self.given(step).is_some_and(same)
    }
}

/// The place of the command whose checkpoint a path is, or is within.
fn checkpoint_of(path: &str) -> Option<&str> {
    let (index, rest) = path.strip_prefix("/outcome/commands/")?.split_once('/')?;
    (rest.split('/').next() == Some("checkpoint")).then_some(index)
}

/// The places of a template that are nothing but a mention of `resume` or of a member of it, with the
/// pointer of that.
fn mentioned(template: &Value, at: String, found: &mut Vec<(String, String)>) {
    match template {
        Value::String(text) => found.extend(pointer_of(text).map(|pointer| (at, pointer))),
        Value::Object(members) => {
            for (name, member) in members {
                let name = name.replace('~', "~0").replace('/', "~1");
                mentioned(member, format!("{at}/{name}"), found);
            }
        }
        Value::Array(items) => {
            for (place, item) in items.iter().enumerate() {
                mentioned(item, format!("{at}/{place}"), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// `/data/text` of `{{ resume.data.text }}`; nothing of any other text.
fn pointer_of(text: &str) -> Option<String> {
    let inner = text.strip_prefix("{{")?.strip_suffix("}}")?;
    let path = inner.trim_matches(' ').strip_prefix("resume")?;
    let is_name = |name: &str| {
        let mut bytes = name.bytes();
        let first = bytes.next();
        first.is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let mut names = path.split('.');
    let plain = names.next() == Some("") && names.all(is_name);
    plain.then(|| path.replace('.', "/"))
}

/// The value of a mention: null where there is no such member.
fn value_of(given: Option<&Resumption>, pointer: &str) -> Value {
    let part = |part: fn(&Resumption) -> &CanonicalJson| {
        given.map_or(Value::Null, |given| part(given).to_value())
    };
    let mut value = json!({
        "checkpoint": part(|given| &given.checkpoint),
        "data": part(|given| &given.data),
    });
    for name in pointer.split('/').skip(1) {
        value = match value {
            Value::Object(mut members) => members.remove(name).unwrap_or_default(),
            _ => Value::Null,
        };
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_text_that_is_a_mention_of_a_member_has_a_pointer() {
        let told = |text: &str| pointer_of(text);
        assert_eq!(told("{{ resume }}").as_deref(), Some(""));
        assert_eq!(told("{{resume.data.text}}").as_deref(), Some("/data/text"));
        for other in [
            "{{ resumes }}",
            "{{ resume.data[0] }}",
            "{{ resume.data }} and more {{ resume.data }}",
            "{{ length(resume.data) }}",
            "resume.data",
            "{{ resume. }}",
        ] {
            assert_eq!(told(other), None, "{other}");
        }
    }

    #[test]
    fn a_mention_of_what_is_not_there_is_null() {
        let given = Resumption {
            finished: 3,
            index: 1,
            checkpoint: CanonicalJson::from_value(&json!({"page": 3})).unwrap(),
            resumed: 8,
            data: CanonicalJson::from_value(&json!("text")).unwrap(),
            resume_step: None,
        };
        assert_eq!(value_of(Some(&given), "/checkpoint/page"), json!(3));
        assert_eq!(value_of(Some(&given), "/data/text"), Value::Null);
        assert_eq!(value_of(Some(&given), "/other"), Value::Null);
        assert_eq!(value_of(None, "/data"), Value::Null);
        let both = json!({"checkpoint": null, "data": null});
        assert_eq!(value_of(None, ""), both);
        assert_eq!(checkpoint_of("/outcome/commands/2/checkpoint/a"), Some("2"));
        assert_eq!(checkpoint_of("/outcome/commands/2/input/checkpoint"), None);
    }
}
