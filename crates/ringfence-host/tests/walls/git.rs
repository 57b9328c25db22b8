//! The output of git behind its walls is the same, byte for byte, as without walls.

use crate::world::{World, text};
use ringfence_host::Ending;

const COMMANDS: &[&str] = &[
    "git status",
    "git status -s",
    "git status --porcelain=v2 --branch",
    "git status --long -uall",
    "git status -- a.txt",
    "git log",
    "git log --oneline --graph -n 5",
    "git log -p --stat",
    "git log --format=%h%x09%s -- a.txt",
    "git log HEAD~1..HEAD",
    "git log --since=2001-01-01 --author=a --name-status",
    "git diff",
    "git diff --cached",
    "git diff --stat HEAD~1",
    "git diff HEAD~1 HEAD -- a.txt",
    "git diff --word-diff --unified=1",
    "git show",
    "git show --stat HEAD~1",
    "git show HEAD:a.txt",
    "git branch --list -a -v",
];

/// claim: [HOST-1]
pub fn git_output_is_the_same_behind_walls() {
    let world = World::new("git");
    let made = world.bare(
        "set -e; rm -r bin evil; git init -q -b main .; git config user.name a; git config user.email a@b; mkdir sub
         seq 40 > a.txt; echo b > sub/b.txt; git add .; git commit -qm one; seq 41 > a.txt; git commit -qam two; git branch other
         seq 42 > a.txt; echo c > sub/c.txt; git add sub; echo 'a line' >> sub/b.txt; touch new.txt; git stash list",
        "20",
    );
    assert!(made.status.success(), "{made:?}");
    for command in COMMANDS {
        let bare = world.bare(&format!("GIT_OPTIONAL_LOCKS=0 {command}"), "20");
        assert!(
            bare.status.success() && !bare.stdout.is_empty(),
            "{command}: {bare:?}"
        );
        let inside = world.run_by_rule(command);
        assert_eq!(
            inside.ending,
            Ending::Code(0),
            "{command}: {}",
            text(&inside.stderr.bytes)
        );
        assert_eq!(text(&inside.stdout.bytes), text(&bare.stdout), "{command}");
        assert_eq!(inside.stderr.bytes, bare.stderr, "{command}");
    }
}
