//! The library in a program whose helper is the installed binary. The examples and unusual states of the embedding
//! process are tested in `embedded`.

mod approvals;
mod checks;
mod life;
mod place;
mod record;
mod sessions;
mod settings;

pub use place::Scene;
