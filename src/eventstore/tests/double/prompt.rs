//! A connection that acknowledges at once what it receives. The client does not send small messages at once
//! (it sets no TCP_NODELAY): with the usual acknowledgements every question would take 40 ms.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::net::sockopt::set_tcp_quickack;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

pub(crate) struct PromptStream(pub(crate) TcpStream);

impl AsyncRead for PromptStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.0).poll_read(task, buffer);
        // It lasts until the system decides otherwise.
        set_tcp_quickack(&self.0, true)?;
        read
    }
}

impl AsyncWrite for PromptStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(task, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(task)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(task)
    }
}
