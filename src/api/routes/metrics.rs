//! `GET /metrics`.

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse as _, Response};

use super::query::{NoParameters, Query};
use ktsu_codes::ErrorCode;
use ktsu_orchestrator::Orchestrator;
use ktsu_server::ProblemDetails;
use ktsu_telemetry::MetricsFormat;

/// Gets the engine's metrics, as Prometheus text.
///
/// `OpenMetrics` text where the `Accept` header asks for it. Names and labels are in docs/http.md.
#[utoipa::path(get, path = "/metrics", responses(
    (status = 200, content((String = "text/plain"), (String = "application/openmetrics-text")), description = "The metrics"),
))]
pub(super) async fn metrics(
    State(orchestrator): State<Orchestrator>,
    headers: HeaderMap,
    _: Query<NoParameters>,
) -> Result<Response, ProblemDetails> {
    let accept = headers.get(header::ACCEPT);
    let accept = accept.and_then(|accept| accept.to_str().ok());
    let format = MetricsFormat::from_accept(accept.unwrap_or_default());
    let text = orchestrator.telemetry().text(format);
    let text = text.map_err(|error| ProblemDetails::new(ErrorCode::Internal, error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, format.content_type())], text).into_response())
}
