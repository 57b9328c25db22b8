//! The queue of the writer: accepted entries are written, and others are refused at once.

use crate::audit::{
    Audit, AuditError, Durability, Storage,
    tests::fixture::{self, Directory},
    writer::{QueueReservation, SLOTS_MAX},
};
use std::sync::{Arc, mpsc};

/// Holds the writer inside a callback until the sender is dropped. The record must have [`Durability::Power`], which
/// leaves all writing to the writer.
fn hold(audit: &Audit) -> mpsc::Sender<()> {
    let (release, held) = mpsc::channel::<()>();
    let (sender, receiver) = mpsc::channel();
    audit.append(fixture::entry(0), move |_| {
        sender.send(()).unwrap();
        assert!(held.recv().is_err());
    });
    receiver.recv().unwrap();
    release
}

#[test]
fn full_queue_refuses_at_once_and_loses_no_accepted_entry() {
    let directory = Directory::new();
    let audit = directory.open(Durability::Power);
    let release = hold(&audit);
    let (sender, receiver) = mpsc::channel();
    let own = 1024;
    let _most = audit.reserve("default", SLOTS_MAX / 2 - 1024).unwrap();
    for number in 0..own + 6 {
        let sender = sender.clone();
        audit.append(fixture::entry(number), move |result| {
            sender.send((number, result)).unwrap()
        });
    }
    for number in own..own + 6 {
        assert_eq!(
            receiver.try_recv().unwrap(),
            (number, Err(AuditError::Overloaded))
        );
    }
    assert!(receiver.try_recv().is_err());
    // another namespace still has slots
    let mut other = fixture::entry(own);
    other.namespace = "other".to_owned();
    audit.append(other, move |result| sender.send((own, result)).unwrap());
    drop(release);
    for number in 0..=own {
        let (of, result) = receiver.recv().unwrap();
        // in order of arrival, after `audit.began` and the entry that held the writer
        assert_eq!((of, result.unwrap().seq), (number, number + 3));
    }
    drop(audit);
    directory.assert_whole(own + 3);
}

#[test]
fn reserved_slots_remain_in_a_full_queue_and_are_released() {
    let directory = Directory::new();
    let audit = directory.open(Durability::Power);
    let mut reservation = audit.reserve("default", 2).unwrap();
    let release = hold(&audit);
    let mut floods = Vec::new();
    while let Ok(flood) = audit.reserve(&format!("flood-{}", floods.len()), SLOTS_MAX / 64) {
        floods.push(flood);
    }
    assert!(floods.len() > 8, "one namespace took all slots");
    let full: Vec<_> = std::iter::from_fn(|| audit.reserve("default", 1).ok()).collect();
    let (sender, receiver) = mpsc::channel();
    let append = |reservation: &mut QueueReservation| {
        let sender = sender.clone();
        audit.append_reserved(reservation, fixture::entry(1), move |result| {
            sender.send(result).unwrap()
        });
    };
    append(&mut reservation);
    append(&mut reservation);
    append(&mut reservation);
    assert_eq!(receiver.recv().unwrap(), Err(AuditError::Overloaded));
    drop((full, floods));
    append(&mut reservation);
    drop(release);
    assert_eq!(
        [3, 4, 5].map(|_| receiver.recv().unwrap().unwrap().seq),
        [3, 4, 5]
    );
    drop(reservation);
    let all = audit.reserve("default", SLOTS_MAX / 2);
    assert!(all.is_ok(), "slots were not released");
}

#[test]
fn dropping_the_last_clone_writes_queued_entries() {
    let directory = Directory::new();
    let audit = directory.open(Durability::Power);
    let release = hold(&audit);
    for number in 0..300 {
        audit.append(fixture::entry(number), |result| assert!(result.is_ok()));
    }
    drop(audit.clone());
    drop(release);
    drop(audit);
    directory.assert_whole(302);
}

#[test]
fn callback_may_panic_append_and_drop_the_last_clone() {
    let directory = Directory::new();
    let audit = directory.open(Durability::Power);
    audit.append(fixture::entry(0), |_| panic!("a caller's fault"));
    let (sender, receiver) = mpsc::channel();
    let last = Arc::new(audit);
    let inside = last.clone();
    let release = hold(&last);
    last.append(fixture::entry(1), move |result| {
        result.unwrap();
        assert_eq!(
            inside.append_and_wait(fixture::entry(2)),
            Err(AuditError::WouldWaitForItself)
        );
        inside.append(fixture::entry(3), move |result| {
            sender.send(result.unwrap().seq).unwrap()
        });
        drop(inside);
    });
    drop(last);
    drop(release);
    assert_eq!(receiver.recv().unwrap(), 5);
}

#[test]
fn oversized_entry_is_refused_and_the_others_are_not() {
    let directory = Directory::new();
    let audit = directory.open(Durability::Power);
    let mut large = fixture::entry(0);
    large.caller = "x".repeat(513);
    assert!(matches!(
        audit.append_and_wait(large),
        Err(AuditError::TooLarge { .. })
    ));
    assert_eq!(audit.append_and_wait(fixture::entry(1)).unwrap().seq, 2);
    let refused = Audit::open(
        Storage::Memory,
        Durability::Process,
        directory.signer.clone(),
        "s".repeat(513),
    );
    assert!(matches!(
        refused.err().unwrap(),
        AuditError::TooLarge {
            field: "server_id",
            ..
        }
    ));
}
