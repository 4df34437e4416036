//! One workflow: the types of its steps in their order, then that of its output.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ktsu_ledger::event::plan::{StepPlan, StepWork};
use serde_json::Value;

use super::expressions::Expressions;
use super::known::{KitTypes, mismatch, with_markers};
use crate::builtin;
use crate::read::{KitReader, items, member, members};
use crate::resume_checks;
use crate::step::StepDraft;
use crate::workflow::WorkflowDraft;
use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::yaml::{SourceSpan, YamlNode, YamlValue};
use ktsu_workflow::expression::Vocabulary;
use ktsu_workflow::graph::order_or_as_given;
use ktsu_workflow::params::ParamsSchema;
use ktsu_workflow::types::infer::NameTypes;
use ktsu_workflow::types::schema::{of_output, of_schema};
use ktsu_workflow::types::{KindSet, ValueType, find_mismatch, step, transform};

/// The output of the workflow for a step that calls it, and the faults that were found.
pub(super) fn check(
    kit: &KitTypes<'_>,
    path: &str,
    text: &str,
    draft: &WorkflowDraft,
    root: &YamlNode,
) -> (ValueType, Vec<Fault>) {
    let schema = draft.plan.params.as_ref();
    let schema = schema.and_then(|schema| ParamsSchema::compile(schema).ok());
    let params = kit.params.get(path);
    let mut walk = WorkflowTypes {
        kit,
        path,
        expressions: Expressions {
            reader: KitReader::new(Path::new(path), text),
            names: NameTypes {
                params: params.cloned().unwrap_or_else(ValueType::open_object),
                params_judged: schema.is_some_and(|schema| schema.is_closed()),
                item: ValueType::any(),
                resume_data: ValueType::any(),
                steps: BTreeMap::new(),
            },
            effort: &kit.effort,
            vocabulary: Vocabulary::Workflow,
        },
        outputs: BTreeMap::new(),
        skips: BTreeSet::new(),
    };
    let nodes = nodes(root);
    for position in order(&draft.steps) {
        if let Some(step) = draft.steps.get(position)
            && let Some(node) = nodes.get(&step.place.offset)
        {
            walk.step(step, node, position);
        }
    }
    let output = walk.output(draft, member(Some(root), "output"));
    (output, walk.expressions.reader.into_faults())
}

/// The steps of the file, by the place of their ids.
fn nodes(root: &YamlNode) -> BTreeMap<usize, &YamlNode> {
    let steps = items(member(Some(root), "pipeline"));
    let placed = steps.iter().filter_map(|step| {
        let id = member(Some(step), "id")?;
        Some((id.place.offset, step))
    });
    placed.collect()
}

/// Every step after those it needs; in file order if steps wait for one another, which is reported
/// elsewhere.
fn order(steps: &[StepDraft]) -> Vec<usize> {
    let needs = steps.iter().map(|step| {
        let needs = step.plan.needs.iter();
        needs.map(|need| *need as usize).collect()
    });
    order_or_as_given(&needs.collect::<Vec<Vec<usize>>>())
}

/// The data that a step waits for, as its `resume.schema` has them: null before they are there. To a step
/// with `on: resume`, those of any other may come.
fn resume_data(draft: &StepDraft) -> ValueType {
    if draft.plan.is_on_resume() {
        return ValueType::any();
    }
    let StepWork::Agent(agent) = &draft.plan.work else {
        return ValueType::any();
    };
    let resume = agent.resume.as_ref();
    match resume.and_then(|resume| resume.schema.as_ref()) {
        Some(schema) => of_schema(&schema.to_value()).or_null(),
        None => ValueType::any(),
    }
}

struct WorkflowTypes<'k> {
    kit: &'k KitTypes<'k>,
    path: &'k str,
    expressions: Expressions<'k>,
    /// The outputs of steps where they complete, by position.
    outputs: BTreeMap<usize, ValueType>,
    /// Positions of steps that may be skipped, their own needs counted in.
    skips: BTreeSet<usize>,
}

