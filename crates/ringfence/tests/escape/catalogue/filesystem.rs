//! Group C: visibility of the host's files and writes to them.

use super::{Attack, attack, fact, with};

/// A subdirectory, because a home directory cannot be mounted writable: the settings of pip and npm are there.
const RW: &[&str] = &["--workspace", "{home}/shared:rw"];
const RO: &[&str] = &["--workspace", "{home}:ro"];
const OVERLAY: &[&str] = &["--workspace", "{home}:overlay"];

#[rustfmt::skip]
pub const ATTACKS: &[Attack] = &[
    attack("C01", "FS-1", "secrets in a home directory do not exist inside", "
got = []
for path in ('.ssh/id_ed25519', '.aws/credentials', '.netrc', '.docker/config.json', '.kube/config', '.config/secret'):
    try: got.append(open(HOME + '/' + path).read())
    except OSError as error: assert error.errno == errno.ENOENT, error
reached(got) if got else blocked('ENOENT')"),
    attack("C01", "FS-1", "secrets in a home directory cannot be read", "
got = []
for path in ('.ssh/id_ed25519', '.aws/credentials', '.netrc', '.docker/config.json', '.kube/config', '.config/secret'):
    try: got.append(open(HOME + '/' + path).read())
    except (FileNotFoundError, PermissionError): pass
reached(got) if got else blocked('all')"),
    attack("C01", "FS-1", "the host's /etc, /root, /var and /home are not there", "
got = []
for path in ('/etc/shadow', '/etc/hostid', '/etc/fstab', '/etc/ssh', '/etc/sudoers', '/etc/machine-id', '/etc/crontab', '/var/log', '/var/lib', '/var/run', '/boot', '/mnt', '/srv', '/media', '/run/systemd', '/run/lock', '/lost+found'):
    if os.path.lexists(path): got.append(path)
reached(got) if got else blocked('absent')"),
    fact("C01", "FS-1", "the root contains only the planned entries", "
known = {'bin','code','dev','etc','home','lib','lib32','lib64','libx32','node_modules','output','packages','proc','root','run','sbin','tmp','usr','var','workspace','opt','nix'}
bad = [name for name in os.listdir('/') if name not in known]
bad += [n for n in os.listdir('/etc') if n not in {'alternatives','ca-certificates','fonts','gitconfig','group','hostname','hosts','ld.so.cache','localtime','mtab','nsswitch.conf','os-release','passwd','pki','protocols','resolv.conf','services','ssl'}]
bad += os.listdir('/run')
bad += [name for _, _, files in os.walk('/packages') for name in files]
if os.path.isdir('/root'): bad += [n for n in os.listdir('/root') if n != '.pyenv']
if os.path.isdir('/etc/ssl'): bad += [n for n in os.listdir('/etc/ssl') if n not in {'certs','openssl.cnf','cert.pem'}]
reached(bad) if bad else blocked('as planned')"),
    attack("C03", "FS-3", "a symlink out of the workspace reaches no file of the host", "
os.symlink(HOME + '/.netrc', 'link') if os.getcwd() == '/workspace' else None
attempt(lambda: open('link' if os.path.lexists('link') else HOME + '/.netrc').read())"),
    with(fact("C03", "FS-3", "a path through the host's workspace reaches no file beside it", "
attempt(lambda: open('/workspace/../' + HOME + '/.netrc').read().replace('canary', 'REACHED') if not os.path.exists(HOME) else 'visible')"), RO),
    fact("C05", "FS-3", "a hard link to a file of the runtime cannot be made", "attempt(lambda: os.link('/usr/bin/env', '/workspace/env') or 'linked')"),
    fact("C07", "FS-1", "no spelling of a path reaches a file of the host", "
got = []
for path in ('../' * 20 + HOME.lstrip('/') + '/.netrc', '/proc/self/root' + HOME + '/.netrc', '/proc/1/root' + HOME + '/.netrc', '/proc/self/cwd/../../..' + HOME + '/.netrc', '/dev/fd/0/..' + HOME + '/.netrc', HOME + '//.//.netrc', os.fsencode(HOME) + b'/.netrc'):
    try: got.append(open(path).read())
    except OSError: pass
reached(got) if got else blocked('all')"),
    with(attack("C16", "FS-5", "a file of a read-only workspace cannot be locked against the host", "
import fcntl
path = ('/workspace' if os.getcwd() == '/workspace' else HOME) + '/.netrc'
attempt(lambda: fcntl.flock(open(path), fcntl.LOCK_EX | fcntl.LOCK_NB) or 'locked')"), RO),
    with(attack("C18", "FS-7", "no set-user-id program can be left in a shared workspace", "
import shutil
got = []
WORK = '/workspace/in' if os.getcwd() == '/workspace' else HOME + '/out'
os.mkdir(WORK)
shutil.copy('/usr/bin/env', WORK + '/left')
for mode in (0o4755, 0o2755, 0o6755):
    for name, action in (('chmod', lambda: os.chmod(WORK + '/left', mode)),
                         ('fchmod', lambda: os.fchmod(os.open(WORK + '/left', os.O_RDONLY), mode)),
                         ('open', lambda: os.open(WORK + '/made%o' % mode, os.O_CREAT | os.O_WRONLY, mode)),
                         ('mkdir', lambda: os.mkdir(WORK + '/dir%o' % mode, mode)),
                         ('tmpfile', lambda: libc.linkat(-100, b'/proc/self/fd/%d' % os.open(WORK, os.O_TMPFILE | os.O_RDWR, mode), -100, WORK.encode() + b'/tmp%o' % mode, 0x400)),
                         ('mknod', lambda: os.mknod(WORK + '/nod%o' % mode, mode | 0o100000)),
                         ('fchmodat2', lambda: libc.syscall(452, -100, WORK.encode() + b'/left', mode, 0)),
                         ('openat2', lambda: libc.syscall(437, -100, WORK.encode() + b'/two%o' % mode, struct.pack('=QQQ', os.O_CREAT | os.O_WRONLY, mode, 0), 24))):
        try: action()
        except OSError: pass
for name in os.listdir(WORK):
    if os.stat(WORK + '/' + name).st_mode & 0o6000: got.append(name)
reached(got) if got else blocked('none')"), RW),
    with(attack("C19", "FS-5", "a file of a shared workspace cannot be leased", "
import fcntl
fd = os.open(('/workspace' if os.getcwd() == '/workspace' else HOME) + '/.netrc', os.O_RDONLY)
attempt(lambda: fcntl.fcntl(fd, 1024, fcntl.F_RDLCK))"), RO),
    with(fact("C15", "FS-5", "a read-only workspace cannot be changed by any route", "
path = '/workspace/.netrc'
before = os.stat(path)
got = []
def tried(name, action):
    try: action(); got.append(name)
    except OSError: pass
tried('open', lambda: open(path, 'w'))
tried('root', lambda: open('/proc/self/root' + path, 'w'))
tried('cwd', lambda: open('/proc/self/cwd/.netrc', 'w'))
tried('fd', lambda: open('/proc/self/fd/%d' % os.open(path, os.O_RDONLY), 'w'))
tried('create', lambda: open('/workspace/new', 'w'))
tried('chmod', lambda: os.chmod(path, 0o777))
tried('chown', lambda: os.chown(path, 1000, 1000))
tried('utime', lambda: os.utime(path, (1, 1)))
tried('xattr', lambda: os.setxattr(path, 'user.x', b'1'))
tried('truncate', lambda: os.truncate(path, 0))
tried('unlink', lambda: os.unlink(path))
tried('rename', lambda: os.rename(path, '/workspace/x'))
tried('link', lambda: os.link(path, '/workspace/x'))
tried('mkdir', lambda: os.mkdir('/workspace/d'))
tried('symlink', lambda: os.symlink('x', '/workspace/s'))
tried('fallocate', lambda: os.posix_fallocate(os.open(path, os.O_RDONLY), 0, 100))
after = os.stat(path)
if (before.st_mtime, before.st_mode, before.st_size) != (after.st_mtime, after.st_mode, after.st_size): got.append('changed')
reached(got) if got else blocked('all')"), RO),
    with(fact("C15", "FS-5", "an overlay keeps changes from the host", "
open('/workspace/.ssh/id_ed25519', 'w').write('overwritten')
os.unlink('/workspace/.netrc')
got = []
for path in ('/.overlay/upper', '/.overlay/work', '/.overlay/lower'):
    try: open(path + '/x', 'w'); got.append(path)
    except OSError: pass
try: got += os.listdir('/.overlay/lower')
except OSError: pass
reached(got) if got else blocked('written above: ' + open('/workspace/.ssh/id_ed25519').read())"), OVERLAY),
    fact("C17", "FS-2", "read-only trees refuse what Landlock does not guard", "
got = []
for name, action in (('chmod', lambda: os.chmod('/usr', 0o777)), ('chown', lambda: os.chown('/usr', 1000, 1000)), ('utime', lambda: os.utime('/usr', (1, 1))), ('xattr', lambda: os.setxattr('/usr', 'user.x', b'1')), ('etc', lambda: open('/etc/passwd', 'w')), ('etc2', lambda: open('/etc/new', 'w')), ('root', lambda: os.mkdir('/new')), ('code', lambda: open('/code/new', 'w')), ('codechmod', lambda: os.chmod('/code', 0o777)), ('dev', lambda: open('/dev/new', 'w')), ('run', lambda: open('/run/new', 'w'))):
    try: action(); got.append(name)
    except OSError: pass
reached(got) if got else blocked('all')"),
    fact("C17", "FS-2", "nothing of the root can be unmounted or mounted over", "
got = []
for name, args in (('umount2', (b'/proc/kcore', 2)), ('umount2', (b'/usr', 2)), ('mount', (b'none', b'/usr', b'tmpfs', 0, None))):
    ctypes.set_errno(0)
    if getattr(libc, name)(*args) == 0: got.append(name)
reached(got) if got else blocked('all')"),
];
