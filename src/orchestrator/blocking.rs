//! Work that would keep a thread from serving others.

use tokio::runtime::{Handle, RuntimeFlavor};

/// So many visits of subschemas are made on a thread that serves others, and no more.
pub(crate) const MAX_SHARED_VISITS: u64 = 4_000;

/// Does work at once, and if it may take long, on a thread that others no longer wait for.
pub(crate) fn block_if<T>(takes_long: bool, work: impl FnOnce() -> T) -> T {
    let flavor = Handle::try_current().map(|handle| handle.runtime_flavor());
    let others = matches!(flavor, Ok(RuntimeFlavor::MultiThread));
    match takes_long && others {
        true => tokio::task::block_in_place(work),
        false => work(),
    }
}
