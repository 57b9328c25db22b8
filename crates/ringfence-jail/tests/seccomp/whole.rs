//! One filter answers like several. The reference is compiled part by part, by another compiler where arguments are
//! tested, and evaluated as the kernel evaluates filters upon each other. A filter compares words of the call with
//! constants; so it is enough to try, for each word, all values that any of these comparisons distinguishes.

use crate::machine::{self, Call, I386, Line, NATIVE};
use ringfence_jail::seccomp::{DiskLimit, Profile, Ruleset, host_directory_filter, program, ruleset};
use ringfence_sys::seccomp::{Answer, Refusals, Rule, Test, compile};
use ringfence_types::WorkspaceMode;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::collections::{BTreeMap, BTreeSet};

fn profiles() -> Vec<Profile> {
    let counted = |memory_cgroup| {
        [
            Profile::Full { memory_cgroup },
            Profile::Template { memory_cgroup },
            Profile::Landlock {
                memory_cgroup,
                servers_user: true,
            },
            Profile::Landlock {
                memory_cgroup,
                servers_user: false,
            },
        ]
    };
    [true, false].into_iter().flat_map(counted).collect()
}

/// Returns a filter for each part, in the order in which they would be installed.
fn apart(profile: Profile) -> Vec<Vec<Line>> {
    let Ruleset { numbers, refused } = ruleset(profile).unwrap();
    let by_number = compile(&numbers, &[], Answer::Errno(libc::ENOSYS)).unwrap();
    let by_argument = refused.iter().map(by_other_compiler);
    machine::lines([&by_number])
        .into_iter()
        .chain(by_argument)
        .collect()
}

fn by_other_compiler(refusals: &Refusals) -> Vec<Line> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    let (whole, tested): (Vec<&Rule>, _) = refusals.rules.iter().partition(|rule| rule.tests.is_empty());
    for rule in tested {
        let conditions = rule.tests.iter().copied().map(condition).collect();
        let compiled = SeccompRule::new(conditions).unwrap();
        rules.entry(rule.number).or_default().push(compiled);
    }
    // For that compiler a call without rules matches always; rules beside it would take that away.
    rules.extend(whole.iter().map(|rule| (rule.number, Vec::new())));
    let Answer::Errno(errno) = refusals.answer else {
        panic!("refused by {:?}", refusals.answer);
    };
    let refuse = SeccompAction::Errno(errno.unsigned_abs());
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch).unwrap();
    let program = BpfProgram::try_from(filter).unwrap();
    let lines = program.iter().map(|line| (line.code, line.jt, line.jf, line.k));
    lines.collect()
}

fn condition(test: Test) -> SeccompCondition {
    use SeccompCmpArgLen::{Dword, Qword};
    let (argument, length, compared, value) = match test {
        Test::Is(argument, value) => (argument, Dword, SeccompCmpOp::Eq, value.into()),
        Test::IsNot(argument, value) => (argument, Dword, SeccompCmpOp::Ne, value.into()),
        Test::MaskIs(argument, mask, value) => {
            (argument, Dword, SeccompCmpOp::MaskedEq(mask.into()), value.into())
        }
        Test::Above(argument, value) => (argument, Qword, SeccompCmpOp::Gt, value),
    };
    SeccompCondition::new(argument, length, compared, value).unwrap()
}

/// The constants with which filters compare a word of the call.
#[derive(Default)]
struct Compared {
    values: BTreeSet<u32>,
    /// All bits that are tested one by one.
    bits: u32,
}

const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;

/// The content of the accumulator: a word of the call, as it is or under a mask.
type Loaded = (u32, Option<u32>);

/// Follows every path through a filter that calls of this number can take; without a number, every path.
fn compared(filter: &[Line], number: Option<u32>, found: &mut BTreeMap<u32, Compared>) {
    let mut waiting = vec![(0_usize, (ARCHITECTURE, None))];
    let mut seen: BTreeSet<(usize, Loaded)> = BTreeSet::new();
    while let Some((at, loaded)) = waiting.pop() {
        if !seen.insert((at, loaded)) {
            continue;
        }
        let (code, jump_true, jump_false, operand) = filter[at];
        match code {
            0x20 => waiting.push((at + 1, (operand, None))),
            0x54 => {
                assert_eq!(loaded.1, None, "one mask at a time");
                waiting.push((at + 1, (loaded.0, Some(operand))));
            }
            0x05 => waiting.push((at + 1 + operand as usize, loaded)),
            0x06 => {}
            0x15 | 0x25 | 0x35 => {
                let compared = found.entry(loaded.0).or_default();
                match loaded.1 {
                    Some(mask) => compared.bits |= mask,
                    None => _ = compared.values.insert(operand),
                }
                let holds = |number: u32| match code {
                    0x15 => number == operand,
                    0x25 => number > operand,
                    _ => number >= operand,
                };
                let known = number.filter(|_| loaded.0 == NUMBER).map(holds);
                for (branch, skip) in [(true, jump_true), (false, jump_false)] {
                    if known.is_none_or(|known| known == branch) {
                        waiting.push((at + 1 + usize::from(skip), loaded));
                    }
                }
            }
            other => panic!("instruction {other:#x} is not one that these filters use"),
        }
    }
}

