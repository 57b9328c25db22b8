//! temporary stand-in by the lead: replace this whole file
/// x
pub fn install(_p: &[Vec<u64>]) -> std::io::Result<()> { Ok(()) }
