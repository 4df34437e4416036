//! The descriptors that the system has for connections, and the sizes of its buffers.

use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpStream;

/// Descriptors that connections leave to everything else: the ledger, its readers, requests of our
/// own, connections that are refused.
const RESERVED: u64 = 512;
/// As many as all services of one process need.
const WANTED: u64 = 8192;
/// The most bytes that the system keeps for a client that does not read; Linux doubles it. Without a
/// bound it would be megabytes for each.
const UNSENT_BYTES: usize = 128 * 1024;

/// Caps the number of connections by the available file descriptors, after raising the process's
/// limit as far as allowed.
pub(super) fn cap_connections(connections: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let current = match limit.current {
        Some(current) if current < WANTED => raised(current, limit.maximum),
        current => current,
    };
    let Some(current) = current else {
        return connections;
    };
    let left = current.saturating_sub(RESERVED).max(current / 2);
    let left = usize::try_from(left).unwrap_or(usize::MAX);
    if left < connections {
        tracing::warn!(
            descriptors = current,
            "only {left} connections possible instead of {connections}: raise ulimit -n"
        );
    }
    connections.min(left)
}

fn raised(current: u64, maximum: Option<u64>) -> Option<u64> {
    let wanted = maximum.map_or(WANTED, |maximum| maximum.min(WANTED));
    let limit = Rlimit {
        current: Some(wanted),
        maximum,
    };
    match wanted > current && setrlimit(Resource::Nofile, limit).is_ok() {
        true => Some(wanted),
        false => Some(current),
    }
}

/// Bounds what the system keeps for the client of a connection. If it does not take the bound, it
/// keeps its own.
pub(super) fn bound_unsent(stream: &TcpStream) {
    let _ = set_socket_send_buffer_size(stream, UNSENT_BYTES);
}
