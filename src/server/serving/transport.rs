//! The bytes of a connection, encrypted where the service shows a certificate.

use std::io;

use ktsu_codes::ErrorCode;
use ktsu_tls::Certificates;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use super::refusal;
use crate::ProblemDetails;

/// The first byte of every encrypted connection: the record of a handshake.
const HANDSHAKE: u8 = 0x16;

/// The bytes as the client sends them, or what they are once they are decrypted.
pub(super) type Transport = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// A connection of a client; encrypted if there is a certificate to show.
///
/// # Errors
/// The client speaks without encryption, trusts another authority, or shows no certificate where one is asked for.
pub(super) async fn accept(
    stream: TcpStream,
    certificates: Option<&Certificates>,
) -> io::Result<Transport> {
    let Some(config) = certificates.and_then(Certificates::server) else {
        return Ok(Either::Left(stream));
    };
    let mut first = [0; 1];
    if stream.peek(&mut first).await? > 0 && first != [HANDSHAKE] {
        let words = "this service is encrypted, and the request was not";
        let problem = ProblemDetails::new(ErrorCode::EncryptedOnly, words);
        let problem = problem.with_hint("begin its URL with https");
        refusal::send(stream, "400 Bad Request", &problem).await;
        return Err(io::ErrorKind::InvalidData.into());
    }
    let encrypted = TlsAcceptor::from(config).accept(stream).await?;
    Ok(Either::Right(Box::new(encrypted)))
}
