//! Prompts of a recorded definition that a fork edits in place, judged as those of an agent file are.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use ktsu_codes::nearest;
use ktsu_ledger::event::Violation;
use ktsu_ledger::event::plan::{AgentFile, Plan, StepWork, WorkflowPlan};
use ktsu_projections::step_name::path_in;

use crate::definition::{CompiledAgent, Definition};
use crate::expression::{Expression, Root};
use crate::template::{Template, located};

/// The most faults that are listed.
const MAX_FAULTS: usize = 50;
/// The most steps whose paths are looked at for a name that is close to an unknown one.
const MAX_PATHS: usize = 1_000;

/// A prompt of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PromptName {
    /// The static instructions.
    System,
    /// The template of the user message.
    User,
    /// The template for one more look at a draft.
    Reflect,
}

impl PromptName {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::System, Self::User, Self::Reflect];

    /// The word of the agent file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Reflect => "reflect",
        }
    }

    /// The text that an agent file has for it.
    pub fn of(self, file: &AgentFile) -> Option<&str> {
        match self {
            Self::System => Some(&file.prompt.system),
            Self::User => file.prompt.user.as_deref(),
            Self::Reflect => file.prompt.reflect.as_deref(),
        }
    }

    fn set(self, file: &mut AgentFile, text: String) {
        match self {
            Self::System => file.prompt.system = text,
            Self::User => file.prompt.user = Some(text),
            Self::Reflect => file.prompt.reflect = Some(text),
        }
    }
}

/// Texts in place of recorded prompts: by agent, which is the key of its file or the path of a step,
/// and by prompt.
pub type PromptEdits = BTreeMap<String, BTreeMap<PromptName, String>>;

/// Prompts that differ from the recorded ones, by the key of the agent's file.
pub type ChangedPrompts = BTreeMap<String, BTreeSet<PromptName>>;

/// What is wrong with an edit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptFault {
    /// The agent, as the edit names it.
    pub agent: String,
    /// The prompt, unless the agent itself is at fault.
    pub prompt: Option<PromptName>,
    /// The line and the column in the prompt, from 1.
    pub place: Option<(usize, usize)>,
    /// What is wrong.
    pub words: String,
    /// Something to type instead.
    pub hint: Option<String>,
}

impl PromptFault {
    fn of_agent(agent: &str, words: String, hint: Option<String>) -> Self {
        Self {
            agent: agent.to_owned(),
            prompt: None,
            place: None,
            words,
            hint,
        }
    }

    fn of_prompt(agent: &str, prompt: PromptName, words: impl Into<String>) -> Self {
        Self {
            prompt: Some(prompt),
            ..Self::of_agent(agent, words.into(), None)
        }
    }

    /// A prompt that contains the value of a secret, which is not repeated.
    pub fn of_secret(agent: &str, prompt: PromptName) -> Self {
        Self {
            hint: Some("leave the value out: models never see secrets".to_owned()),
            ..Self::of_prompt(
                agent,
                prompt,
                "it contains a secret value, which would be recorded",
            )
        }
    }

    fn at(mut self, text: &str, offset: usize) -> Self {
        self.place = Some(line_and_column(text, offset));
        self
    }

    fn hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint;
        self
    }
}

impl fmt::Display for PromptFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.agent)?;
        if let Some(prompt) = self.prompt {
            write!(out, ", prompt.{}", prompt.as_str())?;
        }
        if let Some((line, column)) = self.place {
            write!(out, ", line {line}, column {column}")?;
        }
        write!(out, ": {}", self.words)
    }
}

/// The faults of the edits, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptEditError(pub Vec<PromptFault>);

impl fmt::Display for PromptEditError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(first) = self.0.first() else {
            return write!(out, "the prompts cannot be used");
        };
        write!(out, "{first}")?;
        match self.0.len() {
            1 => Ok(()),
            count => write!(out, " (and {} more)", count - 1),
        }
    }
}

impl std::error::Error for PromptEditError {}

impl PromptEditError {
    /// What to type, for the first fault.
    pub fn hint(&self) -> Option<&str> {
        self.0.first()?.hint.as_deref()
    }

    /// Each fault at its place in the request.
    pub fn violations(&self) -> Vec<Violation> {
        let violation = |fault: &PromptFault| {
            let agent = fault.agent.replace('~', "~0").replace('/', "~1");
            let prompt = fault.prompt.map(|prompt| format!("/{}", prompt.as_str()));
            let place = fault.place;
            let place = place.map(|(line, column)| format!("line {line}, column {column}: "));
            let hint = fault.hint.as_ref().map(|hint| format!("; {hint}"));
            Violation {
                path: format!("/prompts/{agent}{}", prompt.unwrap_or_default()),
                message: format!(
                    "{}{}{}",
                    place.unwrap_or_default(),
                    fault.words,
                    hint.unwrap_or_default()
                ),
                rule: "prompt".to_owned(),
            }
        };
        self.0.iter().map(violation).collect()
    }
}

