//! The socket of a connection: limits the time a client may take to read, and lingers on close so
//! that the client can read the last response.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::connection_limiter::ConnectionSlot;
use super::transport::Transport;

/// The least bytes a client takes within the time to write, so that one byte a second does not count.
const MIN_WRITE_PROGRESS_BYTES: usize = 16 * 1024;
/// The time for which, and the number of bytes up to which, what a client still sends is read and
/// thrown away once the last answer is written. To close at once would destroy an answer that is
/// still being sent.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 32 * 1024 * 1024;
/// The limit of one read, so that the buffer does not grow for clients that send many requests
/// ahead.
const READ_AT_ONCE: usize = 8 * 1024 - 1;

/// See the module documentation.
pub(super) struct Socket {
    stream: Transport,
    seat: Arc<ConnectionSlot>,
    write_time: Duration,
    blocked: Option<BlockedWrite>,
    lingering: Option<LingeringClose>,
}

/// The client has taken too little since the timer was started.
struct BlockedWrite {
    taken: usize,
    over: Pin<Box<Sleep>>,
}

/// The write side is shut down.
struct LingeringClose {
    read: usize,
    over: Pin<Box<Sleep>>,
}

impl Socket {
    pub(super) fn new(stream: Transport, seat: Arc<ConnectionSlot>, write_time: Duration) -> Self {
        Self {
            stream,
            seat,
            write_time,
            blocked: None,
            lingering: None,
        }
    }

    /// Checks the result of writing `offered` bytes against the write timeout.
    fn check_write_time(
        &mut self,
        cx: &mut Context<'_>,
        offered: usize,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Ok(taken)) => {
                self.seat.sent(taken);
                if let Some(blocked) = &mut self.blocked {
                    blocked.taken += taken;
                    if taken == offered || blocked.taken >= MIN_WRITE_PROGRESS_BYTES {
                        self.blocked = None;
                        self.seat.mark_reading();
                    }
                }
                Poll::Ready(Ok(taken))
            }
            Poll::Pending => {
                let (seat, time) = (&self.seat, self.write_time);
                let blocked = self.blocked.get_or_insert_with(|| {
                    seat.mark_stalled();
                    BlockedWrite {
                        taken: 0,
                        over: Box::pin(sleep(time)),
                    }
                });
                ready!(blocked.over.as_mut().poll(cx));
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
            failed @ Poll::Ready(Err(_)) => failed,
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut part = [0; READ_AT_ONCE];
        let most = buffer.remaining().min(part.len());
        let Some(part) = part.get_mut(..most) else {
            return Poll::Ready(Ok(()));
        };
        let mut part = ReadBuf::new(part);
        let read = Pin::new(&mut self.stream).poll_read(cx, &mut part)?;
        if read.is_pending() {
            self.seat.mark_paused();
            return Poll::Pending;
        }
        buffer.put_slice(part.filled());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.check_write_time(cx, bytes.len(), written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        let offered = slices.iter().map(|slice| slice.len()).sum();
        self.check_write_time(cx, offered, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    /// Shuts down writing, and reads until the client does the same, for a moment.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.lingering.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
            self.lingering = Some(LingeringClose {
                read: 0,
                over: Box::pin(sleep(LINGER_TIMEOUT)),
            });
        }
        let Self {
            stream,
            seat,
            lingering: Some(lingering),
            ..
        } = &mut *self
        else {
            return Poll::Ready(Ok(()));
        };
        let mut scrap = [0; READ_AT_ONCE];
        while lingering.read < LINGER_BYTES && !seat.is_closing() {
            let mut buffer = ReadBuf::new(&mut scrap);
            let read = Pin::new(&mut *stream).poll_read(cx, &mut buffer);
            match read {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    lingering.read += buffer.filled().len();
                }
                Poll::Ready(_) => break,
                Poll::Pending => {
                    ready!(lingering.over.as_mut().poll(cx));
                    break;
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}
