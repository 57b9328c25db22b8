//! Group E: resource exhaustion. Bombs never run outside; inside, the probe reports that it was stopped, or is killed.

use super::{Attack, attack, fact, killed, with};

#[rustfmt::skip]
pub const ATTACKS: &[Attack] = &[
    with(fact("E01", "RES-1", "a fork bomb meets its limit", "
count = 0
try:
    while count < 500:
        if os.fork() == 0: time.sleep(30); os._exit(0)
        count += 1
except OSError: pass
reached(count) if count >= 40 else blocked(count)"), &["--processes", "32"]),
    with(fact("E01", "RES-1", "a thread bomb meets its limit", "
import threading
count = 0
try:
    while count < 500:
        threading.Thread(target=time.sleep, args=(30,), daemon=True).start(); count += 1
except RuntimeError: pass
print('BLOCKED' if count < 40 else 'REACHED', count, flush=True); os._exit(0)"), &["--processes", "32"]),
    fact("E01", "PROC-5", "a daemon does not outlive the run", "
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGHUP, signal.SIG_IGN)
        time.sleep(15); reached('outlived the run')
    os._exit(0)
blocked('main has ended')"),
    killed(with(fact("E02", "RES-3", "anonymous memory meets its limit", "
blocks = []
for _ in range(100): blocks.append(bytearray(10 * 2**20))
reached('1000 MiB')"), &["--memory", "128m"])),
    killed(with(fact("E02", "RES-3", "memory of many children meets one limit", "
for _ in range(10):
    if os.fork() == 0:
        block = bytearray(40 * 2**20)
        for i in range(0, len(block), 4096): block[i] = 1
        time.sleep(5); os._exit(0)
time.sleep(5); reached('400 MiB')"), &["--memory", "128m"])),
    killed(with(fact("E02", "RES-3", "shared memory meets its limit", "
blocks = []
try:
    for _ in range(10):
        block = mmap.mmap(-1, 100 * 2**20); blocks.append(block)
        for i in range(0, len(block), 4096): block[i] = 1
    reached('1000 MiB')
except OSError as error: blocked(errno.errorcode[error.errno])"), &["--memory", "128m"])),
    killed(with(fact("E02", "RES-3", "hidden shared memory meets its limit", "
blocks = []
try:
    for _ in range(1000):
        block = mmap.mmap(-1, 2**20); blocks.append(block)
        for i in range(0, len(block), 4096): block[i] = 1
        block.madvise(mmap.MADV_DONTNEED)
    reached('1000 MiB')
except OSError as error: blocked(errno.errorcode[error.errno])"), &["--memory", "128m"])),
    killed(with(fact("E02", "RES-3", "memory of threads whose leader has ended meets its limit", "
import threading
def work():
    time.sleep(.3)
    blocks = []
    for _ in range(40): blocks.append(bytearray(25 * 2**20))
    reached('1000 MiB')
threading.Thread(target=work).start()
libc.syscall(60, 0)"), &["--memory", "128m"])),
    killed(with(fact("E02", "RES-3", "memory behind a thread's own descriptor table is counted", "
import threading
held = []
def work():
    if libc.syscall(436, 2000, 2001, 2) < 0: return
    for _ in range(400):
        a, b = socket.socketpair()
        a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20); a.setblocking(False)
        held.append((a, b))
        try:
            while True: a.send(b'x' * 4096)
        except OSError: pass
threads = [threading.Thread(target=work) for _ in range(6)]
for thread in threads: thread.start()
for thread in threads: thread.join()
reached(len(held)) if held else blocked('no descriptors of its own')"), &["--memory", "128m"])),
    killed(with(fact("E02", "RES-3", "memory is counted even if the list of mappings is too long to read", "
path = '/tmp/' + '/'.join(['d' * 250] * 15)
os.makedirs(path, exist_ok=True)
with open(path + '/f', 'wb') as file: file.write(b'x' * 8192)
fd = os.open(path + '/f', os.O_RDONLY)
kept = [mmap.mmap(fd, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ) for _ in range(4000)]
try:
    for _ in range(1000):
        block = mmap.mmap(-1, 2**20); kept.append(block)
        for i in range(0, len(block), 4096): block[i] = 1
    reached('1000 MiB')
except OSError as error: blocked(errno.errorcode[error.errno])"), &["--memory", "128m"])),
    killed(with(fact("E02", "RES-3", "huge pages spliced into pipes are counted", "
held = []
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
for _ in range(32):
    r, w = os.pipe(); held.append((r, w))
    for _ in range(16):
        at = libc.mmap(None, 4 << 20, 3, 0x22, -1, 0)
        aligned = (at + (2 << 20) - 1) & ~((2 << 20) - 1)
        libc.madvise(ctypes.c_void_p(aligned), ctypes.c_size_t(2 << 20), 14)
        ctypes.memset(aligned, 1, 2 << 20)
        part = struct.pack('=QQ', aligned, 4096)
        if libc.syscall(278, w, part, 1, 1) < 0:
            blocked('cannot be lent'); sys.exit()
        libc.munmap(ctypes.c_void_p(at), ctypes.c_size_t(4 << 20))
reached('1000 MiB')"), &["--memory", "128m"])),
    killed(with(fact("E02", "RES-3", "files in memory meet their limit", "
try:
    for number in range(100):
        fd = os.memfd_create('x')
        for _ in range(10): os.write(fd, b'x' * 2**20)
    reached('1000 MiB')
except OSError as error: blocked(errno.errorcode[error.errno])"), &["--memory", "128m"])),
    killed(with(fact("E02", "RES-4", "the private disk has a size limit", "
try:
    for number in range(100): open('/tmp/%d' % number, 'wb').write(b'x' * 10 * 2**20)
    reached('1000 MiB')
except OSError as error: blocked(errno.errorcode[error.errno])"), &["--disk", "64m"])),
    killed(with(fact("E02", "RES-4", "/dev/shm and the workspace share one disk limit", "
try:
    for number in range(20):
        for place in ('/dev/shm', '/workspace', '/output', '/home/sandbox', '/tmp'): open('%s/%d' % (place, number), 'wb').write(b'x' * 2**20)
    reached('100 MiB')
except OSError as error: blocked(errno.errorcode[error.errno])"), &["--disk", "64m"])),
    killed(with(fact("E02", "RES-3", "page tables count", "
maps = []
for _ in range(500):
    area = mmap.mmap(-1, 2**30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, prot=mmap.PROT_READ); maps.append(area)
    for i in range(0, 2**30, 2**21): area[i]
reached('1000 MiB of page tables')"), &["--memory", "128m"])),
    killed(with(fact("E02", "RES-3", "socket buffers count", "
pairs = []
try:
    for _ in range(8):
        if os.fork() == 0:
            for _ in range(490):
                a, b = socket.socketpair(); a.setblocking(False); pairs.append((a, b))
                try:
                    while True: a.send(b'x' * 65536)
                except BlockingIOError: pass
            time.sleep(5); os._exit(0)
    time.sleep(6); reached('all filled')
except OSError as error: blocked(errno.errorcode[error.errno])"), &["--memory", "64m"])),
    killed(with(fact("E02", "RES-3", "queues of netlink sockets are counted, although no cgroup counts them", "
kept, question = [], struct.pack('=IHHIIBxxx', 20, 18, 0x301, 1, 0, 0)
try:
    for _ in range(30):
        if os.fork() == 0:
            for _ in range(900):
                s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); s.setblocking(False); kept.append(s)
                try:
                    for _ in range(200): s.send(question)
                except OSError: pass
            time.sleep(20); os._exit(0)
    time.sleep(10); reached('all filled')
except OSError as error: blocked(errno.errorcode[error.errno])"), &["--memory", "64m", "--timeout", "30"])),
    killed(with(fact("E02", "RES-3", "queues of datagram sockets count", "
kept = []
try:
    for _ in range(8):
        if os.fork() == 0:
            sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); sender.setblocking(False)
            for _ in range(900):
                s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('127.0.0.1', 0)); kept.append(s)
                for _ in range(60):
                    try: sender.sendto(b'x' * 8000, s.getsockname())
                    except OSError: break
            time.sleep(20); os._exit(0)
    time.sleep(10); reached('all filled')
except OSError as error: blocked(errno.errorcode[error.errno])"), &["--memory", "64m", "--timeout", "30"])),
    killed(with(fact("E02", "RES-3", "data on unaccepted connections with closed senders is counted", "
listeners = []
for _ in range(40):
    l = socket.socket(); l.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1 << 30)
    l.bind(('127.0.0.1', 0)); l.listen(4096); listeners.append(l)
    for _ in range(128):
        c = socket.socket(); c.setblocking(False)
        try: c.connect(l.getsockname())
        except BlockingIOError: pass
        try:
            for _ in range(64): c.send(b'x' * 65536)
        except OSError: pass
        c.close()
pages = [int(line.split()[-1]) for line in open('/proc/net/sockstat') if line.startswith('TCP:')][0]
time.sleep(1)
reached('%d MiB' % (pages >> 8)) if pages >> 8 > 16 else blocked(pages)"), &["--memory", "64m"])),
    killed(with(fact("E02", "RES-3", "data in an error queue is counted", "
kept, l = [], socket.socket()
l.bind(('127.0.0.1', 0)); l.listen(10)
for _ in range(450):
    c = socket.socket(); c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1 << 30); c.connect(l.getsockname())
    a, _ = l.accept(); a.setblocking(False); c.setblocking(False); kept.append((c, a))
    c.setsockopt(socket.SOL_SOCKET, 37, struct.pack('I', 2 | 16 | 256 | 512))
    for _ in range(60):
        try: c.send(b'y' * 16384)
        except OSError: pass
        try:
            while a.recv(1 << 20): pass
        except OSError: pass
time.sleep(1); reached(len(kept))"), &["--memory", "64m"])),
    killed(with(fact("E02", "RES-12", "record locks are counted, although no cgroup counts them", "
import fcntl
made, kept = 0, []
for number in range(900):
    kept.append(open('/tmp/%d' % number, 'w'))
    for place in range(1000): fcntl.lockf(kept[-1], fcntl.LOCK_EX, 1, 2 * place); made += 1
    if number % 100 == 0: print(made, flush=True)
time.sleep(4); reached(made)"), &["--memory", "64m"])),
    attack("E02", "RES-12", "no lock belongs to an open file instead of a process", "
import fcntl, tempfile
file, lock = tempfile.TemporaryFile(), struct.pack('hhqqi4x', fcntl.F_WRLCK, 0, 0, 1, 0)
tried = []
for command in (37, 38):
    try: fcntl.fcntl(file, command, lock); tried.append('done')
    except OSError as error: tried.append(errno.errorcode[error.errno])
blocked(tried) if tried == ['EINVAL'] * 2 else reached(tried)"),
    attack("E02", "RES-12", "no descriptor table is shared by processes, whose locks would count for each", "
result, error = call(56, 0x400 | 17, 0, 0, 0, 0)
if result == 0: os._exit(0)
reached(result) if result > 0 else blocked(error)"),
    attack("E02", "RES-3", "socket options cannot be large or fill a table that the whole host shares", "
try: socket.socket().close()
except OSError: blocked('there are no sockets'); sys.exit()
tried = []
for level, option, value in ((41, 6, struct.pack('QII', 8192, 9999, 1) + b'x' * 8176), (41, 32, struct.pack('16sIBBHHHI', bytes(15) + b'\\x01', 0x0100beef, 0, 255, 1, 0, 0, 0))):
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    try: s.setsockopt(level, option, value); tried.append('done')
    except OSError as error: tried.append(errno.errorcode[error.errno])
blocked(tried) if all(word == 'EPERM' for word in tried) else reached(tried)"),
    attack("E02", "RES-3", "the queue of a socket cannot be enlarged", "
try: socket.socket().close()
except OSError: blocked('there are no sockets'); sys.exit()
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
before = s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096); s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
after = s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
reached(after) if after != before else blocked(before)"),
    attack("E02", "RES-3", "a socket sets no TCP MD5 keys and joins no multicast group", "
try: socket.socket().close()
except OSError: blocked('there are no sockets'); sys.exit()
s, six = socket.socket(), socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
key = struct.pack('=H2x4s120xBBHi80s', socket.AF_INET, bytes([127, 0, 0, 1]), 0, 0, 3, 0, b'key')
tried = []
for one, level, option, value in ((s, 6, 14, key), (s, 6, 32, key), (six, 41, 20, bytes([255, 2] + 13 * [0] + [9]) + struct.pack('=I', 1))):
    try: one.setsockopt(level, option, value); tried.append('done')
    except OSError as error: tried.append(errno.errorcode[error.errno])
blocked(tried) if all(word == 'EPERM' for word in tried) else reached(tried)"),
    killed(with(fact("E03", "RES-5", "a spin that ignores signals ends at the deadline", "
for s in (signal.SIGTERM, signal.SIGXCPU, signal.SIGHUP, signal.SIGINT): signal.signal(s, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    while True: pass
blocked('spinning'); 
end = time.time() + 15
while time.time() < end: pass
reached('ran on')"), &["--timeout", "2"])),
    with(fact("E05", "RES-6", "an endless line does not fill the server", "
blocked('flooding')
block = b'x' * 65536
end = time.time() + 5
while time.time() < end: os.write(1, block)"), &["--timeout", "2"]),
    fact("E06", "RES-2", "a core dump is not written", "
import resource
pid = os.fork()
if pid == 0: os.abort()
status = os.waitpid(pid, 0)[1]
reached('dumped') if os.WCOREDUMP(status) or os.path.exists('core') else blocked('no core')"),
    fact("E06", "RES-2", "the host's program for core dumps is not started: the limit is 1, and stays", "
import resource
if os.fork() == 0:
    for limit in ((0, 0), (-1, -1)):
        try: resource.setrlimit(resource.RLIMIT_CORE, limit)
        except (OSError, ValueError): pass
        call(160, resource.RLIMIT_CORE, ctypes.byref((ctypes.c_uint64 * 2)(0, 0)))
    limit = resource.getrlimit(resource.RLIMIT_CORE)
    blocked(limit) if limit == (1, 1) else reached(limit)
    os._exit(0)
os.wait()"),
    fact("E06", "RES-2", "a core dump that a socket of the host gets has no memory of the program in it", "
path, got = '/proc/self/coredump_filter', []
for of_program in (open(path).read(), subprocess.run(['cat', path], capture_output=True, text=True).stdout):
    if of_program.strip() != '00000000': got.append(of_program)
try: os.close(os.open(path, os.O_WRONLY)); got.append('it can be written')
except OSError: pass
reached(got) if got else blocked('nothing')"),
    attack("E10", "RES-3", "a program installs no seccomp filter, whose code counts toward a host-wide limit", "
program = (ctypes.c_uint64 * 1)(0x7fff000000000006)
class fprog(ctypes.Structure): _fields_ = [('len', ctypes.c_ushort), ('filter', ctypes.c_void_p)]
one = ctypes.byref(fprog(1, ctypes.addressof(program)))
libc.prctl(38, 1, 0, 0, 0)
tried = [call(317, 1, 0, one), call(157, 22, 2, one), call(317, 1, 1, one)]
reached(tried) if any(result == 0 for result, _ in tried) else blocked(tried)"),
    attack("E10", "RES-3", "a socket attaches no BPF filter, whose code counts toward a host-wide limit", "
try: socket.socket().close()
except OSError: blocked('there are no sockets'); sys.exit()
program = (ctypes.c_uint64 * 1)(0x0000ffff00000006)
filter = struct.pack('HxxxxxxP', 1, ctypes.addressof(program))
tried = []
for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
    for option in (26, 51):
        s = socket.socket(socket.AF_INET, kind); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try: s.setsockopt(socket.SOL_SOCKET, option, filter); tried.append('done')
        except OSError as error: tried.append(errno.errorcode[error.errno])
blocked(tried) if all(word == 'EPERM' for word in tried) else reached(tried)"),
];