/// Returns a bit that no filter tests and no value has, so that a value with it equals no constant.
fn unused_bit(compared: &Compared) -> u32 {
    let with_bits = |value: &u32, bit: u32| value & bit != 0 && value & !bit & !compared.bits == 0;
    let used =
        |bit: &u32| compared.bits & bit != 0 || compared.values.iter().any(|value| with_bits(value, *bit));
    let free = (0..32).map(|at| 1 << at).rev().find(|bit| !used(bit));
    free.unwrap()
}

/// Returns, for a word, a value for each combination of answers that the comparisons can give: every constant and its
/// neighbours, and every combination of the bits, with and without another bit.
fn tried(compared: &Compared) -> BTreeSet<u32> {
    let around = |value: &u32| [value.wrapping_sub(1), *value, value.wrapping_add(1)];
    let mut tried: BTreeSet<u32> = compared.values.iter().flat_map(around).collect();
    tried.extend([0, u32::MAX]);
    let unused = unused_bit(compared);
    assert!(compared.bits.count_ones() <= 12, "{:#x}", compared.bits);
    let mut subset = compared.bits;
    loop {
        tried.extend([subset, subset | unused]);
        if subset == 0 {
            return tried;
        }
        subset = (subset - 1) & compared.bits;
    }
}

/// Calls `act` with every combination of the arguments' words that is to be tried.
fn arguments(words: &[(u32, Vec<u32>)], act: &mut impl FnMut([u64; 6])) {
    fn go(words: &[(u32, Vec<u32>)], so_far: [u64; 6], act: &mut impl FnMut([u64; 6])) {
        let [(offset, values), rest @ ..] = words else {
            return act(so_far);
        };
        let (argument, is_high) = ((*offset as usize - 16) / 8, !offset.is_multiple_of(8));
        for value in values {
            let mut next = so_far;
            next[argument] |= u64::from(*value) << if is_high { 32 } else { 0 };
            go(rest, next, act);
        }
    }
    go(words, [0; 6], act);
}

/// The number of calls that were compared, and of those that the filters refuse.
#[derive(Debug, Default)]
struct Checked {
    calls: u64,
    refused: u64,
}

/// Checks that both give the same answer to every call, varied in everything that either reads.
fn check_same(name: &str, one: &[Vec<Line>], other: &[Vec<Line>]) -> Checked {
    let both = || one.iter().chain(other);
    let mut all = BTreeMap::new();
    both().for_each(|filter| compared(filter, None, &mut all));
    let mut numbers = tried(&all[&NUMBER]);
    numbers.extend(0..1024);
    let mut architectures = tried(&all[&ARCHITECTURE]);
    architectures.extend([I386, NATIVE ^ 0x8000_0000, 0xc000_00b7, 0xc000_003e]);
    let mut checked = Checked::default();
    for number in numbers {
        let mut words = BTreeMap::new();
        both().for_each(|filter| compared(filter, Some(number), &mut words));
        let words = words.iter().filter(|(offset, _)| **offset >= 16);
        let words: Vec<(u32, Vec<u32>)> = words
            .map(|(offset, compared)| (*offset, tried(compared).into_iter().collect()))
            .collect();
        let mut compare = |arch, arguments| {
            let call = Call {
                arch,
                number: i64::from(number),
                arguments,
            };
            let [first, second] =
                [one, other].map(|filters| machine::evaluate_filters(filters, &call, |_| {}));
            assert_eq!(first, second, "{name}: {call:x?}");
            checked.calls += 1;
            checked.refused += u64::from(first != machine::Answer::Allow);
        };
        architectures.iter().for_each(|arch| compare(*arch, [0; 6]));
        arguments(&words, &mut |arguments| compare(NATIVE, arguments));
    }
    checked
}

#[test]
fn combined_filter_answers_like_separate_filters() {
    for profile in profiles() {
        let (one, apart) = (machine::lines([program(profile).unwrap()]), apart(profile));
        let checked = check_same(&format!("{profile:?}"), &one, &apart);
        let lines = |filters: &[Vec<Line>]| filters.iter().map(Vec::len).sum::<usize>();
        println!(
            "{profile:?}: {checked:?}, {} lines for {}",
            lines(&one),
            lines(&apart)
        );
        assert!(checked.calls > 12_000 && checked.refused > 10_000, "{checked:?}");
        assert!(checked.calls > checked.refused + 500, "{checked:?}");
    }
}

