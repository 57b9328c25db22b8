//! System call filters, compiled for classic BPF and installed for good. All rules of a profile make one filter, which
//! no library compiles: they make one for each answer.

use crate::done;
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
};

pub use libc::{EAFNOSUPPORT, EINVAL, ENOMEM, ENOSYS, EOPNOTSUPP, EPERM};

/// A compiled filter. Each kills a process that uses the system calls of another architecture.
#[derive(Clone, Debug)]
pub struct Program(Vec<Line>);

/// `struct sock_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Line {
    code: u16,
    jt: u8,
    jf: u8,
    k: u32,
}

/// What the kernel does with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Lets it through to the next filter.
    Allow,
    /// Fails it with this error.
    Errno(i32),
    /// Ends the process, as by SIGSYS.
    KillProcess,
}

/// A test of one argument. 32-bit tests look at the low half only, as the kernel does with an `int`, so that bits above
/// cannot hide a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// Low 32 bits equal.
    Is(u8, u32),
    /// Low 32 bits differ.
    IsNot(u8, u32),
    /// Low 32 bits under the mask equal.
    MaskIs(u8, u32, u32),
    /// All 64 bits greater.
    Above(u8, u64),
}

/// A call by number, and the tests that must all hold; none: any arguments.
#[derive(Clone, Debug)]
pub struct Rule {
    pub number: i64,
    pub tests: Vec<Test>,
}

fn failed(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("seccomp filter: {error}"))
}

/// What a filter returns for it (seccomp(2)).
fn value(answer: Answer) -> u32 {
    match answer {
        Answer::Allow => libc::SECCOMP_RET_ALLOW,
        Answer::Errno(errno) => libc::SECCOMP_RET_ERRNO | (errno.unsigned_abs() & libc::SECCOMP_RET_DATA),
        Answer::KillProcess => libc::SECCOMP_RET_KILL_PROCESS,
    }
}

/// Uses of calls that are refused: those that any of the rules matches, with this answer.
#[derive(Clone, Debug)]
pub struct Refusals {
    pub rules: Vec<Rule>,
    pub answer: Answer,
}

/// Compiles one filter that answers what several would: one that gives each number its answer and all others
/// `otherwise`, and upon it, in this order, one for each of `refusals`. Of those that refuse a call the last one
/// counts, as among filters of the kernel (seccomp(2)).
///
/// It searches by halves, since the kernel tries every number when a filter is installed, and a long chain of
/// comparisons costs each start of a sandbox most of a millisecond.
///
/// It kills a process that uses the system calls of another architecture, or the x32 ones, which pass for x86-64 in the
/// kernel's architecture word (seccomp(2), "Caveats"). Number -1 stays what it is: no call.
pub fn compile(
    answers: &BTreeMap<u32, Answer>,
    refusals: &[Refusals],
    otherwise: Answer,
) -> io::Result<Program> {
    let ruled = refusals.iter().flat_map(|refusals| &refusals.rules);
    let ruled: Result<BTreeSet<u32>, _> = ruled.map(|rule| u32::try_from(rule.number)).collect();
    let mut numbers = ruled.map_err(failed)?;
    numbers.extend(answers.keys());
    let plain = |answer: Answer| vec![line(RETURN, 0, 0, value(answer))];
    let mut starts = vec![(0, plain(otherwise))];
    for number in numbers {
        let next = number
            .checked_add(1)
            .ok_or_else(|| failed("-1 is no system call"))?;
        let answer = *answers.get(&number).unwrap_or(&otherwise);
        starts.extend([
            (number, decide(number, refusals, answer)?),
            (next, plain(otherwise)),
        ]);
    }
    if cfg!(target_arch = "x86_64") {
        starts.extend([
            (X32_FIRST, plain(Answer::KillProcess)),
            (u32::MAX, plain(otherwise)),
        ]);
    }
    // Where two ranges begin at one number, the later one is meant; where neighbours answer alike, they are one.
    starts.reverse();
    starts.sort_by_key(|(start, _)| *start);
    starts.dedup_by_key(|(start, _)| *start);
    starts.dedup_by(|(_, answer), (_, before)| answer == before);
    let mut lines = vec![
        line(LOAD_WORD, 0, 0, ARCHITECTURE_OFFSET),
        line(JUMP_EQUAL, 1, 0, architecture()?),
        line(RETURN, 0, 0, value(Answer::KillProcess)),
        line(LOAD_WORD, 0, 0, NUMBER_OFFSET),
    ];
    lines.extend(search(&starts));
    Ok(Program(lines))
}

/// Finds the range that the number is in. Jumps by condition reach 255 lines, so a far half is reached by one without.
fn search(starts: &[(u32, Vec<Line>)]) -> Vec<Line> {
    let (lower, upper) = starts.split_at(starts.len() / 2);
    let [(first, answer), ..] = upper else {
        return Vec::new();
    };
    if lower.is_empty() {
        return answer.clone();
    }
    let (below, above) = (search(lower), search(upper));
    let mut lines = match u8::try_from(below.len()) {
        Ok(near) => vec![line(JUMP_AT_LEAST, near, 0, *first)],
        Err(_) => {
            let far = u32::try_from(below.len()).unwrap_or(u32::MAX); // the kernel refuses what leads outside
            vec![line(JUMP_AT_LEAST, 0, 1, *first), line(JUMP_ALWAYS, 0, 0, far)]
        }
    };
    lines.extend(below);
    lines.extend(above);
    lines
}

