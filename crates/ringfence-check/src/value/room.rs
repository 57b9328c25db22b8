//! A stack that is long enough. A chain of references is followed by one recursion per link, without a look at the
//! value that could be metered; so a schema with many of them gets a stack of its own.

use crate::question::Unusable;

/// So many links fit onto any thread's stack beside what else is there.
const LINKS_FEW: usize = 200;
/// For each of them.
const LINK_BYTES: usize = 16 << 10;
/// For what is metered, and the rest.
const BASE_BYTES: usize = 8 << 20;

/// Does what recurses that deep.
pub(super) fn with<T>(links: usize, act: impl FnOnce() -> Result<T, Unusable>) -> Result<T, Unusable> {
    if links <= LINKS_FEW {
        return act();
    }
    // Not a thread: a worker may start none.
    stacker::grow(BASE_BYTES + links * LINK_BYTES, act)
}
