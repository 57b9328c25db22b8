//! temporary stand-in by the lead: replace this whole file
use serde::{Deserialize, Serialize};
/// x
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "x")]
pub enum Profile { Full { memory_cgroup: bool }, Landlock { memory_cgroup: bool } }
/// x
pub fn programs(_p: Profile) -> Result<Vec<Vec<u64>>, std::io::Error> { Ok(vec![]) }
