//! What all HTTP services of ktsu have in common: serving, request bodies, names in paths.
//!
//! Nothing here knows of runs or workflows. A service builds its router and hands it to
//! [`server::serve`]; [`server::guarded`] is the same router without sockets.

pub mod access;
pub mod body;
pub mod document;
pub mod ids;
pub mod origin;
pub mod routes;
pub mod server;
