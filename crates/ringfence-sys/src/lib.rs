//! One safe function per system call that the jail needs; no policy. The only crate that may use `unsafe`. Each
//! function checks the preconditions that its system call trusts silently, so that no caller can break them.
#![expect(unsafe_code, reason = "this crate exists to hold it")]
#![expect(
    missing_docs,
    reason = "an inner crate: a name that says it all has no comment"
)]

pub mod channel;
pub mod file;
pub mod forker;
pub mod identity;
pub mod landlock;
pub mod mount;
pub mod network;
pub mod process;
pub mod resource;
pub mod seccomp;
pub mod wait;

/// Converts the result of a system call that returns 0 on success and sets `errno` otherwise.
fn done(result: impl Into<i64>) -> std::io::Result<()> {
    if result.into() == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}
