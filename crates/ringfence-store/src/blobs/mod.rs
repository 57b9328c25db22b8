//! Contents, each stored once under its digest: as a file of its own ([`loose`]), or many small ones in a pack
//! ([`pack`]).

pub(crate) mod chunk;
pub(crate) mod loose;
pub(crate) mod pack;
