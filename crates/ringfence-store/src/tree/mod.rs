//! A directory that a stranger writes, worked on from outside and by descriptor. A running program may rename, link and
//! swap everything in it meanwhile.
//!
//! Invariants: no path of the host is resolved here, only names below a descriptor (`openat2`: no link, no `..`, no other
//! mount); nothing is opened but directories and regular files, and no open waits; what is replaced is replaced by a
//! rename; every walk has a bound.

pub mod archive;
#[cfg(test)]
mod archive_tests;
mod beneath;
mod changes;
mod draft;
mod error;
mod files;
#[cfg(test)]
mod fixture;
mod meanwhile;
mod names;
pub mod overlay;
#[cfg(test)]
mod overlay_tests;
mod owner;
mod pack;
#[cfg(test)]
mod race_tests;
mod risks;
mod stage;
mod text;
mod walk;

pub use beneath::{NO_FILE, open_file};
pub(crate) use beneath::{open_listing, open_regular};
pub use changes::{Change, ChangeKind, Changes, CompareBounds, Node, Open, Side, Stamp, compare};
pub use error::TreeError;
pub use files::{Got, ListBounds, Listed, MODES, get, list, put, remove};
pub use meanwhile::{CHANGED_MEANWHILE, Seen};
pub(crate) use owner::AsOwner;
pub use pack::{Packed, pack};
pub use risks::Risk;
pub use walk::{Bounds, DEPTH_MAX, Entry, EntryKind, walk};
