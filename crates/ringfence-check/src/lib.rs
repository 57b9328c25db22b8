//! Says what code is, without running it. What is here reads a stranger's text and is therefore only ever called in a
//! jailed worker process (see `ringfence_engine::workers`): a parser that crashes or loops costs one request.
#![forbid(unsafe_code)]

mod depth;
mod javascript;
mod picture;

pub use javascript::prepare;
pub use picture::{PICTURE_SIDE_MAX, picture};
