//! The policies on who may give a suspended step its data, and until when (seed 004; decision P3).

use serde::{Deserialize, Serialize};

use crate::canonical::CanonicalJson;

/// The policy on who may give the data that a step waits for, and until when: `suspend:` of an
/// agent's commands, with what the step's `resume:` says instead.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuspendPolicy {
    /// The roles of which a person needs one; empty: those that decide on tool calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
    /// JSON Schema of the data; absent: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<CanonicalJson>,
    /// The time that the step waits, in milliseconds from `suspend.requested`. Then it fails.
    pub timeout_ms: u64,
}

/// `resume:` of a step: what data it may wait for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResumePlan {
    /// The roles, in place of those that the agent names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<String>,
    /// JSON Schema of the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<CanonicalJson>,
    /// The time that it waits, in milliseconds, in place of what the agent says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

impl SuspendPolicy {
    /// Returns `true` if it is empty, as where it is in a blob that has not been put back.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The policy of a step: what its `resume:` says, and otherwise its agent.
    pub fn narrowed(&self, resume: Option<&ResumePlan>) -> Self {
        let roles = resume.map(|resume| &resume.roles);
        let roles = roles.filter(|roles| !roles.is_empty());
        let schema = resume.and_then(|resume| resume.schema.as_ref());
        Self {
            roles: roles.unwrap_or(&self.roles).clone(),
            schema: schema.or(self.schema.as_ref()).cloned(),
            timeout_ms: resume
                .and_then(|resume| resume.timeout_ms)
                .unwrap_or(self.timeout_ms),
        }
    }
}
