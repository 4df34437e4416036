//! The server, whatever carries its messages: it lists tools and answers calls. Whatever goes wrong
//! in a call is the answer to it.

use std::sync::Arc;

use axum::http::HeaderValue;
use axum::http::request::Parts;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CustomRequest, CustomResult,
    ErrorCode, ErrorData, Implementation, ListToolsResult, PaginatedRequestParams,
    ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Map, Value};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::access::{ANY_TOOL, CallerAccess};
use super::answer::{self, AnswerError, ToolAnswer};
use super::catalog::{self, AgentTool};
use super::context::ToolContext;
use super::inputs::ToolInputs;
use super::{decisions, runs, verification, worlds};

/// The most calls at once; further ones are refused and may be repeated.
const MAX_CALLS: usize = 32;

/// The answer to a call that a defect has ended.
const UNEXPECTED: &str = "the call failed unexpectedly; the log has more";

const INSTRUCTIONS: &str = "ktsu runs AI-agent workflows and keeps a record of every event. Start a \
    run with start_run or invoke_workflow; look at it with query_world, get_envelope and \
    explain_trace. Every answer is a JSON object; {\"error\"} says why a call failed, and `hint` \
    what to do.";

/// The server. Clones share everything.
#[derive(Clone)]
pub(super) struct AgentToolServer {
    context: Arc<ToolContext>,
    calls: Arc<Semaphore>,
    /// The caller where the transport does not say: the process at the other end of the pipe. None
    /// over HTTP.
    process: Option<CallerAccess>,
    stop: watch::Receiver<bool>,
}

impl AgentToolServer {
    /// Over standard input and output: all calls come from the process that started this one.
    pub(super) fn for_process(
        context: Arc<ToolContext>,
        token: Option<HeaderValue>,
        stop: watch::Receiver<bool>,
    ) -> Self {
        Self {
            process: Some(CallerAccess::Process(token)),
            ..Self::for_clients(context, stop)
        }
    }

    /// Over HTTP: each call has the token of its request.
    pub(super) fn for_clients(context: Arc<ToolContext>, stop: watch::Receiver<bool>) -> Self {
        Self {
            context,
            calls: Arc::new(Semaphore::new(MAX_CALLS)),
            process: None,
            stop,
        }
    }

    fn caller(&self, context: &RequestContext<RoleServer>) -> Result<CallerAccess, AnswerError> {
        if let Some(process) = &self.process {
            return Ok(process.clone());
        }
        match context.extensions.get::<Parts>() {
            Some(parts) => Ok(CallerAccess::of_request(&parts.headers)?),
            None => Ok(CallerAccess::Client(None)),
        }
    }

    /// Answers a call; ends with the server, with the client's interest, or with the answer.
    async fn answer(
        &self,
        name: &str,
        sent: Map<String, Value>,
        request: &RequestContext<RoleServer>,
    ) -> ToolAnswer {
        let mut stop = self.stop.clone();
        tokio::select! {
            answer = self.answer_to(name, sent, request) => answer,
            _ = stop.wait_for(|stop| *stop) => Err(AnswerError::new("the server is stopping")),
            () = request.ct.cancelled() => {
                Err(AnswerError::new("the call was cancelled; a run that it started continues"))
            }
        }
    }

