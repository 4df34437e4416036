//! `commands:` of a step: which of the commands that its agent declares its own outcomes may have.
//!
//! A narrowed agent is one of its own in the definition, under the path of its file with the step behind
//! it: what counts for it is what counts for every agent, and no rule has to know of steps.

use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::yaml::{SourceSpan, YamlNode, YamlValue};
use ktsu_ledger::event::plan::{AgentCommands, AgentFile, ApprovalTimeout, ReviewPolicy};
use ktsu_ledger::id::covers;
use ktsu_ledger::topic::TopicPattern;

use super::agent::command_tools;
use super::builtin;
use super::read::{KitReader, member};
use super::review;
use super::shape::workflow::STEP_COMMANDS;

/// The mark behind the path of an agent's file where a step narrows it.
const BEHIND: char = '#';

/// The limits that a step sets to the commands of its agent.
#[derive(Debug, Clone)]
pub(super) struct StepCommands {
    /// Only these topics.
    emit: Option<(Vec<String>, SourceSpan)>,
    /// Nothing: as the agent says. None: no reviews. Otherwise under this policy, too.
    review: Option<(Option<StepReview>, SourceSpan)>,
    /// True if it may suspend its step, with the place that says so.
    suspend: Option<(bool, SourceSpan)>,
}

/// The reviews that a step asks for, beside its agent.
#[derive(Debug, Clone)]
struct StepReview {
    policy: ReviewPolicy,
    /// True if it says how long a decision may take.
    has_timeout: bool,
    /// True if it says what the end of that time does.
    has_behavior: bool,
}

/// Reads `commands:` of a step.
pub(super) fn read(reader: &mut KitReader<'_>, node: &YamlNode) -> Option<StepCommands> {
    let fields = reader.shaped(node, &STEP_COMMANDS)?;
    let emit = match fields.get("emit") {
        Some(node) => {
            let list = reader.list(node, "emit")?.iter();
            let list = list.map(|one| reader.string(one, "an entry of emit").map(str::to_owned));
            let topics = list.collect::<Option<Vec<String>>>()?;
            if let Err(error) = TopicPattern::of_list(topics.iter().map(String::as_str))
                && !topics.is_empty()
            {
                let fault = Fault::new(FaultCode::BadValue, node.place, error.to_string());
                return reader.reject(fault.hint("emit: [claim.verified, claim.*]"));
            }
            Some((topics, node.place))
        }
        None => None,
    };
    let review = match fields.get("review") {
        // As the agent says.
        Some(node) if matches!(node.data, YamlValue::Bool(true)) => None,
        Some(node) => {
            let policy = review::read(reader, node)?.map(|policy| StepReview {
                policy,
                has_timeout: member(Some(node), "timeout").is_some(),
                has_behavior: member(Some(node), "timeout_behavior").is_some(),
            });
            Some((policy, node.place))
        }
        None => None,
    };
    let suspend = match fields.get("suspend") {
        Some(node) => Some((reader.flag(node, "suspend")?, node.place)),
        None => None,
    };
    Some(StepCommands {
        emit,
        review,
        suspend,
    })
}

impl StepCommands {
    /// Returns `true` if the step cannot be suspended, whatever its agent declares.
    pub(super) fn forbids_suspend(&self) -> bool {
        matches!(self.suspend, Some((false, _)))
    }
}

/// The faults of a step that allows what its agent does not declare.
pub(super) fn check(step: &StepCommands, agent: &AgentFile) -> Vec<Fault> {
    let none = AgentCommands::default();
    let declared = agent.commands.as_ref().unwrap_or(&none);
    let name = &agent.name;
    let mut found = Vec::new();
    let mut add = |place, words: String, hint: &str| {
        found.push(Fault::new(FaultCode::MisplacedKey, place, words).hint(hint));
    };
    if let Some((topics, place)) = &step.emit {
        let is_declared = |topic: &&String| declared.emit.iter().any(|one| covers(one, topic));
        for topic in topics.iter().filter(|topic| !is_declared(topic)) {
            let words = format!("the agent {name:?} does not declare that it emits {topic:?}");
            add(
                *place,
                words,
                "a step narrows what its agent declares: add it there",
            );
        }
    }
    if let (Some((Some(_), place)), None) = (&step.review, &declared.review) {
        let words = format!("the agent {name:?} does not declare that it asks for reviews");
        add(*place, words, "add `commands: {review: true}` to the agent");
    }
    if let (Some((Some(own), place)), Some(declared)) = (&step.review, &declared.review) {
        let others = own.policy.roles.iter();
        let others =
            others.filter(|role| !declared.roles.is_empty() && !declared.roles.contains(role));
        for role in others {
            let words = format!("reviews of the agent {name:?} are not decided by the role {role}");
            add(
                *place,
                words,
                "a step names some of the roles that its agent names",
            );
        }
    }
    if let (Some((true, place)), None) = (&step.suspend, &declared.suspend) {
        let words = format!("the agent {name:?} does not declare that it suspends its step");
        add(
            *place,
            words,
            "add `commands: {suspend: true}` to the agent",
        );
    }
    found
}

/// The path of the agent that a step narrows.
pub(super) fn path(agent: &str, workflow: &str, step: &str) -> String {
    format!("{agent}{BEHIND}{workflow}{BEHIND}{step}")
}

/// The path of the file behind the path of an agent.
pub(super) fn file_of(agent: &str) -> &str {
    agent.split(BEHIND).next().unwrap_or(agent)
}

/// The agent, with what a step leaves of its commands.
pub(super) fn narrowed(agent: &AgentFile, step: &StepCommands) -> AgentFile {
    let mut agent = agent.clone();
    let Some(mut commands) = agent.commands.take() else {
        return agent;
    };
    if let Some((topics, _)) = &step.emit {
        commands.emit.clone_from(topics);
    }
    if let Some((own, _)) = &step.review {
        let both = commands.review.take().zip(own.as_ref());
        commands.review = both.map(|(declared, own)| stricter(declared, own));
    }
    if let Some((false, _)) = step.suspend {
        commands.suspend = None;
    }
    let tools = command_tools(&commands);
    for server in &mut agent.servers {
        if server.name == builtin::COMMANDS {
            server
                .tools
                .retain(|rule| tools.contains(&rule.pattern.as_str()));
        }
    }
    agent
        .servers
        .retain(|server| server.name != builtin::COMMANDS || !server.tools.is_empty());
    agent.commands = Some(commands);
    agent
}

/// The policy that asks for what both policies ask for.
fn stricter(declared: ReviewPolicy, step: &StepReview) -> ReviewPolicy {
    let own = &step.policy;
    let ms = match step.has_timeout {
        true => own.timeout.ms.min(declared.timeout.ms),
        false => declared.timeout.ms,
    };
    let behavior = match step.has_behavior {
        true => own.timeout.behavior,
        false => declared.timeout.behavior,
    };
    ReviewPolicy {
        not_by_proposer: declared.not_by_proposer || own.not_by_proposer,
        quorum: declared.quorum.max(own.quorum),
        roles: match own.roles.is_empty() {
            true => declared.roles,
            false => own.roles.clone(),
        },
        timeout: ApprovalTimeout { behavior, ms },
    }
}

#[cfg(test)]
mod tests;
