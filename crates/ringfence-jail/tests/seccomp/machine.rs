//! Classic BPF as seccomp runs it (kernel/seccomp.c, `seccomp_run_filters`), so that tests evaluate the compiled
//! filters and not the tables that they were made from.

use ringfence_jail::seccomp::{Profile, program};
use ringfence_sys::seccomp::Program;
use std::{collections::BTreeSet, fmt};

#[cfg(target_arch = "x86_64")]
pub const NATIVE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
pub const NATIVE: u32 = 0xc000_00b7;
pub const I386: u32 = 0x4000_0003;

/// `struct seccomp_data`, without the instruction pointer, which no filter of ours may read.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub arch: u32,
    pub number: i64,
    pub arguments: [u64; 6],
}

/// The action of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Allow,
    Errno(i32),
    KillProcess,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allow => f.pad("allow"),
            Self::KillProcess => f.pad("KILL"),
            Self::Errno(libc::EPERM) => f.pad("EPERM"),
            Self::Errno(libc::ENOSYS) => f.pad("ENOSYS"),
            Self::Errno(libc::EINVAL) => f.pad("EINVAL"),
            Self::Errno(libc::ENOMEM) => f.pad("ENOMEM"),
            Self::Errno(libc::EAFNOSUPPORT) => f.pad("EAFNOSUPPORT"),
            Self::Errno(other) => f.pad(&other.to_string()),
        }
    }
}

/// The answer of all filters together, and the words of `seccomp_data` that they read.
pub struct Evaluation {
    pub answer: Answer,
    pub offsets: BTreeSet<u32>,
}

pub fn plain(number: i64) -> Call {
    Call {
        arch: NATIVE,
        number,
        arguments: [0; 6],
    }
}

/// Evaluates the filter of a profile.
pub fn evaluate(profile: Profile, call: Call) -> Evaluation {
    let mut offsets = BTreeSet::new();
    let answer = evaluate_filters(&lines([program(profile).unwrap()]), &call, |offset| {
        offsets.insert(offset);
    });
    Evaluation { answer, offsets }
}

/// Returns the instructions of filters, in the order in which they are installed.
pub fn lines<'a>(programs: impl IntoIterator<Item = &'a Program>) -> Vec<Vec<Line>> {
    let programs = programs.into_iter();
    programs.map(Program::instructions).collect()
}

/// Evaluates filters together, from the newest to the oldest; an older one counts only where it is stricter.
pub fn evaluate_filters(filters: &[Vec<Line>], call: &Call, mut read_at: impl FnMut(u32)) -> Answer {
    let mut strictest = 0x7fff_0000;
    for filter in filters.iter().rev() {
        let value = run(filter, call, &mut read_at);
        if severity(value) < severity(strictest) {
            strictest = value;
        }
    }
    match (strictest & 0xffff_0000, strictest & 0xffff) {
        (0x7fff_0000, _) => Answer::Allow,
        (0x0005_0000, errno) => Answer::Errno(i32::try_from(errno).unwrap()),
        (0x8000_0000, _) => Answer::KillProcess,
        (action, _) => panic!("no filter of ours answers {action:#x}"),
    }
}

pub fn answer(profile: Profile, call: Call) -> Answer {
    evaluate(profile, call).answer
}

/// Returns actions in the kernel's order: as signed numbers, so that killing the process comes before everything.
fn severity(value: u32) -> i32 {
    i32::from_ne_bytes((value & 0xffff_0000).to_ne_bytes())
}

/// Code, jump if true, jump if false, operand.
pub type Line = (u16, u8, u8, u32);

fn run(program: &[Line], call: &Call, read_at: &mut impl FnMut(u32)) -> u32 {
    let (mut at, mut accumulator) = (0, 0);
    loop {
        let (code, jump_true, jump_false, operand) = program[at];
        at += 1;
        let holds = match code {
            0x20 => {
                read_at(operand);
                accumulator = word(call, operand);
                continue;
            }
            0x54 => {
                accumulator &= operand;
                continue;
            }
            0x05 => {
                at += operand as usize;
                continue;
            }
            0x06 => return operand,
            0x15 => accumulator == operand,
            0x25 => accumulator > operand,
            0x35 => accumulator >= operand,
            0x45 => accumulator & operand != 0,
            other => panic!("instruction {other:#x} is not one that these filters use"),
        };
        at += usize::from(if holds { jump_true } else { jump_false });
    }
}

fn word(call: &Call, offset: u32) -> u32 {
    let low = |value: u64| u32::try_from(value & 0xffff_ffff).unwrap();
    match offset {
        0 => low(u64::from_ne_bytes(call.number.to_ne_bytes())),
        4 => call.arch,
        16..64 if offset.is_multiple_of(4) => {
            let argument = call.arguments[(offset as usize - 16) / 8];
            low(if offset.is_multiple_of(8) {
                argument
            } else {
                argument >> 32
            })
        }
        other => panic!("no filter of ours may look at offset {other}"),
    }
}
