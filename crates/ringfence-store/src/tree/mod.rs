//! A directory that a stranger writes, worked on from outside and by descriptor. A running program may rename, link and
//! swap everything in it meanwhile.
//!
//! Invariants: no path of the host is resolved here, only names below a descriptor (`openat2`: no link, no `..`, no
//! other mount); nothing is opened but directories and regular files, and no open waits; what is replaced is replaced
//! by a rename; every walk has a bound, in number and in time; where the server is root, all of it is done as the owner
//! of the directory ([`AsOwner`]).

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
pub use beneath::{NO_FILE, open_file};
pub(crate) use beneath::{here, open_handle, open_listing, open_parent, open_regular};
pub use changes::{Change, ChangeKind, Changes, CompareBounds, OpenContent, Side, as_it_is, compare};
pub use error::TreeError;
pub use files::{Got, ListBounds, ListedFile, MODES, get, list, put};
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
