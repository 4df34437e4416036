//! `POST …/report` for a runtime of the same process.

use super::agents::{MAX_REPORT, address};
use crate::problems;
use ktsu_contract::in_process::{ErrorResponse, ReportReceiver, ServiceFuture};
use ktsu_contract::report::{Report, ReportAck};
use ktsu_orchestrator::{Orchestrator, ReportOrigin};
use ktsu_server::ProblemDetails;
use ktsu_server::body::too_large;

/// Takes reports as values. They need no token: their task was given within the process.
pub struct InProcessReports(pub Orchestrator);

impl ReportReceiver for InProcessReports {
    fn report<'a>(
        &'a self,
        run_id: &'a str,
        step_id: &'a str,
        report: Report,
        body: &'a [u8],
    ) -> ServiceFuture<'a, Result<ReportAck, ErrorResponse<String>>> {
        Box::pin(async move {
            let answer = self.take(run_id, step_id, report, body).await;
            answer.map_err(|problem| ErrorResponse {
                status: problem.code.status(),
                body: problem.detail,
            })
        })
    }
}

impl InProcessReports {
    async fn take(
        &self,
        run_id: &str,
        step_id: &str,
        report: Report,
        body: &[u8],
    ) -> Result<ReportAck, ProblemDetails> {
        let task = address(&self.0, run_id, step_id).await?;
        if body.len() > MAX_REPORT {
            return Err(too_large(MAX_REPORT));
        }
        let (attempt, origin) = (report.attempt, ReportOrigin::Process);
        let taken = self.0.report(task, attempt, report, body, origin).await;
        taken.map_err(problems::report_error)
    }
}
