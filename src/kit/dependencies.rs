//! Checks within one file: variables, ids, and the dependencies between steps.

use ktsu_ledger::CanonicalJson;
use ktsu_ledger::event::plan::{StepWork, Variable, Visibility};

use super::read::{Fields, KitReader, Mention, NameUsage, items, member};
use super::resume_step;
use super::step::StepDraft;
use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::yaml::{SourceSpan, YamlValue};
use ktsu_workflow::expression::Root;
use ktsu_workflow::graph;
use ktsu_workflow::params::ParamsSchema;

/// The ids that stand in the file, those of broken steps too: a reference to one is no fault.
pub(super) fn ids(fields: &Fields<'_>) -> Vec<String> {
    let steps = items(fields.get("pipeline")).iter();
    let ids = steps.filter_map(|step| match &member(Some(step), "id")?.data {
        YamlValue::Text(id) => Some(id.clone()),
        _ => None,
    });
    ids.collect()
}

/// Variables are declared, and secrets stay where they are sent (decision K3).
pub(super) fn check_variables(
    reader: &mut KitReader<'_>,
    mentions: &[Mention],
    declared: &[Variable],
    visibility: Visibility,
) {
    for mention in mentions {
        let Root::Env(name) = &mention.root else {
            continue;
        };
        let variable = declared.iter().find(|one| one.name == *name);
        let fault = match (variable, mention.usage) {
            (None, _) if visibility == Visibility::SubWorkflow => {
                let words = format!("a sub-workflow cannot use env.{name}");
                Fault::new(FaultCode::EnvInSubWorkflow, mention.place, words)
                    .hint("hand the value down as a param")
            }
            (None, _) => {
                let words = format!("the variable {name:?} is not declared");
                let fault = Fault::new(FaultCode::UndeclaredVariable, mention.place, words);
                fault.suggest_or(
                    name,
                    declared.iter().map(|one| one.name.as_str()),
                    format!("add to env: - name: {name}"),
                )
            }
            (Some(one), usage @ (NameUsage::Secret | NameUsage::Signing)) if !one.secret => {
                let words = format!("{} uses {name:?}, which is not a secret", usage.words());
                Fault::new(FaultCode::LiteralSecret, mention.place, words)
                    .hint("declare it with secret: true")
            }
            (
                Some(one),
                usage @ (NameUsage::Child
                | NameUsage::Condition
                | NameUsage::ForEach
                | NameUsage::Output
                | NameUsage::Responder
                | NameUsage::Summary
                | NameUsage::Transform),
            ) if one.secret => {
                let words = format!("the secret {name:?} cannot be used in {}", usage.words());
                Fault::new(FaultCode::SecretNotAllowed, mention.place, words)
                    .hint("secrets go into webhooks and the params of agents only")
            }
            (Some(_), _) => continue,
        };
        reader.fault(fault);
    }
}

/// A param that a closed schema does not know is never there: what needs it would fail in a run.
pub(super) fn check_params(
    reader: &mut KitReader<'_>,
    mentions: &[Mention],
    schema: Option<&CanonicalJson>,
    what: &str,
) {
    let schema = schema.and_then(|schema| ParamsSchema::compile(schema).ok());
    let Some(schema) = schema.filter(ParamsSchema::is_closed) else {
        return;
    };
    let known: Vec<&str> = schema.properties().collect();
    for mention in mentions {
        let unknown = mention.params.iter();
        for name in unknown.filter(|name| !known.contains(&name.as_str())) {
            let words = format!("{what} cannot have a param {name:?}");
            let fault = Fault::new(FaultCode::UnknownParam, mention.place, words);
            reader.fault(fault.suggest_or(
                name,
                known.iter().copied(),
                "declare it in params.schema.properties",
            ));
        }
    }
}

pub(super) fn check_ids(reader: &mut KitReader<'_>, steps: &[StepDraft]) {
    for (position, step) in steps.iter().enumerate() {
        let earlier = steps[..position]
            .iter()
            .find(|other| other.plan.id == step.plan.id);
        if let Some(first) = earlier {
            let words = format!("the id {:?} appears twice", step.plan.id);
            let hint = format!("the first one is on line {}", first.place.line);
            reader.fault(Fault::new(FaultCode::DuplicateId, step.place, words).hint(hint));
        }
    }
}

/// Declared and inferred edges become positions (decision T4).
pub(super) fn resolve_edges(reader: &mut KitReader<'_>, steps: &mut [StepDraft], ids: &[String]) {
    let mut needs = Vec::with_capacity(steps.len());
    for step in steps.iter() {
        let mut wanted = Vec::new();
        for (id, place, rest) in wanted_ids(reader, step) {
            match steps.iter().position(|other| other.plan.id == id) {
                Some(position) if steps[position].plan.is_on_resume() => {
                    resume_step::no_output(reader, &id, place);
                }
                Some(position) => wanted.push(position),
                None if ids.contains(&id) => {}
                None => unknown_step(reader, &id, place, ids, &rest),
            }
        }
        wanted.sort_unstable();
        wanted.dedup();
        needs.push(wanted);
    }
    if let Err(cycle) = graph::order(&needs) {
        let path: Vec<&str> = cycle
            .iter()
            .map(|place| steps[*place].plan.id.as_str())
            .collect();
        let words = format!("steps wait for one another: {}", path.join(" -> "));
        let place = steps[cycle[0]].place;
        reader.fault(Fault::new(FaultCode::StepCycle, place, words));
        return;
    }
    for (step, wanted) in steps.iter_mut().zip(needs) {
        let narrow = wanted
            .into_iter()
            .filter_map(|place| u32::try_from(place).ok());
        step.plan.needs = narrow.collect();
    }
}

