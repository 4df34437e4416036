//! The rules by which an HTTP server of a suite replies.

use crate::glob::Glob;
use crate::http_mock::template::ReplyTemplate;

/// An HTTP server beside each run that replies by rules.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HttpMock {
    /// In order: the first that fits replies. Without any, every request is accepted.
    pub(crate) routes: Vec<MockRoute>,
    /// True if what it receives is kept.
    pub record: bool,
    /// Variables of the kit that have its URL in place of their values.
    pub variables: Vec<String>,
}

/// A route: the requests that it fits, and the reply to them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MockRoute {
    /// The method, in capitals; any if absent.
    pub(crate) method: Option<String>,
    /// The path, without the query; any if absent.
    pub(crate) path: Option<Glob>,
    /// The most requests that it fits.
    pub(crate) times: Option<u64>,
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Option<ReplyTemplate>,
    pub(crate) delay_ms: u64,
    pub(crate) fault: Option<MockFault>,
}

/// The behaviour of a server in place of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MockFault {
    /// It closes the connection.
    Close,
    /// It never replies.
    Hang,
}
