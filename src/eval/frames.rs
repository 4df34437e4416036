//! Frames as filters and expressions see them: with the fields of the call they belong to.

use std::collections::BTreeMap;

use ktsu_ledger::event::{AgentEvent, Decision, PersonEvent};
use ktsu_ledger::{Cause, Event, Frame, Hash, Record, StreamId, Timestamp};
use ktsu_projections::approvals::{ApprovalKind, ApprovalStatus};
use ktsu_projections::calls::{CallHistory, ToolCallRecord};
use ktsu_projections::usage::Usage;
use ktsu_workflow::expression::{Rcvar, from_value};
use serde_json::{Map, Value, json};

/// A frame, with what is derived from it and from those before it.
#[derive(Debug, Clone)]
pub struct FrameView {
    /// Its number.
    pub seq: u64,
    /// Its hash.
    pub hash: Hash,
    /// The time at which its turn began.
    pub at: Timestamp,
    /// Its type: `tool.called`.
    pub kind: String,
    /// The inline child it belongs to; empty for the run itself.
    pub scope: String,
    /// The step it is about.
    pub step: Option<String>,
    /// The item of a fan-out.
    pub item: Option<u32>,
    /// The actor that appended it.
    pub actor: String,
    /// The tool server of its call.
    pub server: Option<String>,
    /// The tool of its call; of a call that names no known tool, the name that the model gave.
    pub tool: Option<String>,
    /// The model that answered; of a tool call, the one that asked for it.
    pub model: Option<String>,
    /// A decision (`approved`, `rejected`), the outcome of a call (`ok`, `error`, `not_sent`), or what
    /// the event has as its `status`.
    pub status: Option<String>,
    /// Of a `tool.called`: whether people approved exactly this call before it was sent.
    pub approved: bool,
    /// The amount it adds to the cost of the run, in millionths of a US dollar.
    pub cost_micro_usd: u64,
    /// The number of model calls it adds.
    pub model_calls: u64,
    /// The model group of its model call.
    group: Option<String>,
    /// The provider of its model call.
    provider: Option<String>,
    /// As `frames --json` shows it, with `call`.
    pub(crate) value: Rcvar,
}

impl FrameView {
    /// Returns `true` if it is of a call that this model answered.
    pub(crate) fn answered_by(&self, provider: &str, model: &str) -> bool {
        self.provider.as_deref() == Some(provider) && self.model.as_deref() == Some(model)
    }

    /// Returns `true` if it is of a call to a model group.
    pub(crate) fn asks_group(&self, group: &str) -> bool {
        self.group.as_deref() == Some(group)
    }

    /// As `frames --json` shows it, with `call`.
    pub(crate) fn to_value(&self) -> Value {
        serde_json::to_value(&*self.value).unwrap_or_default()
    }
}

/// A record whose text is not JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("frame {0} is not JSON")]
pub struct FrameViewError(pub u64);

/// Makes views of the frames of a run, one after another, from its first frame.
#[derive(Debug, Default)]
pub struct FrameFold {
    calls: CallHistory,
    usage: Usage,
    /// The model that a reply came from, by the `llm.response`.
    models: BTreeMap<u64, String>,
    /// The model group that was asked, by the `llm.request`.
    groups: BTreeMap<u64, String>,
    /// The streams, each with the number of its first frame: a branch has the frames of its
    /// parents.
    streams: Vec<(u64, StreamId)>,
}

/// The fields of the call that a frame belongs to.
#[derive(Debug, Default)]
struct CallFields {
    group: Option<String>,
    provider: Option<String>,
    server: Option<String>,
    tool: Option<String>,
    model: Option<String>,
    approved: bool,
    value: Value,
}

