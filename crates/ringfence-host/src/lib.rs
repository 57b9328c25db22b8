//! Commands and files of the host, for the callers that the operator admits. Rules decide what may be requested; walls
//! limit what can happen: a command that a rule allows runs behind walls made from the rule's effect.
//!
//! ```text
//! command ──► words ──► Rules::judge ──► Allowed ──► wall::prepare ──► run ──► child (this binary, re-executed)
//!             no shell  exact spellings               a plan           pipes   own namespaces, Landlock, seccomp
//! ```
#![forbid(unsafe_code)]
#![expect(
    missing_docs,
    reason = "an internal crate: names that explain themselves have no comment"
)]

mod child;
mod directories;
mod files;
mod kinds;
mod load;
mod matching;
mod mounts;
mod named_files;
mod never;
mod program;
mod rule;
mod run;
mod secret_places;
mod spec;
mod subtrees;
mod undo;
mod wall;
mod words;

pub use child::{CHILD_WORD, run as run_child};
pub use directories::{Access, Directories, Directory, OpenFile};
pub use files::{Content, FileEntry, FileRead, FileWritten, Writing};
pub use load::{DEFAULT_RULES, LoadError, load};
pub use matching::{Allowed, Refused, Why};
pub use program::{Identity, Resolved};
pub use ringfence_sys::file::resolution_paths;
pub use rule::{Approvals, Effect, Network, RuleSummary, Rules, User, View};
pub use run::{Canceller, Ending, Outcome, Output, Running, probe};
pub use spec::Support;
pub use undo::{Undo, UndoStore};
pub use wall::{CallContext, Command, Wall, prepare};
pub use words::{COMMAND_BYTES_MAX, Words, escaped};
