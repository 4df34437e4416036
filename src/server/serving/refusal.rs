//! A response to a connection whose requests are not read.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::ProblemDetails;

/// The time that a client may take to read it.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Responds with a problem. `status`: with its reason, and possibly headers.
pub(super) async fn send(mut stream: TcpStream, status: &str, problem: &ProblemDetails) {
    let body = problem.to_json().to_string();
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/problem+json\r\n\
         content-length: {}\r\nconnection: close\r\n\
         cache-control: no-store\r\nx-content-type-options: nosniff\r\n\r\n{body}",
        body.len()
    );
    // Closing a socket with unread bytes would discard the response, so shut down writing first and
    // read for a moment what the client has sent.
    let polite = async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        let mut scrap = [0; 1024];
        while stream.read(&mut scrap).await? > 0 {}
        io::Result::Ok(())
    };
    let _ = tokio::time::timeout(TIMEOUT, polite).await;
}