impl FrameFold {
    /// The views of all frames of a run: each with its record, and with the values that are stored
    /// as blobs.
    ///
    /// # Errors
    /// [`FrameViewError`].
    pub fn views<'a>(
        frames: impl IntoIterator<Item = (&'a Record, &'a Frame)>,
    ) -> Result<Vec<FrameView>, FrameViewError> {
        let mut fold = Self::default();
        let views = frames.into_iter();
        views
            .map(|(record, frame)| fold.view(record, frame))
            .collect()
    }

    /// The view of the next frame.
    ///
    /// # Errors
    /// [`FrameViewError`].
    pub fn view(&mut self, record: &Record, frame: &Frame) -> Result<FrameView, FrameViewError> {
        if self.streams.last().map(|(_, stream)| stream) != Some(&frame.stream) {
            self.streams.push((frame.seq, frame.stream.clone()));
        }
        let before = self.usage;
        self.usage.apply(frame, false);
        let call = self.call(frame);
        let mut members = members(record, frame)?;
        members.insert("id".to_owned(), frame.id().into());
        if let Some(source) = self.source(frame) {
            members.insert("source_frame_id".to_owned(), source.into());
        }
        if !call.value.is_null() {
            members.insert("call".to_owned(), call.value);
        }
        let task = frame.event.task();
        Ok(FrameView {
            seq: frame.seq,
            hash: frame.hash,
            at: frame.at,
            kind: frame.event.kind().to_owned(),
            scope: frame.scope.clone(),
            step: task.map(|(step, _)| step.to_owned()),
            item: task.and_then(|(_, item)| item),
            actor: frame.actor.to_string(),
            server: call.server,
            tool: call.tool,
            model: call.model,
            status: status(&frame.event, members.get("data")),
            approved: call.approved,
            cost_micro_usd: self.usage.cost_micro_usd - before.cost_micro_usd,
            model_calls: self.usage.llm_calls - before.llm_calls,
            group: call.group,
            provider: call.provider,
            value: from_value(&Value::Object(members)),
        })
    }

    /// The frame that its first cause names.
    fn source(&self, frame: &Frame) -> Option<String> {
        match frame.cause.first()? {
            Cause::Here(seq) => {
                let mut streams = self.streams.iter().rev();
                let (_, stream) = streams.find(|(from, _)| from <= seq)?;
                Some(format!("{stream}#{seq}"))
            }
            there @ Cause::There(..) => Some(there.to_string()),
        }
    }

    fn call(&mut self, frame: &Frame) -> CallFields {
        if let Event::Agent(event) = &frame.event
            && let Some(fields) = self.model_call(frame.seq, event)
        {
            self.calls.apply(frame);
            return fields;
        }
        let models = &self.models;
        let record = self.calls.apply(frame);
        record.map_or_else(CallFields::default, |record| {
            tool_call(record, frame, models.get(&record.key.0))
        })
    }

    /// The fields of a model call, if the frame belongs to one.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "two events are about model calls; the fold of calls knows the others"
    )]
    fn model_call(&mut self, seq: u64, event: &AgentEvent) -> Option<CallFields> {
        match event {
            AgentEvent::Request(request) => {
                self.groups.insert(seq, request.group.clone());
                Some(CallFields {
                    group: Some(request.group.clone()),
                    value: json!({"group": request.group}),
                    ..CallFields::default()
                })
            }
            AgentEvent::Response(reply) => {
                self.models.insert(seq, reply.model.clone());
                let group = self.groups.get(&reply.request);
                Some(CallFields {
                    group: group.cloned(),
                    provider: Some(reply.provider.clone()),
                    value: json!({"group": group, "model": reply.model, "provider": reply.provider}),
                    model: Some(reply.model.clone()),
                    ..CallFields::default()
                })
            }
            _ => None,
        }
    }
}

/// The members of a frame, with the values that are stored as blobs.
fn members(record: &Record, frame: &Frame) -> Result<Map<String, Value>, FrameViewError> {
    let text = match frame.ext.is_empty() {
        true => record.to_json(),
        false => record.to_json_with(frame),
    };
    serde_json::from_str(&text).map_err(|_| FrameViewError(frame.seq))
}

/// The fields of a tool call.
fn tool_call(record: &ToolCallRecord, frame: &Frame, model: Option<&String>) -> CallFields {
    let (server, tool) = match &record.target {
        Some((server, tool)) => (Some(server.clone()), tool.clone()),
        None => (None, record.call.name.clone()),
    };
    let tool = Some(tool).filter(|tool| !tool.is_empty());
    let approved = is_approved(record, frame);
    let value = json!({
        "approved": approved,
        "arguments": record.call.arguments.to_value(),
        "digest": record.call.digest,
        "id": record.call.id,
        "index": record.key.1,
        "model": model,
        "name": record.call.name,
        "response": record.key.0,
        "server": server,
        "tool": tool,
    });
    CallFields {
        server,
        tool,
        model: model.cloned(),
        approved,
        value,
        ..CallFields::default()
    }
}

/// Returns `true` if a frame sends a call that people have approved, with these arguments.
fn is_approved(record: &ToolCallRecord, frame: &Frame) -> bool {
    let Event::Agent(AgentEvent::ToolCalled(called)) = &frame.event else {
        return false;
    };
    record.approvals.iter().any(|approval| {
        Some(approval.request) == called.approval
            && approval.kind == ApprovalKind::Approval
            && approval.status == ApprovalStatus::Approved
            && approval.digest == called.digest
    })
}

/// See [`FrameView::status`].
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "few events have a status of their own"
)]
fn status(event: &Event, data: Option<&Value>) -> Option<String> {
    let ended = |is_error: bool| if is_error { "error" } else { "ok" };
    let word = match event {
        Event::Agent(AgentEvent::ApprovalDecided(decided)) => match decided.decision {
            Decision::Approved => "approved",
            Decision::Rejected => "rejected",
            Decision::Happened => "happened",
        },
        Event::Person(PersonEvent::ReviewDecided(decided)) => decided.decision.as_str(),
        Event::Agent(AgentEvent::ToolReturned(returned)) if returned.not_sent.is_some() => {
            "not_sent"
        }
        Event::Agent(AgentEvent::ToolReturned(returned)) => ended(returned.is_error),
        Event::Agent(AgentEvent::Response(reply)) => ended(reply.error.is_some()),
        _ => {
            return match data?.get("status")? {
                Value::String(text) => Some(text.clone()),
                Value::Number(number) => Some(number.to_string()),
                _ => None,
            };
        }
    };
    Some(word.to_owned())
}
