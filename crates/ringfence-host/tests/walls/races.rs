//! Links that are made and removed while files are read and written.

use crate::world::{SECRET, World};
use ringfence_host::{Content, Writing};
use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

const ROUNDS: usize = 2_000;

/// One thread swaps a file and a directory for links to a secret and back; another reads, lists, writes and runs `cat`.
/// The secret is never read or written, and the second thread meets both files and links.
/// claim: [HOST-5]
pub fn symlink_races_do_not_escape() {
    let rounds = std::env::var("RINGFENCE_LINK_RACES")
        .ok()
        .map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    let world = World::new("races");
    let at = |name: &str| world.directory.join(name);
    fs::write(at("file"), "harmless\n").unwrap();
    fs::create_dir(at("directory")).unwrap();
    fs::write(at("directory/secret"), "harmless\n").unwrap();
    symlink(&world.secret, at("link")).unwrap();
    symlink(world.secret.parent().unwrap(), at("way")).unwrap();
    let over = AtomicBool::new(false);
    let rules = world.rules();
    let (mut read, mut refused) = (0_u64, 0_u64);
    thread::scope(|scope| {
        scope.spawn(|| {
            swap(&world, &over);
        });
        for round in 0..rounds {
            for path in [at("file"), at("directory/secret")] {
                match rules.read_file("default", &path) {
                    Ok(found) => {
                        assert!(
                            !String::from_utf8_lossy(&found.bytes).contains(SECRET),
                            "round {round}"
                        );
                        read += 1;
                    }
                    Err(_) => refused += 1,
                }
                let content = Content {
                    bytes: b"harmless\n",
                    write: Writing::Now,
                };
                drop(rules.write_file("default", &path, content, |_| Ok(())));
            }
            if let Ok((entries, _)) = rules.list_directory("default", &at("directory")) {
                assert!(
                    entries.iter().all(|entry| entry.size_bytes < SECRET.len() as u64),
                    "round {round}"
                );
            }
            // A command also resolves its operands once, but takes a hundred times as long.
            if round % 100 == 0 {
                let words = crate::world::words(&format!("cat {}", at("file").display()));
                if let Ok(outcome) = world.run(&rules, &rules.judge(&words).unwrap(), 10) {
                    assert!(
                        !String::from_utf8_lossy(&outcome.stdout.bytes).contains(SECRET),
                        "round {round}"
                    );
                }
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    println!("  {rounds} rounds, {read} files read, {refused} links refused");
    assert!(
        read > 0 && refused > 0,
        "there was no race: {read} read, {refused} refused"
    );
    assert_eq!(fs::read_to_string(&world.secret).unwrap(), format!("{SECRET}\n"));
    assert_eq!(fs::read_dir(world.secret.parent().unwrap()).unwrap().count(), 1);
}

/// Swaps files and links until `over` is set.
fn swap(world: &World, over: &AtomicBool) {
    let at = |name: &str| world.directory.join(name);
    let exchange = |one: &Path, two: &Path| {
        let flags = rustix::fs::RenameFlags::EXCHANGE;
        rustix::fs::renameat_with(rustix::fs::CWD, one, rustix::fs::CWD, two, flags)
    };
    while !over.load(Ordering::Relaxed) {
        // A write may have replaced the link; then a new link is made.
        if !at("file").is_symlink() && !at("link").is_symlink() {
            let spare = world.base.join("spare");
            symlink(&world.secret, &spare).unwrap();
            fs::rename(&spare, at("link")).unwrap();
        }
        exchange(&at("file"), &at("link")).ok();
        exchange(&at("directory"), &at("way")).ok();
    }
}
