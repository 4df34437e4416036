//! The built-in tool servers `ktsu/kv`, `ktsu/envelope` and `ktsu/commands`, used over MCP like any
//! other (seed 000, invariants 4, 7 and 24; decision A3).
//!
//! Every request carries the token of an attempt. A call is executed only if that attempt recorded
//! it, it is in progress, and the arguments are the recorded ones: the holder of a token can do
//! nothing here that is not in the ledger, not permitted by an allowlist, or not approved.
//!
//! ```text
//! POST /tools/ktsu/NAME ────┐
//! POST …/messages, GET …/sse ┴─▶ protocol: initialize, tools/list ─▶ fixed
//!   (streams)                            tools/call ─▶ the run's task: which call is that? ─▶ kv, envelope, commands
//! ```

mod commands;
mod envelope;
pub(super) mod kv;
mod protocol;
pub(super) mod streams;

use ktsu_contract::report::COMMANDS_SERVER;
use ktsu_ledger::StreamId;
use ktsu_projections::life::call::SentCall;
use ktsu_projections::run::{RunState, StepKey, TaskId};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::reports::TaskAddress;
use super::run::Message;
use super::{Orchestrator, ReportError};
use ktsu_workflow::definition::Definition;
use ktsu_workflow::next::{Memo, task_spec};
use ktsu_workflow::rules::DecisionRules;

pub(super) use envelope::visible_outputs;
pub use protocol::ProtocolAnswer;
use protocol::{ProtocolMessage, ToolCallRequest};
pub use streams::{PostOutcome, ToolStream};

/// The state that the servers keep between calls.
#[derive(Default)]
pub(super) struct BuiltinServers {
    /// The values that agents keep between runs.
    kv: kv::Kv,
    /// The streams on which clients listen for answers over the older transport.
    streams: streams::ToolStreams,
}

/// One of the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuiltinServer {
    /// Values that last between runs.
    Kv,
    /// Outputs of the steps that the calling step depends on.
    Envelope,
    /// The commands of the calling step besides its output.
    Commands,
}

/// The attempt of a task that calls a server, as its token shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BuiltinCaller {
    server: BuiltinServer,
    task: TaskAddress,
    attempt: u32,
}

/// The result of a call: the text of its only block, or an error text.
pub(super) type CallResult = Result<Value, String>;

/// A call that is under way.
#[derive(Debug)]
pub(super) struct BuiltinCall {
    /// The run and the `tool.called`.
    pub(super) called: (StreamId, u64),
    /// The tool.
    pub(super) tool: String,
    /// The recorded arguments.
    pub(super) arguments: Value,
    /// The idempotency key.
    pub(super) key: String,
    /// The input that its server needs to answer it.
    pub(super) input: CallInput,
}

/// The input that a server needs beyond the call, or its answer.
#[derive(Debug)]
pub(super) enum CallInput {
    /// For `ktsu/kv`: the name of the stream with the values.
    Kv(String),
    /// For `ktsu/envelope` and `ktsu/commands`: what it gives.
    Known(CallResult),
}

impl BuiltinServer {
    /// The server of a path.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "kv" => Some(Self::Kv),
            "envelope" => Some(Self::Envelope),
            "commands" => Some(Self::Commands),
            _ => None,
        }
    }

    /// As a definition names it.
    pub(super) fn file(self) -> &'static str {
        match self {
            Self::Kv => "ktsu/kv",
            Self::Envelope => "ktsu/envelope",
            Self::Commands => COMMANDS_SERVER,
        }
    }

    /// The names of all its tools.
    pub fn tool_names(self) -> Vec<String> {
        let tools = self.tools(&[]);
        let names = tools.as_array().into_iter().flatten();
        let names = names.filter_map(|tool| tool["name"].as_str());
        names.map(str::to_owned).collect()
    }

    fn tools(self, resume_steps: &[String]) -> Value {
        match self {
            Self::Kv => kv::tools(),
            Self::Envelope => envelope::tools(),
            Self::Commands => commands::tools(resume_steps),
        }
    }
}

