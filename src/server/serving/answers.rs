//! The requests and answers of one connection, as its [`Seat`] counts them.
//!
//! How many requests may come ahead of their answers, and how many bytes of answers wait for a
//! client, is decided here; what is in them is the business of the router behind.

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

use super::room::{PAUSE, Seat};
use crate::Problem;
use ktsu_codes::ErrorCode;

/// A router, for the client of one connection.
pub(super) struct Answers<S> {
    pub(super) service: S,
    pub(super) seat: Arc<Seat>,
}

impl<S> hyper::service::Service<Request<Incoming>> for Answers<S>
where
    S: Service<Request<Asked>, Response = Response, Error = Infallible> + Clone + Send,
    S: 'static,
    S::Future: Send,
{
    type Response = axum::http::Response<Answer>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let (service, seat) = (self.service.clone(), Arc::clone(&self.seat));
        let turn = seat.begins();
        Box::pin(async move {
            if turn.is_ahead {
                // Others have asked for less.
                tokio::task::yield_now().await;
            }
            let request = request.map(|body| Asked {
                body,
                seat: Arc::clone(&seat),
            });
            let mut response = service.oneshot(request).await?;
            if turn.is_last {
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(header::CONNECTION, close);
            }
            Ok(counted(response, seat).await)
        })
    }
}

/// The body of a request, as far as it was sent.
pub(super) struct Asked {
    body: Incoming,
    seat: Arc<Seat>,
}

impl HttpBody for Asked {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        match &frame {
            Poll::Pending => self.seat.owes(),
            Poll::Ready(Some(Ok(_))) if !self.body.is_end_stream() => {}
            Poll::Ready(_) => self.seat.owes_nothing(),
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

impl Drop for Asked {
    fn drop(&mut self) {
        // Whoever handles the request has what it needs of it.
        self.seat.owes_nothing();
    }
}

/// An answer that is counted while it waits for its client, or a refusal if too much waits.
async fn counted(response: Response, seat: Arc<Seat>) -> axum::http::Response<Answer> {
    let bytes = response.body().size_hint().exact().unwrap_or_default();
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    if seat.finds_room(bytes).await {
        return response.map(|body| Answer::new(body, bytes, seat));
    }
    let words = "too many answers wait for clients to read them";
    let mut refusal = Problem::new(ErrorCode::Overloaded, words).into_response();
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
    refusal.map(|body| Answer::new(body, 0, seat))
}

/// The body of an answer.
pub(super) struct Answer {
    body: Body,
    /// Bytes that were counted before they were handed over.
    ahead: usize,
    /// A stream waits for room before its next piece is made.
    pause: Option<Pin<Box<Sleep>>>,
    seat: Arc<Seat>,
}

impl Answer {
    fn new(body: Body, ahead: usize, seat: Arc<Seat>) -> Self {
        Self {
            body,
            ahead,
            pause: None,
            seat,
        }
    }
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        while self.ahead == 0 && !self.seat.has_room() {
            let pause = self.pause.get_or_insert_with(|| Box::pin(sleep(PAUSE)));
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            let counted = data.len().min(self.ahead);
            self.ahead -= counted;
            self.seat.holds_more(data.len() - counted);
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

impl Drop for Answer {
    fn drop(&mut self) {
        // Of an answer to HEAD nothing is sent.
        self.seat.given_up(self.ahead);
        self.seat.answered();
    }
}
