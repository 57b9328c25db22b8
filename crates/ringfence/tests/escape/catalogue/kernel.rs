//! Group A: the kernel's surface.

use super::{Attack, attack, fact, killed};

#[rustfmt::skip]
pub const ATTACKS: &[Attack] = &[
    attack("A01", "KERN-1", "AF_ALG sockets cannot be made", "attempt(lambda: socket.socket(38, socket.SOCK_SEQPACKET, 0).fileno())"),
    attack("A03", "KERN-1", "netlink beyond routing cannot be reached", "attempt(lambda: socket.socket(16, socket.SOCK_RAW, 6).fileno())"),
    attack("A03", "KERN-1", "netlink audit cannot be reached", "attempt(lambda: socket.socket(16, socket.SOCK_RAW, 9).fileno())"),
    attack("A03", "KERN-1", "no socket takes packets of IPsec", "
attempt(lambda: [socket.socket(socket.AF_INET, socket.SOCK_DGRAM).setsockopt(level, 100, 2) for level in (17, 136)])"),
    attack("A05", "KERN-1", "AF_VSOCK sockets cannot be made", "attempt(lambda: socket.socket(40, socket.SOCK_STREAM, 0).fileno())"),
    attack("A05", "KERN-1", "AF_PACKET sockets cannot be made", "attempt(lambda: socket.socket(17, socket.SOCK_RAW, 0x300).fileno())"),
    attack("A05", "KERN-1", "no other socket family can be made", "
got = []
for family in range(0, 46):
    if family in (1, 2, 10, 16): continue
    for kind in (1, 2, 3, 5):
        try: socket.socket(family, kind, 0); got.append(family)
        except OSError: pass
reached(got) if got else blocked('all')"),
    attack("A05", "KERN-1", "upper bits of the family do not help", "door(41, args=(0x100000026, 5, 0))"),
    attack("A07", "KERN-2", "io_uring cannot be set up", "door(425, 426, 427)"),
    killed(attack("A09", "KERN-3", "32-bit system calls end the process", "
code = mmap.mmap(-1, 4096, prot=7)
code.write(b'\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3')  # mov eax, 20 (getpid of i386); int 0x80; ret
address = ctypes.addressof(ctypes.c_char.from_buffer(code))
result = ctypes.CFUNCTYPE(ctypes.c_int)(address)()
reached(result) if result > 0 else blocked(result)")),
    killed(attack("A09", "KERN-3", "x32 system calls end the process or do not exist", "
result, error = call(0x40000000 + 39)
reached(result) if result > 0 else blocked(error)")),
    attack("A11", "KERN-4", "clone cannot make a user namespace", "
result, error = call(56, 0x10000000 | 17, 0, 0, 0, 0)
if result == 0: os._exit(0)
reached(result) if result > 0 else blocked(error)"),
    attack("A11", "PROC-5", "clone cannot make a child of the sandbox's parent", "
result, error = call(56, 0x8000 | 17, 0, 0, 0, 0)
if result == 0: os._exit(0)
reached(result) if result > 0 else blocked(error)"),
    attack("A11", "KERN-4", "clone3 cannot make a user namespace", "
arguments = (ctypes.c_uint64 * 11)(0x10000000, 0, 0, 0, 17)
result, error = call(435, arguments, ctypes.sizeof(arguments))
if result == 0: os._exit(0)
reached(result) if result > 0 else blocked(error)"),
    attack("A11", "KERN-4", "unshare cannot make a namespace", "
for flag in (0x10000000, 0x00020000, 0x20000000, 0x40000000, 0x08000000, 0x04000000, 0x02000000, 0x80):
    pid = os.fork()
    if pid == 0:
        os._exit(0 if call(272, flag)[0] == 0 else 1)
    if os.waitpid(pid, 0)[1] == 0: reached(hex(flag)); break
else: blocked('all flags')"),
    attack("A11", "KERN-4", "setns cannot be used", "
pid = os.fork()
if pid == 0:
    try: os._exit(0 if call(308, os.open('/proc/self/ns/user', 0), 0)[1] not in SHUT else 1)
    except OSError: os._exit(1)
reached() if os.waitpid(pid, 0)[1] == 0 else blocked()"),
    attack("A13", "KERN-5", "ptrace cannot be used", "
pid = os.fork()
if pid == 0: time.sleep(5); os._exit(0)
result, error = call(101, 0x4206, pid, 0, 0)  # PTRACE_SEIZE
os.kill(pid, 9); reached(result) if result == 0 else blocked(error)"),
    attack("A13", "KERN-5", "a process's memory cannot be read by another", "
buffer = ctypes.create_string_buffer(b'x' * 8)
class iovec(ctypes.Structure): _fields_ = [('base', ctypes.c_void_p), ('length', ctypes.c_size_t)]
here = iovec(ctypes.addressof(buffer), 8); there = iovec(ctypes.addressof(buffer), 8)
result, error = call(310, os.getpid(), ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
reached(result) if result > 0 else blocked(error)"),
    attack("A15", "KERN-5", "pidfds cannot be opened", "door(434, args=(1, 0))"),
    attack("A15", "KERN-5", "descriptors of others cannot be taken", "door(438, args=(0, 0, 0))"),
    fact("A17", "FS-4", "a program in memory runs under the same rules", "
try:
    fd = os.memfd_create('x', 0)
    os.write(fd, open('/usr/bin/id', 'rb').read())
    out = subprocess.run(['/proc/self/fd/%d' % fd, '-u'], pass_fds=[fd], capture_output=True, text=True).stdout.strip()
    reached(out) if out != '1000' else blocked('runs as ' + out)
except OSError as error: blocked(errno.errorcode[error.errno])
except AttributeError: blocked('no memfd')"),
    attack("A19", "KERN-6", "the new mount API is blocked", "
door(430, args=(ctypes.c_char_p(b'tmpfs'), 0))"),
    attack("A19", "KERN-6", "no system call of the mount family is allowed", "door(165, 166, 155, 161, 428, 429, 431, 432, 433, 442)"),
    attack("A21", "KERN-7", "no seccomp listener can be stacked", "
program = (ctypes.c_uint64 * 1)(0x7fff000000000006)
class fprog(ctypes.Structure): _fields_ = [('len', ctypes.c_ushort), ('filter', ctypes.c_void_p)]
libc.prctl(38, 1, 0, 0, 0)
result, error = call(317, 1, 8, ctypes.byref(fprog(1, ctypes.addressof(program))))
reached(result) if result >= 0 else blocked(error)"),
    fact("A21", "KERN-7", "a permissive filter relaxes nothing", "
program = (ctypes.c_uint64 * 1)(0x7fff000000000006)
class fprog(ctypes.Structure): _fields_ = [('len', ctypes.c_ushort), ('filter', ctypes.c_void_p)]
result, error = call(317, 1, 0, ctypes.byref(fprog(1, ctypes.addressof(program))))
door(425)"),
    attack("A23", "KERN-8", "nothing can be typed into a terminal", "
import pty, fcntl
leader, follower = pty.openpty()
pid = os.fork()
if pid == 0:
    os.setsid(); fcntl.ioctl(follower, 0x540e, 0)
    results = [call(16, follower, request, ctypes.c_char_p(b'x')) for request in (0x5412, 0x100005412)]
    os._exit(0 if any(result == 0 or error not in SHUT for result, error in results) else 1)
reached() if os.waitpid(pid, 0)[1] == 0 else blocked('EPERM')"),
    attack("A24", "KERN-2", "bpf, perf, userfaultfd and keys are blocked", "door(321, 298, 323, 248, 249, 250)"),
    attack("A24", "KERN-2", "modules, kexec, reboot and the clock are blocked", "door(175, 176, 313, 246, 320, 164, 227, 305, 159, 163, 103)"),
    attack("A24", "KERN-2", "handles, quotas, swap and fanotify are blocked", "door(303, 304, 179, 167, 168, 300, 443)"),
    attack("A25", "KERN-2", "processes of others cannot be compared, advised or moved", "door(312, 440, 256, 279)"),
    attack("A26", "KERN-2", "address randomisation cannot be switched off", "
result, error = call(135, 0x0040000)
reached(result) if result >= 0 else blocked(error)"),
];
