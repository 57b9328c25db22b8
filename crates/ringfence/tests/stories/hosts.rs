//! Hosts that refuse a layer: doctor and run report the same cause, and a server reports it in each call.

use crate::client::*;
use std::process::Output;

/// A user namespace in which no mount namespace can be created.
const NO_MOUNTS: [&str; 5] = [
    "unshare",
    "-r",
    "sh",
    "-c",
    "echo 0 > /proc/sys/user/max_mnt_namespaces; exec \"$0\" \"$@\"",
];

fn doctor(wrapper: &[&str]) -> (Output, Value) {
    let output = wrap_command(wrapper, &ringfence(&["doctor", "--json"]))
        .output()
        .unwrap();
    let report = json_of(&output);
    (output, report)
}

#[test]
fn doctor_and_run_fail_below_the_floor_and_name_the_limit() {
    let directory = TempDir::new("below-floor");
    let script = directory.file("hello.sh", "echo hello\n");
    let (examined, report) = doctor(&NO_MOUNTS);
    assert_eq!(examined.status.code(), Some(1), "{report}");
    assert_eq!(report["floor_met"], false, "{report}");
    let ran = wrap_command(&NO_MOUNTS, &ringfence(&["run", &script]))
        .output()
        .unwrap();
    let stderr = stderr_of(&ran);
    assert!(!ran.status.success(), "{stderr}");
    for text in [&stderr, report["error"].to_string().as_str()] {
        assert!(text.contains("the limit user.max_mnt_namespaces is 0"), "{text}");
        assert!(text.contains("sysctl -w user.max_mnt_namespaces=15000"), "{text}");
    }
}

#[test]
fn server_below_the_floor_keeps_running_and_fails_each_call() {
    let mut server = Server::from_command(wrap_command(&NO_MOUNTS, &ringfence(&["serve"])));
    for _ in 0..2 {
        let refused = server.call("execute_code", json!({"code": "1"}));
        assert_eq!(refused["isError"], true, "{refused}");
        assert_contains(
            refused.text(),
            ["below_floor", "sysctl -w user.max_mnt_namespaces=15000"],
        );
    }
}

/// Installs a seccomp filter that refuses the syscalls with EPERM, and execs the program.
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
fn missing_optional_layers_keep_the_tier_and_are_named() {
    let filter = ["/usr/bin/python3", "-c", FILTER, "155,170,308"];
    let directory = TempDir::new("weaker");
    let script = directory.file(
        "hello.py",
        "import os\nprint(os.listdir('/'), os.path.exists('/root'))\n",
    );
    let ran = wrap_command(&filter, &ringfence(&["run", &script, "--json", "--verbose"]))
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

/// Landlock refused by a filter is reported as such, not as an old kernel or a silent end.
#[test]
#[cfg(target_arch = "x86_64")]
fn doctor_reports_a_seccomp_filter_that_refuses_landlock() {
    let (_, report) = doctor(&["/usr/bin/python3", "-c", FILTER, "444,445,446"]);
    assert_eq!(report["floor_met"], false, "{report}");
    report.assert_text("error.message", ["a seccomp filter refuses Landlock"]);
    let kills = FILTER.replace("0x00050001", "0x80000000");
    let (_, report) = doctor(&["/usr/bin/python3", "-c", &kills, "444,445,446"]);
    report.assert_text("error.message", ["ends processes that try it"]);
}

/// The syscalls that `doctor --seccomp` adds to Docker's profile, without `clone`, which this test's own processes
/// need.
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

/// Without one of these syscalls a sandbox is refused with a hint to the profile, unless the syscall is optional.
#[test]
#[cfg(target_arch = "x86_64")]
fn run_without_a_profile_syscall_fails_unless_the_syscall_is_optional() {
    let profile = json_of(&run_cli(&["doctor", "--seccomp"]));
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
        let ran = wrap_command(&filter, &ringfence(&["run", &script]))
            .output()
            .unwrap();
        let is_optional = ["pivot_root", "sethostname", "setns"].contains(&name);
        assert_eq!(ran.status.success(), is_optional, "{name}: {ran:?}");
        if !is_optional {
            assert_contains(
                stderr_of(&ran),
                ["a seccomp filter refuses it", "doctor --seccomp"],
            );
        }
    }
}

/// No state directory can be written: neither the default one nor its replacements.
const NO_STATE: [&str; 6] = [
    "unshare",
    "-r",
    "-m",
    "sh",
    "-c",
    // Opened before the mount, as the binary may lie below /tmp.
    "exec 9< \"$0\" && mount -t tmpfs -o ro none /tmp && echo true | /proc/self/fd/9 \"$@\"",
];

#[test]
fn doctor_reports_layers_without_a_state_directory() {
    let homeless = |arguments: &[&str]| {
        let mut command = wrap_command(&NO_STATE, &ringfence(arguments));
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
    let stderr = stderr_of(&ran);
    for text in [report["error"].to_string().as_str(), &stderr] {
        assert_contains(text, ["there is no directory for state", "RINGFENCE_STATE_DIR"]);
    }
}

/// The control: the same engine where native sandboxes are the default.
#[test]
fn doctor_fails_if_the_default_backend_cannot_run_programs() {
    let doctor = |backend: &str| {
        let config = config(&format!(
            "floor: container\nbackend: {backend}\nwarm: {{ready: 0}}\ncontainers: {{enabled: true, socket: /nonexistent/docker.sock}}\n"
        ));
        run_cli(&["doctor", "--json", "--config", &config])
    };
    let output = doctor("native");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let output = doctor("docker");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let report = json_of(&output);
    report.assert_fields(json!({"backend": "docker", "floor_met": true}));
    report["error"].assert_text("message", ["/nonexistent/docker.sock"]);
    report["error"].assert_text("hint", ["`backend: native`"]);
    // Where native sandboxes are off, interpreters of the host are not tried.
    let mut command = ringfence(&["doctor"]);
    command.envs([("RINGFENCE_BACKEND", "docker"), ("RINGFENCE_FLOOR", "container")]);
    let text = stdout_of(
        &command
            .env("RINGFENCE_CONTAINERS_SOCKET", "/nonexistent/s")
            .output()
            .unwrap(),
    );
    assert_contains(
        &text,
        ["runs use: container, met", "default backend: docker, NOT met"],
    );
}
