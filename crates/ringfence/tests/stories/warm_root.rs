//! The root directory that a template shares with its sandboxes: writes of the template appear in no sandbox, and the
//! root cannot be written, not even with all capabilities in a sandbox's user namespace.

use crate::client::*;
use std::{path::PathBuf, process::Command};

/// A template, and a fork of it that waits for its claim.
fn template_and_fork(server: &mut Server) -> (u32, u32) {
    server.wait_until_warm("python");
    let parent = |pid: u32| proc_stat(pid, 4).and_then(|parent| parent.parse().ok());
    let mut found = None;
    eventually(|| {
        let all = descendants_with(server.child.id(), "_ringfence_template");
        let of = |fork: &u32| Some((parent(*fork).filter(|parent| all.contains(parent))?, *fork));
        found = all.iter().find_map(of);
        found.is_some()
    });
    found.unwrap()
}

/// Directories that are writable in a template and, as separate copies, in each of its sandboxes.
const WRITABLE: [&str; 5] = ["tmp", "home/sandbox", "output", "dev/shm", "workspace"];

/// claim: [WARM-4]
#[test]
fn template_writes_appear_in_no_sandbox() {
    if !is_root() {
        return;
    }
    let mut server = Server::start();
    let (template, _) = template_and_fork(&mut server);
    for directory in WRITABLE {
        let path = format!("/{directory}/planted-canary");
        // The positive control: the file is visible in the template's root.
        assert_eq!(
            run_with_all_capabilities(template, &format!("write({path:?})")),
            "done"
        );
        assert!(PathBuf::from(format!("/proc/{template}/root{path}")).exists());
    }
    let code = "import os\nfound = []\nfor top, names, files in os.walk('/', followlinks=False):\n    \
        names[:] = [n for n in names if os.path.join(top, n) not in ('/proc', '/usr')]\n    \
        found += [os.path.join(top, f) for f in files if 'canary' in f]\n\
        [found, [d for d in ('/tmp', '/home/sandbox', '/output', '/dev/shm', '/workspace') if not os.access(d, os.W_OK)]]";
    for _ in 0..6 {
        // Sandboxes that were warm before the write, and later ones.
        server.wait_until_warm("python");
        let done = server.run(json!({"code": code}));
        assert_eq!(done["result"], json!([[], []]), "{done}");
    }
}

/// Enters the namespaces of a process as its user, with all capabilities and without its seccomp filters.
const ENTER: &str = "
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def checked(result):
    if result: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
def write(path): open(path, 'w').close()
def mount(source, target, kind, flags): checked(libc.mount(source, target, kind, flags, None))
def umount(path): checked(libc.umount2(path, 0))
NODEV, REMOUNT, BIND = 4, 32, 4096
pid = sys.argv[1]
owner = os.stat(f'/proc/{pid}/root/tmp').st_uid
inside = 1000 if open(f'/proc/{pid}/uid_map').read().split()[0] == '1000' else owner
for space in [os.open(f'/proc/{pid}/ns/{name}', 0) for name in ('user', 'mnt')]: checked(libc.setns(space, 0))
os.setresgid(inside, inside, inside); os.setresuid(inside, inside, inside)
try: exec(sys.argv[2]); print('done')
except OSError as error: print(os.strerror(error.errno))
";

fn run_with_all_capabilities(pid: u32, act: &str) -> String {
    let mut command = Command::new("python3");
    let output = command
        .args(["-c", ENTER, &pid.to_string(), act])
        .output()
        .unwrap();
    let streams = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&streams).trim().to_owned()
}

/// claim: [WARM-4]
#[test]
fn shared_root_cannot_be_written_with_all_capabilities_of_a_sandbox() {
    if !is_root() {
        return;
    }
    let mut server = Server::start();
    let (_, fork) = template_and_fork(&mut server);
    // The positive control: with these capabilities it can mount, and unmount the sandbox's own mounts.
    for allowed in [
        "mount(b'own', b'/output', b'tmpfs', 0); write('/output/x'); umount(b'/output')",
        "write('/tmp/own'); umount(b'/tmp'); assert not os.path.exists('/tmp/own')",
    ] {
        assert_eq!(run_with_all_capabilities(fork, allowed), "done", "{allowed}");
    }
    for refused in [
        // The shared directory, which the unmounted one covered.
        "write('/tmp/x')",
        "write('/etc/x')",
        "mount(None, b'/', None, REMOUNT | BIND | NODEV)",
        "mount(None, b'/usr', None, REMOUNT | BIND | NODEV)",
        "mount(None, b'/', None, REMOUNT)",
        "umount(b'/usr')",
        "umount(b'/dev/null')",
        // It could uncover files below another mount.
        "mount(b'/etc', b'/output', None, BIND)",
    ] {
        let error = run_with_all_capabilities(fork, refused);
        let expected = [
            "Read-only file system",
            "Operation not permitted",
            "Invalid argument",
        ];
        assert!(expected.contains(&error.as_str()), "{refused}: {error}");
    }
    // Other sandboxes are unchanged.
    let done: Value = server.run(json!({"code": "import os; os.listdir('/tmp')"}));
    assert_eq!(done["result"], json!([]), "{done}");
}

/// claim: [WARM-2]
///
/// Write hints and timestamps persist on a file or device shared with other sandboxes and the host, even on a read-only
/// mount.
#[test]
fn program_cannot_mark_shared_files_or_devices() {
    let code = "import fcntl, os, struct\ndef tried(act):\n    try:\n        act()\n        return 0\n    \
        except OSError as error:\n        return error.errno\nown = os.open('mark', os.O_CREAT | os.O_RDWR)\n\
        hints = [tried(lambda: fcntl.fcntl(own, hint, struct.pack('Q', 4))) for hint in (1036, 1038)]\n\
        devices = []\n\
        def use():\n    with open('/dev/null', 'w') as device:\n        device.write('x')\n\
        answer = [hints, tried(lambda: os.utime('mark')), tried(use)]\n";
    let devices = "answer.append([tried(lambda: os.utime('/dev/' + name)) for name in ('null', 'zero', 'full', 'urandom', 'tty')])\n";
    let mut server = Server::start();
    let done = server.run(json!({"code": format!("{code}{devices}answer")}));
    done.assert_fields(json!({"result": [[1, 1], 0, 0, [30, 30, 30, 30, 30]]}));
    // The positive control: outside a sandbox the first hint is accepted. Newer kernels lack the second.
    let scratch = TempDir::new("mark");
    let mut outside = Command::new("/usr/bin/python3");
    outside
        .args(["-c", &format!("{code}print(hints[0])")])
        .current_dir(&scratch.0);
    let output = outside.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0\n", "{output:?}");
}
