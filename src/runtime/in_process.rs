//! `POST /invoke` for an orchestrator of the same process.

use super::Runtime;
use super::routes::{accepted, refusal};
use ktsu_contract::in_process::{AgentRuntime, ErrorResponse};
use ktsu_contract::runtime::{InvokeAgent, TaskAccepted, TaskRefused};

impl AgentRuntime for Runtime {
    fn start(&self, task: InvokeAgent) -> Result<TaskAccepted, ErrorResponse<TaskRefused>> {
        let accepted = accepted(self, &task);
        match refusal(self.start_task(task)) {
            None => Ok(accepted),
            Some(refusal) => Err(refusal),
        }
    }
}
