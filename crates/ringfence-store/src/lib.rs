//! Persistent state: the audit record, the vault, artifacts, workspaces and their snapshots, package layers and access
//! tokens. The code is synchronous; the audit writer reports by callback.
#![forbid(unsafe_code)]
#![expect(
    missing_docs,
    reason = "an inner crate: a name that says it all has no comment"
)]

pub mod artifacts;
pub mod audit;
mod blobs;
mod clock;
mod digest;
mod directory;
#[cfg(test)]
mod golden_tests;
pub mod layers;
mod signer;
pub mod snapshots;
#[cfg(test)]
mod tests;
pub mod tokens;
pub mod tree;
pub mod vault;
mod whole_file;

pub use digest::{from_hex, to_hex};
pub use directory::{make_own_directory, reclaim_own_directory};
pub use signer::{Signer, SignerError, public_key_of_pem, verify};
pub use whole_file::FileError;
