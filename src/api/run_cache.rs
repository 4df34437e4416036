//! What was made of large runs, for the pages that come next.

use std::time::Duration;

use axum::RequestPartsExt as _;
use axum::extract::{Extension, FromRequestParts};
use axum::http::request::Parts;
use ktsu_codes::ErrorCode;
use ktsu_history::run_cache::RunCache;
use ktsu_server::ProblemDetails;

/// How long what no page uses is kept, at least; twice that at the most.
const KEPT: Duration = Duration::from_secs(60);

/// What was made of large runs for earlier pages; an axum extractor. It is let go once no page has used it for a
/// minute or two.
pub(crate) struct SharedRunCache(pub(crate) RunCache);

impl<S: Send + Sync> FromRequestParts<S> for SharedRunCache {
    type Rejection = ProblemDetails;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let found = parts.extract::<Extension<RunCache>>().await;
        let Extension(runs) = found.map_err(|_| ErrorCode::Internal)?;
        if runs.begin_watch() {
            tokio::spawn(watch(runs.clone()));
        }
        Ok(Self(runs))
    }
}

async fn watch(runs: RunCache) {
    loop {
        tokio::time::sleep(KEPT).await;
        if !runs.let_go_unused() {
            return;
        }
    }
}
