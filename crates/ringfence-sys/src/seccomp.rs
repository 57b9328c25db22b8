//! System call filters: compiled by seccompiler from plain rules, installed on this process for good.

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
    sock_filter,
};
use std::{collections::BTreeMap, io};

/// A compiled filter. Every filter kills a process that uses the system calls of another architecture.
#[derive(Clone, Debug)]
pub struct Program(BpfProgram);

/// What the kernel does with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Lets it through to the next filter.
    Allow,
    /// Fails it with this error.
    Errno(i32),
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
    for rule in rules {
        let entry = by_number.entry(rule.number).or_default();
        if !rule.tests.is_empty() {
            let conditions: Result<Vec<_>, _> = rule.tests.iter().map(|test| condition(*test)).collect();
            entry.push(SeccompRule::new(conditions.map_err(failed)?).map_err(failed)?);
        }
    }
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(failed)?;
    let filter = SeccompFilter::new(by_number, action(otherwise), action(matched), arch).map_err(failed)?;
    Ok(Program(BpfProgram::try_from(filter).map_err(failed)?))
}

fn condition(test: Test) -> Result<SeccompCondition, seccompiler::BackendError> {
    let (argument, width, operator, value) = match test {
        Test::Is(argument, value) => (argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, u64::from(value)),
        Test::IsNot(argument, value) => (argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, u64::from(value)),
        Test::MaskIs(argument, mask, value) => {
            (argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(u64::from(mask)), u64::from(value))
        }
        Test::Above(argument, value) => (argument, SeccompCmpArgLen::Qword, SeccompCmpOp::Gt, value),
    };
    SeccompCondition::new(argument, width, operator, value)
}

fn action(answer: Answer) -> SeccompAction {
    match answer {
        Answer::Allow => SeccompAction::Allow,
        Answer::Errno(errno) => SeccompAction::Errno(errno.unsigned_abs()),
    }
}

/// Kills a process that uses the x32 system calls, which pass for x86-64 in the kernel's architecture word
/// (seccomp(2), "Caveats"). -1 stays what it is: no call.
pub fn refuse_x32() -> Program {
    const LOAD_WORD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
    const JUMP_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
    const JUMP_AT_LEAST: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
    const RETURN: u16 = 0x06; // BPF_RET | BPF_K
    const X32_BIT: u32 = 0x4000_0000;
    const ALLOW: u32 = 0x7fff_0000;
    const KILL_PROCESS: u32 = 0x8000_0000;
    let line = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    Program(vec![
        line(LOAD_WORD, 0, 0, 0), // seccomp_data.nr
        line(JUMP_EQUAL, 2, 0, u32::MAX),
        line(JUMP_AT_LEAST, 0, 1, X32_BIT),
        line(RETURN, 0, 0, KILL_PROCESS),
        line(RETURN, 0, 0, ALLOW),
    ])
}

/// Installs the filters in this order on this process, for good. Among equally strict answers that of the last one
/// counts. `no_new_privs` is set by it, if it was not.
pub fn install(programs: &[Program]) -> io::Result<()> {
    programs.iter().try_for_each(|program| seccompiler::apply_filter(&program.0).map_err(failed))
}

impl Program {
    /// The instructions as (code, jump if true, jump if false, operand), for those who check the compiled filter.
    pub fn instructions(&self) -> Vec<(u16, u8, u8, u32)> {
        self.0.iter().map(|line| (line.code, line.jt, line.jf, line.k)).collect()
    }
}

pub use libc::{
    EAFNOSUPPORT, ENOMEM, ENOSYS, EPERM,
};
