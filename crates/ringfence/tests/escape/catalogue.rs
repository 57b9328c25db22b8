//! The attacks, one vector each. A probe is a Python program that prints `REACHED` with its result, or `BLOCKED` with
//! the reason; the same program runs outside of the sandbox (the control) and inside.

mod filesystem;
mod kernel;
mod language;
mod processes;
mod resources;

/// One attack.
pub struct Attack {
    pub id: &'static str,
    /// The property that holds, as a sentence.
    pub name: &'static str,
    /// The claim of SECURITY.md that the attack tests.
    pub claim: &'static str,
    /// The probe, after the common prelude.
    pub probe: &'static str,
    pub control: Control,
    /// Further arguments of `ringfence run`.
    pub flags: &'static [&'static str],
    /// True if a probe that is killed before it prints a verdict counts as held (a foreign architecture, a memory
    /// bomb).
    pub killed_is_held: bool,
}

/// The control that runs outside of the sandbox first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// The probe itself, which must succeed outside.
    Outside,
    /// No control: the probe checks a fact about the inside, or must not run outside (a bomb).
    InsideOnly,
}

pub enum Verdict {
    Held(String),
    NotApplicable(String),
    Escaped(String),
}

/// True if an attack matches the filter: the id begins with it, or the name or the claim contains it.
pub fn is_wanted(filter: Option<&str>, [id, name, claim]: [&str; 3]) -> bool {
    filter.is_none_or(|text| id.starts_with(text) || name.contains(text) || claim.contains(text))
}

/// Prints each verdict with the id and the name of its attack. Returns how many held and how many escaped.
pub fn tally(
    label: &str,
    verdicts: impl Iterator<Item = (&'static str, &'static str, Verdict)>,
) -> (usize, usize) {
    let (mut held, mut not_applicable, mut escaped) = (0, 0, 0);
    println!("\n== {label}");
    for (id, name, verdict) in verdicts {
        let (count, word, reason) = match verdict {
            Verdict::Held(reason) => (&mut held, "held", reason),
            Verdict::NotApplicable(reason) => (&mut not_applicable, "not applicable", reason),
            Verdict::Escaped(reason) => (&mut escaped, "ESCAPED", reason),
        };
        *count += 1;
        println!("{id:<4} {word:<14} {name} {reason}");
    }
    println!("{label}: {held} held, {not_applicable} not applicable, {escaped} escaped");
    (held, escaped)
}

impl Attack {
    pub fn program(&self) -> String {
        format!("{PRELUDE}\n{}", self.probe)
    }
}

const fn attack(id: &'static str, claim: &'static str, name: &'static str, probe: &'static str) -> Attack {
    Attack {
        id,
        name,
        claim,
        probe,
        control: Control::Outside,
        flags: &[],
        killed_is_held: false,
    }
}

const fn fact(id: &'static str, claim: &'static str, name: &'static str, probe: &'static str) -> Attack {
    Attack {
        control: Control::InsideOnly,
        ..attack(id, claim, name, probe)
    }
}

const fn killed(attack: Attack) -> Attack {
    Attack {
        killed_is_held: true,
        ..attack
    }
}

const fn with(attack: Attack, flags: &'static [&'static str]) -> Attack {
    Attack { flags, ..attack }
}

pub fn all() -> Vec<Attack> {
    [
        kernel::ATTACKS,
        processes::ATTACKS,
        filesystem::ATTACKS,
        resources::ATTACKS,
        language::ATTACKS,
    ]
    .into_iter()
    .flatten()
    .map(copy)
    .collect()
}

fn copy(attack: &Attack) -> Attack {
    Attack { ..*attack }
}

/// `door` tries system calls: a call counts as reached unless it fails with an error of `SHUT`. Any other error, such
/// as a bad pointer or a bad descriptor, shows that the kernel's code was reached.
const PRELUDE: &str = r#"
import os, sys, ctypes, errno, socket, struct, mmap, time, signal, subprocess
libc = ctypes.CDLL(None, use_errno=True)
HOME = os.environ.get('CANARY_HOME', '/nonexistent')
SHUT = ('EPERM', 'ENOSYS', 'EACCES', 'EAFNOSUPPORT')
def reached(what=''): print('REACHED', what, flush=True)
def blocked(why=''): print('BLOCKED', why, flush=True)
def call(number, *args):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    return result, errno.errorcode.get(ctypes.get_errno(), ctypes.get_errno())
def door(*numbers, args=(0, 0, 0, 0, 0)):
    got = []
    for number in numbers:
        result, error = call(number, *args)
        if result >= 0 or error not in SHUT:
            return reached('%d: %s %s' % (number, result, error))
        got.append(error)
    blocked(' '.join(got))
def attempt(action):
    try:
        reached(action())
    except OSError as error:
        blocked(errno.errorcode.get(error.errno, error))
    except Exception as error:
        blocked(repr(error))
"#;
