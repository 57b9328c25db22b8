//! On a host that refuses something: doctor and run say the same, and a server says it in each call.

use crate::client::*;
use std::process::Output;

/// A user namespace in which no mount namespace may be made.
const NO_MOUNTS: [&str; 5] = [
    "unshare",
    "-r",
    "sh",
    "-c",
    "echo 0 > /proc/sys/user/max_mnt_namespaces; exec \"$0\" \"$@\"",
];

fn doctor(wrapper: &[&str]) -> (Output, Value) {
    let output = below(wrapper, &ringfence(&["doctor", "--json"]))
        .output()
        .unwrap();
    let report = json_of(&output);
    (output, report)
}

#[test]
fn doctor_fails_where_run_fails_and_both_name_the_limit() {
    let directory = TempDir::new("below-floor");
    let script = directory.file("hello.sh", "echo hello\n");
    let (examined, report) = doctor(&NO_MOUNTS);
    assert_eq!(examined.status.code(), Some(1), "{report}");
    assert_eq!(report["floor_met"], false, "{report}");
    let ran = below(&NO_MOUNTS, &ringfence(&["run", &script])).output().unwrap();
    let said = stderr_of(&ran);
    assert!(!ran.status.success(), "{said}");
    for text in [&said, report["error"].to_string().as_str()] {
        assert!(text.contains("the limit user.max_mnt_namespaces is 0"), "{text}");
        assert!(text.contains("sysctl -w user.max_mnt_namespaces=15000"), "{text}");
    }
}

#[test]
fn a_server_below_the_floor_stays_up_and_says_so_in_each_call() {
    let mut server = Server::of(below(&NO_MOUNTS, &ringfence(&["serve"])));
    for _ in 0..2 {
        let refused = server.call("execute_code", json!({"code": "1"}));
        assert_eq!(refused["isError"], true, "{refused}");
        assert_contains(
            refused.text(),
            ["below_floor", "sysctl -w user.max_mnt_namespaces=15000"],
        );
    }
}

/// Installs a filter that refuses the calls with EPERM, and becomes the program.
#[cfg(target_arch = "x86_64")]
const FILTER: &str = "
import ctypes, os, struct, sys
calls = [int(call) for call in sys.argv[1].split(',')]
lines = [(0x20, 0, 0, 0)] + [(0x15, len(calls) - at, 0, call) for at, call in enumerate(calls)]
lines += [(0x06, 0, 0, 0x7fff0000), (0x06, 0, 0, 0x00050001)]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *line) for line in lines))
program = struct.pack('HxxxxxxP', len(lines), ctypes.addressof(code))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
os.execv(sys.argv[2], sys.argv[2:])
";

/// pivot_root, sethostname and setns.
#[test]
#[cfg(target_arch = "x86_64")]
fn what_isolation_can_do_without_does_not_end_the_tier_and_is_named() {
    let filter = ["/usr/bin/python3", "-c", FILTER, "155,170,308"];
    let directory = TempDir::new("weaker");
    let script = directory.file(
        "hello.py",
        "import os\nprint(os.listdir('/'), os.path.exists('/root'))\n",
    );
    let ran = below(&filter, &ringfence(&["run", &script, "--json", "--verbose"]))
        .output()
        .unwrap();
    let result: Value = json_of(&ran);
    assert_eq!(result["success"], true, "{result}");
    assert!(!text_of(&result["stdout"]).contains("'root'"), "{result}");
    assert_eq!(result["isolation"]["tier"], "full", "{result}");
    for layer in ["host_name", "pivot_root"] {
        assert_eq!(result["isolation"]["layers"][layer]["active"], false, "{result}");
    }
    let (_, report) = doctor(&filter);
    assert_eq!(report["floor_met"], true, "{report}");
}

