//! Runs the table of harmful words (options.yaml), row by row.

use crate::world::{SECRET, World, is_root, lacks, text, words};
use ringfence_host::{Allowed, Effect, Ending, Outcome, Words};
use ringfence_types::yaml;
use serde::Deserialize;
use std::{path::PathBuf, process::Output, thread};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    id: String,
    command: String,
    /// Program that the row needs.
    program: Option<String>,
    #[serde(default)]
    repository: bool,
    #[serde(default)]
    setup: String,
    /// Shell command of the control, if it differs from the command.
    control: Option<String>,
    #[serde(default)]
    looks_for: Evidence,
    /// True if the effect is harmless to the walls.
    #[serde(default)]
    rules_only: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Evidence {
    Marker(String),
    Link(String),
    Gone(String),
    Text(String),
    Secret,
    Endless,
    HostName,
}

impl Default for Evidence {
    fn default() -> Self {
        Self::Marker("$M".to_owned())
    }
}

const REPOSITORY: &str = r#"
git init -q -b main . && git config user.name a && git config user.email a@b && git config commit.gpgsign false
printf 'bin\nevil\nsign\nsubmodule\npartial\nalternates\n*.pack\n' > .git/info/exclude
echo one > a.txt; git add a.txt; git commit -qm one; echo two >> a.txt; git commit -qam two; echo three >> a.txt
cat > sign <<'END'
cat > gpg <<'EOG'
#!/bin/sh
touch $M; cat > /dev/null
case "$*" in *-bsau*) echo "[GNUPG:] SIG_CREATED " >&2; echo "-----BEGIN PGP SIGNATURE-----"; echo; echo "-----END PGP SIGNATURE-----";; esac
EOG
chmod +x gpg; git config gpg.program $D/gpg; echo gpg >> .git/info/exclude; git commit -q -S -am signed
END
cat > submodule <<'END'
git init -q other; (cd other; git config user.name a; git config user.email a@b; cp ../a.txt .; git add .; git commit -qm x)
git -c protocol.file.allow=always submodule --quiet add ./other sub; git commit -qam sub
END
cat > partial <<'END'
git commit -qam three
blob=$(git rev-parse HEAD:a.txt); git config remote.origin.url "ext::touch $M"; git config remote.origin.promisor true
git config remote.origin.partialclonefilter blob:none; git config extensions.partialClone origin; git config core.repositoryformatversion 1
git config protocol.ext.allow always
rm -f .git/objects/$(echo $blob | cut -c1-2)/$(echo $blob | cut -c3-)
END
cat > alternates <<'END'
git init -q ../other; (cd ../other; git config user.name a; git config user.email a@b; git commit -q --allow-empty -m other-repository)
echo $D/../other/.git/objects > .git/objects/info/alternates
(cd ../other; git rev-parse HEAD) > .git/refs/heads/main
END
"#;

/// Deadline in seconds; a command that reaches it counts as endless.
const ENDLESS: u64 = 2;

/// claim: [HOST-1]
pub fn dangerous_options_have_no_effect() {
    let table = yaml::read(include_str!("options.yaml")).unwrap();
    let rows = Vec::<Row>::deserialize(&table).unwrap();
    let count = rows.len();
    assert!(count >= 100, "{count} rows");
    // Several threads, because most of the time is spent waiting for commands that do not end.
    let rows = std::sync::Mutex::new(rows.into_iter());
    let (mut played, mut failed) = (0, Vec::new());
    thread::scope(|scope| {
        let work = || {
            let (mut played, mut failed) = (0, Vec::new());
            loop {
                let next = rows.lock().unwrap().next();
                let Some(row) = next else { return (played, failed) };
                match play(&row) {
                    Ok(true) => played += 1,
                    Ok(false) => {}
                    Err(what) => failed.push(format!("{}: {what}", row.id)),
                }
            }
        };
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            let (some, more) = thread.join().unwrap();
            played += some;
            failed.extend(more);
        }
    });
    println!("  {count} rows, {played} played, {} wrong", failed.len());
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(played >= 100, "only {played} rows could be played here");
}

/// Runs a row. Returns false if it does not apply to this machine.
fn play(row: &Row) -> Result<bool, String> {
    if row.program.as_deref().is_some_and(lacks) {
        return Ok(false);
    }
    if matches!(row.looks_for, Evidence::HostName) && !is_root() {
        println!("  not applicable: only root changes a host's name ({})", row.id);
        return Ok(false);
    }
    let control = set_up(row)?;
    let bare = row.control.as_ref().unwrap_or(&row.command);
    let bare = match row.looks_for {
        Evidence::HostName => format!("unshare -u sh -c '{}; hostname'", bare.replace('\'', "'\\''")),
        _ => bare.clone(),
    };
    let seconds = if matches!(row.looks_for, Evidence::Endless) {
        "1"
    } else {
        "20"
    };
    let ended = control.bare(&bare, seconds);
    if !fired(&row.looks_for, &control, &Seen::of(&ended)) {
        return Err(format!("the control does not fire: {ended:?}"));
    }
    let words = Words::read(&control.fill(&row.command));
    by_rules(row)?;
    if !row.rules_only && words.is_ok() {
        by_walls(row)?;
    }
    Ok(true)
}

