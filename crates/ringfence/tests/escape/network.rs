//! The attacks on the way out, in a network namespace of its own: this program is started there again. Outside, a probe talks to
//! the hosts of that namespace as it likes, and is heard; inside, one of them is allowed, and nothing else may be heard.

mod attacks;

use crate::{
    catalogue::{Verdict, is_wanted, tally},
    client::*,
    world::{User, World},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use std::{
    collections::BTreeSet,
    process::{Command, Stdio},
};

/// The word by which this program knows that it is there.
pub const HERE: &str = "--in-a-network-of-its-own";
/// And this, that it is root outside of it, too.
pub const NOBODY_TOO: &str = "--nobody-too";
/// Its last line begins with this, and has how many held and how many did not.
const COUNTED: &str = "counted:";
/// In the vault, and given to no run that does not name it.
const CANARY: &str = "canary-5a1c9e0d7b3f48266f0e91ab";

/// One attack on the way out.
pub struct Crossing {
    pub id: &'static str,
    /// A sentence: what holds.
    pub name: &'static str,
    /// Claim of SECURITY.md that it tests.
    pub claim: &'static str,
    pub language: &'static str,
    /// `GOOD` is the host that is allowed, `OTHER` one that is not, `BY_NUMBER` its address, `PROXY` host and port where a proxy
    /// answers; outside, that is the other host itself.
    pub probe: &'static str,
    /// Further words for `ringfence run`.
    pub flags: &'static [&'static str],
    /// The denial that the result has to name.
    pub denial: Option<&'static str>,
}

/// Starts this program again where there is no network but its own. How many held, and how many did not.
pub fn elsewhere(filter: Option<&str>, users: &[User]) -> (usize, usize) {
    let kind = match users.contains(&User::Nobody) {
        true => "-n",
        false => "-Urn",
    };
    let mut command = Command::new("unshare");
    command.args([kind, "--"]).arg(std::env::current_exe().unwrap());
    command
        .arg(HERE)
        .args(filter.map(|filter| ["--filter", filter]).iter().flatten());
    if users.contains(&User::Nobody) {
        command.arg(NOBODY_TOO);
    }
    let done = command.stderr(Stdio::inherit()).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    let (lines, counts) = said.rsplit_once(COUNTED).unwrap_or((&said, ""));
    print!("{lines}");
    let mut counts = counts.split_whitespace().map(|count| count.parse().unwrap());
    // One that did not come to its end has failed.
    (counts.next().unwrap_or(0), counts.next().unwrap_or(1))
}

/// Tries all of them; the last line that is printed has the counts.
pub fn try_all(filter: Option<&str>, users: &[User]) {
    let (mut passed, mut failed) = (0, 0);
    for user in users {
        let who = match user {
            User::Same => "the way out, as whoever runs this",
            User::Nobody => "the way out, as uid 65534",
        };
        let world = World::of(*user);
        let wanted = attacks::ALL.iter();
        let wanted =
            wanted.filter(|crossing| is_wanted(filter, [crossing.id, crossing.name, crossing.claim]));
        let verdicts = wanted.map(|crossing| (crossing.id, crossing.name, judge(&world, crossing)));
        let (held, escaped) = tally(who, verdicts);
        passed += held;
        failed += escaped;
    }
    println!("{COUNTED} {passed} {failed}");
}

/// Their names.
pub fn list() {
    for crossing in attacks::ALL {
        println!("{} {}", crossing.id, crossing.name);
    }
}

fn judge(world: &World, crossing: &Crossing) -> Verdict {
    world.heard();
    let outside = outside(world, crossing);
    let heard = world.heard();
    if !outside.contains("REACHED") && !shows(&outside) && heard.iter().all(|heard| may_be(heard)) {
        return Verdict::NotApplicable(format!("does not succeed outside either: {}", last(&outside)));
    }
    let result = inside(world, crossing);
    let (heard, said) = (world.heard(), format!("{}{}", result["stdout"], result["stderr"]));
    if let Some(heard) = heard.iter().find(|heard| !may_be(heard)) {
        return Verdict::Escaped(format!("left the machine: {heard}"));
    }
    if shows(&result.to_string()) {
        return Verdict::Escaped("the canary was read".into());
    }
    if said.contains("REACHED") || !said.contains("BLOCKED") {
        return Verdict::Escaped(format!("said {said}"));
    }
    let denials = result["denials"].as_array().into_iter().flatten();
    let rules: BTreeSet<&str> = denials.filter_map(|denial| denial["rule"].as_str()).collect();
    match crossing.denial {
        Some(rule) if !rules.contains(&rule) => Verdict::Escaped(format!("no denial {rule}: {rules:?}")),
        _ => Verdict::Held(rules.into_iter().collect::<Vec<_>>().join(" ")),
    }
}

/// Is this what the rules allow to be heard: the one host, on its ports.
fn may_be(heard: &str) -> bool {
    let of_good = ["tcp 93.184.216.34:80", "tcp 93.184.216.34:443", "dns good.test"].contains(&heard);
    // A connection that broke off is told of as a document, after the line that says where it was.
    of_good || heard.ends_with(" of good.test") || heard.starts_with('{')
}

/// Is the canary in it, as it is or as a header carries it.
fn shows(text: &str) -> bool {
    text.contains(CANARY) || text.contains(&STANDARD.encode(format!("user:{CANARY}")))
}

fn last(text: &str) -> &str {
    text.lines().last().unwrap_or_default()
}

fn outside(world: &World, crossing: &Crossing) -> String {
    let (program, words) = match crossing.language {
        "python" => ("/usr/bin/python3", ["-c"].as_slice()),
        "node" => ("/usr/bin/node", ["-e"].as_slice()),
        _ => ("/bin/bash", ["-c"].as_slice()),
    };
    let mut command = world.as_its_user(program.as_ref());
    let probe = fill(
        crossing.probe,
        "93.184.216.34",
        "93.184.216.35",
        ("93.184.216.35", "80"),
    );
    command.args(words).arg(probe).env_clear();
    command
        .env("PATH", "/usr/bin:/bin")
        .env("TOKEN", CANARY)
        .current_dir("/");
    all_of(&command.stdin(Stdio::null()).output().unwrap())
}

fn inside(world: &World, crossing: &Crossing) -> Value {
    let probe = fill(crossing.probe, "good.test", "other.test", ("198.18.0.1", "3128"));
    let script = world.directory.join("probe");
    std::fs::write(&script, probe).unwrap();
    let mut command = world.ringfence(&["run", "--json", "--language", crossing.language]);
    command
        .args(["--allow", "good.test"])
        .args(crossing.flags)
        .arg(&script);
    command
        .env("RINGFENCE_VAULT_STORE", "env")
        .env("RINGFENCE_SECRET_DEFAULT_TOKEN", CANARY);
    json_of(&command.output().unwrap())
}

fn fill(probe: &str, good: &str, other: &str, proxy: (&str, &str)) -> String {
    let words = [
        ("PROXY_HOST", proxy.0),
        ("PROXY_PORT", proxy.1),
        ("GOOD", good),
        ("OTHER", other),
        ("BY_NUMBER", "93.184.216.35"),
    ];
    words.iter().fold(probe.to_owned(), |probe, (word, means)| {
        probe.replace(word, means)
    })
}
