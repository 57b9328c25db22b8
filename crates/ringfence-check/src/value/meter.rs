//! Limits of one validation. A schema of a few hundred bytes can require an impractical number of steps, more errors
//! than fit into memory, and a stack of any depth, and the validator cannot be stopped. But all values that it reads
//! come from [`super::node`]: accesses are counted there, and a validation over a limit is unwound from there.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

/// Accesses to values that are allowed for any text, and for each of its bytes. Dozens of alternatives need less.
const STEPS_BASE: u64 = 50_000_000;
const STEPS_PER_BYTE: u64 = 32;
/// Maximum stack of a validation, of the 8 MiB of a worker's main thread.
const STACK_BYTES_MAX: usize = 4 << 20;

/// Maximum estimated memory of all errors of one validation, including those of alternatives.
const ERRORS_BYTES_MAX: usize = 192 << 20;
/// Memory of an error without its paths, with the beginning of a text.
const ERROR_BYTES: usize = 600;
/// Stack per reference that led to an error; slightly less than it really is, so as not to underestimate their number.
const LINK_STACK_BYTES: usize = 256;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extent {
    pub(super) bytes: usize,
    /// Length of the longest path into the document. Every error keeps its own path.
    pub(super) path_bytes: usize,
    /// Length of the longest path in the schema. Every error keeps the paths of all references that led to it.
    pub(super) link_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exceeded {
    Steps,
    Errors,
    Stack,
}

#[derive(Clone, Copy)]
struct Budget {
    steps: u64,
    errors_bytes: usize,
    error_bytes: usize,
    link_bytes: usize,
    stack_top: usize,
}

/// Outside a validation there are no limits.
const UNLIMITED: Budget = Budget {
    steps: u64::MAX,
    errors_bytes: usize::MAX,
    error_bytes: 0,
    link_bytes: 0,
    stack_top: 0,
};

impl Budget {
    fn stack_bytes(self) -> usize {
        self.stack_top.saturating_sub(stack_pointer())
    }
}

thread_local! {
    // Not a field of the nodes: for names of members the validator makes nodes of its own, without a source.
    static BUDGET: Cell<Budget> = const { Cell::new(UNLIMITED) };
}

/// Runs a validation to its end, or until it exceeds a limit.
pub(super) fn run<T>(extent: Extent, validate: impl FnOnce() -> T) -> Result<T, Exceeded> {
    let outer = BUDGET.get();
    BUDGET.set(Budget {
        steps: STEPS_BASE + STEPS_PER_BYTE * extent.bytes as u64,
        errors_bytes: ERRORS_BYTES_MAX,
        error_bytes: ERROR_BYTES + extent.path_bytes,
        link_bytes: extent.link_bytes,
        stack_top: stack_pointer(),
    });
    // Unwind safe: no half-finished state outlives the call; everything that the validator makes is dropped on the way.
    let result = catch_unwind(AssertUnwindSafe(validate));
    BUDGET.set(outer);
    result.map_err(|payload| match payload.downcast::<Exceeded>() {
        Ok(exceeded) => *exceeded,
        Err(panic) => resume_unwind(panic),
    })
}

pub(super) fn step() {
    steps(1);
}

pub(super) fn steps(count: u64) {
    let mut budget = BUDGET.get();
    if budget.steps < count {
        stop(Exceeded::Steps);
    }
    budget.steps -= count;
    BUDGET.set(budget);
    if budget.stack_bytes() > STACK_BYTES_MAX {
        stop(Exceeded::Stack);
    }
}

/// Counts an error that is about to be made.
pub(super) fn error() {
    let mut budget = BUDGET.get();
    let links = budget.stack_bytes() / LINK_STACK_BYTES;
    let links_bytes = links.saturating_mul(budget.link_bytes);
    let bytes = budget.error_bytes.saturating_add(links_bytes);
    let rest = budget.errors_bytes.checked_sub(bytes);
    budget.errors_bytes = rest.unwrap_or_else(|| stop(Exceeded::Errors));
    BUDGET.set(budget);
}

/// Unwinds without a panic: no hook is called, and nothing is printed.
fn stop(exceeded: Exceeded) -> ! {
    resume_unwind(Box::new(exceeded))
}

/// The approximate end of the stack, which grows downwards.
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
    fn each_limit_ends_a_run_and_the_next_run_has_its_own() {
        let endless = || loop {
            steps(1000);
        };
        let extent = Extent::default();
        assert_eq!(run(extent, endless), Err::<(), _>(Exceeded::Steps));
        let many = || (0..=ERRORS_BYTES_MAX / ERROR_BYTES).for_each(|_| error());
        assert_eq!(run(extent, many), Err(Exceeded::Errors));
        let few = || (0..1000).for_each(|_| error());
        assert_eq!(run(extent, few), Ok(()));
        let path_bytes = ERRORS_BYTES_MAX / 1000;
        assert_eq!(run(Extent { path_bytes, ..extent }, few), Err(Exceeded::Errors));
    }

    #[test]
    fn deep_recursion_is_unwound_before_the_stack_overflows() {
        let thread = std::thread::Builder::new().stack_size(8 << 20);
        let result = thread
            .spawn(|| run(Extent::default(), || recurse(0)).err())
            .expect("a thread")
            .join();
        assert_eq!(result.expect("no overflow"), Some(Exceeded::Stack));
    }

    #[test]
    fn other_panics_are_passed_on() {
        let caught = catch_unwind(|| run(Extent::default(), || -> () { resume_unwind(Box::new("other")) }));
        assert_eq!(caught.expect_err("a panic").downcast_ref(), Some(&"other"));
    }
}
