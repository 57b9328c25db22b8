//! Shared objects that templates load in order to fork. The build script compiles them from `forker/image.rs`.

pub const OF_PYTHON: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/forker.so"));
pub const OF_NODE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/forker.node"));
