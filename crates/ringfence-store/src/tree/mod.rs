//! Operations of the host on an untrusted directory, by descriptor. A running program may rename, link and swap
//! everything in it at the same time.
//!
//! Invariants: no path of the host is resolved here, only names below a descriptor (`openat2`: no link, no `..`, no
//! other mount); only directories and regular files are opened, and no open blocks; files are replaced by a rename;
//! every walk is bounded in number and in time; a server that runs as root does all of it as the owner of the directory
//! ([`AsOwner`]).

pub mod archive;
mod beneath;
mod changes;
mod error;
mod files;
mod lower_state;
mod names;
mod node;
pub mod overlay;
mod owner;
mod risks;
mod staging;
mod walk;

pub use archive::{PackLimits, Packed, pack};
pub use beneath::{NOT_REGULAR, open_file};
pub(crate) use beneath::{open_handle, open_listing, open_parent, open_regular, path_or_dot};
pub use changes::{Change, ChangeKind, Changes, CompareBounds, OpenContent, Side, compare, unredacted};
pub use error::TreeError;
pub use files::{FileBytes, ListBounds, ListedFile, MODES, get, list, put};
pub use lower_state::{CHANGED_MEANWHILE, LowerState};
pub use node::Node;
pub use owner::AsOwner;
pub use risks::Risk;
pub use walk::{Bounds, DEPTH_MAX, EntryKind, Stamp, Timestamp, TreeEntry, walk};

#[cfg(test)]
mod tests {
    mod archive;
    pub(super) mod fixture;
    mod overlay;
    mod race;
}
