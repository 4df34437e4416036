//! One difference between a run and its simulation, and the names of all kinds.

use serde::Serialize;
use serde_json::Value;

/// In which respect a run would have gone otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DivergenceKind {
    /// A param of the run, given or by default.
    Param,
    /// A step that history does not have.
    StepAdded,
    /// A step that the new definition does not have.
    StepRemoved,
    /// The steps come in another order.
    Order,
    /// A condition comes to something else.
    Condition,
    /// A template gives another value.
    Template,
    /// A fan-out goes over another number of items.
    Items,
    /// A model would be told something else; the recorded reply is used all the same.
    Prompt,
    /// Another model group would be asked.
    Group,
    /// A bound of an agent: turns, tokens, its confidence threshold.
    Limit,
    /// The verdict of a schema.
    Schema,
    /// A reserved field is checked otherwise.
    Reserved,
    /// A webhook would go elsewhere, or otherwise.
    Webhook,
    /// A webhook would be sent more or less often, or after another pause.
    Retry,
    /// A field of the output of a step.
    Output,
    /// The status of a step or of the run.
    Status,
    /// The code or the message of a failure.
    Failure,
    /// A field of the output of the run.
    RunOutput,
    /// The budget or the time of the run.
    Policy,
    /// A call that nobody was asked about would wait for a person.
    GateAdded,
    /// A call that people were asked about would be made without them.
    GateRemoved,
    /// The treatment of a step whose call is rejected.
    OnReject,
    /// The time that a decision about a call or an outcome may take, and what follows from its end.
    ApprovalTimeout,
    /// The number of people who have to approve a call or an outcome.
    Quorum,
    /// The permission of the principal that started the run to approve a call or an outcome.
    NotByProposer,
    /// An outcome that people were asked about: its agent may ask for no reviews any more.
    ReviewRemoved,
    /// The roles of which people need one to decide on an outcome.
    ReviewRoles,
    /// The schema of the data that a step waited for.
    ResumeSchema,
    /// A step that waited for data: its agent may not suspend it any more.
    SuspendRemoved,
    /// The roles of which people need one to give the data.
    SuspendRoles,
    /// The time that a step waits for its data.
    SuspendTimeout,
    /// A tool that was called, or asked about, is on the allowlist no more.
    ToolNotPermitted,
    /// The agent has no such tool server any more.
    ServerRemoved,
    /// An object of the world, or a field of it.
    Object,
    /// A relation of the world, or a field of it.
    Relation,
    /// The decision of a responder about a trigger: whether it reacts, how long it waits, and
    /// whether it fails.
    Firing,
    /// The message that a responder publishes: its topic, its payload.
    Publish,
    /// Something is asked of the world that history has no answer to: the step waits.
    NoRecord,
    /// A recorded answer that nothing asks for.
    Unused,
}

impl DivergenceKind {
    /// As it is shown and counted.
    pub fn name(self) -> String {
        let name = serde_json::to_value(self).unwrap_or_default();
        name.as_str().unwrap_or_default().to_owned()
    }
}

/// One respect in which a run would have gone otherwise.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Divergence {
    /// In which respect.
    pub what: DivergenceKind,
    /// The step, by path; empty for the run.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub step: String,
    /// The item of a fan-out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
    /// The tool server, by the agent's name for it, where a call of a tool is checked otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Its tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The place within what differs, as a JSON pointer.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
    /// The recorded frame in which history says so; absent where history says nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame: Option<u64>,
    /// The recorded value; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history: Option<Value>,
    /// The value that there would be; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decided: Option<Value>,
}
