//! What outlives a request: the audit record, the vault's secrets, the artifacts. No asynchronous code: whoever waits is
//! called back.
#![forbid(unsafe_code)]

pub mod artifacts;
pub mod audit;
mod directory;
mod signer;
pub mod vault;

pub use directory::make_own_directory;
pub use signer::{Signer, SignerError, public_key_of_pem, verify};
