//! The root that a template shares with its sandboxes: what the template writes is in none of them, and nothing of the
//! root can be written, not even with every capability that a sandbox's own user namespace gives.

use crate::client::*;
use std::{path::PathBuf, process::Command};

/// A template, and the process of a sandbox that was made from it and waits for its claim.
fn template_and_fork(server: &mut Server) -> (u32, u32) {
    server.wait_until_warm("python");
    let parent = |pid: u32| stat_of(pid, 4).and_then(|parent| parent.parse().ok());
    let mut found = None;
    eventually(|| {
        let all = descendants_with(server.child.id(), "_ringfence_template");
        let of = |fork: &u32| Some((parent(*fork).filter(|parent| all.contains(parent))?, *fork));
        found = all.iter().find_map(of);
        found.is_some()
    });
    found.unwrap()
}

/// Directories that a template may write, and so may its sandboxes, each its own.
const WRITABLE: [&str; 5] = ["tmp", "home/sandbox", "output", "dev/shm", "workspace"];

/// claim: [WARM-4]
#[test]
fn what_a_template_writes_is_in_no_sandbox() {
    if !is_root() {
        return;
    }
    let mut server = Server::start();
    let (template, _) = template_and_fork(&mut server);
    for directory in WRITABLE {
        let path = format!("/{directory}/planted-canary");
        // The positive control: there it is, for who looks at the template.
        assert_eq!(with_all_power(template, &format!("write({path:?})")), "done");
        assert!(PathBuf::from(format!("/proc/{template}/root{path}")).exists());
    }
    let code = "import os\nfound = []\nfor top, names, files in os.walk('/', followlinks=False):\n    \
        names[:] = [n for n in names if os.path.join(top, n) not in ('/proc', '/usr')]\n    \
        found += [os.path.join(top, f) for f in files if 'canary' in f]\n\
        [found, [d for d in ('/tmp', '/home/sandbox', '/output', '/dev/shm', '/workspace') if not os.access(d, os.W_OK)]]";
    for _ in 0..6 {
        // Those that were ready before, and those that are made since.
        server.wait_until_warm("python");
        let done = server.run(json!({"code": code}));
        assert_eq!(done["result"], json!([[], []]), "{done}");
    }
}

/// Enters the namespaces of a process with every capability there, as its user, and without its filters.
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

fn with_all_power(pid: u32, act: &str) -> String {
    let mut command = Command::new("python3");
    let output = command
        .args(["-c", ENTER, &pid.to_string(), act])
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&said).trim().to_owned()
}

/// claim: [WARM-4]
#[test]
fn the_root_that_sandboxes_share_cannot_be_written_with_all_capabilities_of_one() {
    if !is_root() {
        return;
    }
    let mut server = Server::start();
    let (_, fork) = template_and_fork(&mut server);
    // The positive control: who is inside has the power to mount, and to take away what is the sandbox's own.
    for allowed in [
        "mount(b'own', b'/output', b'tmpfs', 0); write('/output/x'); umount(b'/output')",
        "write('/tmp/own'); umount(b'/tmp'); assert not os.path.exists('/tmp/own')",
    ] {
        assert_eq!(with_all_power(fork, allowed), "done", "{allowed}");
    }
    for refused in [
        // Now that nothing covers it any more.
        "write('/tmp/x')",
        "write('/etc/x')",
        "mount(None, b'/', None, REMOUNT | BIND | NODEV)",
        "mount(None, b'/usr', None, REMOUNT | BIND | NODEV)",
        "mount(None, b'/', None, REMOUNT)",
        "umount(b'/usr')",
        "umount(b'/dev/null')",
        // What lies below it would come to light.
        "mount(b'/etc', b'/output', None, BIND)",
    ] {
        let said = with_all_power(fork, refused);
        let expected = [
            "Read-only file system",
            "Operation not permitted",
            "Invalid argument",
        ];
        assert!(expected.contains(&said.as_str()), "{refused}: {said}");
    }
    // Another sandbox is as it was.
    let done: Value = server.run(json!({"code": "import os; os.listdir('/tmp')"}));
    assert_eq!(done["result"], json!([]), "{done}");
}

/// claim: [WARM-2]
///
/// What stays with a file or a device that other sandboxes and the host have, too, also behind a read-only mount.
#[test]
fn a_program_leaves_no_mark_on_what_others_have_too() {
    let code = "import fcntl, os, struct\ndef tried(act):\n    try:\n        act()\n        return 0\n    \
        except OSError as error:\n        return error.errno\nown = os.open('mark', os.O_CREAT | os.O_RDWR)\n\
        hints = [tried(lambda: fcntl.fcntl(own, hint, struct.pack('Q', 4))) for hint in (1036, 1038)]\n\
        devices = []\n\
        def use():\n    with open('/dev/null', 'w') as device:\n        device.write('x')\n\
        answer = [hints, tried(lambda: os.utime('mark')), tried(use)]\n";
    let devices = "answer.append([tried(lambda: os.utime('/dev/' + name)) for name in ('null', 'zero', 'full', 'urandom', 'tty')])\n";
    let mut server = Server::start();
    let done = server.run(json!({"code": format!("{code}{devices}answer")}));
    done.shows(json!({"result": [[1, 1], 0, 0, [30, 30, 30, 30, 30]]}));
    // The positive control: without the walls the first hint is taken. The second is one that newer kernels lack.
    let scratch = TempDir::new("mark");
    let mut outside = Command::new("/usr/bin/python3");
    outside
        .args(["-c", &format!("{code}print(hints[0])")])
        .current_dir(&scratch.0);
    let said = outside.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stdout), "0\n", "{said:?}");
}
