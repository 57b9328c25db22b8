//! The library as a program uses it whose helper is the installed binary. What a program may have done to itself, and the
//! examples, are in `embedded`.

mod approvals;
mod checks;
mod life;
mod place;
mod record;
mod sessions;
mod settings;

pub use place::Scene;