fn is_fan_out(step: &StepDraft) -> bool {
    match &step.plan.work {
        StepWork::Agent(agent) => agent.for_each.is_some(),
        StepWork::Transform(_) | StepWork::Webhook(_) | StepWork::Workflow(_) => false,
    }
}

/// A summary may name the values of any step, its own too: it shows those that are there.
pub(super) fn check_summaries(reader: &mut KitReader<'_>, steps: &[StepDraft], ids: &[String]) {
    for step in steps {
        for mention in &step.in_summary {
            match &mention.root {
                Root::Step(id) if !ids.contains(id) => {
                    unknown_step(reader, id, mention.place, ids, &mention.rest);
                }
                Root::Item | Root::ItemIndex if !is_fan_out(step) => outside(reader, mention.place),
                Root::Resume => no_resume(reader, mention.place),
                Root::Step(_)
                | Root::Item
                | Root::ItemIndex
                | Root::Params
                | Root::Env(_)
                | Root::Name(_) => {}
            }
        }
    }
}

/// The steps that a step names: where, and with what of theirs.
fn wanted_ids(reader: &mut KitReader<'_>, step: &StepDraft) -> Vec<(String, SourceSpan, String)> {
    let fan_out = is_fan_out(step);
    // One that is faulty is reported by itself.
    let waits = step
        .agent
        .as_ref()
        .is_some_and(|agent| agent.resume.is_some())
        || step.plan.is_on_resume();
    let listed = step.depends_on.iter();
    let listed = listed.map(|(id, place)| (id.clone(), *place, String::new()));
    let mut wanted: Vec<_> = listed.collect();
    for mention in &step.mentions {
        match &mention.root {
            Root::Step(id) => wanted.push((id.clone(), mention.place, mention.rest.clone())),
            Root::Item | Root::ItemIndex if !fan_out || mention.usage != NameUsage::Value => {
                outside(reader, mention.place);
            }
            Root::Resume if !waits || mention.usage != NameUsage::Value => {
                no_resume(reader, mention.place);
            }
            Root::Item
            | Root::ItemIndex
            | Root::Resume
            | Root::Params
            | Root::Env(_)
            | Root::Name(_) => {}
        }
    }
    wanted
}

fn outside(reader: &mut KitReader<'_>, place: SourceSpan) {
    let words = "item exists in the params and the summary of a for_each step only";
    reader.fault(Fault::new(FaultCode::ItemOutsideFanOut, place, words));
}

fn no_resume(reader: &mut KitReader<'_>, place: SourceSpan) {
    let words = "resume exists in the params of a step that has `resume:` or `on: resume` only";
    let fault = Fault::new(FaultCode::UnknownName, place, words);
    reader.fault(fault.hint("resume: {schema: {type: object}}"));
}

fn unknown_step(
    reader: &mut KitReader<'_>,
    id: &str,
    place: SourceSpan,
    ids: &[String],
    rest: &str,
) {
    let fault = Fault::new(
        FaultCode::UnknownStep,
        place,
        format!("there is no step {id:?}"),
    );
    reader.fault(match id {
        "true" | "false" => fault.hint(format!(
            "in an expression it is written `{id}`, with backticks"
        )),
        // As other engines write it.
        "steps" if !rest.is_empty() => fault.hint(format!("did you mean step{rest}?")),
        _ => fault.suggest_or(
            id,
            ids.iter().map(String::as_str),
            "text in an expression is written in single quotes: 'text'",
        ),
    });
}

pub(super) fn check_output(
    reader: &mut KitReader<'_>,
    mentions: &[Mention],
    steps: &[StepDraft],
    ids: &[String],
) {
    let is_on_resume = |id: &String| {
        let mut same = steps.iter().filter(|step| step.plan.id == *id);
        same.any(|step| step.plan.is_on_resume())
    };
    for mention in mentions {
        match &mention.root {
            Root::Step(id) if !ids.contains(id) => {
                unknown_step(reader, id, mention.place, ids, &mention.rest);
            }
            Root::Step(id) if is_on_resume(id) => resume_step::no_output(reader, id, mention.place),
            Root::Item | Root::ItemIndex => outside(reader, mention.place),
            Root::Resume => no_resume(reader, mention.place),
            Root::Step(_) | Root::Params | Root::Env(_) | Root::Name(_) => {}
        }
    }
}