impl WorkflowTypes<'_> {
    fn step(&mut self, draft: &StepDraft, node: &YamlNode, position: usize) {
        if let Some(condition) = member(Some(node), "condition") {
            self.expressions.expression(condition);
        }
        let plan = &draft.plan;
        let made = match &plan.work {
            StepWork::Transform(_) => {
                let body = member(Some(node), "transform");
                step::result(self.transform(body))
            }
            StepWork::Webhook(_) => {
                let body = member(Some(node), "webhook");
                for key in ["url", "body"] {
                    if let Some(node) = member(body, key) {
                        self.expressions.template(node);
                    }
                }
                step::webhook()
            }
            StepWork::Agent(_) => self.agent(draft, node, position),
            StepWork::Workflow(_) => self.child(draft, node, position),
        };
        let output = self.judged(plan, made, node);
        let skips = self.may_be_skipped(plan);
        if skips {
            self.skips.insert(position);
        }
        let seen = match &plan.work {
            // A notice is none of the steps that run.
            StepWork::Webhook(webhook) if webhook.on_approval => step::skipped(),
            StepWork::Webhook(_) => with_markers(output.clone(), skips, true),
            StepWork::Agent(agent) if !agent.may_invoke.is_empty() => {
                let outputs = self.invoked(position);
                step::with_invoked(with_markers(output.clone(), skips, false), outputs)
            }
            StepWork::Agent(_) | StepWork::Transform(_) | StepWork::Workflow(_) => {
                with_markers(output.clone(), skips, false)
            }
        };
        self.outputs.insert(position, output);
        let steps = &mut self.expressions.names.steps;
        let twice = steps.contains_key(&plan.id);
        let seen = if twice { ValueType::any() } else { seen };
        steps.insert(plan.id.clone(), seen);
    }

    /// By its condition or its agent's word, or because something it needs may be (decision S3).
    fn may_be_skipped(&self, plan: &StepPlan) -> bool {
        let by_agent = match &plan.work {
            StepWork::Agent(agent) => agent.for_each.is_none(),
            StepWork::Webhook(webhook) => webhook.on_approval,
            StepWork::Transform(_) | StepWork::Workflow(_) => false,
        };
        let mut needs = plan.needs.iter();
        let by_need = needs.any(|need| self.skips.contains(&(*need as usize)));
        plan.condition.is_some() || by_agent || by_need
    }

    /// An output as far as the step's own schema lets it through (decision R5).
    fn judged(&mut self, plan: &StepPlan, made: ValueType, node: &YamlNode) -> ValueType {
        let Some(schema) = plan.schema.as_ref().map(|schema| schema.to_value()) else {
            return made;
        };
        let wanted = of_output(&schema);
        // The schema of a transform speaks of its value, unless it requires the object around it.
        let inner = matches!(plan.work, StepWork::Transform(_)) && !requires_result(&schema);
        let wanted = match inner {
            true => step::result(wanted),
            false => wanted,
        };
        // That an agent must give an object is reported where its schema is read.
        let no_object = !wanted.kinds().meets(KindSet::OBJECT);
        if matches!(plan.work, StepWork::Agent(_)) && no_object {
            return ValueType::any();
        }
        let Some(found) = find_mismatch(&made, &wanted) else {
            return made.meet(&wanted);
        };
        let output = member(Some(node), "output");
        let place = member(output, "schema").map_or(node.place, |schema| schema.place);
        let what = format!("the output of step {:?}", plan.id);
        let fault = mismatch(place, &what, &words(&found.message, &found.pointer));
        self.expressions.reader.fault(fault);
        ValueType::any()
    }

    fn transform(&mut self, body: Option<&YamlNode>) -> ValueType {
        let mut inputs = Vec::new();
        for node in items(member(body, "inputs")) {
            let from = member(Some(node), "from").unwrap_or(node);
            inputs.push(self.expressions.input(from));
        }
        let mut value = transform::start(&inputs);
        for node in items(member(body, "ops")) {
            value = match members(Some(node)) {
                [(key, body)] if !self.kit.effort.is_spent() => {
                    self.op(&key.text, key.place, body, value)
                }
                _ => ValueType::any(),
            };
            self.kit.effort.spend(&value);
        }
        value
    }

    fn op(
        &mut self,
        name: &str,
        place: SourceSpan,
        body: &YamlNode,
        value: ValueType,
    ) -> ValueType {
        let part = |key: &str| member(Some(body), key);
        match (name, part("expr"), part("field")) {
            ("filter", Some(expr), _) => {
                let elements = transform::elements(&value).without_null();
                self.expressions.element(expr, &elements);
                transform::filtered(&value)
            }
            ("map", Some(expr), _) => {
                let elements = transform::elements(&value);
                ValueType::array(self.expressions.element(expr, &elements))
            }
            ("deduplicate", _, Some(field)) => {
                let elements = transform::array_elements(&value);
                self.expressions.element(field, &elements);
                value
            }
            ("sort", _, Some(field)) => {
                if !transform::sorts(&value) {
                    let words = format!("sort needs an array, and gets {}", value.words());
                    let fault = Fault::new(FaultCode::TypeMismatch, place, words);
                    self.expressions.reader.fault(fault);
                    return ValueType::any();
                }
                let elements = transform::array_elements(&value);
                self.expressions.element(field, &elements);
                ValueType::array(elements)
            }
            ("flatten", _, _) => transform::flattened(&value),
            ("merge", _, _) => {
                let arguments = items(Some(body)).iter();
                arguments.fold(value, |value, node| {
                    let argument = self.expressions.input(node);
                    transform::merged(&value, &argument)
                })
            }
            _ => ValueType::any(),
        }
    }

    fn agent(&mut self, draft: &StepDraft, node: &YamlNode, position: usize) -> ValueType {
        let mut fans_out = false;
        if let Some(from) = member(member(Some(node), "for_each"), "from") {
            fans_out = true;
            let items = self.expressions.expression(from);
            self.expressions.names.item = self.items(from, &items);
        }
        let file = self.kit.loader.calls.get(&(self.path.to_owned(), position));
        let file = file.map(String::as_str);
        let wanted = file.and_then(|file| self.kit.agent_params.get(file));
        let params = member(Some(node), "params");
        self.expressions.names.resume_data = resume_data(draft);
        self.params(params, wanted.cloned(), true);
        self.expressions.names.item = ValueType::any();
        self.expressions.names.resume_data = ValueType::any();
        let output = file.and_then(|file| self.kit.agents.get(file));
        let mut output = output.cloned().unwrap_or_else(ValueType::any);
        let is_parser = draft
            .agent
            .as_ref()
            .map(|call| builtin::is_builtin(&call.name));
        if is_parser == Some(true) {
            output = output.meet(&extracted(member(params, "extract")));
        }
        match fans_out {
            true => step::results(&output),
            false => output.join(&self.resumed(position)),
        }
    }

    /// The output of a step that is resumed to another: any output of those that it can be resumed
    /// to.
    fn resumed(&self, position: usize) -> ValueType {
        let calls = &self.kit.loader.calls;
        let others = resume_checks::others(self.kit.loader, self.path, position).into_iter();
        let file = |other| calls.get(&(self.path.to_owned(), other));
        let output = |other| self.kit.agents.get(file(other)?.as_str()).cloned();
        ValueType::union(others.map(|other| output(other).unwrap_or_else(ValueType::any)))
    }

    /// The elements that a fan-out goes over.
    fn items(&mut self, from: &YamlNode, list: &ValueType) -> ValueType {
        if list.is_informative() && !list.kinds().meets(KindSet::ARRAY) {
            let words = format!("for_each goes over an array, and gets {}", list.words());
            let fault = Fault::new(FaultCode::TypeMismatch, from.place, words);
            let inside = list.field_names().find(|name| {
                let field = list.known_field(name);
                field.is_some_and(|field| field.kinds() == KindSet::ARRAY)
            });
            self.expressions.reader.fault(match (inside, &from.data) {
                (Some(name), YamlValue::Text(path)) => {
                    let path = crate::text::bare(path).0;
                    fault.hint(format!("did you mean {path}.{name}?"))
                }
                _ => fault,
            });
            return ValueType::any();
        }
        list.items()
    }

    fn child(&mut self, _: &StepDraft, node: &YamlNode, position: usize) -> ValueType {
        let params = member(Some(node), "params").or_else(|| member(Some(node), "input"));
        let key = (self.path.to_owned(), position);
        let child = self.kit.loader.children.get(&key);
        let wanted = child.and_then(|child| self.kit.params.get(child.as_str()));
        self.params(params, wanted.cloned(), false);
        child.map_or_else(ValueType::any, |child| self.kit.output(child))
    }

    /// The outputs of the workflows that the agent of a step may invoke.
    fn invoked(&self, position: usize) -> Vec<ValueType> {
        let all = self.kit.loader.invoked.iter();
        let own = all.filter(|((parent, at, _), _)| parent == self.path && *at == position);
        own.map(|(_, child)| self.kit.output(child)).collect()
    }

    /// Params that are given, each held against what is wanted for it. What is written out is judged
    /// elsewhere, and a null that is not allowed counts as absent (decision K4).
    fn params(&mut self, given: Option<&YamlNode>, wanted: Option<ValueType>, to_agent: bool) {
        for (key, node) in members(given) {
            let value = self.expressions.template(node);
            let wanted = wanted.as_ref().and_then(|all| all.known_field(&key.text));
            let Some(wanted) = wanted.filter(|_| is_computed(node)) else {
                continue;
            };
            let both_null =
                wanted.kinds().meets(KindSet::NULL) && value.kinds().meets(KindSet::NULL);
            if both_null && wanted.is_informative() {
                continue;
            }
            let value = value.without_null();
            // An agent takes any scalar as text (decision T6).
            let as_text = to_agent && wanted.kinds() == KindSet::STRING;
            if as_text && value.kinds().meets(KindSet::SCALARS) {
                continue;
            }
            if let Some(found) = find_mismatch(&value, wanted) {
                let message = words(&found.message, &found.pointer);
                let message = format!("{} can never fit: {message}", key.text);
                let fault = Fault::new(FaultCode::TypeMismatch, node.place, message);
                self.expressions.reader.fault(fault);
            }
        }
    }

    /// The output of the workflow (decision S7).
    fn output(&mut self, draft: &WorkflowDraft, node: Option<&YamlNode>) -> ValueType {
        let map = member(node, "map").filter(|node| matches!(node.data, YamlValue::Map(_)));
        let made = match map {
            Some(map) => self.expressions.template(map),
            None => self.last(&draft.steps),
        };
        let schema = draft.plan.output.as_ref();
        let schema = schema.and_then(|output| output.schema.as_ref());
        let Some(schema) = schema.map(|schema| of_schema(&schema.to_value())) else {
            return made;
        };
        let Some(found) = find_mismatch(&made, &schema) else {
            return made.meet(&schema);
        };
        let at = map.or_else(|| member(node, "schema"));
        let place = at.map(|at| at.at(&found.pointer).place).unwrap_or_default();
        let what = match map {
            Some(_) => "output.map",
            None => "the output of the last step",
        };
        let message = words(&found.message, &found.pointer);
        self.expressions
            .reader
            .fault(mismatch(place, what, &message));
        ValueType::any()
    }

    /// The output of the last completed step in file order, or of one before it where that may have
    /// none; an empty object if there is none at all.
    fn last(&self, steps: &[StepDraft]) -> ValueType {
        let mut all = ValueType::never();
        let ordinary = steps.iter().enumerate().rev();
        for (position, step) in ordinary.filter(|(_, step)| !step.plan.is_on_resume()) {
            let output = self.outputs.get(&position);
            all = all.join(&output.cloned().unwrap_or_else(ValueType::any));
            let may_be_silent = matches!(step.plan.work, StepWork::Webhook(_));
            if !may_be_silent && !self.skips.contains(&position) {
                return all;
            }
        }
        all.join(&ValueType::record::<String>([]))
    }
}

/// Fields that a step asks the parser of untrusted text for: they are known by name. What they hold
/// is what a model says, and nothing forbids others.
fn extracted(node: Option<&YamlNode>) -> ValueType {
    let known = node.filter(|node| !is_computed(node));
    let fields = members(known).iter();
    let named = fields.map(|(key, _)| (key.text.clone(), Value::Bool(true)));
    let named: serde_json::Map<String, Value> = named.collect();
    of_schema(&serde_json::json!({ "properties": named }))
}

/// Returns `true` if anything in it is evaluated.
fn is_computed(node: &YamlNode) -> bool {
    match &node.data {
        YamlValue::Text(text) => text.contains("{{"),
        YamlValue::List(items) => items.iter().any(is_computed),
        YamlValue::Map(members) => members.iter().any(|(_, node)| is_computed(node)),
        _ => false,
    }
}

fn requires_result(schema: &Value) -> bool {
    let required = schema.get("required").and_then(Value::as_array);
    required.is_some_and(|names| names.iter().any(|name| name == "result"))
}

/// A message with the place it speaks of, unless that is the whole.
fn words(message: &str, pointer: &str) -> String {
    match pointer {
        "" => message.to_owned(),
        pointer => format!("{message} at {pointer}"),
    }
}
