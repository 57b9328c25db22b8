//! Property test: any tree, changed in any way, is restored as it was.

use crate::snapshots::tests::fixture::{Scratch, chmod, noise, set_mtime};
use proptest::prelude::*;
use std::{
    fs::{self, File},
    os::unix::fs::{FileExt, symlink},
    path::PathBuf,
};

/// One change to a workspace; entries in its way are removed.
#[derive(Clone, Debug)]
enum Edit {
    File(usize, u64),
    Sparse(u64, u64),
    Directory,
    Link(String),
    Remove,
    Mode(u32),
    Time(i64, i64),
    Append(Vec<u8>),
}

fn path() -> impl Strategy<Value = PathBuf> {
    // Few names, so that edits collide.
    let name = prop_oneof![Just("a"), Just("b"), Just("b-c"), Just("ü ö"), Just(".hidden")];
    prop::collection::vec(name, 1..4).prop_map(|names| names.iter().collect())
}

fn act() -> impl Strategy<Value = Edit> {
    let sizes = prop_oneof![Just(0usize), 1usize..200, 15_000usize..300_000];
    prop_oneof![
        4 => (sizes, 0u64..4).prop_map(|(size, seed)| Edit::File(size, seed)),
        1 => (0u64..2_000_000, 0u64..2_000_000).prop_map(|(at, more)| Edit::Sparse(at, more)),
        2 => Just(Edit::Directory),
        1 => "[a-z./]{1,20}".prop_map(Edit::Link),
        2 => Just(Edit::Remove),
        1 => prop_oneof![Just(0o644), Just(0o600), Just(0o755), Just(0o4711), Just(0o700)].prop_map(Edit::Mode),
        2 => (-1_000_000i64..3_000_000_000, 0i64..1_000_000_000).prop_map(|(s, n)| Edit::Time(s, n)),
        1 => prop::collection::vec(any::<u8>(), 1..10).prop_map(Edit::Append),
    ]
}

/// Applies an edit. It may fail like a program's: a name may be an entry of another kind by now.
fn perform(scratch: &Scratch, path: &PathBuf, act: &Edit) -> std::io::Result<()> {
    let at = scratch.path(path);
    let clear = || {
        let mut above = scratch.path("");
        for part in path {
            above.push(part);
            let found = fs::symlink_metadata(&above);
            if found.is_ok_and(|found| !found.is_dir()) {
                fs::remove_file(&above)?;
            }
        }
        if at.is_dir() {
            fs::remove_dir_all(&at)?;
        }
        fs::create_dir_all(at.parent().unwrap())
    };
    match act {
        Edit::File(size, seed) => {
            clear()?;
            fs::write(&at, noise(*size, *seed))
        }
        Edit::Sparse(offset, more) => {
            clear()?;
            let file = File::create(&at)?;
            file.write_all_at(b"data", *offset)?;
            file.set_len(offset + 4 + more)
        }
        Edit::Directory => {
            clear()?;
            fs::create_dir(&at)
        }
        Edit::Link(target) => {
            clear()?;
            symlink(target, &at)
        }
        Edit::Remove => clear(),
        Edit::Mode(mode) => {
            if fs::symlink_metadata(&at)?.is_symlink() {
                return Ok(());
            }
            let is_directory = fs::symlink_metadata(&at)?.is_dir();
            chmod(&at, if is_directory { mode | 0o700 } else { *mode });
            Ok(())
        }
        Edit::Time(seconds, nanoseconds) => {
            fs::symlink_metadata(&at)?;
            set_mtime(&at, *seconds, *nanoseconds);
            Ok(())
        }
        Edit::Append(bytes) => {
            if !fs::symlink_metadata(&at)?.is_file() {
                return Ok(());
            }
            std::io::Write::write_all(&mut File::options().append(true).open(&at)?, bytes)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_tree_is_restored(
        first in prop::collection::vec((path(), act()), 0..25),
        between in prop::collection::vec((path(), act()), 0..6),
        second in prop::collection::vec((path(), act()), 0..25),
    ) {
        let scratch = Scratch::new();
        let store = scratch.store();
        let perform_all = |acts: &[(PathBuf, Edit)]| acts.iter().filter(|(path, act)| perform(&scratch, path, act).is_ok()).count();
        let performed = perform_all(&first);
        prop_assert!(performed > 0 || first.iter().all(|(_, act)| !matches!(act, Edit::File(..))));
        let masked = |mut state: crate::snapshots::tests::fixture::State| {
            state.values_mut().for_each(|(mode, _, _)| *mode &= 0o1777);
            state
        };
        let one = (scratch.create(&store), masked(scratch.state()));
        perform_all(&between);
        let two = (scratch.create(&store), masked(scratch.state()));
        perform_all(&second);
        for (created, state) in [&one, &two, &one] {
            let restored = scratch.restore(&store, created.id);
            prop_assert_eq!(&scratch.state(), state);
            let again = scratch.restore(&store, created.id);
            prop_assert_eq!((again.written, again.deleted), (0, 0));
            prop_assert_eq!(again.unchanged, state.len() as u64 - 1);
            prop_assert!(restored.written + restored.unchanged == again.unchanged);
        }
    }
}
