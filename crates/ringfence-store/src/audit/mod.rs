//! The audit record: actions and their callers, in a tamper-evident SQLite file.
//!
//! One row per action. Each row holds the hash of the row before it and a signature of its own, and a single `head` row
//! marks the end of the chain. Several servers of one user append to one file: every batch reads the head inside its
//! own `BEGIN IMMEDIATE`.
//!
//! # The exact format, for verification with other tools
//!
//! `hash` is SHA-256 over these bytes in this order:
//!
//! 1. `ringfence audit record v1` and a NUL byte,
//! 2. `prev_hash`, 32 bytes (32 zero bytes before record 1),
//! 3. nine fields, each as its length (u64, little-endian) and its bytes: `seq` (u64 LE), `time_us` (i64 LE),
//!    `server_id`, `action`, `outcome`, `namespace`, `execution_id` (no bytes for NULL, else a byte 1 and the text),
//!    `caller`, `details` (the text as stored).
//!
//! `signature` is Ed25519 (RFC 8032) over `ringfence audit signature v1`, a NUL byte, and `hash`. The head's
//! signature is Ed25519 over `ringfence audit head v1`, a NUL byte, `seq` (u64 LE), `time_us` (i64 LE) and `hash`.
//! Sequence numbers start at 1 and have no gaps.
//!
//! # Guarantees and limits
//!
//! Without the key, no record can be edited, inserted, reordered or deleted, no tail cut and no head replaced without
//! [`verify`] naming the first record concerned. A file cannot show by itself that all of it is an older copy, or a new
//! chain after the old one was deleted: note a head elsewhere from time to time and pass it to [`verify`] as the
//! expected one, which a file that was set back does not contain. A user who has the key can write any history.
//!
//! # Segments
//!
//! When the database has more than [`Keep::segment_bytes`], its oldest records become a closed segment (`segments`),
//! and a record names it (`audit.archived`). Segments that are too old, or too large together, are removed, and a
//! record names each (`audit.removed`). [`verify`] walks all of them and the database as one chain.
//!
//! A damaged file is never repaired and never overwritten: it is moved aside, when it is opened or as soon as the
//! damage is found, and the chain continues in a new file whose first record says so.

mod alive;
mod archive;
mod chain;
mod entry;
mod error;
mod export;
mod location;
mod ocsf;
mod open_chain;
mod query;
mod record;
mod schema;
mod segments;
mod verify;
mod writer;

pub use archive::Keep;
pub use entry::{Action, Entry, Outcome, Receipt};
pub use error::AuditError;
pub use export::{ExportError, Format, Records, export};
pub use location::Storage;
pub use query::{Actions, Page, Query, query};
pub use record::{Head, Record};
pub use schema::Durability;
pub use verify::{Bad, Fault, Verdict, verify};
pub use writer::{Audit, Lost, QueueReservation};

#[cfg(test)]
mod tests {
    mod fault;
    pub(super) mod fixture;
    mod queue;
    mod segment;
    mod segment_names;
    mod tamper;
}
