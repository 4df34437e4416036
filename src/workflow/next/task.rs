//! The specification of a task, as a runtime gets it.

use ktsu_ledger::CanonicalJson;

use super::servers::ServerSpec;

/// Everything a runtime gets to know about a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskSpec {
    /// The agent's name.
    pub agent: String,
    /// The system prompt.
    pub system: String,
    /// The user message.
    pub user: String,
    /// The messages of a responder's question, `(role, text)`, in order, in the place of both;
    /// empty for an agent.
    pub messages: Vec<(String, String)>,
    /// The prompt of the reflection.
    pub reflect: Option<String>,
    /// The group, after the run's policy had its say.
    pub group: String,
    /// In millionths; absent: the group's.
    pub temperature_millionths: Option<u32>,
    /// The most tokens of a reply.
    pub max_tokens: u32,
    /// Turns at the most.
    pub max_turns: u32,
    /// The step's threshold, in millionths.
    pub threshold: Option<u32>,
    /// JSON Schema of the output; absent: the reply is text.
    pub schema: Option<CanonicalJson>,
    /// The tool servers, without their secrets.
    pub servers: Vec<ServerSpec>,
}