/// The filters of a program that sees a directory of the host, whichever is installed first.
#[test]
fn host_directory_filters_answer_the_same_in_any_order() {
    for profile in profiles() {
        let shared = [None, Some(WorkspaceMode::Rw), Some(WorkspaceMode::Ro)];
        for more in shared.map(|shared| host_directory_filter(shared, DiskLimit::Measured).unwrap()) {
            let own = program(profile).unwrap();
            let above = machine::lines([own, &more]);
            let below = machine::lines([&more, own]);
            let checked = check_same(&format!("{profile:?}"), &above, &below);
            assert!(checked.refused > 10_000, "{checked:?}");
        }
    }
}

/// Pid 1 below a template may make no call that the filter of other sandboxes refuses, and few that it allows.
#[test]
fn filter_of_pid_1_allows_no_more_than_the_full_filter() {
    for memory_cgroup in [true, false] {
        let profiles = [Profile::Init { memory_cgroup }, Profile::Full { memory_cgroup }];
        let [own, full] = profiles.map(|profile| machine::lines([program(profile).unwrap()]));
        println!("{} lines for {}", own[0].len(), full[0].len());
        assert!(own[0].len() < 128);
        // The full filter below it is nowhere stricter.
        let both = [full, own.clone()].concat();
        let checked = check_same("pid 1", &both, &own);
        assert!(
            checked.refused > 10_000 && checked.calls > checked.refused + 30,
            "{checked:?}"
        );
    }
}

/// claim: [RES-9]
#[test]
fn landlock_rules_keep_no_files_where_a_disk_limit_is_measured() {
    let answer = |shared, disk_limit, number| {
        let filter = host_directory_filter(shared, disk_limit).unwrap();
        machine::evaluate_filters(&machine::lines([&filter]), &machine::plain(number), |_| {})
    };
    let refused = machine::Answer::Errno(libc::EOPNOTSUPP);
    for call in [libc::SYS_landlock_create_ruleset, libc::SYS_landlock_add_rule] {
        assert_eq!(
            answer(Some(WorkspaceMode::Rw), DiskLimit::Measured, call),
            refused
        );
        assert_eq!(answer(None, DiskLimit::Measured, call), refused);
        let unmeasured = answer(Some(WorkspaceMode::Ro), DiskLimit::Absent, call);
        assert_eq!(unmeasured, machine::Answer::Allow);
    }
}

#[test]
fn fallocate_may_only_free_space_where_a_disk_limit_is_measured() {
    let answer = |disk_limit, mode: i32| {
        let filter = host_directory_filter(Some(WorkspaceMode::Rw), disk_limit).unwrap();
        let mut call = machine::plain(libc::SYS_fallocate);
        call.arguments[1] = mode.unsigned_abs().into();
        machine::evaluate_filters(&machine::lines([&filter]), &call, |_| {})
    };
    let refused = machine::Answer::Errno(libc::EOPNOTSUPP);
    let keep = libc::FALLOC_FL_KEEP_SIZE;
    for mode in [0, keep, libc::FALLOC_FL_ZERO_RANGE, libc::FALLOC_FL_INSERT_RANGE] {
        assert_eq!(answer(DiskLimit::Measured, mode), refused);
        assert_eq!(answer(DiskLimit::Absent, mode), machine::Answer::Allow);
    }
    for mode in [keep | libc::FALLOC_FL_PUNCH_HOLE, libc::FALLOC_FL_COLLAPSE_RANGE] {
        assert_eq!(answer(DiskLimit::Measured, mode), machine::Answer::Allow);
    }
}

/// The comparison finds a difference in one value of one argument, in one errno, and in one number.
#[test]
fn comparison_detects_a_single_difference() {
    let profile = Profile::Full { memory_cgroup: true };
    let whole = machine::lines([program(profile).unwrap()]);
    let differs = |change: &dyn Fn(&mut Line) -> bool| {
        let mut changed = whole.clone();
        let line = changed[0].iter_mut().find_map(|line| change(line).then_some(()));
        assert!(line.is_some());
        std::panic::catch_unwind(|| check_same("changed", &whole, &changed)).is_err()
    };
    let set = |line: &mut Line, from: Line, to: Line| {
        let is_it = *line == from;
        if is_it {
            *line = to;
        }
        is_it
    };
    let ioctl = u32::try_from(libc::TIOCGWINSZ).unwrap();
    let is_ioctl = |line: &mut Line| {
        let found = line.0 == 0x15 && line.3 == ioctl;
        line.3 ^= u32::from(found);
        found
    };
    assert!(differs(&is_ioctl));
    let errno = |errno: i32| 0x0005_0000 | errno.unsigned_abs();
    let memory = (0x06, 0, 0, errno(libc::ENOMEM));
    assert!(differs(&|line| set(
        line,
        memory,
        (0x06, 0, 0, errno(libc::EPERM))
    )));
    let allow = (0x06, 0, 0, 0x7fff_0000);
    assert!(differs(&|line| set(
        line,
        allow,
        (0x06, 0, 0, errno(libc::ENOSYS))
    )));
    assert!(!differs(&|_| true));
}
