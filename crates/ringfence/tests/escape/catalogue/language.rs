//! Group N: the language is not the wall, so breaking out of it gains nothing.

use super::{Attack, attack, fact, with};

#[rustfmt::skip]
pub const ATTACKS: &[Attack] = &[
    attack("N01", "FS-1", "object graphs, frames and ctypes reach no file of the host", "
def by_subclasses():
    for kind in object.__subclasses__():
        if kind.__name__ == '_wrap_close': return kind.__init__.__globals__['popen']('cat ' + HOME + '/.netrc').read()
def by_ctypes():
    fd = libc.open((HOME + '/.netrc').encode(), 0); buffer = ctypes.create_string_buffer(100)
    libc.read(fd, buffer, 100) if fd >= 0 else None; return buffer.value.decode()
def by_code():
    import types; code = compile('open(p).read()', 'x', 'eval'); return types.FunctionType(code, {'p': HOME + '/.netrc', '__builtins__': __builtins__})()
got = []
for way in (by_subclasses, by_ctypes, by_code):
    try: got.append(way())
    except OSError: pass
reached(got) if any(got) else blocked('nothing')"),
    fact("N03", "FS-1", "Node's bindings and modules reach no file of the host", "
import shutil
if not shutil.which('node'): blocked('no node'); sys.exit()
script = '''const home = process.env.CANARY_HOME; const got = [];
const tries = [() => process.binding('fs'), () => require('fs').readFileSync(home + '/.netrc', 'utf8'), () => require('child_process').execFileSync('cat', [home + '/.netrc']).toString(), () => require('net').connect(+process.env.CANARY_TCP, '127.0.0.1').on('error', () => {})];
for (const t of tries) { try { const v = t(); if (typeof v === 'string') got.push(v) } catch {} }
console.log(got.length ? 'REACHED ' + got : 'BLOCKED');'''
print(subprocess.run(['node', '-e', script], capture_output=True, text=True).stdout)"),
    fact("N05", "FS-1", "shell tricks reach no file of the host", "
script = '''export BASH_ENV=$CANARY_HOME/.netrc; a=ca; b=t; $a$b $CANARY_HOME/.netrc; eval \"$(printf 'c\\\\141t %s' $CANARY_HOME/.netrc)\"; IFS=_; c=cat_$CANARY_HOME/.netrc; $c; bash -c :; exec 3<$CANARY_HOME/.netrc'''
out = subprocess.run(['bash', '-c', script], capture_output=True, text=True)
blocked('stdout %d bytes' % len(out.stdout)) if not out.stdout.strip() else reached(out.stdout)"),
    with(fact("J07", "ENV-2", "dangerous variables of a request take effect inside only", "
# LD_PRELOAD, BASH_ENV, PYTHONSTARTUP and NODE_OPTIONS name a file of the host here; had any process outside obeyed one
# of them, or had the file been visible, its content would be in the output.
got = [name for name in ('LD_PRELOAD', 'BASH_ENV', 'PYTHONSTARTUP', 'NODE_OPTIONS') if not os.environ.get(name)]
out = subprocess.run(['bash', '-c', 'cat $BASH_ENV; echo done'], capture_output=True, text=True)
if 'done' not in out.stdout: got.append(out.stderr)
reached(got) if got else blocked('obeyed inside, where the file is not')"),
        &["--env", "LD_PRELOAD={home}/.netrc", "--env", "BASH_ENV={home}/.netrc", "--env", "PYTHONSTARTUP={home}/.netrc", "--env", "NODE_OPTIONS=--no-warnings"]),
];