    /// Access first: a caller that may not use the tool learns neither whether it exists nor what
    /// is wrong with the call.
    async fn answer_to(
        &self,
        name: &str,
        sent: Map<String, Value>,
        request: &RequestContext<RoleServer>,
    ) -> ToolAnswer {
        let caller = self.caller(request)?;
        let tool = AgentTool::named(name);
        let route = tool.map_or(ANY_TOOL, |tool| tool.route_of(&sent));
        let admission = self.context.admit(&caller, route).await?;
        let tool = tool.ok_or_else(|| unknown_tool(name))?;
        let inputs = ToolInputs::read(tool.inputs(), sent)?;
        let Ok(permit) = Arc::clone(&self.calls).try_acquire_owned() else {
            let words = format!("{MAX_CALLS} calls are in progress");
            return Err(AnswerError::new(words).hint("try again when one has ended"));
        };
        let context = Arc::clone(&self.context);
        // A task of its own, so that a defect ends this call and nothing else. It ends with this
        // future.
        let mut work = JoinSet::new();
        work.spawn(async move {
            let _permit = permit;
            call(tool, &context, &caller, &inputs).await
        });
        let answer = match work.join_next().await {
            Some(Ok(answer)) => answer,
            Some(Err(error)) => {
                tracing::error!(tool = name, "a call failed unexpectedly: {error}");
                Err(AnswerError::new(UNEXPECTED))
            }
            None => Err(AnswerError::new(UNEXPECTED)),
        };
        answer.map_err(|error| match admission.may_operate {
            true => error,
            false => error.without_details(name),
        })
    }

    /// Over HTTP, refuses what is no call of a tool to callers that may use none.
    fn must_be_known(&self, context: &RequestContext<RoleServer>) -> Result<(), AnswerError> {
        let caller = self.caller(context)?;
        match caller.is_process() {
            true => Ok(()),
            false => {
                self.context.principals.admit(&caller, ANY_TOOL)?;
                Ok(())
            }
        }
    }
}

async fn call(
    tool: AgentTool,
    context: &ToolContext,
    caller: &CallerAccess,
    inputs: &ToolInputs,
) -> ToolAnswer {
    match tool {
        AgentTool::StartRun => runs::start(context, caller, inputs).await,
        AgentTool::InvokeWorkflow => runs::invoke_workflow(context, caller, inputs).await,
        AgentTool::GetEnvelope => runs::envelope(context, caller, inputs).await,
        AgentTool::QueryWorld => worlds::query(context, caller, inputs).await,
        AgentTool::ForkRun => worlds::fork(context, caller, inputs).await,
        AgentTool::DiffBranches => worlds::diff(context, caller, inputs).await,
        AgentTool::ExplainTrace => worlds::explain(context, caller, inputs).await,
        AgentTool::ListApprovals => decisions::list(context, caller, inputs).await,
        AgentTool::DecideApproval => decisions::decide(context, caller, inputs).await,
        AgentTool::ResumeStep => decisions::resume_step(context, caller, inputs).await,
        AgentTool::VerifyRun => verification::verify_run(context, caller, inputs).await,
    }
}

fn unknown_tool(name: &str) -> AnswerError {
    let short: String = name.chars().take(128).collect();
    let error = AnswerError::new(format!("there is no tool {short:?}"));
    match AgentTool::similar(name) {
        Some(near) => error.hint(format!("did you mean {near}?")),
        None => error.hint("tools/list lists them"),
    }
}

impl ServerHandler for AgentToolServer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("ktsu", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        self.must_be_known(&context)
            .map_err(AnswerError::into_protocol_error)?;
        Ok(ListToolsResult::with_all_items(catalog::tools()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        catalog::tools().into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let sent = request.arguments.unwrap_or_default();
        let answer = self.answer(&request.name, sent, &context).await;
        Ok(answer::result(answer).into())
    }

    /// A `tools/call` that is none arrives here: without a name, or with arguments that are no
    /// object.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let known = self.must_be_known(&context);
        if request.method != "tools/call" {
            return Err(ErrorData::new(
                ErrorCode::METHOD_NOT_FOUND,
                request.method,
                None,
            ));
        }
        let malformed = || {
            AnswerError::new("not a valid tool call")
                .hint("params: {\"name\": TEXT, \"arguments\": {…}}")
        };
        let refusal = known.err().unwrap_or_else(malformed);
        let result: CallToolResult = answer::result(Err(refusal));
        let value = serde_json::to_value(result);
        value
            .map(CustomResult::new)
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }
}
