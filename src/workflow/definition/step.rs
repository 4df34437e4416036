//! One step of a definition: its condition, its air-lock and its work.

use std::collections::BTreeSet;

use ktsu_ledger::CanonicalJson;
use ktsu_ledger::event::plan::{AgentPlan, ChildPlan, StepPlan, StepWork, WebhookPlan};
use serde_json::Value;

use super::{CompileErrors, expression, output_schema, text, tree};
use crate::airlock::{Schema, SchemaViolation};
use crate::expression::{Expression, ExpressionError, Root};
use crate::rules::DecisionRules;
use crate::template::Template;
use crate::transform::CompiledTransform;

/// One step, compiled.
#[derive(Debug)]
pub struct CompiledStep {
    /// Unique in its workflow.
    pub id: String,
    /// Positions of the steps it waits for, ascending.
    pub needs: Vec<usize>,
    /// Falsy skips the step.
    pub condition: Option<Expression>,
    /// The air-lock of its output; `check_output` applies it.
    pub schema: Option<Schema>,
    /// The work that it does.
    pub work: CompiledWork,
    /// The schema speaks of the value of a transform, not of the object around it.
    judges_result: bool,
}

/// The four primitives with their expressions parsed.
#[derive(Debug)]
pub enum CompiledWork {
    /// A model reasons.
    Agent {
        /// An object of templates.
        params: Option<Template>,
        /// `for_each.from`.
        from: Option<Expression>,
        /// The schema of the data that it may wait for.
        resume: Option<Schema>,
    },
    /// Data is reshaped.
    Transform(CompiledTransform),
    /// An HTTP endpoint is called.
    Webhook {
        /// A template that makes text.
        url: Template,
        /// A tree of templates.
        body: Option<Template>,
        /// The secret with which each sending is signed: a template that makes it.
        secret: Option<Template>,
    },
    /// Another workflow runs inline.
    Workflow {
        /// An object of templates.
        params: Option<Template>,
    },
}

impl CompiledStep {
    /// Compiles one step.
    pub fn compile(plan: &StepPlan, path: &str, faults: &mut CompileErrors) -> Option<Self> {
        let before = faults.len();
        let at = format!("{path}/{}", plan.id);
        let condition = expression(plan.condition.as_ref(), faults, &format!("{at}/condition"));
        let schema = plan.schema.as_ref();
        let schema = output_schema(schema, faults, &format!("{at}/output/schema"));
        let work = CompiledWork::compile(&plan.work, &at, faults)?;
        (faults.len() == before).then(|| Self {
            id: plan.id.clone(),
            needs: plan.needs.iter().map(|need| *need as usize).collect(),
            condition,
            schema,
            work,
            judges_result: judges_result(plan),
        })
    }

    /// The violations of the step's own schema by an output without reserved fields; none when
    /// there is no schema (decision E5).
    ///
    /// The output of a transform is `{"result": value}`: a schema that requires `result` checks
    /// the object, any other checks the value.
    pub fn check_output(&self, output: &Value, rules: DecisionRules) -> Vec<SchemaViolation> {
        let checked = self.checked_part(output);
        checked.map_or_else(Vec::new, |(schema, part)| {
            crate::airlock::check_output(schema, part, rules)
        })
    }

    /// The step's own schema.
    pub fn schema(&self) -> Option<&Schema> {
        self.schema.as_ref()
    }

    /// The schema of the data that it may wait for.
    pub fn resume_schema(&self) -> Option<&Schema> {
        match &self.work {
            CompiledWork::Agent { resume, .. } => resume.as_ref(),
            CompiledWork::Transform(_)
            | CompiledWork::Webhook { .. }
            | CompiledWork::Workflow { .. } => None,
        }
    }

    /// The step's own schema, and the part of an output that it checks.
    pub fn checked_part<'o>(&self, output: &'o Value) -> Option<(&Schema, &'o Value)> {
        let schema = self.schema.as_ref()?;
        let result = output.get("result").filter(|_| self.judges_result);
        Some((schema, result.unwrap_or(output)))
    }

    /// Every name its condition and its work mention.
    pub fn roots(&self) -> BTreeSet<Root> {
        let mut roots = self.work.roots();
        roots.extend(
            self.condition
                .iter()
                .flat_map(|one| one.roots().iter().cloned()),
        );
        roots
    }
}

fn judges_result(plan: &StepPlan) -> bool {
    let schema = plan.schema.as_ref().map(CanonicalJson::to_value);
    let required = schema
        .as_ref()
        .and_then(|schema| schema.get("required")?.as_array());
    let wraps = required.is_some_and(|names| names.iter().any(|name| name == "result"));
    match &plan.work {
        StepWork::Transform(_) => !wraps,
        StepWork::Agent(_) | StepWork::Webhook(_) | StepWork::Workflow(_) => false,
    }
}

impl CompiledWork {
    fn compile(work: &StepWork, at: &str, faults: &mut CompileErrors) -> Option<Self> {
        match work {
            StepWork::Agent(agent) => Some(Self::agent(agent, at, faults)),
            StepWork::Transform(plan) => {
                let compiled = CompiledTransform::compile(plan).map(Self::Transform);
                let worded = |(place, error): (String, ExpressionError)| {
                    (format!("{at}/transform/{place}"), error.message)
                };
                let collect = |errors: Vec<_>| faults.extend(errors.into_iter().map(worded));
                compiled.map_err(collect).ok()
            }
            StepWork::Webhook(webhook) => Self::webhook(webhook, at, faults),
            StepWork::Workflow(ChildPlan { params, .. }) => Some(Self::Workflow {
                params: tree(params.as_ref(), faults, &format!("{at}/params")),
            }),
        }
    }

    fn agent(plan: &AgentPlan, at: &str, faults: &mut CompileErrors) -> Self {
        let from = plan.for_each.as_ref().map(|each| &each.from);
        Self::Agent {
            from: expression(from, faults, &format!("{at}/for_each/from")),
            params: tree(plan.params.as_ref(), faults, &format!("{at}/params")),
            resume: output_schema(
                plan.resume.as_ref().and_then(|one| one.schema.as_ref()),
                faults,
                &format!("{at}/resume/schema"),
            ),
        }
    }

    fn webhook(plan: &WebhookPlan, at: &str, faults: &mut CompileErrors) -> Option<Self> {
        let url = text(Some(&plan.url), faults, &format!("{at}/webhook/url"));
        let body = tree(plan.body.as_ref(), faults, &format!("{at}/webhook/body"));
        let secret = text(
            plan.secret.as_ref(),
            faults,
            &format!("{at}/webhook/secret"),
        );
        Some(Self::Webhook {
            url: url?,
            body,
            secret,
        })
    }

    /// Every name mentioned.
    pub fn roots(&self) -> BTreeSet<Root> {
        let of = |template: &Option<Template>| {
            template
                .iter()
                .flat_map(|one| one.roots().iter().cloned())
                .collect()
        };
        match self {
            Self::Agent { params, from, .. } => {
                let mut roots: BTreeSet<Root> = of(params);
                roots.extend(from.iter().flat_map(|one| one.roots().iter().cloned()));
                roots
            }
            Self::Transform(transform) => transform.roots(),
            Self::Webhook { url, body, secret } => {
                let mut roots: BTreeSet<Root> = of(body);
                roots.extend(of(secret));
                roots.extend(url.roots().iter().cloned());
                roots
            }
            Self::Workflow { params } => of(params),
        }
    }
}
