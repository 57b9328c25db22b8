//! Groups B and D: namespaces, /proc, capabilities, descriptors; the host's IPC and neighbours.

use super::{Attack, attack, fact};

#[rustfmt::skip]
pub const ATTACKS: &[Attack] = &[
    fact("B01", "PROC-1", "no capability is held, and none can be gained", "
status = dict(line.split(':\\t', 1) for line in open('/proc/self/status').read().splitlines() if ':\\t' in line)
bad = [k for k in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb') if int(status[k], 16)]
if status['NoNewPrivs'] != '1': bad.append('NoNewPrivs')
if status['Seccomp'] != '2': bad.append('Seccomp')
reached(bad) if bad else blocked('all zero')"),
    fact("B03", "PROC-1", "no other identity can be taken", "
got = []
for name, args in (('setuid', (0,)), ('setgid', (0,)), ('setresuid', (0, 0, 0)), ('setgroups', ([0],))):
    try: getattr(os, name)(*args); got.append(name)
    except OSError: pass
reached(got) if got else blocked('all')"),
    fact("B03", "PROC-1", "a set-user-id program gains nothing", "
import shutil
shutil.copy('/usr/bin/id', 'id'); os.chmod('id', 0o6755)
out = subprocess.run(['./id', '-u'], capture_output=True, text=True).stdout.strip()
reached(out) if out == '0' else blocked(out)"),
    fact("B04", "ENV-1", "no descriptor of the server is inherited", "
got = {}
for name in os.listdir('/proc/self/fd'):
    try: got[int(name)] = os.readlink('/proc/self/fd/' + name)
    except OSError: pass
bad = {fd: to for fd, to in got.items() if fd > 3 and not to.startswith('/proc/') and '/code/' not in to}
bad.update({fd: to for fd, to in got.items() if fd <= 3 and not to.startswith('pipe:')})
reached(bad) if bad else blocked(sorted(got))"),
    fact("B04", "ENV-2", "no variable of the server is inherited", "
known = {'PATH','HOME','USER','LOGNAME','SHELL','PWD','TMPDIR','LANG','TERM','RINGFENCE_OUTPUT_DIR','PYTHONDONTWRITEBYTECODE','LC_CTYPE','OLDPWD','SHLVL','_','PIP_RETRIES','PIP_DISABLE_PIP_VERSION_CHECK','PIP_BREAK_SYSTEM_PACKAGES','npm_config_fetch_retries','npm_config_update_notifier'}
bad = [name for name in os.environ if name not in known and not (name.startswith('CANARY_') and name != 'CANARY_IN_ENVIRONMENT')]
reached(bad) if bad else blocked('none')"),
    fact("B07", "FS-1", "device files are what they claim", "
import stat
bad = [n for n, d in (('null', (1, 3)), ('zero', (1, 5)), ('full', (1, 7)), ('random', (1, 8)), ('urandom', (1, 9)))
  if not stat.S_ISCHR(os.stat('/dev/' + n).st_mode) or ((os.major(os.stat('/dev/' + n).st_rdev), os.minor(os.stat('/dev/' + n).st_rdev)) != d and n != 'zero')]
reached(bad) if bad else blocked('all')"),
    fact("B09", "RES-2", "limits cannot be raised", "
import resource
got = []
for name in ('RLIMIT_NPROC', 'RLIMIT_NOFILE', 'RLIMIT_FSIZE', 'RLIMIT_CORE', 'RLIMIT_CPU'):
    soft, hard = resource.getrlimit(getattr(resource, name))
    try: resource.setrlimit(getattr(resource, name), (hard + 1, hard + 1))
    except (OSError, ValueError): pass
    if resource.getrlimit(getattr(resource, name)) != (soft, hard): got.append(name)
if os.path.exists('/sys/fs/cgroup'): got.append('cgroup is visible')
reached(got) if got else blocked('all')"),
    attack("B10", "PROC-2", "no process of the host is visible", "
names = [n for n in os.listdir('/proc') if n.isdigit()]
parent = os.getppid()
reached(len(names)) if len(names) > 6 or parent > 2 else blocked(names)"),
    fact("B10", "PROC-2", "pid 1 can be neither read nor changed", "
got = []
for name in ('environ', 'mem', 'maps', 'root', 'cwd', 'exe', 'fd', 'fdinfo', 'ns/user', 'map_files', 'stack', 'auxv', 'io'):
    path = '/proc/1/' + name
    try:
        if name in ('root', 'cwd', 'exe', 'ns/user'): os.readlink(path)
        elif os.path.isdir(path): os.listdir(path)
        else: open(path, 'rb').read(1)
        got.append(name)
    except OSError: pass
reached(got) if got else blocked('all')"),
    attack("B10", "PROC-2", "limits and priorities of pid 1 cannot be changed", "
import resource
pid = 1 if os.getcwd() == '/workspace' else os.fork()
if pid == 0: time.sleep(60); os._exit(0)
got = []
for name, act in (('prlimit', lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (64, 64))),
                  ('setpriority', lambda: os.setpriority(os.PRIO_PROCESS, pid, 19)),
                  ('setpriority of a user', lambda: os.setpriority(os.PRIO_USER, 0, 19)),
                  ('scheduler', lambda: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))),
                  ('affinity', lambda: os.sched_setaffinity(pid, {0})),
                  ('ioprio', lambda: call(251, 1, pid, 3 << 13)[0] == 0 or os.close(-1))):
    try: act(); got.append(name)
    except OSError: pass
if pid > 1: os.kill(pid, 9)
reached(got) if got else blocked('all')"),
    fact("B11", "FS-2", "the runtime cannot be overwritten", "
got = []
for path in ('/proc/self/exe', '/proc/1/exe', sys.executable, os.__file__):
    for flags in (os.O_WRONLY, os.O_RDWR | os.O_TRUNC):
        try: os.close(os.open(path, flags)); got.append(path)
        except OSError: pass
    for change in (lambda: os.utime(path), lambda: os.chmod(path, 0o777), lambda: os.truncate(path, 0), lambda: os.unlink(path), lambda: os.setxattr(path, 'user.x', b'1'), lambda: os.link(path, '/workspace/l')):
        try: change(); got.append(path)
        except OSError: pass
reached(got) if got else blocked('all')"),
    attack("B13", "PROC-3", "kernel files in /proc are empty", "
got = []
for name in ('kcore', 'kallsyms', 'kmsg', 'keys', 'key-users', 'timer_list', 'sched_debug', 'interrupts', 'modules', 'cmdline', 'iomem', 'ioports', 'slabinfo', 'vmallocinfo', 'sysrq-trigger', 'config.gz', 'partitions', 'diskstats', 'swaps', 'locks', 'consoles', 'devices'):
    try:
        if open('/proc/' + name, 'rb').read(64): got.append(name)
    except OSError: pass
for name in ('bus', 'irq', 'fs', 'acpi', 'driver', 'tty', 'sysvipc', 'pressure'):
    try: got += os.listdir('/proc/' + name)
    except OSError: pass
reached(got) if got else blocked('all')"),
    attack("B13", "PROC-3", "/sys and the debug file systems are absent", "
got = [path for path in ('/sys/kernel', '/sys/fs', '/sys/class', '/sys/devices', '/sys/kernel/debug') if os.path.exists(path)]
reached(got) if got else blocked('absent')"),
    attack("B13", "PROC-3", "the host's file counts are not visible", "
got = []
for name in ('file-nr', 'inode-nr', 'inode-state', 'dentry-state', 'aio-nr'):
    try: got.append(open('/proc/sys/fs/' + name).read())
    except OSError: pass
reached(got) if got else blocked('all')"),
    fact("B13", "PROC-3", "settings of the kernel cannot be written", "
got = []
for base, _, names in os.walk('/proc/sys'):
    for name in names:
        try: os.close(os.open(os.path.join(base, name), os.O_WRONLY)); got.append(name)
        except OSError: pass
reached(got) if got else blocked('all')"),
    fact("B15", "KERN-6", "device nodes cannot be made", "
import stat
got = []
for kind, device in ((stat.S_IFCHR, os.makedev(1, 1)), (stat.S_IFBLK, os.makedev(8, 0)), (stat.S_IFCHR, os.makedev(1, 3))):
    try: os.mknod('node', 0o666 | kind, device); got.append(device)
    except OSError: pass
reached(got) if got else blocked('EPERM')"),
    attack("B16", "NET-1", "abstract sockets of the host cannot be reached", "
attempt(lambda: socket.socket(socket.AF_UNIX).connect('\\0' + os.environ['CANARY_ABSTRACT']) or 'connected')"),
    attack("D01", "NET-2", "unix sockets of the host cannot be reached", "
attempt(lambda: socket.socket(socket.AF_UNIX).connect(HOME + '/host.sock') or 'connected')"),
    with_workspace("D01", "a unix socket in the host's workspace cannot be reached", "
attempt(lambda: socket.socket(socket.AF_UNIX).connect('host.sock') or 'connected')"),
    with_workspace("D03", "a datagram of a pair cannot be addressed to a socket in the host's workspace", "
def send():
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    return a.sendto(b'x', 'host.dgram')
attempt(send)"),
    attack("D03", "NET-2", "datagrams to unix sockets of the host do not arrive", "
attempt(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'x', HOME + '/host.dgram'))"),
    attack("D07", "NET-3", "the host's loopback cannot be reached by TCP", "
attempt(lambda: socket.create_connection(('127.0.0.1', int(os.environ['CANARY_TCP'])), 2) and 'connected')"),
    fact("D07", "NET-3", "the host's loopback cannot be reached by UDP", "
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
try: s.sendto(b'x', ('127.0.0.1', int(os.environ['CANARY_UDP'])))
except OSError as error: pass
blocked('the canary tells')"),
    fact("D07", "NET-3", "there is no interface but loopback, and no route out", "
names = [name for _, name in socket.if_nameindex()]
got = [] if names == ['lo'] else [names]
for address in ('198.51.100.7', '8.8.8.8', '169.254.169.254', '10.0.0.1'):
    try: socket.create_connection((address, 80), 1); got.append(address)
    except OSError: pass
try: socket.create_connection(('example.com', 25), 1); got.append('name')
except OSError: pass
try: s = socket.socket(socket.AF_INET, socket.SOCK_RAW, 1); got.append('raw')
except OSError: pass
reached(got) if got else blocked(names)"),
    fact("D08", "PROC-4", "killing every process kills only the own sandbox", "
pid = os.fork()
if pid == 0:
    for target in list(range(2, 400)):
        try: os.kill(target, 0)
        except OSError: pass
    os._exit(0)
os.waitpid(pid, 0)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
try: os.kill(-1, signal.SIGTERM)
except OSError: pass
try: os.kill(1, signal.SIGKILL)
except OSError: pass
time.sleep(0.1)
blocked('still here')"),
    fact("D09", "PROC-4", "a sandbox finds nothing of another", "
import glob
got = [p for p in glob.glob('/tmp/*') + glob.glob('/dev/shm/*') + glob.glob('/var/tmp/*') + glob.glob('/workspace/*') + glob.glob('/output/*') + glob.glob('/home/sandbox/*')]
open('/tmp/left', 'w').write('x'); open('/dev/shm/left', 'w').write('x'); open('/workspace/left', 'w').write('x')
reached(got) if got else blocked('empty')"),
    fact("D09", "PROC-4", "message queues of the host are not visible", "
out = subprocess.run(['ipcs', '-a'], capture_output=True, text=True).stdout
rows = [line for line in out.splitlines() if line.startswith('0x')]
reached(rows) if rows else blocked('none')"),
    fact("D11", "FS-2", "shared read-only files cannot be changed through the page cache", "
got = []
for path in ('/usr/bin/env', '/etc/ld.so.cache'):
    fd = os.open(path, os.O_RDONLY)
    try: m = mmap.mmap(fd, 4096, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ | mmap.PROT_WRITE); got.append(path)
    except (OSError, ValueError): pass
    r, w = os.pipe()
    os.splice(fd, w, 16) if hasattr(os, 'splice') else None
reached(got) if got else blocked('all')"),
];

const fn with_workspace(id: &'static str, name: &'static str, probe: &'static str) -> Attack {
    super::with(fact(id, "NET-2", name, probe), &["--workspace", "{home}:ro"])
}
