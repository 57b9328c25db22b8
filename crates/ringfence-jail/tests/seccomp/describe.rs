//! The tables as rows: for the golden file, and to be compared with the compiled filters.

use ringfence_jail::seccomp::{
    NO_OP, Profile, allowed,
    arguments::{Choice, IOCTLS, PRCTLS, Refusal, own_filters},
    conditional, refused_uses,
    table::{self, Call, CallGroup},
};
use ringfence_sys::seccomp::{EINVAL, ENOSYS, EPERM};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Allow,
    Errno(i32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub number: i64,
    pub name: &'static str,
    /// The uses that this row covers; empty: all that no other row of the call covers.
    pub when: &'static str,
    pub verdict: Verdict,
    pub reason: &'static str,
}

/// Returns every rule of a profile, by number, with its reason. Numbers that have no row answer `ENOSYS`.
pub fn describe(profile: Profile) -> Vec<Row> {
    let mut rows: Vec<Row> = allowed(profile)
        .flat_map(|group| of_group(group, Verdict::Allow, group.why))
        .collect();
    for (groups, lacking) in conditional(profile) {
        let missing = lacking.into_iter().flat_map(|lacking| {
            let of_group = move |group| of_group(group, Verdict::Errno(ENOSYS), lacking);
            groups.iter().flat_map(of_group)
        });
        rows.extend(missing);
    }
    for (groups, errno) in [
        (table::REFUSED, EPERM),
        (table::NO_OP, NO_OP),
        (table::ABSENT, ENOSYS),
    ] {
        let of_all = groups
            .iter()
            .flat_map(|group| of_group(group, Verdict::Errno(errno), group.why));
        rows.extend(of_all);
    }
    for (call, choices) in [
        (("SYS_ioctl", libc::SYS_ioctl), IOCTLS),
        (("SYS_prctl", libc::SYS_prctl), PRCTLS),
    ] {
        rows.extend(choices.iter().flat_map(|choice| of_choice(call, choice)));
    }
    let uses = refused_uses(profile).into_iter();
    for (refusals, errno) in uses.chain([(own_filters(), EINVAL)]) {
        for refusal in refusals {
            refuse(&mut rows, &refusal, errno);
        }
    }
    rows.sort_by_key(|row| row.number);
    rows
}

fn row(call: Call, when: &'static str, verdict: Verdict, reason: &'static str) -> Row {
    Row {
        number: call.1,
        name: call.0.trim_start_matches("SYS_"),
        when,
        verdict,
        reason,
    }
}

fn of_group(group: &'static CallGroup, verdict: Verdict, reason: &'static str) -> impl Iterator<Item = Row> {
    group
        .calls
        .iter()
        .map(move |call| row(*call, "", verdict, reason))
}

fn of_choice(call: Call, choice: &'static Choice) -> impl Iterator<Item = Row> {
    choice
        .values
        .iter()
        .map(move |(name, _)| row(call, name, Verdict::Allow, choice.why))
}

/// Adds a refusal. One without tests replaces the call's row; one with the same text as an earlier one is listed once.
fn refuse(rows: &mut Vec<Row>, refusal: &Refusal, errno: i32) {
    let row = row(refusal.call, refusal.when, Verdict::Errno(errno), refusal.why);
    if refusal.tests.is_empty() {
        rows.retain(|other| other.number != row.number);
    }
    if !rows.contains(&row) {
        rows.push(row);
    }
}
