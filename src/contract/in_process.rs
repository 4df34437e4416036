//! The same contract between services of one process: messages as values instead of bytes.
//!
//! Each trait is one boundary, and each of its methods stands for a route of `docs/http.md`: what is
//! refused over a socket is refused here, with the same status. Only bytes are saved.

use std::pin::Pin;

use super::gateway::{InvokeModel, ModelCallFailure, ModelReply};
use super::report::{Report, ReportAck};
use super::runtime::{InvokeAgent, TaskAccepted, TaskRefused};

/// The future that gives the answer of a service.
pub type ServiceFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An answer other than a success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorResponse<T> {
    /// The HTTP status it has over a socket.
    pub status: u16,
    /// Its body.
    pub body: T,
}

/// Runtime → gateway.
pub trait ModelGateway: Send + Sync {
    /// `POST /invoke`, with an `idempotency-key`.
    fn invoke<'a>(
        &'a self,
        call: InvokeModel,
        key: &'a str,
    ) -> ServiceFuture<'a, Result<ModelReply, ErrorResponse<Box<ModelCallFailure>>>>;
}

/// Orchestrator → runtime.
pub trait AgentRuntime: Send + Sync {
    /// `POST /invoke`. The task works as far as it can without waiting before this returns: its
    /// first report may be on its way.
    ///
    /// # Errors
    /// As the route has them.
    fn start(&self, task: InvokeAgent) -> Result<TaskAccepted, ErrorResponse<TaskRefused>>;
}

/// Runtime → orchestrator.
pub trait ReportReceiver: Send + Sync {
    /// `POST /runs/{run_id}/steps/{step_id}/report`, by a caller that needs no token: it was given
    /// the task within the process. `body` is the report as it is sent over a socket: a repetition
    /// is recognised by it. The answer to a report that ends its task lists no events, since nobody
    /// goes on with them.
    fn report<'a>(
        &'a self,
        run_id: &'a str,
        step_id: &'a str,
        report: Report,
        body: &'a [u8],
    ) -> ServiceFuture<'a, Result<ReportAck, ErrorResponse<String>>>;
}
