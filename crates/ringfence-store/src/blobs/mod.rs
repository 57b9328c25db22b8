//! Contents, each stored once under its digest: in a file of its own ([`loose`]), or as chunks in a pack ([`pack`]).

pub(crate) mod chunk;
pub(crate) mod loose;
pub(crate) mod pack;
