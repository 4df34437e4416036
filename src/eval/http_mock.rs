//! HTTP servers of suites that reply by rules, and what they received.
//!
//! ```text
//! HttpMock ─┐
//! request ──┼─MockState::reply─▶ PlannedReply
//!           └─▶ MockRecord ─┬─▶ checks of the type http_mock_assertions
//!                           └─▶ what models judge
//! ```

pub(crate) mod assertions;
pub(crate) mod check;
pub(crate) mod record;
pub(crate) mod reply;
pub(crate) mod routes;
pub(crate) mod template;
