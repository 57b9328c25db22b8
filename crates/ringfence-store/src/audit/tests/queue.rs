//! The queue before the writer: what it takes is written, and what it cannot take is told at once.

use crate::audit::{
    Audit, AuditError, Durability, Storage,
    tests::fixture::{self, Directory},
    writer::{PLACES_MAX, Room},
};
use std::sync::{Arc, mpsc};

/// Holds the writer inside a callback until the sender is dropped. The record is one of [`Durability::Power`], which
/// leaves all writing to the writer.
fn hold(audit: &Audit) -> mpsc::Sender<()> {
    let (release, held) = mpsc::channel::<()>();
    let (tell, told) = mpsc::channel();
    audit.append(fixture::entry(0), move |_| {
        tell.send(()).unwrap();
        assert!(held.recv().is_err());
    });
    told.recv().unwrap();
    release
}

#[test]
fn a_full_queue_refuses_at_once_and_loses_nothing_that_it_took() {
    let directory = Directory::new();
    let audit = directory.open(Durability::Power);
    let release = hold(&audit);
    let (tell, told) = mpsc::channel();
    let own = 1024;
    let _most = audit.reserve("default", PLACES_MAX / 2 - 1024).unwrap();
    for number in 0..own + 6 {
        let tell = tell.clone();
        audit.append(fixture::entry(number), move |result| {
            tell.send((number, result)).unwrap()
        });
    }
    for number in own..own + 6 {
        assert_eq!(told.try_recv().unwrap(), (number, Err(AuditError::Overloaded)));
    }
    assert!(told.try_recv().is_err());
    // another namespace has room all the same
    let mut other = fixture::entry(own);
    other.namespace = "other".to_owned();
    audit.append(other, move |result| tell.send((own, result)).unwrap());
    drop(release);
    for number in 0..=own {
        let (of, result) = told.recv().unwrap();
        // in the order in which they came, behind `audit.began` and the one that held the writer
        assert_eq!((of, result.unwrap().seq), (number, number + 3));
    }
    drop(audit);
    directory.assert_whole(own + 3);
}

#[test]
fn reserved_room_is_there_however_full_the_queue_is_and_comes_back() {
    let directory = Directory::new();
    let audit = directory.open(Durability::Power);
    let mut room = audit.reserve("default", 2).unwrap();
    let release = hold(&audit);
    let mut floods = Vec::new();
    while let Ok(flood) = audit.reserve(&format!("flood-{}", floods.len()), PLACES_MAX / 64) {
        floods.push(flood);
    }
    assert!(floods.len() > 8, "a namespace took all");
    let full: Vec<_> = std::iter::from_fn(|| audit.reserve("default", 1).ok()).collect();
    let (tell, told) = mpsc::channel();
    let append = |room: &mut Room| {
        let tell = tell.clone();
        audit.append_reserved(room, fixture::entry(1), move |result| tell.send(result).unwrap());
    };
    append(&mut room);
    append(&mut room);
    append(&mut room);
    assert_eq!(told.recv().unwrap(), Err(AuditError::Overloaded));
    drop((full, floods));
    append(&mut room);
    drop(release);
    assert_eq!([3, 4, 5].map(|_| told.recv().unwrap().unwrap().seq), [3, 4, 5]);
    drop(room);
    let all = audit.reserve("default", PLACES_MAX / 2);
    assert!(all.is_ok(), "room did not come back");
}

#[test]
fn dropping_the_last_clone_writes_what_waits() {
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
fn a_callback_may_panic_append_and_drop_the_last_clone() {
    let directory = Directory::new();
    let audit = directory.open(Durability::Power);
    audit.append(fixture::entry(0), |_| panic!("a caller's fault"));
    let (tell, told) = mpsc::channel();
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
            tell.send(result.unwrap().seq).unwrap()
        });
        drop(inside);
    });
    drop(last);
    drop(release);
    assert_eq!(told.recv().unwrap(), 5);
}

#[test]
fn an_entry_that_is_too_large_is_refused_and_the_others_are_not() {
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
