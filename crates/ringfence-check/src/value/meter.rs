//! What one validation may take. A schema of a few hundred bytes can ask for more steps than anybody has time for, for
//! more errors than fit into memory, and for a stack of any depth; and the validator has no way to be told to stop.
//! Everything that it looks at comes from us, though: that is where it is counted, and from where it is unwound.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

/// Looks at values: for any text, and for each of its bytes. Alternatives by the dozen need less.
const STEPS_BASE: u64 = 50_000_000;
const STEPS_PER_BYTE: u64 = 32;
/// Of 8 MiB, which the main thread of a worker has.
const STACK_BYTES_MAX: usize = 4 << 20;

/// All errors of one validation, alternatives' too: about what they take.
const ERRORS_BYTES_MAX: usize = 192 << 20;
/// Of an error without its paths, with the beginning of a text.
const ERROR_BYTES: usize = 600;
/// Of stack, for each reference that led to where an error is made; a little less than it is.
const LINK_STACK_BYTES: usize = 256;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extent {
    pub(super) bytes: usize,
    /// Of the longest path into it. Every error keeps its own.
    pub(super) path_bytes: usize,
    /// Of the longest path to a reference in the schema. Every error keeps those of all that led to it.
    pub(super) link_bytes: usize,
}

/// What a validation has run out of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spent {
    Steps,
    Errors,
    Stack,
}

#[derive(Clone, Copy)]
struct Left {
    steps: u64,
    errors_bytes: usize,
    error_bytes: usize,
    link_bytes: usize,
    stack_top: usize,
}

/// Outside of a validation nothing is counted.
const ENDLESS: Left = Left {
    steps: u64::MAX,
    errors_bytes: usize::MAX,
    error_bytes: 0,
    link_bytes: 0,
    stack_top: 0,
};

impl Left {
    fn stack_bytes(self) -> usize {
        self.stack_top.saturating_sub(stack_pointer())
    }
}

thread_local! {
    // Not a field of the nodes: the validator makes nodes of its own, for the names of members, from nothing.
    static LEFT: Cell<Left> = const { Cell::new(ENDLESS) };
}

/// Does what is metered, to its end or to the end of what it may take.
pub(super) fn run<T>(extent: Extent, validate: impl FnOnce() -> T) -> Result<T, Spent> {
    let outer = LEFT.get();
    LEFT.set(Left {
        steps: STEPS_BASE + STEPS_PER_BYTE * extent.bytes as u64,
        errors_bytes: ERRORS_BYTES_MAX,
        error_bytes: ERROR_BYTES + extent.path_bytes,
        link_bytes: extent.link_bytes,
        stack_top: stack_pointer(),
    });
    // Nothing outlives it that could be seen half done: the validator and all it has made are dropped on the way.
    let result = catch_unwind(AssertUnwindSafe(validate));
    LEFT.set(outer);
    result.map_err(|payload| match payload.downcast::<Spent>() {
        Ok(spent) => *spent,
        Err(panic) => resume_unwind(panic),
    })
}

pub(super) fn step() {
    steps(1);
}

pub(super) fn steps(count: u64) {
    let mut left = LEFT.get();
    if left.steps < count {
        stop(Spent::Steps);
    }
    left.steps -= count;
    LEFT.set(left);
    if left.stack_bytes() > STACK_BYTES_MAX {
        stop(Spent::Stack);
    }
}

/// An error is about to be made.
pub(super) fn error() {
    let mut left = LEFT.get();
    let links = left.stack_bytes() / LINK_STACK_BYTES;
    let links_bytes = links.saturating_mul(left.link_bytes);
    let bytes = left.error_bytes.saturating_add(links_bytes);
    let rest = left.errors_bytes.checked_sub(bytes);
    left.errors_bytes = rest.unwrap_or_else(|| stop(Spent::Errors));
    LEFT.set(left);
}

/// Not a panic: no hook is called, and nothing is printed.
fn stop(spent: Spent) -> ! {
    resume_unwind(Box::new(spent))
}

/// About where the stack ends now; it grows downwards.
#[inline]
fn stack_pointer() -> usize {
    let here = 0_u8;
    std::ptr::from_ref(&here) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recurse(depth: usize) -> usize {
        if depth == usize::MAX {
            return 0;
        }
        step();
        let ballast = [depth; 64];
        std::hint::black_box(&ballast);
        recurse(depth + 1) + ballast.len()
    }

    #[test]
    fn each_limit_ends_what_runs_and_the_next_run_has_its_own() {
        let endless = || loop {
            steps(1000);
        };
        let extent = Extent::default();
        assert_eq!(run(extent, endless), Err::<(), _>(Spent::Steps));
        let many = || (0..=ERRORS_BYTES_MAX / ERROR_BYTES).for_each(|_| error());
        assert_eq!(run(extent, many), Err(Spent::Errors));
        let few = || (0..1000).for_each(|_| error());
        assert_eq!(run(extent, few), Ok(()));
        let path_bytes = ERRORS_BYTES_MAX / 1000;
        assert_eq!(run(Extent { path_bytes, ..extent }, few), Err(Spent::Errors));
    }

    #[test]
    fn a_deep_recursion_is_unwound_before_the_stack_ends() {
        let thread = std::thread::Builder::new().stack_size(8 << 20);
        let told = thread
            .spawn(|| run(Extent::default(), || recurse(0)).err())
            .expect("a thread")
            .join();
        assert_eq!(told.expect("no overflow"), Some(Spent::Stack));
    }

    #[test]
    fn a_panic_stays_a_panic() {
        let caught = catch_unwind(|| run(Extent::default(), || -> () { resume_unwind(Box::new("other")) }));
        assert_eq!(caught.expect_err("a panic").downcast_ref(), Some(&"other"));
    }
}
