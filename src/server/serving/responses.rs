//! The requests and responses of one connection, as counted by its [`ConnectionSlot`].
//!
//! Limits how many requests may be sent ahead of their responses, and how many bytes of responses
//! may wait for a client.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderValue, Request, header};
use axum::response::{IntoResponse as _, Response};
use hyper::body::{Frame, Incoming, SizeHint};
use tokio::time::{Sleep, sleep};
use tower::{Service, ServiceExt as _};

use super::connection_limiter::{ConnectionSlot, SPACE_POLL_INTERVAL};
use crate::ProblemDetails;
use ktsu_codes::ErrorCode;

/// A router, for the client of one connection.
pub(super) struct ResponseService<S> {
    pub(super) service: S,
    pub(super) seat: Arc<ConnectionSlot>,
}

impl<S> hyper::service::Service<Request<Incoming>> for ResponseService<S>
where
    S: Service<Request<RequestBody>, Response = Response, Error = Infallible> + Clone + Send,
    S: 'static,
    S::Future: Send,
{
    type Response = axum::http::Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let (service, seat) = (self.service.clone(), Arc::clone(&self.seat));
        let turn = seat.begin_request();
        Box::pin(async move {
            if turn.is_ahead {
                // Lets connections with fewer requests go first.
                tokio::task::yield_now().await;
            }
            let request = request.map(|body| RequestBody {
                body,
                seat: Arc::clone(&seat),
            });
            let mut response = service.oneshot(request).await?;
            if turn.is_last {
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(header::CONNECTION, close);
            }
            Ok(reserve_response(response, seat).await)
        })
    }
}

/// The body of a request, as far as it was sent.
pub(super) struct RequestBody {
    body: Incoming,
    seat: Arc<ConnectionSlot>,
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        match &frame {
            Poll::Pending => self.seat.body_pending(),
            Poll::Ready(Some(Ok(_))) if !self.body.is_end_stream() => {}
            Poll::Ready(_) => self.seat.body_complete(),
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        // The handler has read what it needs of the body.
        self.seat.body_complete();
    }
}

/// An answer that is counted while it waits for its client, or a refusal if too much waits.
async fn reserve_response(
    response: Response,
    seat: Arc<ConnectionSlot>,
) -> axum::http::Response<ResponseBody> {
    let bytes = response.body().size_hint().exact().unwrap_or_default();
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    if seat.reserve_space(bytes).await {
        return response.map(|body| ResponseBody::new(body, bytes, seat));
    }
    let words = "too many responses are waiting for clients to read them";
    let mut refusal = ProblemDetails::new(ErrorCode::Overloaded, words).into_response();
    // What every answer has; the refusal takes the place of one that had it.
    for name in [
        header::CONNECTION,
        header::CACHE_CONTROL,
        header::X_CONTENT_TYPE_OPTIONS,
    ] {
        if let Some(value) = response.headers().get(&name) {
            refusal.headers_mut().insert(name, value.clone());
        }
    }
    refusal.map(|body| ResponseBody::new(body, 0, seat))
}

/// The body of an answer.
pub(super) struct ResponseBody {
    body: Body,
    /// Bytes that were counted before they were handed over.
    ahead: usize,
    /// The pause of a stream that waits for space before its next chunk.
    pause: Option<Pin<Box<Sleep>>>,
    seat: Arc<ConnectionSlot>,
}

impl ResponseBody {
    fn new(body: Body, ahead: usize, seat: Arc<ConnectionSlot>) -> Self {
        Self {
            body,
            ahead,
            pause: None,
            seat,
        }
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        while self.ahead == 0 && !self.seat.has_space() {
            let pause = self
                .pause
                .get_or_insert_with(|| Box::pin(sleep(SPACE_POLL_INTERVAL)));
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            let counted = data.len().min(self.ahead);
            self.ahead -= counted;
            self.seat.reserve_more(data.len() - counted);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        // Of an answer to HEAD nothing is sent.
        self.seat.release_unsent(self.ahead);
        self.seat.end_request();
    }
}