/// The definition with other prompts, and the prompts that differ; none if all are as recorded.
///
/// # Errors
/// [`PromptEditError`] with every fault of every prompt.
pub fn edited_definition(
    definition: &Definition,
    edits: &PromptEdits,
) -> Result<Option<(Definition, ChangedPrompts)>, PromptEditError> {
    let mut faults = Vec::new();
    let mut texts: BTreeMap<(&str, PromptName), &str> = BTreeMap::new();
    for (named, prompts) in edits {
        let (key, agent) = match find_agent(definition, named) {
            Ok(found) => found,
            Err(fault) => {
                faults.push(fault);
                continue;
            }
        };
        for (prompt, text) in prompts {
            let Some(recorded) = prompt.of(&agent.file) else {
                let words = format!("the agent {key} has no such prompt");
                faults.push(PromptFault::of_prompt(named, *prompt, words));
                continue;
            };
            if recorded == text {
                continue;
            }
            faults.extend(judge(agent, named, *prompt, text));
            let other = texts.insert((key, *prompt), text);
            if other.is_some_and(|other| other != text) {
                let words = format!("the agent {key} has another text for it in the same request");
                faults.push(PromptFault::of_prompt(named, *prompt, words));
            }
        }
    }
    faults.truncate(MAX_FAULTS);
    if !faults.is_empty() {
        return Err(PromptEditError(faults));
    }
    if texts.is_empty() {
        return Ok(None);
    }
    let mut plan = definition.plan.clone();
    let mut changed = ChangedPrompts::new();
    for ((key, prompt), text) in texts {
        if let Some(file) = plan.agents.get_mut(key) {
            prompt.set(Arc::make_mut(file), text.to_owned());
        }
        changed.entry(key.to_owned()).or_default().insert(prompt);
    }
    let edited = Definition::compile(plan).map_err(|faults| {
        let fault = |(at, words): (String, String)| PromptFault::of_agent(&at, words, None);
        PromptEditError(faults.into_iter().take(MAX_FAULTS).map(fault).collect())
    })?;
    Ok(Some((edited, changed)))
}

/// Returns `true` if two plans differ in their prompts at most.
pub fn differ_in_prompts_alone(one: &Plan, other: &Plan) -> bool {
    let without_prompts = |plan: &Plan| {
        let mut plan = plan.clone();
        for file in plan.agents.values_mut() {
            let file = Arc::make_mut(file);
            for prompt in PromptName::ALL {
                if prompt.of(file).is_some() {
                    prompt.set(file, String::new());
                }
            }
        }
        plan
    };
    without_prompts(one) == without_prompts(other)
}

/// The agent of a name: the key of its file, or the path of a step.
fn find_agent<'d>(
    definition: &'d Definition,
    named: &str,
) -> Result<(&'d str, &'d CompiledAgent), PromptFault> {
    if let Some((key, agent)) = definition.agents.get_key_value(named) {
        return Ok((key, agent));
    }
    let plan = &definition.plan;
    let mut workflow = plan.workflows.get(&plan.root);
    let mut segments = named.split('/').peekable();
    while let Some(segment) = segments.next() {
        let steps = workflow.map(|workflow| &workflow.steps);
        let step = steps.and_then(|steps| steps.iter().find(|step| step.id == segment));
        let Some(step) = step else { break };
        match (&step.work, segments.peek()) {
            (StepWork::Agent(agent), None) => {
                return match definition.agents.get_key_value(&agent.file) {
                    Some((key, agent)) => Ok((key, agent)),
                    None => break,
                };
            }
            (StepWork::Workflow(child), Some(_)) => workflow = plan.workflows.get(&child.workflow),
            (_, None) => {
                let words = "the step asks no model, so it has no prompt".to_owned();
                return Err(PromptFault::of_agent(named, words, None));
            }
            (StepWork::Agent(_) | StepWork::Transform(_) | StepWork::Webhook(_), Some(_)) => break,
        }
    }
    let known = names_of_agents(plan);
    let near = nearest(named, known.iter().map(String::as_str));
    let hint = match near {
        Some(near) => format!("did you mean {near}?"),
        None => "name an agent step by its path, or an agent by its file".to_owned(),
    };
    let words = "the definition has no such agent step and no such agent".to_owned();
    Err(PromptFault::of_agent(named, words, Some(hint)))
}

