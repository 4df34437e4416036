//! Announces a model call, and makes it.

use super::AgentTaskContext;
use crate::conversation::{ModelCallAnnouncement, ModelCallRequest};
use crate::model;
use crate::record::RecordError;
use ktsu_contract::gateway;
use ktsu_contract::report::{LlmRequest, LlmResponse, Purpose, ReportAck, ReportEvent};
use ktsu_contract::runtime::InvokeAgent;

impl AgentTaskContext {
    /// Reports that a model is about to be called.
    pub(super) async fn announce(
        &self,
        call: ModelCallAnnouncement,
    ) -> Result<ReportAck, RecordError> {
        let request = LlmRequest {
            accepts_cached: self.invoke.model.cache,
            base: call.base,
            group: self.invoke.model.group.clone(),
            max_tokens: self.invoke.model.max_tokens,
            messages: call.messages,
            purpose: call.purpose,
            temperature: self.invoke.model.temperature,
            tools: call.tools,
        };
        self.record.add(vec![ReportEvent::Request(request)]).await
    }

    pub(super) async fn ask(&self, asking: ModelCallRequest) -> LlmResponse {
        let InvokeAgent {
            run_id, step_id, ..
        } = &self.invoke;
        let call = gateway::InvokeModel {
            run_id: Some(run_id.clone()),
            step_id: Some(step_id.clone()),
            group: self.invoke.model.group.clone(),
            messages: asking.messages,
            max_tokens: self.invoke.model.max_tokens,
            temperature: self.invoke.model.temperature,
            tools: asking.tools,
            priced_only: self.invoke.model.priced_only,
        };
        let key = name(run_id, step_id, asking.seq);
        let asked = self.models.ask(asking.seq, &key, call, &self.silence);
        let mut response = asked.await;
        if self.invoke.model.priced_only {
            response = model::priced(response);
        }
        // Only a turn leads to tools: nobody was told of any in the other calls.
        if asking.purpose != Purpose::Turn {
            response.tool_calls.clear();
        }
        response
    }
}

/// The name of a model call. As long however deep the run of a child is: a gateway takes no name of
/// more than 255 characters.
pub(crate) fn name(run_id: &str, step_id: &str, seq: u64) -> String {
    let words = format!("{run_id}/{step_id}/{seq}");
    format!("ktsu-{}", blake3::hash(words.as_bytes()).to_hex())
}
