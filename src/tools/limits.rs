//! Limits on a server's time and bytes.

use std::time::Duration;

/// The bounds of a session. One place, so that tests can shrink them.
#[derive(Debug, Clone)]
pub(super) struct SessionLimits {
    /// From a request to the head of its answer.
    pub(super) head: Duration,
    /// The time for which a body may be silent.
    pub(super) idle: Duration,
    /// The handshake and the list of tools together.
    pub(super) open: Duration,
    /// A short message: a notification, a reply to the server, the end of a session.
    pub(super) control: Duration,
    /// One message.
    pub(super) message_bytes: usize,
    /// All bytes of one answer.
    pub(super) stream_bytes: u64,
    /// All bytes of a stream that lasts as long as its session.
    pub(super) session_bytes: u64,
    /// One result.
    pub(super) result_bytes: usize,
    /// Tools of a server.
    pub(super) tools: usize,
    /// Pages of the list.
    pub(super) pages: usize,
    /// A tool's description.
    pub(super) description_bytes: usize,
    /// A tool's name.
    pub(super) name_bytes: usize,
    /// A tool's schema, as canonical JSON.
    pub(super) schema_bytes: usize,
    /// Levels of a tool's schema. It goes into a frame, which has levels of its own.
    pub(super) schema_depth: usize,
    /// The bytes that are kept of all tools: their names, descriptions and schemas.
    pub(super) kept_bytes: usize,
    /// A cursor of the list.
    pub(super) cursor_bytes: usize,
    /// The requests that a server may send on one stream.
    pub(super) server_requests: usize,
    /// Number of times that an interrupted answer is resumed where it stopped.
    pub(super) resume_attempts: u32,
    /// The longest wait before it is resumed, whatever the server requests.
    pub(super) resume_after: Duration,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(30),
            idle: Duration::from_secs(30),
            open: Duration::from_secs(60),
            control: Duration::from_secs(5),
            message_bytes: 4 << 20,
            stream_bytes: 16 << 20,
            session_bytes: 64 << 20,
            result_bytes: 1 << 20,
            tools: 512,
            pages: 64,
            description_bytes: 64 << 10,
            name_bytes: 128,
            schema_bytes: 64 << 10,
            schema_depth: 48,
            kept_bytes: 2 << 20,
            cursor_bytes: 1 << 10,
            server_requests: 64,
            resume_attempts: 3,
            resume_after: Duration::from_secs(5),
        }
    }
}
