//! System call filters in classic BPF; an installed filter cannot be removed. All rules of a profile become one filter,
//! which no library compiles: they compile one for each answer.

use crate::done;
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
};

pub use libc::{EAFNOSUPPORT, EINVAL, ENOMEM, ENOSYS, EOPNOTSUPP, EPERM};

/// A compiled filter. Each kills a process that uses the system calls of another architecture.
#[derive(Clone, Debug)]
pub struct Program(Vec<Instruction>);

/// `struct sock_filter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Instruction {
    code: u16,
    jt: u8,
    jf: u8,
    k: u32,
}

/// The kernel's answer to a call: the action of a filter (seccomp(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Allows it; other filters may still refuse it.
    Allow,
    /// Fails it with this error.
    Errno(i32),
    /// Ends the process, as by SIGSYS.
    KillProcess,
}

/// A test of one argument. 32-bit tests read only the low half, as the kernel does with an `int`, so that higher bits
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

/// A call by number, and the tests that must all hold; without tests, any arguments.
#[derive(Clone, Debug)]
pub struct Rule {
    pub number: i64,
    pub tests: Vec<Test>,
}

fn failed(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("seccomp filter: {error}"))
}

/// Returns the return value of a filter for an answer (seccomp(2)).
fn value(answer: Answer) -> u32 {
    match answer {
        Answer::Allow => libc::SECCOMP_RET_ALLOW,
        Answer::Errno(errno) => libc::SECCOMP_RET_ERRNO | (errno.unsigned_abs() & libc::SECCOMP_RET_DATA),
        Answer::KillProcess => libc::SECCOMP_RET_KILL_PROCESS,
    }
}

/// Refused uses of calls: those that any of the rules matches get this answer.
#[derive(Clone, Debug)]
pub struct Refusals {
    pub rules: Vec<Rule>,
    pub answer: Answer,
}

/// Compiles one filter that is equivalent to several: one that gives each number its answer and all others
/// `otherwise`, and on top of it, in this order, one for each of `refusals`. Of those that refuse a call the last one
/// counts, as among filters of the kernel (seccomp(2)).
///
/// The filter is a binary search, since the kernel evaluates it for every number when it is installed, and a long chain
/// of comparisons costs each start of a sandbox most of a millisecond.
///
/// It kills a process that uses the system calls of another architecture, or the x32 ones, which have x86-64 as the
/// kernel's architecture word (seccomp(2), "Caveats"). Number -1 is not a call and gets `otherwise`.
pub fn compile(
    answers: &BTreeMap<u32, Answer>,
    refusals: &[Refusals],
    otherwise: Answer,
) -> io::Result<Program> {
    let ruled = refusals.iter().flat_map(|refusals| &refusals.rules);
    let ruled: Result<BTreeSet<u32>, _> = ruled.map(|rule| u32::try_from(rule.number)).collect();
    let mut numbers = ruled.map_err(failed)?;
    numbers.extend(answers.keys());
    let plain = |answer: Answer| vec![bpf(RETURN, 0, 0, value(answer))];
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
    // Of two ranges that begin at one number the later one counts; neighbours with the same answer are merged.
    starts.reverse();
    starts.sort_by_key(|(start, _)| *start);
    starts.dedup_by_key(|(start, _)| *start);
    starts.dedup_by(|(_, answer), (_, before)| answer == before);
    let mut instructions = vec![
        bpf(LOAD_WORD, 0, 0, ARCHITECTURE_OFFSET),
        bpf(JUMP_EQUAL, 1, 0, architecture()?),
        bpf(RETURN, 0, 0, value(Answer::KillProcess)),
        bpf(LOAD_WORD, 0, 0, NUMBER_OFFSET),
    ];
    instructions.extend(search(&starts));
    Ok(Program(instructions))
}

/// Builds the search for the number's range. A half beyond 255 instructions is reached by an unconditional jump.
fn search(starts: &[(u32, Vec<Instruction>)]) -> Vec<Instruction> {
    let (lower, upper) = starts.split_at(starts.len() / 2);
    let [(first, answer), ..] = upper else {
        return Vec::new();
    };
    if lower.is_empty() {
        return answer.clone();
    }
    let (below, above) = (search(lower), search(upper));
    let mut instructions = match u8::try_from(below.len()) {
        Ok(near) => vec![bpf(JUMP_AT_LEAST, near, 0, *first)],
        Err(_) => {
            let far = u32::try_from(below.len()).unwrap_or(u32::MAX); // the kernel refuses a jump out of the program
            vec![bpf(JUMP_AT_LEAST, 0, 1, *first), bpf(JUMP_ALWAYS, 0, 0, far)]
        }
    };
    instructions.extend(below);
    instructions.extend(above);
    instructions
}