impl Orchestrator {
    /// Answers a message, or several that come as one.
    ///
    /// # Errors
    /// [`ReportError::Unauthorized`], if the token is not of this attempt.
    pub async fn tool_message(
        &self,
        server: BuiltinServer,
        task: &TaskAddress,
        token: &str,
        version: Option<&str>,
        message: &Value,
    ) -> Result<ProtocolAnswer, ReportError> {
        let caller = self.builtin_caller(server, task, token)?;
        Ok(self.answer_message(&caller, version, message).await)
    }

    /// The task that a token belongs to, as the caller of a server.
    fn builtin_caller(
        &self,
        server: BuiltinServer,
        task: &TaskAddress,
        token: &str,
    ) -> Result<BuiltinCaller, ReportError> {
        let attempt = self.authorize(task, token)?;
        Ok(BuiltinCaller {
            server,
            task: task.clone(),
            attempt,
        })
    }

    async fn answer_message(
        &self,
        caller: &BuiltinCaller,
        version: Option<&str>,
        message: &Value,
    ) -> ProtocolAnswer {
        let Value::Array(messages) = message else {
            return self.single(caller, version, message).await;
        };
        let messages = match protocol::batch(version, messages) {
            Ok(messages) => messages,
            Err(refused) => return ProtocolAnswer::Refused(refused),
        };
        let mut answers = Vec::new();
        for one in messages {
            match self.single(caller, version, one).await {
                ProtocolAnswer::Nothing => {}
                ProtocolAnswer::With(answer) | ProtocolAnswer::Refused(answer) => {
                    answers.push(answer)
                }
            }
        }
        match answers.is_empty() {
            true => ProtocolAnswer::Nothing,
            false => ProtocolAnswer::With(Value::Array(answers)),
        }
    }

    async fn single(
        &self,
        caller: &BuiltinCaller,
        version: Option<&str>,
        message: &Value,
    ) -> ProtocolAnswer {
        let (id, method, params) = match protocol::read(version, message) {
            Ok(ProtocolMessage::Request { id, method, params }) => (id, method, params),
            Ok(ProtocolMessage::Notification) => return ProtocolAnswer::Nothing,
            Err(refused) => return ProtocolAnswer::Refused(refused),
        };
        let result = match method {
            "initialize" => protocol::initialize_result(caller.server, params),
            "ping" => Ok(json!({})),
            "tools/list" => protocol::tools_list_result(&self.offered_tools(caller).await, params),
            "tools/call" => {
                let offered = self.offered_tools(caller).await;
                match protocol::tool_call_request(&offered, params) {
                    Ok(wanted) => Ok(self.builtin_call(caller, wanted).await),
                    Err(error) => Err(error),
                }
            }
            other => Err(protocol::unknown_method(other)),
        };
        ProtocolAnswer::With(protocol::answer(id, result))
    }

    /// The tools that a server offers to its caller.
    async fn offered_tools(&self, caller: &BuiltinCaller) -> Value {
        let steps = match caller.server {
            BuiltinServer::Commands => self.resume_steps(&caller.task).await,
            BuiltinServer::Kv | BuiltinServer::Envelope => None,
        };
        caller.server.tools(&steps.unwrap_or_default())
    }

    /// The steps that the step of a task may be resumed to.
    async fn resume_steps(&self, task: &TaskAddress) -> Option<Vec<String>> {
        let under_way = self.shared.runs.get(task.stream.name())?;
        let (reply, replied) = oneshot::channel();
        let task = task.clone();
        let message = Message::ResumeSteps { task, reply };
        under_way.send(Box::new(message)).await.then_some(())?;
        replied.await.ok()
    }

