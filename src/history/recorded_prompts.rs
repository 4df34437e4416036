//! The prompts that a run has at a frame, as the form of a fork shows them.

use ktsu_ledger::Frame;
use ktsu_ledger::event::plan::Plan;
use ktsu_workflow::admit::prompt_edits::{PromptName, agent_steps};

use super::fork_estimate::AskingSteps;

/// The most agents whose prompts are listed.
const MAX_AGENTS: usize = 32;
/// The most bytes of all prompts together: a form with them has to fit into a request.
const MAX_BYTES: usize = 128 * 1024;

/// The prompts of the agents of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordedPrompts {
    /// Those whose steps a fork asks again first.
    pub agents: Vec<AgentPrompts>,
    /// Number of agents that are left out.
    pub left_out: usize,
}

/// The prompts of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentPrompts {
    /// The key of its file.
    pub file: String,
    /// The paths of the steps that use it.
    pub steps: Vec<String>,
    /// True if a fork that changes something asks it again, as far as is known.
    pub is_asked: bool,
    /// Its prompts, by the words of the agent file.
    pub texts: Vec<(&'static str, String)>,
}

/// The prompts at the end of some frames; `asking`: the steps that a fork there asks again.
pub fn recorded_prompts(frames: &[Frame], asking: &AskingSteps) -> RecordedPrompts {
    let definition = frames.iter().rev();
    let definition = { definition }.find_map(|frame| frame.event.definition());
    let plan = definition.and_then(|(json, _)| serde_json::from_str::<Plan>(json.as_str()).ok());
    let Some(plan) = plan else {
        return RecordedPrompts::default();
    };
    let mut steps = agent_steps(&plan);
    let agents = plan
        .agents
        .iter()
        .map(|(file, agent)| AgentPrompts {
            file: file.clone(),
            steps: steps.remove(file).unwrap_or_default(),
            is_asked: asking.contains_key(file),
            texts: PromptName::ALL
                .into_iter()
                .filter_map(|prompt| Some((prompt.as_str(), prompt.of(agent)?.to_owned())))
                .collect(),
        })
        .collect();
    within_bounds(agents)
}

/// The agents that a fork asks first, as many as a form may have.
fn within_bounds(mut agents: Vec<AgentPrompts>) -> RecordedPrompts {
    agents.sort_by_key(|agent| !agent.is_asked);
    let all = agents.len();
    let mut left = MAX_BYTES;
    agents.truncate(MAX_AGENTS);
    agents.retain(|agent| {
        let bytes = agent.texts.iter().map(|(_, text)| text.len()).sum();
        let rest = left.checked_sub(bytes);
        left = rest.unwrap_or(left);
        rest.is_some()
    });
    RecordedPrompts {
        left_out: all - agents.len(),
        agents,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(file: &str, is_asked: bool, bytes: usize) -> AgentPrompts {
        AgentPrompts {
            file: file.to_owned(),
            steps: Vec::new(),
            is_asked,
            texts: vec![("system", "x".repeat(bytes))],
        }
    }

    fn files(prompts: &RecordedPrompts) -> Vec<&str> {
        let agents = prompts.agents.iter();
        agents.map(|agent| agent.file.as_str()).collect()
    }

    #[test]
    fn a_form_has_a_bounded_number_of_agents_those_first_that_are_asked() {
        let mut agents: Vec<AgentPrompts> =
            (0..40).map(|n| agent(&n.to_string(), false, 1)).collect();
        agents.push(agent("asked", true, 1));
        let prompts = within_bounds(agents);
        assert_eq!((prompts.agents.len(), prompts.left_out), (32, 9));
        assert_eq!(files(&prompts)[..2], ["asked", "0"]);
    }

    #[test]
    fn prompts_that_would_not_fit_into_a_request_are_left_out_and_shorter_ones_are_not() {
        let half = MAX_BYTES / 2;
        let agents = [
            ("a", half),
            ("b", half + 1),
            ("c", half),
            ("d", 1),
            ("e", 0),
        ];
        let agents = agents.map(|(file, bytes)| agent(file, true, bytes));
        let prompts = within_bounds(agents.to_vec());
        assert_eq!(
            (files(&prompts), prompts.left_out),
            (vec!["a", "c", "e"], 2)
        );
    }
}