/// Builds the answer of one number: that of the last refusals with a matching rule, or its own.
fn decide(number: u32, refusals: &[Refusals], answer: Answer) -> io::Result<Vec<Instruction>> {
    let of_number = |rule: &&Rule| rule.number == i64::from(number);
    let mut instructions = Vec::new();
    for Refusals { rules, answer } in refusals.iter().rev() {
        for rule in rules.iter().filter(of_number) {
            instructions.extend(return_if(&rule.tests, *answer)?);
        }
    }
    instructions.push(bpf(RETURN, 0, 0, value(answer)));
    Ok(instructions)
}

/// Builds instructions that return the answer if all tests hold, and fall through otherwise.
fn return_if(tests: &[Test], answer: Answer) -> io::Result<Vec<Instruction>> {
    let mut instructions = vec![bpf(RETURN, 0, 0, value(answer))];
    for (at, test) in tests.iter().enumerate().rev() {
        let before = at.checked_sub(1).and_then(|before| tests.get(before));
        let mut tested = compare(*test, instructions.len())?;
        let loaded = match (before, test) {
            (Some(Test::Is(before, _) | Test::IsNot(before, _)), Test::Is(own, _) | Test::IsNot(own, _)) => {
                before == own
            }
            _ => false,
        };
        tested.drain(..usize::from(loaded));
        tested.extend(instructions);
        instructions = tested;
    }
    Ok(instructions)
}

/// Builds instructions that load and test an argument; on failure they skip the `behind` instructions that follow.
fn compare(test: Test, behind: usize) -> io::Result<Vec<Instruction>> {
    let skip = |instructions: usize| u8::try_from(instructions + behind).map_err(failed);
    let low = |argument: u8| ARGUMENTS_OFFSET + 8 * u32::from(argument);
    let load = |offset| bpf(LOAD_WORD, 0, 0, offset);
    Ok(match test {
        Test::Is(argument, value) => vec![load(low(argument)), bpf(JUMP_EQUAL, 0, skip(0)?, value)],
        Test::IsNot(argument, value) => vec![load(low(argument)), bpf(JUMP_EQUAL, skip(0)?, 0, value)],
        Test::MaskIs(argument, mask, value) => vec![
            load(low(argument)),
            bpf(AND, 0, 0, mask),
            bpf(JUMP_EQUAL, 0, skip(0)?, value),
        ],
        Test::Above(argument, value) => {
            let [first, second] = [value & u64::from(u32::MAX), value >> 32];
            let [first, second] = [u32::try_from(first), u32::try_from(second)];
            let (first, second) = (first.map_err(failed)?, second.map_err(failed)?);
            vec![
                load(low(argument) + 4),
                bpf(JUMP_ABOVE, 3, 0, second),
                bpf(JUMP_EQUAL, 0, skip(2)?, second),
                load(low(argument)),
                bpf(JUMP_ABOVE, 0, skip(0)?, first),
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
/// seccomp_data.args: eight bytes each, the low half first on every architecture with a table.
const ARGUMENTS_OFFSET: u32 = 16;
const X32_FIRST: u32 = 0x4000_0000; // __X32_SYSCALL_BIT

pub(crate) fn bpf(code: u16, jt: u8, jf: u8, k: u32) -> Instruction {
    Instruction { code, jt, jf, k }
}

/// `AUDIT_ARCH_*` of linux/audit.h.
fn architecture() -> io::Result<u32> {
    match std::env::consts::ARCH {
        "x86_64" => Ok(0xc000_003e),
        "aarch64" => Ok(0xc000_00b7),
        other => Err(failed(format!("there is no table of system calls for {other}"))),
    }
}

/// Installs a filter on the calling thread and its future children, for good and on top of those in force. Of equally
/// strict answers that of the filter installed last counts (seccomp(2)). Sets `no_new_privs`. Errors are the kernel's.
pub fn install(program: &Program) -> io::Result<()> {
    crate::identity::set_no_new_privileges()?;
    let mode = libc::c_ulong::from(libc::SECCOMP_MODE_FILTER);
    let filter = libc::sock_fprog {
        len: u16::try_from(program.0.len()).map_err(failed)?,
        filter: program.0.as_ptr().cast_mut().cast(),
    };
    // SAFETY: the kernel reads a sock_fprog and the instructions that it points to, which are laid out as sock_filter
    // (repr(C)), live until the call returns, and are not written.
    done(unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const filter) })
}

impl Program {
    /// Returns the instructions as (code, jump if true, jump if false, operand), for checks of the compiled filter.
    pub fn instructions(&self) -> Vec<(u16, u8, u8, u32)> {
        self.0
            .iter()
            .map(|Instruction { code, jt, jf, k }| (*code, *jt, *jf, *k))
            .collect()
    }
}
