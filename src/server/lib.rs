//! HTTP serving, as every service of an engine does it: limits on what a client can do, request
//! bodies, the guard against foreign web pages, and errors as clients see them.
//!
//! Nothing here knows of runs or workflows. A service builds its router and hands it to [`serve`];
//! [`guarded`] is the same router without sockets.

pub mod body;
pub mod document;
mod in_flight;
pub mod json_words;
pub mod origin;
pub mod pointer_errors;
mod problem;
mod serving;

pub use in_flight::{InFlight, InFlightGuard};
pub use problem::{FieldViolation, ProblemDetails};
pub use serving::{
    BindError, Listener, ServerLimits, bind, bind_loopback, guarded, guarded_as,
    possible_connections, serve,
};
