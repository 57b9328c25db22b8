//! The tables as text: for documents, and for the golden file that is compared with the compiled filters.

use super::{
    DONE, Profile, allowed,
    arguments::{self, Choice, IOCTLS, PRCTLS, Refusal},
    conditional,
    table::{self, Call, CallGroup},
};
use ringfence_sys::seccomp::{EAFNOSUPPORT, EINVAL, ENOMEM, ENOSYS, EPERM};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Allow,
    Errno(i32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub number: i64,
    pub name: &'static str,
    /// The uses that this row is about; empty: all that no other row of the call is about.
    pub when: &'static str,
    pub verdict: Verdict,
    pub reason: &'static str,
}

/// Every rule of a profile, by number, with its reason. Numbers that have no row answer `ENOSYS`.
pub fn describe(profile: Profile) -> Vec<Row> {
    let mut rows: Vec<Row> = allowed(profile)
        .flat_map(|group| of_group(group, Verdict::Allow, group.why))
        .collect();
    for missing in conditional(profile).into_iter().filter(|c| !c.present) {
        let groups = missing.groups.iter();
        rows.extend(groups.flat_map(|group| of_group(group, Verdict::Errno(ENOSYS), missing.lacking)));
    }
    rows.extend(
        table::REFUSED
            .iter()
            .flat_map(|group| of_group(group, Verdict::Errno(EPERM), group.why)),
    );
    rows.extend(
        table::DONE
            .iter()
            .flat_map(|group| of_group(group, Verdict::Errno(DONE), group.why)),
    );
    rows.extend(
        table::ABSENT
            .iter()
            .flat_map(|group| of_group(group, Verdict::Errno(ENOSYS), group.why)),
    );
    for (call, choices) in [
        (("SYS_ioctl", libc::SYS_ioctl), IOCTLS),
        (("SYS_prctl", libc::SYS_prctl), PRCTLS),
    ] {
        rows.extend(choices.iter().flat_map(|choice| of_choice(call, choice)));
    }
    for (refusals, errno) in [
        (arguments::refused(profile), EPERM),
        (arguments::families(profile), EAFNOSUPPORT),
        (arguments::uncounted_memory(profile), ENOMEM),
        (arguments::unknown_flags(profile), EINVAL),
        (arguments::without_effect(), DONE),
        (arguments::own_filters(), EINVAL),
    ] {
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

/// A refusal without tests replaces the call's row; one with the words of an earlier one is said once.
fn refuse(rows: &mut Vec<Row>, refusal: &Refusal, errno: i32) {
    let row = row(refusal.call, refusal.when, Verdict::Errno(errno), refusal.why);
    if refusal.tests.is_empty() {
        rows.retain(|other| other.number != row.number);
    }
    if !rows.contains(&row) {
        rows.push(row);
    }
}
