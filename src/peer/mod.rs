//! The same router, in process or by URL: whoever calls cannot tell the difference.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, Uri};
use http_body_util::BodyExt as _;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower::ServiceExt as _;

/// A service to call.
#[derive(Clone)]
pub enum Peer {
    /// In this process.
    Local(Router),
    /// Elsewhere on this machine, by its URL (`http://127.0.0.1:5050`), with a token if there is
    /// one.
    Remote(String, Option<String>),
}

/// Why a peer could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum Unreachable {
    /// The URL is none, or not of this machine's network.
    #[error("{0} is not a URL of a ktsu service; one looks like http://127.0.0.1:5050")]
    Url(String),
    /// Nobody answered.
    #[error("{url} does not answer: {why}")]
    Silent {
        /// Whom.
        url: String,
        /// What the system said.
        why: String,
    },
}

impl Peer {
    /// Asks. The path begins with `/`.
    ///
    /// # Errors
    /// [`Unreachable`]; an answer with an error status is an answer.
    pub async fn call(&self, mut request: Request<Body>) -> Result<Response<Body>, Unreachable> {
        match self {
            Self::Local(router) => match router.clone().oneshot(request).await {
                Ok(response) => Ok(response),
                Err(never) => match never {},
            },
            Self::Remote(url, token) => {
                let host = authority(url)?;
                if let Some(token) = token
                    && let Ok(value) = format!("Bearer {token}").parse()
                {
                    request.headers_mut().insert("authorization", value);
                }
                if let Ok(value) = host.parse() {
                    request.headers_mut().insert("host", value);
                }
                send(url, &host, request).await
            }
        }
    }

    /// Asks for something to read.
    ///
    /// # Errors
    /// [`Unreachable`].
    pub async fn get(&self, path: &str, accept: &str) -> Result<Response<Body>, Unreachable> {
        let request = Request::get(path)
            .header("accept", accept)
            .body(Body::empty());
        self.call(request.map_err(|_| Unreachable::Url(path.to_owned()))?)
            .await
    }

    /// Asks, and reads the whole answer: status and body.
    ///
    /// # Errors
    /// [`Unreachable`].
    pub async fn whole(&self, request: Request<Body>) -> Result<(u16, Vec<u8>), Unreachable> {
        let response = self.call(request).await?;
        let status = response.status().as_u16();
        let body = response
            .into_body()
            .collect()
            .await
            .map_err(|error| Unreachable::Silent {
                url: self.name(),
                why: error.to_string(),
            })?;
        Ok((status, body.to_bytes().to_vec()))
    }

    fn name(&self) -> String {
        match self {
            Self::Local(_) => "this process".to_owned(),
            Self::Remote(url, _) => url.clone(),
        }
    }
}

fn authority(url: &str) -> Result<String, Unreachable> {
    let bad = || Unreachable::Url(url.to_owned());
    let uri: Uri = url.parse().map_err(|_| bad())?;
    let authority = uri.authority().filter(|_| uri.scheme_str() == Some("http"));
    let authority = authority.ok_or_else(bad)?;
    let port = authority.port_u16().unwrap_or(80);
    Ok(format!("{}:{port}", authority.host()))
}

async fn send(
    url: &str,
    host: &str,
    request: Request<Body>,
) -> Result<Response<Body>, Unreachable> {
    let silent = |why: String| Unreachable::Silent {
        url: url.to_owned(),
        why,
    };
    let stream = TcpStream::connect(host)
        .await
        .map_err(|error| silent(error.to_string()))?;
    // Requests are small: none should wait for the answer to the one before.
    let _ = stream.set_nodelay(true);
    let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(|error| silent(error.to_string()))?;
    tokio::spawn(connection);
    let response = sender.send_request(request).await;
    let response = response.map_err(|error| silent(error.to_string()))?;
    Ok(response.map(Body::new))
}
