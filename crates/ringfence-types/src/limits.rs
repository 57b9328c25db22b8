//! Limits of a run: `LimitsRequest` is a caller's request; `Limits` is what the operator's policy grants.

use serde::{Deserialize, Serialize};

/// The limits that the jail enforces; every number is set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Memory of the whole tree, page cache of its private disk included, in bytes.
    pub memory_bytes: u64,
    /// Processor share in thousandths of a core.
    pub cpu_millicores: u32,
    /// Wall-clock deadline in milliseconds, from the start of the program.
    pub timeout_ms: u64,
    /// Processes and threads of the whole tree.
    pub processes: u32,
    /// Kept bytes of each of stdout and stderr.
    pub output_bytes: u64,
    /// Private disk (workspace, /tmp, home, /dev/shm together), in bytes; see [`Limits::private_disk_bytes`].
    pub disk_bytes: u64,
}

impl Limits {
    /// Returns the size of the private disk, which is in memory and leaves half of the memory to programs.
    pub fn private_disk_bytes(&self) -> u64 {
        self.disk_bytes.min(self.memory_bytes / 2)
    }

    /// Returns the smaller of each limit.
    #[must_use]
    pub fn least(&self, other: &Self) -> Self {
        Self {
            memory_bytes: self.memory_bytes.min(other.memory_bytes),
            cpu_millicores: self.cpu_millicores.min(other.cpu_millicores),
            timeout_ms: self.timeout_ms.min(other.timeout_ms),
            processes: self.processes.min(other.processes),
            output_bytes: self.output_bytes.min(other.output_bytes),
            disk_bytes: self.disk_bytes.min(other.disk_bytes),
        }
    }
}

/// The limits that a caller has requested; absent means the namespace's default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitsRequest {
    /// MiB.
    pub max_ram_mb: Option<u64>,
    /// Cores; fractions allowed.
    pub max_cpu_cores: Option<f64>,
    /// Milliseconds.
    pub timeout_ms: Option<u64>,
    /// Processes and threads.
    pub max_processes: Option<u32>,
    /// Bytes per stream.
    pub max_output_bytes: Option<u64>,
    /// MiB.
    pub max_disk_mb: Option<u64>,
}

impl LimitsRequest {
    /// Returns these limits as caps; one that is absent caps nothing.
    pub fn caps(&self) -> Limits {
        let bytes = |mib: Option<u64>| mib.map_or(u64::MAX, |mib| mib.saturating_mul(1 << 20));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a float that is no number of cores becomes the nearest that is"
        )]
        let millicores = |cores: f64| (cores * 1000.0).round() as u32;
        Limits {
            memory_bytes: bytes(self.max_ram_mb),
            cpu_millicores: self.max_cpu_cores.map_or(u32::MAX, millicores),
            timeout_ms: self.timeout_ms.unwrap_or(u64::MAX),
            processes: self.max_processes.unwrap_or(u32::MAX),
            output_bytes: self.max_output_bytes.unwrap_or(u64::MAX),
            disk_bytes: bytes(self.max_disk_mb),
        }
    }
}

/// Parses "256m", "1g", "512MiB" or "1073741824"; powers of 1024, as container tools do. Below 1 MiB needs a unit.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "ki" | "kib" => 1 << 10,
        "m" | "mb" | "mi" | "mib" => 1 << 20,
        "g" | "gb" | "gi" | "gib" => 1 << 30,
        _ => return Err(format!("`{text}` is not a size")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("`{text}` is not a size"))?;
    if unit.is_empty() && number < 1 << 20 {
        return Err(format!("`{text}` would be bytes; write {text}m for MiB"));
    }
    number
        .checked_mul(factor)
        .ok_or_else(|| format!("`{text}` is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_as_by_container_tools() {
        let check = |text: &str, expect: Option<u64>| assert_eq!(parse_size(text).ok(), expect, "{text}");
        check("256m", Some(256 << 20));
        check("1g", Some(1 << 30));
        check("512MiB", Some(512 << 20));
        check("42", None);
        check("4194304", Some(4 << 20));
        check("-1m", None);
        check("1.5g", None);
        check("", None);
        check("99999999999999999999g", None);
        check("18446744073709551615k", None);
    }
}
