//! One safe function per system call that the jail needs; no policy. The only crate in which `unsafe` may stand.
//! Each function checks what its system call would silently take on trust, so that callers stay safe.
#![expect(unsafe_code, reason = "this crate exists to hold it")]

pub mod channel;
pub mod file;
pub mod identity;
pub mod landlock;
pub mod mount;
pub mod network;
pub mod process;
pub mod resource;
pub mod seccomp;
pub mod wait;
