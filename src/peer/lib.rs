//! Calls to a service of the engine, in process or by URL, without a difference for the caller.
//!
//! A URL is that of another process, over `http://` or `https://`. Connections are kept alive
//! between calls, as long as the [`Peer`] or one of its clones exists.

mod connections;
#[cfg(test)]
mod tests;

use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Request, Response, Uri, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tower::ServiceExt as _;

pub use connections::ConnectionPool;
use ktsu_contract::TOKEN_HEADER;

/// The most bytes of an answer: no envelope has as many.
const MAX_ANSWER_BYTES: usize = 1024 * 1024 * 1024;
/// The most bytes of an answer between services: no reply of a model has as many.
const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// A service to call.
#[derive(Clone)]
pub enum Peer {
    /// In this process.
    Local(Router),
    /// Elsewhere.
    Remote(RemotePeer),
}

/// A service elsewhere.
#[derive(Clone)]
pub struct RemotePeer {
    url: String,
    token: Option<String>,
    connections: ConnectionPool,
}

/// The reason why a peer could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// The URL is none of a service.
    #[error("{0} is not a URL of a ktsu service; one looks like http://127.0.0.1:5050")]
    InvalidUrl(String),
    /// Nobody answered.
    #[error("{url} does not answer: {why}")]
    NoResponse {
        /// Whom.
        url: String,
        /// The error of the system.
        why: String,
    },
}

impl PeerError {
    /// Whom, without a query.
    pub fn url(&self) -> &str {
        let (Self::InvalidUrl(url) | Self::NoResponse { url, .. }) = self;
        url.split(['?', '#']).next().unwrap_or_default()
    }
}

impl Peer {
    /// A service by its URL (`http://127.0.0.1:5050`), with a token if there is one; not one that is
    /// encrypted. The URL is checked when it is called.
    pub fn remote(url: impl Into<String>, token: Option<String>) -> Self {
        Self::with_pool(ConnectionPool::default(), url, token)
    }

    /// As [`Peer::remote`], over connections that other peers use, too.
    pub fn with_pool(
        connections: ConnectionPool,
        url: impl Into<String>,
        token: Option<String>,
    ) -> Self {
        let url = url.into();
        Self::Remote(RemotePeer {
            url,
            token,
            connections,
        })
    }

    /// Asks. The path begins with `/`.
    ///
    /// # Errors
    /// [`PeerError`]; an answer with an error status is an answer.
    pub async fn call(&self, request: Request<Body>) -> Result<Response<Body>, PeerError> {
        match self {
            Self::Local(router) => match router.clone().oneshot(request).await {
                Ok(response) => Ok(response),
                Err(never) => match never {},
            },
            Self::Remote(remote) => remote.call(request).await,
        }
    }

    /// Asks for something to read.
    ///
    /// # Errors
    /// [`PeerError`].
    pub async fn get(&self, path: &str, accept: &str) -> Result<Response<Body>, PeerError> {
        let request = Request::get(path)
            .header("accept", accept)
            .body(Body::empty());
        self.call(request.map_err(|_| PeerError::InvalidUrl(path.to_owned()))?)
            .await
    }

    /// Asks, and reads the whole answer: status and body.
    ///
    /// # Errors
    /// [`PeerError`].
    pub async fn call_and_read(&self, request: Request<Body>) -> Result<(u16, Vec<u8>), PeerError> {
        self.call_within(MAX_ANSWER_BYTES, request).await
    }

