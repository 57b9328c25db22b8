//! The shared objects by which templates fork, made by the build script from `forker/image.rs`.

pub const OF_PYTHON: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/forker.so"));
pub const OF_NODE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/forker.node"));
