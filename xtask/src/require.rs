//! Capabilities that a machine may lack. A check that cannot run says why; `RINGFENCE_REQUIRE`, a comma-separated
//! list, turns that into a failure. CI requires everything that its machine has.

/// Variable that tests and chores read.
pub const VARIABLE: &str = "RINGFENCE_REQUIRE";

/// Capabilities that CI requires. `index`: pip and npm reach the index that they are configured for.
pub const ALL: &str =
    "root,userns,landlock,seccomp,cgroup,python,node,bash,bwrap,pip,index,chromium,searx,dockerd,runsc";

/// Returns true in CI.
pub fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true")
}

/// Returns the capabilities that this run requires: those of the variable if it is set, else all in CI and none
/// elsewhere.
pub fn list() -> String {
    match std::env::var(VARIABLE) {
        Ok(list) => list,
        Err(_) if in_ci() => ALL.to_owned(),
        Err(_) => String::new(),
    }
}

/// Returns true if the list names this capability.
pub fn names(list: &str, capability: &str) -> bool {
    list.split(',').any(|word| word.trim() == capability)
}

/// Returns true if this process runs as root.
pub fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let uids = status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:"))
        .unwrap_or("");
    uids.split_whitespace().nth(1) == Some("0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capability_is_matched_as_a_whole_word() {
        assert!(names("root, userns", "userns"));
        assert!(!names("rootless,userns", "root"));
        assert!(!names("", "root"));
        assert!(names(ALL, "landlock"));
        assert!(names(ALL, "index"));
    }
}
