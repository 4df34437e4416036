//! Streams of events are opened in the name of the caller of a request.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use crate::access::Caller;
use crate::streams::{OpenStream, StreamLimits};
use ktsu_server::ProblemDetails;

/// Opens streams for the caller of a request; an axum extractor.
pub(crate) struct StreamOpener {
    limits: StreamLimits,
    caller: Caller,
}

impl StreamOpener {
    /// Opens a stream.
    ///
    /// # Errors
    /// [`ErrorCode::TooManyStreams`].
    pub(crate) fn open(&self) -> Result<OpenStream, ProblemDetails> {
        // Without tokens all callers have one name, and none of them takes anything from another.
        let principal = self
            .caller
            .is_by_token()
            .then(|| self.caller.principal.id.clone());
        self.limits.open(principal)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for StreamOpener {
    type Rejection = ProblemDetails;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ProblemDetails> {
        let caller = Caller::from_request_parts(parts, state).await?;
        let limits = parts.extensions.get::<StreamLimits>().cloned();
        let limits = limits.unwrap_or_default();
        Ok(Self { limits, caller })
    }
}
