//! The local Linux jail: a pure `plan`, an ordered `enter`, the child's wire protocol and the host probe. No async.
#![forbid(unsafe_code)]

pub mod doctor;
pub mod helper;