/// The answer of one number: that of the last refusals with a rule that matches, or its own.
fn decide(number: u32, refusals: &[Refusals], answer: Answer) -> io::Result<Vec<Line>> {
    let of_number = |rule: &&Rule| rule.number == i64::from(number);
    let mut lines = Vec::new();
    for Refusals { rules, answer } in refusals.iter().rev() {
        for rule in rules.iter().filter(of_number) {
            lines.extend(unless(&rule.tests, *answer)?);
        }
    }
    lines.push(line(RETURN, 0, 0, value(answer)));
    Ok(lines)
}

/// Returns the answer where all tests hold, and goes on behind itself where one does not.
fn unless(tests: &[Test], answer: Answer) -> io::Result<Vec<Line>> {
    let mut lines = vec![line(RETURN, 0, 0, value(answer))];
    for (at, test) in tests.iter().enumerate().rev() {
        let before = at.checked_sub(1).and_then(|before| tests.get(before));
        let mut tested = compare(*test, lines.len())?;
        let loaded = match (before, test) {
            (Some(Test::Is(before, _) | Test::IsNot(before, _)), Test::Is(own, _) | Test::IsNot(own, _)) => {
                before == own
            }
            _ => false,
        };
        tested.drain(..usize::from(loaded));
        tested.extend(lines);
        lines = tested;
    }
    Ok(lines)
}

/// Loads and tests an argument; where the test fails, skips so many lines behind itself.
fn compare(test: Test, behind: usize) -> io::Result<Vec<Line>> {
    let skip = |lines: usize| u8::try_from(lines + behind).map_err(failed);
    let low = |argument: u8| ARGUMENTS_OFFSET + 8 * u32::from(argument);
    let load = |offset| line(LOAD_WORD, 0, 0, offset);
    Ok(match test {
        Test::Is(argument, value) => vec![load(low(argument)), line(JUMP_EQUAL, 0, skip(0)?, value)],
        Test::IsNot(argument, value) => vec![load(low(argument)), line(JUMP_EQUAL, skip(0)?, 0, value)],
        Test::MaskIs(argument, mask, value) => vec![
            load(low(argument)),
            line(AND, 0, 0, mask),
            line(JUMP_EQUAL, 0, skip(0)?, value),
        ],
        Test::Above(argument, value) => {
            let [first, second] = [value & u64::from(u32::MAX), value >> 32];
            let [first, second] = [u32::try_from(first), u32::try_from(second)];
            let (first, second) = (first.map_err(failed)?, second.map_err(failed)?);
            vec![
                load(low(argument) + 4),
                line(JUMP_ABOVE, 3, 0, second),
                line(JUMP_EQUAL, 0, skip(2)?, second),
                load(low(argument)),
                line(JUMP_ABOVE, 0, skip(0)?, first),
            ]
        }
    })
}

pub(crate) const LOAD_WORD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
const JUMP_ALWAYS: u16 = 0x05; // BPF_JMP | BPF_JA
pub(crate) const JUMP_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
const JUMP_ABOVE: u16 = 0x25; // BPF_JMP | BPF_JGT | BPF_K
const JUMP_AT_LEAST: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
pub(crate) const AND: u16 = 0x54; // BPF_ALU | BPF_AND | BPF_K
pub(crate) const RETURN: u16 = 0x06; // BPF_RET | BPF_K
const NUMBER_OFFSET: u32 = 0; // seccomp_data.nr
const ARCHITECTURE_OFFSET: u32 = 4; // seccomp_data.arch
/// seccomp_data.args: each of eight bytes, the low half first on all machines that there are tables for.
const ARGUMENTS_OFFSET: u32 = 16;
const X32_FIRST: u32 = 0x4000_0000; // __X32_SYSCALL_BIT

pub(crate) fn line(code: u16, jt: u8, jf: u8, k: u32) -> Line {
    Line { code, jt, jf, k }
}

/// `AUDIT_ARCH_*` of linux/audit.h.
fn architecture() -> io::Result<u32> {
    match std::env::consts::ARCH {
        "x86_64" => Ok(0xc000_003e),
        "aarch64" => Ok(0xc000_00b7),
        other => Err(failed(format!("there is no table of system calls for {other}"))),
    }
}

/// Installs a filter on the calling thread and on what it starts, for good, upon those that are there. Among equally
/// strict answers that of the filter installed last counts (seccomp(2)). `no_new_privs` is set by it, if it was not. An
/// error is the kernel's own.
pub fn install(program: &Program) -> io::Result<()> {
    crate::identity::refuse_new_privileges()?;
    let mode = libc::c_ulong::from(libc::SECCOMP_MODE_FILTER);
    let filter = libc::sock_fprog {
        len: u16::try_from(program.0.len()).map_err(failed)?,
        filter: program.0.as_ptr().cast_mut().cast(),
    };
    // SAFETY: the kernel reads a sock_fprog and the lines that it points to, which are laid out as sock_filter
    // (repr(C)), live until the call returns, and are not written.
    done(unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const filter) })
}

impl Program {
    /// The instructions as (code, jump if true, jump if false, operand), for those who check the compiled filter.
    pub fn instructions(&self) -> Vec<(u16, u8, u8, u32)> {
        self.0
            .iter()
            .map(|line| (line.code, line.jt, line.jf, line.k))
            .collect()
    }
}
