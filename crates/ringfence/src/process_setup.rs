//! Preconditions of a process that uses sandboxes. The command line meets them from the start; a program that embeds
//! the library may have changed its own process before.

use ringfence_types::RequestError;
use std::fs;

/// signal(7)
const SIGPIPE: u32 = 13;
const STATUS: &str = "/proc/self/status";

/// Fills closed standard descriptors, and refuses a process that SIGPIPE would end.
pub(crate) fn prepare() -> Result<(), RequestError> {
    // Otherwise a sandbox's descriptor could take their numbers, and what this process prints would go there.
    ringfence_jail::fill_standard_descriptors().map_err(|error| {
        RequestError::fault(
            format!("closed descriptors among 0 to 2 cannot be opened: {error}."),
            "Let the process open more files (`ulimit -n`).",
        )
    })?;
    let status = fs::read_to_string(STATUS)
        .map_err(|error| RequestError::fault(format!("{STATUS} cannot be read: {error}."), "Mount /proc."))?;
    if is_ended_by(SIGPIPE, &status) {
        return Err(RequestError::fault(
            "this process dies of SIGPIPE: a program in a sandbox could end it by closing its standard input.",
            "Ignore the signal, as every Rust program does that does not change it.",
        ));
    }
    Ok(())
}

/// Returns true if the signal is neither ignored nor caught (proc_pid_status(5)), or the status cannot be parsed.
fn is_ended_by(signal: u32, status: &str) -> bool {
    let has = |name: &str| {
        let set = status.lines().find_map(|line| line.strip_prefix(name));
        let set = set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
        set.is_some_and(|set| set & (1 << (signal - 1)) != 0)
    };
    !has("SigIgn:") && !has("SigCgt:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signal_neither_ignored_nor_caught_ends_the_process() {
        let check = |ignored: &str, caught: &str, expect: bool| {
            let status =
                format!("Name:\tx\nSigBlk:\t0000000000001000\nSigIgn:\t{ignored}\nSigCgt:\t{caught}\n");
            assert_eq!(is_ended_by(SIGPIPE, &status), expect, "{status}");
        };
        check("0000000000001000", "0000000000000000", false);
        check("0000000000000000", "0000000100011000", false);
        check("0000000000000000", "0000000100010440", true);
        check("ffffffffffffefff", "0000000000000000", true);
        check("", "", true);
    }

    #[test]
    fn test_process_meets_the_preconditions() {
        assert!(!is_ended_by(SIGPIPE, &fs::read_to_string(STATUS).unwrap()));
        prepare().unwrap();
    }
}