/// Landlock refused by a filter is neither an old kernel nor an end without a word.
#[test]
#[cfg(target_arch = "x86_64")]
fn a_filter_that_refuses_landlock_is_told_as_a_filter() {
    let (_, report) = doctor(&["/usr/bin/python3", "-c", FILTER, "444,445,446"]);
    assert_eq!(report["floor_met"], false, "{report}");
    report.says("error.message", ["a seccomp filter refuses Landlock"]);
    let kills = FILTER.replace("0x00050001", "0x80000000");
    let (_, report) = doctor(&["/usr/bin/python3", "-c", &kills, "444,445,446"]);
    report.says("error.message", ["ends processes that try it"]);
}

/// What `doctor --seccomp` adds to Docker's profile, but for `clone`, which this test's own processes need.
#[cfg(target_arch = "x86_64")]
const ADDED: [(&str, u32); 13] = [
    ("unshare", 272),
    ("mount", 165),
    ("umount2", 166),
    ("pivot_root", 155),
    ("open_tree", 428),
    ("move_mount", 429),
    ("mount_setattr", 442),
    ("fsopen", 430),
    ("fsconfig", 431),
    ("fsmount", 432),
    ("fspick", 433),
    ("sethostname", 170),
    ("setns", 308),
];

/// Without one of them a sandbox is refused, and the profile is named as the change; or it can do without.
#[test]
#[cfg(target_arch = "x86_64")]
fn a_sandbox_needs_each_call_that_the_shipped_profile_adds() {
    let profile = json_of(&said(&["doctor", "--seccomp"]));
    let rules = list_of(&profile["syscalls"]).iter();
    let added: Vec<&str> = rules
        .take_while(|rule| rule["comment"].is_string())
        .flat_map(|rule| list_of(&rule["names"]))
        .map(|name| name.as_str().unwrap())
        .collect();
    let known: Vec<&str> = ADDED.iter().map(|(name, _)| *name).collect();
    assert_eq!(added, [&["clone"], known.as_slice()].concat());
    let directory = TempDir::new("profile");
    let script = directory.file("hello.sh", "echo hello\n");
    for (name, number) in ADDED {
        let filter = ["/usr/bin/python3", "-c", FILTER, &number.to_string()];
        let ran = below(&filter, &ringfence(&["run", &script])).output().unwrap();
        let can_do_without = ["pivot_root", "sethostname", "setns"].contains(&name);
        assert_eq!(ran.status.success(), can_do_without, "{name}: {ran:?}");
        if !can_do_without {
            assert_contains(
                stderr_of(&ran),
                ["a seccomp filter refuses it", "doctor --seccomp"],
            );
        }
    }
}

/// No directory for state can be written: not the usual one, not those that would take its place.
const NO_STATE: [&str; 6] = [
    "unshare",
    "-r",
    "-m",
    "sh",
    "-c",
    // The binary may lie below /tmp itself.
    "exec 9< \"$0\" && mount -t tmpfs -o ro none /tmp && echo true | /proc/self/fd/9 \"$@\"",
];

#[test]
fn doctor_shows_the_layers_where_there_is_no_directory_for_state() {
    let homeless = |words: &[&str]| {
        let mut command = below(&NO_STATE, &ringfence(words));
        command.env_remove("RINGFENCE_STATE_DIR");
        command
            .env("XDG_STATE_HOME", "/dev/null")
            .env("XDG_RUNTIME_DIR", "/dev/null");
        command.output().unwrap()
    };
    let examined = homeless(&["doctor", "--json"]);
    let report: Value = json_of(&examined);
    let ran = homeless(&["run", "-", "--language", "shell"]);
    let codes = (examined.status.code(), ran.status.code());
    assert_eq!(codes, (Some(1), Some(125)), "{report} {ran:?}");
    assert_eq!(report["floor_met"], false, "{report}");
    let layers = report["layers"].as_array().unwrap();
    assert!(layers.len() > 5, "{report}");
    let said = stderr_of(&ran);
    for text in [report["error"].to_string().as_str(), &said] {
        assert_contains(text, ["there is no directory for state", "RINGFENCE_STATE_DIR"]);
    }
}