    /// As [`Peer::call_and_read`], for an answer of so many bytes at most.
    ///
    /// # Errors
    /// [`PeerError`], also where it has more.
    pub async fn call_within(
        &self,
        most: usize,
        request: Request<Body>,
    ) -> Result<(u16, Vec<u8>), PeerError> {
        let response = self.call(request).await?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), most).collect().await;
        let body = body.map_err(|error| match error.downcast_ref::<LengthLimitError>() {
            Some(_) => self.no_response(format!("its answer has more than {most} bytes")),
            None => self.no_response(error.to_string()),
        })?;
        Ok((status, body.to_bytes().to_vec()))
    }

    /// Posts JSON to a service, and reads the whole answer, a message between services.
    ///
    /// # Errors
    /// [`PeerError`].
    pub async fn post(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        json: Bytes,
    ) -> Result<(u16, Vec<u8>), PeerError> {
        let mut request = Request::post(path).header(header::CONTENT_TYPE, "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(json));
        let request = request.map_err(|_| PeerError::InvalidUrl(self.name()))?;
        self.call_within(MAX_MESSAGE_BYTES, request).await
    }

    /// As [`Peer::post`], with a time for the whole exchange.
    ///
    /// # Errors
    /// [`PeerError`], also where the time was over.
    pub async fn post_with_timeout(
        &self,
        limit: Duration,
        path: &str,
        headers: &[(&str, &str)],
        json: Bytes,
    ) -> Result<(u16, Vec<u8>), PeerError> {
        match tokio::time::timeout(limit, self.post(path, headers, json)).await {
            Ok(answer) => answer,
            Err(_) => Err(self.no_response(format!("no answer within {} ms", limit.as_millis()))),
        }
    }

    fn no_response(&self, why: String) -> PeerError {
        let url = self.name();
        PeerError::NoResponse { url, why }
    }

    fn name(&self) -> String {
        match self {
            Self::Local(_) => "this process".to_owned(),
            Self::Remote(remote) => remote.url.clone(),
        }
    }
}

impl RemotePeer {
    async fn call(&self, mut request: Request<Body>) -> Result<Response<Body>, PeerError> {
        let origin = origin(&self.url)?;
        let (_, host) = origin.split_once("://").unwrap_or_default();
        if let Some(token) = &self.token
            && let Ok(value) = token.parse()
        {
            // Not `Authorization`, which is for what a workflow asks its callers for.
            request.headers_mut().insert(TOKEN_HEADER, value);
        }
        if let Ok(value) = host.parse() {
            request.headers_mut().insert(header::HOST, value);
        }
        let path = request.uri().path_and_query();
        let path = path.map_or("/", |path| path.as_str());
        *request.uri_mut() = format!("{origin}{path}")
            .parse()
            .map_err(|_| PeerError::InvalidUrl(self.url.clone()))?;
        let answer = self.connections.send(request).await;
        answer.map_err(|why| PeerError::NoResponse {
            url: self.url.clone(),
            why,
        })
    }
}

/// Splits the URL of a service's route: `http://HOST:PORT` or `https://HOST:PORT`, and the path with its query.
///
/// # Errors
/// [`PeerError::InvalidUrl`], without the query, which may contain a token.
pub fn split(url: &str) -> Result<(String, String), PeerError> {
    let plain = url.split(['?', '#']).next().unwrap_or_default();
    let origin = origin(url).map_err(|_| PeerError::InvalidUrl(plain.to_owned()))?;
    let uri: Uri = url
        .parse()
        .map_err(|_| PeerError::InvalidUrl(plain.to_owned()))?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    Ok((origin, path.to_owned()))
}

/// Scheme, host and port of a URL.
fn origin(url: &str) -> Result<String, PeerError> {
    let bad = || PeerError::InvalidUrl(url.to_owned());
    let uri: Uri = url.parse().map_err(|_| bad())?;
    let (scheme, usual) = match uri.scheme_str() {
        Some("http") => ("http", 80),
        Some("https") => ("https", 443),
        Some(_) | None => return Err(bad()),
    };
    let authority = uri.authority().ok_or_else(bad)?;
    // A user or a password, or a port that is none.
    let port = match authority.as_str().strip_prefix(authority.host()) {
        Some("" | ":") => usual,
        Some(_) => authority.port_u16().ok_or_else(bad)?,
        None => return Err(bad()),
    };
    Ok(format!("{scheme}://{}:{port}", authority.host()))
}
