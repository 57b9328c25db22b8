//! The shared object by which a Python template forks, made by the build script from `forker/image.rs`.

pub const IMAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/forker.so"));
