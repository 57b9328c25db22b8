//! What holds for every filter, whatever the tables say.

use crate::{
    ALL,
    describe::{Verdict, describe},
    machine::{self, Answer, Call, I386, NATIVE, plain},
};
use ringfence_jail::seccomp::program;
use std::collections::{BTreeMap, BTreeSet};

#[test]
fn foreign_architectures_are_killed_whatever_the_number() {
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
fn x32_numbers_are_killed_and_minus_one_is_no_call() {
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
fn numbers_of_the_future_are_no_call() {
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

/// The kernel remembers, per number, that a filter allows it without looking at arguments (seccomp's action cache); one
/// look at an argument, and the filters run at each call.
#[test]
fn an_unconditional_allow_is_decided_by_number_and_architecture_alone() {
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
            let judgement = machine::judge(profile, plain(row.number));
            assert_eq!(judgement.answer, Answer::Allow, "{}", row.name);
            assert!(
                judgement.offsets.iter().all(|offset| *offset < 8),
                "{} looks at arguments",
                row.name
            );
            checked += 1;
        }
        assert!(checked > 150, "{checked}");
    }
}

#[test]
fn a_filter_is_small() {
    for profile in ALL {
        // The kernel lets a filter have 4,096, and all of a process 32,768.
        let instructions = program(profile).unwrap().instructions().len();
        assert!(instructions < 672, "{instructions}");
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

/// The tables know every call up to Linux 6.17, by name: a new one is let through or not by a decision.
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
fn a_fork_that_parses_may_compute_and_nothing_else() {
    let filter = machine::lines([&ringfence_jail::seccomp::of_computing().unwrap()]);
    let answer = |number| machine::judge_by(&filter, &plain(number), |_| {});
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
    assert_eq!(machine::judge_by(&filter, &foreign, |_| {}), Answer::KillProcess);
}
