//! System call filters: rules on arguments compiled by seccompiler, answers by number by ourselves; installed for good.

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, sock_filter,
};
use std::{collections::BTreeMap, io};

pub use libc::{EAFNOSUPPORT, ENOMEM, ENOSYS, EOPNOTSUPP, EPERM};

/// A compiled filter. Each kills a process that uses the system calls of another architecture.
#[derive(Clone, Debug)]
pub struct Program(BpfProgram);

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
    /// Number.
    pub number: i64,
    /// All of these.
    pub tests: Vec<Test>,
}

fn failed(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("seccomp filter: {error}"))
}

/// Compiles a filter: a call that any of the rules matches gets `matched`, any other `otherwise`.
pub fn compile(rules: &[Rule], matched: Answer, otherwise: Answer) -> io::Result<Program> {
    let mut by_number: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for rule in rules.iter().filter(|rule| !rule.tests.is_empty()) {
        let conditions: Result<Vec<_>, _> = rule.tests.iter().map(|test| condition(*test)).collect();
        let compiled = SeccompRule::new(conditions.map_err(failed)?).map_err(failed)?;
        by_number.entry(rule.number).or_default().push(compiled);
    }
    // To seccompiler a call without rules matches always; rules beside it would take that away.
    for rule in rules.iter().filter(|rule| rule.tests.is_empty()) {
        by_number.insert(rule.number, Vec::new());
    }
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(failed)?;
    let filter = SeccompFilter::new(by_number, action(otherwise), action(matched), arch).map_err(failed)?;
    Ok(Program(BpfProgram::try_from(filter).map_err(failed)?))
}

fn condition(test: Test) -> Result<SeccompCondition, seccompiler::BackendError> {
    use SeccompCmpArgLen::{Dword, Qword};
    match test {
        Test::Is(argument, value) => SeccompCondition::new(argument, Dword, SeccompCmpOp::Eq, value.into()),
        Test::IsNot(argument, value) => {
            SeccompCondition::new(argument, Dword, SeccompCmpOp::Ne, value.into())
        }
        Test::MaskIs(argument, mask, value) => {
            SeccompCondition::new(argument, Dword, SeccompCmpOp::MaskedEq(mask.into()), value.into())
        }
        Test::Above(argument, value) => SeccompCondition::new(argument, Qword, SeccompCmpOp::Gt, value),
    }
}

fn action(answer: Answer) -> SeccompAction {
    match answer {
        Answer::Allow => SeccompAction::Allow,
        Answer::Errno(errno) => SeccompAction::Errno(errno.unsigned_abs()),
        Answer::KillProcess => SeccompAction::KillProcess,
    }
}

/// Compiles a filter that looks at nothing but architecture and number: each number gets its answer, all others
/// `otherwise`. It searches by halves, since the kernel tries every number when a filter is installed, and a long chain
/// of comparisons (which is what seccompiler makes) costs each start of a sandbox most of a millisecond.
///
/// It kills a process that uses the system calls of another architecture, or the x32 ones, which pass for x86-64 in the
/// kernel's architecture word (seccomp(2), "Caveats"). Number -1 stays what it is: no call.
pub fn compile_numbers(answers: &BTreeMap<u32, Answer>, otherwise: Answer) -> io::Result<Program> {
    let mut starts = vec![(0, otherwise)];
    for (number, answer) in answers {
        let next = number
            .checked_add(1)
            .ok_or_else(|| failed("-1 is no system call"))?;
        starts.extend([(*number, *answer), (next, otherwise)]);
    }
    if cfg!(target_arch = "x86_64") {
        starts.extend([(X32_FIRST, Answer::KillProcess), (u32::MAX, otherwise)]);
    }
    // Where two ranges begin at one number, the later one is meant; where neighbours answer alike, they are one.
    starts.reverse();
    starts.sort_by_key(|(start, _)| *start);
    starts.dedup_by_key(|(start, _)| *start);
    starts.dedup_by_key(|(_, answer)| *answer);
    let mut lines = vec![
        line(LOAD_WORD, 0, 0, ARCHITECTURE_OFFSET),
        line(JUMP_EQUAL, 1, 0, architecture()?),
        line(RETURN, 0, 0, SeccompAction::KillProcess.into()),
        line(LOAD_WORD, 0, 0, NUMBER_OFFSET),
    ];
    lines.extend(search(&starts));
    Ok(Program(lines))
}

/// Finds the range that the number is in. Jumps by condition reach 255 lines, so a far half is reached by one without.
fn search(starts: &[(u32, Answer)]) -> BpfProgram {
    let (lower, upper) = starts.split_at(starts.len() / 2);
    let [(first, answer), ..] = upper else {
        return Vec::new();
    };
    if lower.is_empty() {
        return vec![line(RETURN, 0, 0, action(*answer).into())];
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

const LOAD_WORD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
const JUMP_ALWAYS: u16 = 0x05; // BPF_JMP | BPF_JA
const JUMP_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
const JUMP_AT_LEAST: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
const RETURN: u16 = 0x06; // BPF_RET | BPF_K
const NUMBER_OFFSET: u32 = 0; // seccomp_data.nr
const ARCHITECTURE_OFFSET: u32 = 4; // seccomp_data.arch
const X32_FIRST: u32 = 0x4000_0000; // __X32_SYSCALL_BIT

fn line(code: u16, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

/// `AUDIT_ARCH_*` of linux/audit.h.
fn architecture() -> io::Result<u32> {
    match std::env::consts::ARCH {
        "x86_64" => Ok(0xc000_003e),
        "aarch64" => Ok(0xc000_00b7),
        other => Err(failed(format!("there is no table of system calls for {other}"))),
    }
}

/// Installs the filters in this order on the calling thread and on what it starts, for good. Among equally strict
/// answers that of the filter installed last counts (seccomp(2)). `no_new_privs` is set by it, if it was not. An error
/// is the kernel's own; filters installed before it stay.
pub fn install(programs: &[Program]) -> io::Result<()> {
    programs.iter().try_for_each(|program| {
        seccompiler::apply_filter(&program.0).map_err(|error| match error {
            seccompiler::Error::Prctl(refusal) | seccompiler::Error::Seccomp(refusal) => refusal,
            other => failed(other),
        })
    })
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