fn set_up(row: &Row) -> Result<World, String> {
    let world = World::new(&row.id);
    let script = match row.repository {
        true => format!("set -e\n{REPOSITORY}\n{}", row.setup),
        false => format!("set -e\n{}", row.setup),
    };
    // `bare` also fills the placeholders in files that the script writes.
    let done = world.bare(&script, "20");
    match done.status.success() {
        true => Ok(world),
        false => Err(format!("the setup fails: {done:?}")),
    }
}

/// Runs the command as a caller would.
fn by_rules(row: &Row) -> Result<(), String> {
    let world = set_up(row)?;
    let rules = world.rules();
    let Ok(words) = Words::read(&world.fill(&row.command)) else {
        return check_no_effect(row, &world, &Seen::nothing(), "the words are refused");
    };
    let seen = match rules.judge(&words) {
        Ok(allowed) => Seen::after(world.run(&rules, &allowed, ENDLESS), By::Rules)?,
        Err(_) => Seen::nothing(),
    };
    check_no_effect(row, &world, &seen, "by the rules")
}

/// Runs the command as if a rule had allowed it, with the effect of its program, or, for a program without rules, an
/// effect that reads and writes no directory.
fn by_walls(row: &Row) -> Result<(), String> {
    let world = set_up(row)?;
    let rules = world.rules();
    let words = words(&world.fill(&row.command));
    let mut allowed: Allowed = match rules.approved(&words) {
        Ok(allowed) => allowed,
        // On the list of commands that are never run.
        Err(_) => return Ok(()),
    };
    allowed.effect = effect_of(words.program(), &rules);
    let seen = Seen::after(world.run(&rules, &allowed, ENDLESS), By::Walls)?;
    check_no_effect(row, &world, &seen, "by the walls alone")
}

/// Returns the effect of the program's forms.
fn effect_of(program: &str, rules: &ringfence_host::Rules) -> Effect {
    let example = match program {
        "git" => "git status",
        "cat" => "cat /x",
        "head" => "head /x",
        "tail" => "tail /x",
        "ls" => "ls /x",
        "docker" => "docker ps",
        "systemctl" => "systemctl status x",
        "npm" => "npm list",
        "pip" => "pip list",
        "free" => "free",
        "date" => "date",
        "hostname" => "hostname",
        _ => {
            return Effect {
                runs: vec![PathBuf::from("/usr/bin"), PathBuf::from("/bin")],
                ..Effect::default()
            };
        }
    };
    rules.judge(&words(example)).unwrap().effect
}

/// Observations of a run.
struct Seen {
    text: String,
    is_endless: bool,
}

impl Seen {
    fn nothing() -> Self {
        Self {
            text: String::new(),
            is_endless: false,
        }
    }

    fn of(output: &Output) -> Self {
        Self {
            text: text(&output.stdout) + &text(&output.stderr),
            is_endless: output.status.code() == Some(137) || output.status.code().is_none(),
        }
    }

    /// A timeout counts as endless if a rule allowed the command, and not if the walls alone are tested.
    fn after(outcome: Result<Outcome, String>, by: By) -> Result<Self, String> {
        let outcome = match outcome {
            Ok(outcome) => outcome,
            // A refusal; a failing wall is an error.
            Err(error) if !error.starts_with("sandbox_fault") => return Ok(Self::nothing()),
            Err(error) => return Err(format!("it was not run: {error}")),
        };
        Ok(Self {
            text: text(&outcome.stdout.bytes) + &text(&outcome.stderr.bytes),
            is_endless: by == By::Rules && outcome.ending == Ending::Timeout,
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Rules,
    Walls,
}

fn fired(looks: &Evidence, world: &World, seen: &Seen) -> bool {
    let there = |path: &str| PathBuf::from(world.fill(path)).exists();
    match looks {
        Evidence::Marker(path) => there(path),
        Evidence::Link(path) => PathBuf::from(world.fill(path)).is_symlink(),
        Evidence::Gone(path) => !there(path),
        Evidence::Text(wanted) => seen.text.contains(wanted.as_str()),
        Evidence::Secret => seen.text.contains(SECRET),
        Evidence::Endless => seen.is_endless,
        Evidence::HostName => {
            seen.text.contains("changed-here")
                || text(&std::fs::read("/proc/sys/kernel/hostname").unwrap()).contains("changed-here")
        }
    }
}

fn check_no_effect(row: &Row, world: &World, seen: &Seen, how: &str) -> Result<(), String> {
    match fired(&row.looks_for, world, seen) {
        true => Err(format!("{how}: {:?} has happened: {}", row.looks_for, seen.text)),
        false => Ok(()),
    }
}
