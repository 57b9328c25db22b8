//! What outlives a request: the audit record, the vault's secrets, the artifacts, the
//! workspaces, the layers of packages. No asynchronous code: whoever waits is
//! called back.
#![forbid(unsafe_code)]

pub mod artifacts;
pub mod audit;
mod directory;
pub mod layers;
mod signer;
pub mod snapshots;
pub mod tree;
pub mod vault;

pub use directory::{make_own_directory, take_back_own_directory};
pub use signer::{Signer, SignerError, public_key_of_pem, verify};