/// The files of agents, and the paths of the steps that use them.
fn names_of_agents(plan: &Plan) -> Vec<String> {
    let paths = agent_steps(plan).into_values().flatten();
    plan.agents.keys().cloned().chain(paths).collect()
}

/// The paths of the steps that use an agent, by the key of its file; of a large definition, of the
/// first ones. Steps of workflows that agents invoke have none.
pub fn agent_steps(plan: &Plan) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let root = plan.workflows.get(&plan.root);
    let mut open: Vec<(String, &WorkflowPlan)> = Vec::new();
    open.extend(root.map(|root| (String::new(), root.as_ref())));
    let mut left = MAX_PATHS;
    while let Some((scope, workflow)) = open.pop() {
        for step in &workflow.steps {
            let Some(rest) = left.checked_sub(1) else {
                return found;
            };
            left = rest;
            let path = path_in(&scope, &step.id);
            match &step.work {
                StepWork::Agent(agent) => found.entry(agent.file.clone()).or_default().push(path),
                StepWork::Workflow(child) => {
                    let child = plan.workflows.get(&child.workflow);
                    open.extend(child.map(|child| (path, child.as_ref())));
                }
                StepWork::Transform(_) | StepWork::Webhook(_) => {}
            }
        }
    }
    found
}

/// Judges a text as the prompt of an agent file is.
fn judge(agent: &CompiledAgent, named: &str, prompt: PromptName, text: &str) -> Vec<PromptFault> {
    let fault = |words: &str| PromptFault::of_prompt(named, prompt, words);
    if text.trim().is_empty() {
        return vec![fault("the prompt is empty or whitespace")];
    }
    if prompt == PromptName::System {
        let found = text.find("{{").map(|at| {
            let hint = "move what changes to prompt.user".to_owned();
            fault("it is static: {{ }} is not evaluated here")
                .at(text, at)
                .hint(Some(hint))
        });
        return found.into_iter().collect();
    }
    if let Err(error) = Template::text(text) {
        let found = fault(&error.message).at(text, error.offset);
        return vec![found.hint(error.hint)];
    }
    let mut faults = Vec::new();
    for (at, source) in located(text).0 {
        let Ok(expression) = Expression::parse(source) else {
            continue;
        };
        for (name, words, hint) in misused(agent, &expression) {
            let offset = expression.offset_of(&name).unwrap_or_default();
            faults.push(fault(&words).at(text, at + offset).hint(Some(hint)));
        }
    }
    faults
}

/// The names of an expression that a prompt may not have: each with what is wrong, and a hint.
fn misused(agent: &CompiledAgent, expression: &Expression) -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    for root in expression.roots() {
        let (name, shown) = match root {
            Root::Params => continue,
            Root::Env(name) => (name.clone(), format!("env.{name}")),
            Root::Step(id) => (id.clone(), format!("the step {id:?}")),
            Root::Item => ("item".to_owned(), "item".to_owned()),
            Root::ItemIndex => ("item_index".to_owned(), "item_index".to_owned()),
            Root::Resume => ("resume".to_owned(), "resume".to_owned()),
            Root::Name(name) => (name.clone(), name.clone()),
        };
        let words = format!("a prompt sees params alone, not {shown}");
        let hint = "give the step a param, and write {{ params.NAME }}";
        found.push((name, words, hint.to_owned()));
    }
    let taken = expression.params();
    let Some(params) = agent.params_schema() else {
        return found;
    };
    let known: Vec<&str> = params.properties().collect();
    for name in &taken.names {
        if agent.is_secret(name) {
            let words = format!("the secret param {name:?} must not appear in a prompt");
            let hint = "secrets go to tool servers; a model never sees them";
            found.push((name.clone(), words, hint.to_owned()));
            continue;
        }
        if known.contains(&name.as_str()) {
            continue;
        }
        let near = nearest(name, known.iter().copied());
        // What is not declared may be given all the same where a schema is left open.
        if params.is_closed() || params.is_left_open() && near.is_some() {
            let hint = match near {
                Some(near) => format!("did you mean {near}?"),
                None => format!("it has: {}", known.join(", ")),
            };
            let words = format!("the params of this agent do not declare {name:?}");
            found.push((name.clone(), words, hint));
        }
    }
    found
}

/// The line and the column of a byte, from 1.
fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let last = before.rsplit('\n').next().unwrap_or_default();
    (line, last.chars().count() + 1)
}
