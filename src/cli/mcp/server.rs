//! The server, whatever carries its messages: it lists tools and answers calls. Whatever goes wrong
//! in a call is the answer to it.

use std::sync::Arc;

use axum::http::HeaderMap;
use axum::http::request::Parts;
use axum::http::{HeaderValue, header};
use ktsu_contract::TOKEN_HEADER;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CustomRequest, CustomResult,
    ErrorCode, ErrorData, Implementation, ListToolsResult, PaginatedRequestParams,
    ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Map, Value};
use tokio::sync::{Semaphore, watch};

use super::answer::{self, AnswerError, ToolAnswer};
use super::catalog::{self, AgentTool};
use super::context::ToolContext;
use super::engines::CallerAccess;
use super::inputs::ToolInputs;
use super::{decisions, runs, verification, worlds};

/// The most calls at once; further ones are refused and may be repeated.
const MAX_CALLS: usize = 32;

const INSTRUCTIONS: &str = "ktsu runs AI-agent workflows and keeps a record of every event. Start a \
    run with start_run or invoke_workflow; look at it with query_world, get_envelope and \
    explain_trace. Every answer is a JSON object; {\"error\"} says why a call failed, and `hint` \
    what to do.";

/// The server. Clones share everything.
#[derive(Clone)]
pub(super) struct AgentToolServer {
    context: Arc<ToolContext>,
    calls: Arc<Semaphore>,
    /// Who calls where the transport does not say: the process at the other end of the pipe. None
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
        let parts = context.extensions.get::<Parts>();
        let token = parts.map(|parts| token(&parts.headers)).transpose()?;
        Ok(CallerAccess::Client(token.flatten()))
    }

    /// Answers a call; ends with the server, with the client's interest, or with the answer.
    async fn answer(
        &self,
        name: &str,
        sent: Map<String, Value>,
        request: &RequestContext<RoleServer>,
    ) -> ToolAnswer {
        let tool = AgentTool::named(name).ok_or_else(|| unknown_tool(name))?;
        let inputs = ToolInputs::read(tool.inputs(), sent)?;
        let caller = self.caller(request)?;
        let Ok(permit) = Arc::clone(&self.calls).try_acquire_owned() else {
            let words = format!("{MAX_CALLS} calls are in progress");
            return Err(AnswerError::new(words).hint("try again when one has ended"));
        };
        let context = Arc::clone(&self.context);
        // A task of its own, so that a defect ends this call and nothing else.
        let mut work = tokio::spawn(async move {
            let _permit = permit;
            call(tool, &context, &caller, &inputs).await
        });
        let mut stop = self.stop.clone();
        let answer = tokio::select! {
            answer = &mut work => answer,
            _ = stop.wait_for(|stop| *stop) => {
                work.abort();
                return Err(AnswerError::new("the server is stopping"));
            }
            () = request.ct.cancelled() => {
                work.abort();
                return Err(AnswerError::new("the call was cancelled; a run that it started goes on"));
            }
        };
        answer.unwrap_or_else(|error| {
            tracing::error!(tool = name, "a call failed unexpectedly: {error}");
            Err(AnswerError::new(
                "the call failed unexpectedly; the log has more",
            ))
        })
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

/// The token of a request, as the engine's own API takes it.
fn token(headers: &HeaderMap) -> Result<Option<HeaderValue>, AnswerError> {
    let refused = || {
        AnswerError::new("the request has no single bearer token")
            .hint("Authorization: Bearer TOKEN, once")
    };
    let mut values = headers.get_all(&TOKEN_HEADER).iter();
    let bearers = headers.get_all(header::AUTHORIZATION);
    let found = match values.next() {
        Some(token) => Some(token.clone()),
        None => {
            values = bearers.iter();
            values
                .next()
                .map(bearer)
                .transpose()
                .map_err(|()| refused())?
        }
    };
    match values.next() {
        Some(_) => Err(refused()),
        None => Ok(found),
    }
}

fn bearer(value: &HeaderValue) -> Result<HeaderValue, ()> {
    let text = value.to_str().map_err(|_| ())?;
    let (scheme, token) = text.split_once(' ').ok_or(())?;
    match scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty() {
        true => HeaderValue::from_str(token.trim()).map_err(|_| ()),
        false => Err(()),
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
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
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
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        if request.method != "tools/call" {
            return Err(ErrorData::new(
                ErrorCode::METHOD_NOT_FOUND,
                request.method,
                None,
            ));
        }
        let error = AnswerError::new("this is no call of a tool")
            .hint("params: {\"name\": TEXT, \"arguments\": {…}}");
        let result: CallToolResult = answer::result(Err(error));
        let value = serde_json::to_value(result);
        value
            .map(CustomResult::new)
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }
}
