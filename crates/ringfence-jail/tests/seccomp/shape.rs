//! Properties of every filter, independent of the tables.

use crate::{
    ALL,
    describe::{Verdict, describe},
    machine::{self, Answer, Call, I386, NATIVE, plain},
};
use ringfence_jail::seccomp::program;
use std::collections::{BTreeMap, BTreeSet};

#[test]
fn foreign_architectures_are_killed_for_any_number() {
    for profile in ALL {
        for arch in [I386, 0, 0xffff_ffff, NATIVE ^ 0x8000_0000] {
            for number in [0, 1, 20, 102, 359, 0x4000_0000, -1] {
                let call = Call {
                    arch,
                    number,
                    arguments: [0; 6],
                };
                assert_eq!(
                    machine::answer(profile, call),
                    Answer::KillProcess,
                    "{arch:#x} {number}"
                );
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn x32_numbers_are_killed_and_minus_one_is_enosys() {
    for profile in ALL {
        for number in [
            0x4000_0000,
            0x4000_0001,
            0x4000_0000 + 520,
            0x7fff_ffff,
            0x8000_0000,
            0xffff_fffe,
        ] {
            assert_eq!(
                machine::answer(profile, plain(number)),
                Answer::KillProcess,
                "{number:#x}"
            );
        }
        assert_eq!(machine::answer(profile, plain(-1)), Answer::Errno(libc::ENOSYS));
        assert_eq!(
            machine::answer(profile, plain(0x3fff_ffff)),
            Answer::Errno(libc::ENOSYS)
        );
    }
}

#[test]
fn unassigned_numbers_are_enosys() {
    for profile in ALL {
        for number in 472..5000 {
            assert_eq!(
                machine::answer(profile, plain(number)),
                Answer::Errno(libc::ENOSYS),
                "{number}"
            );
        }
    }
}

/// The kernel remembers, per number, that a filter allows it without reading arguments (seccomp's action cache); once
/// an argument is read, the filters run at each call.
#[test]
fn unconditional_allow_depends_only_on_number_and_architecture() {
    for profile in ALL {
        let mut conditional: BTreeSet<i64> = BTreeSet::new();
        let rows = describe(profile);
        conditional.extend(
            rows.iter()
                .filter(|row| !row.when.is_empty())
                .map(|row| row.number),
        );
        let free = rows
            .iter()
            .filter(|row| row.verdict == Verdict::Allow && !conditional.contains(&row.number));
        let mut checked = 0;
        for row in free {
            let evaluation = machine::evaluate(profile, plain(row.number));
            assert_eq!(evaluation.answer, Answer::Allow, "{}", row.name);
            assert!(
                evaluation.offsets.iter().all(|offset| *offset < 8),
                "{} reads arguments",
                row.name
            );
            checked += 1;
        }
        assert!(checked > 150, "{checked}");
    }
}

#[test]
fn filters_are_small() {
    for profile in ALL {
        // The kernel's maximum is 4,096 for a filter, and 32,768 for all of a process.
        let instructions = program(profile).unwrap().instructions().len();
        assert!(instructions < 696, "{instructions}");
    }
}

#[test]
fn every_call_is_in_one_group_and_has_a_reason() {
    for profile in ALL {
        let mut unconditional: BTreeMap<i64, &str> = BTreeMap::new();
        let mut names: BTreeMap<&str, i64> = BTreeMap::new();
        for row in describe(profile) {
            assert!(row.reason.len() > 10, "{}: {}", row.name, row.reason);
            assert_eq!(
                *names.entry(row.name).or_insert(row.number),
                row.number,
                "{}",
                row.name
            );
            if row.when.is_empty() {
                let other = unconditional.insert(row.number, row.name);
                assert_eq!(other, None, "{} is in two groups", row.name);
            }
        }
    }
}

/// The tables list every call up to Linux 6.17, by name: a new one is allowed or not by a decision.
#[cfg(target_arch = "x86_64")]
#[test]
fn every_assigned_number_is_in_the_tables() {
    let known: BTreeSet<i64> = describe(crate::FULL).into_iter().map(|row| row.number).collect();
    let missing: Vec<i64> = (0..=336)
        .chain(424..=469)
        .filter(|number| !known.contains(number))
        .collect();
    assert_eq!(missing, Vec::<i64>::new());
}

/// claim: [CHK-2]
#[test]
fn parser_filter_allows_only_computing_calls() {
    let filter = machine::lines([&ringfence_jail::seccomp::compute_filter().unwrap()]);
    let answer = |number| machine::evaluate_filters(&filter, &plain(number), |_| {});
    let allowed: Vec<i64> = (0..1024)
        .filter(|number| answer(*number) == Answer::Allow)
        .collect();
    let mut expect = vec![
        libc::SYS_read,
        libc::SYS_write,
        libc::SYS_mmap,
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_mprotect,
        libc::SYS_madvise,
        libc::SYS_brk,
        libc::SYS_futex,
        libc::SYS_clock_gettime,
        libc::SYS_getrandom,
        libc::SYS_rt_sigreturn,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_sigaltstack,
        libc::SYS_exit,
        libc::SYS_exit_group,
    ];
    expect.sort_unstable();
    assert_eq!(allowed, expect);
    for number in (0..1024).filter(|number| !expect.contains(number)) {
        assert_eq!(answer(number), Answer::Errno(libc::EPERM), "{number}");
    }
    let foreign = Call {
        arch: I386,
        ..plain(libc::SYS_read)
    };
    assert_eq!(
        machine::evaluate_filters(&filter, &foreign, |_| {}),
        Answer::KillProcess
    );
}
