//! What outlives a request: the audit record, the vault's secrets, the artifacts, the
//! workspaces, the layers of packages. No asynchronous code: results come by callback.
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
pub use directory::{make_own_directory, take_back_own_directory};
pub use signer::{Signer, SignerError, public_key_of_pem, verify};
pub use whole_file::FileError;