    async fn builtin_call(&self, caller: &BuiltinCaller, wanted: ToolCallRequest<'_>) -> Value {
        let given = match self.recorded_call(caller, &wanted).await {
            None => {
                Err("no such call is under way: it is to be recorded before it is made".to_owned())
            }
            Some(call) => match call.input {
                CallInput::Known(given) => given,
                CallInput::Kv(ref namespace) => {
                    let kv = &self.shared.own_tools.kv;
                    kv.call(&self.shared, namespace, &call).await
                }
            },
        };
        match given {
            Ok(value) => json!({
                "content": [{"text": value.to_string(), "type": "text"}],
                "isError": false,
                "structuredContent": value,
            }),
            Err(words) => json!({"content": [{"text": words, "type": "text"}], "isError": true}),
        }
    }

    /// The call that an attempt has recorded, and that this is.
    async fn recorded_call(
        &self,
        caller: &BuiltinCaller,
        wanted: &ToolCallRequest<'_>,
    ) -> Option<BuiltinCall> {
        let key = wanted.key?.to_owned();
        let under_way = self.shared.runs.get(caller.task.stream.name())?;
        let (reply, replied) = oneshot::channel();
        let message = Message::BuiltinCall {
            caller: caller.clone(),
            key,
            reply,
        };
        under_way.send(Box::new(message)).await.then_some(())?;
        let call = replied.await.ok().flatten()?;
        let same = wanted.tool == call.tool && wanted.arguments == call.arguments;
        same.then_some(call)
    }
}

/// The steps that the step of a task may be resumed to.
pub(super) fn resume_steps(state: &RunState, task: &TaskAddress) -> Vec<String> {
    let at = state.step_at(&task.scope, &task.step);
    let held = at.and_then(|at| Some((state.scope_of(at)?, at.position()?)));
    let steps = held
        .into_iter()
        .flat_map(|(scope, step)| scope.shape.resume_steps(step));
    steps.map(|step| step.id.clone()).collect()
}

/// The call of a task that has this key, if it is under way.
pub(super) fn find(
    definition: &Definition,
    state: &RunState,
    caller: &BuiltinCaller,
    key: &str,
) -> Option<BuiltinCall> {
    let BuiltinCaller {
        server,
        task,
        attempt,
    } = caller;
    let scope = state.scope_at(&task.scope)?;
    let step = state.scope(scope)?.shape.position(&task.step)?;
    let at = StepKey::of(scope, step);
    let held = state.task(at, task.item)?;
    let current = held.is_live() && held.attempt == *attempt && state.failing().is_none();
    let calls = held.calls.as_deref().filter(|_| current)?;
    let names = |sending: &&SentCall| {
        ktsu_workflow::admit::tools::idempotency_key(state.stream(), sending.first) == key
            && sending.attempt == *attempt
    };
    let sending = calls.sent_calls().find(names)?;
    let mut requested = calls.list.iter();
    let wanted = requested.find(|call| call.is_sent_as(sending.called))?;
    let plan = state.servers(at).iter();
    let mut plan = plan.filter(|plan| plan.name == sending.server && plan.file == server.file());
    plan.next()?;
    let arguments = wanted.arguments.to_value();
    let given = match server {
        BuiltinServer::Envelope => {
            let outputs = visible_outputs(state, scope, step, &sending.tool, &arguments);
            CallInput::Known(outputs)
        }
        BuiltinServer::Commands => {
            let plan = state.agent_plan(at)?;
            let judge = commands::CommandJudge {
                definition,
                plan,
                rules: DecisionRules::of(state),
                resume_steps: &resume_steps(state, task),
            };
            CallInput::Known(judge.noted_call(&held.commanded, calls, wanted))
        }
        BuiltinServer::Kv => {
            let id = TaskId {
                step: at,
                item: task.item,
            };
            let spec = task_spec(definition, state, &Memo::default(), id)?;
            let mut servers = spec.servers.iter();
            let params = servers.find(|one| one.plan.name == sending.server);
            let name = params.and_then(|one| one.params.get("namespace"));
            CallInput::Kv(kv::namespace(state, task, name.map_or("", String::as_str)))
        }
    };
    Some(BuiltinCall {
        called: (state.stream().clone(), sending.called),
        tool: sending.tool.clone(),
        key: key.to_owned(),
        input: given,
        arguments,
    })
}
