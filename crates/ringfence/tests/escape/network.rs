//! The egress attacks, in a network namespace of their own: this program is started there again. Outside of the sandbox
//! (the control), a probe reaches any host of that namespace, and the hosts record it; inside, one host is allowed, and
//! no other contact may be recorded.

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

/// Flag of this program when it runs in that network namespace.
pub const HERE: &str = "--in-a-network-of-its-own";
/// Flag that this program is root outside of the namespace, too, so that the attacks also run as uid 65534.
pub const NOBODY_TOO: &str = "--nobody-too";
/// The last line begins with this, followed by the counts of held and escaped attacks.
const COUNTED: &str = "counted:";
/// The value in the vault, given only to runs that name it.
const CANARY: &str = "canary-5a1c9e0d7b3f48266f0e91ab";

/// One egress attack.
pub struct EgressAttack {
    pub id: &'static str,
    /// The property that holds, as a sentence.
    pub name: &'static str,
    /// The claim of SECURITY.md that the attack tests.
    pub claim: &'static str,
    pub language: &'static str,
    /// `GOOD` is the allowed host, `OTHER` a denied one, `BY_NUMBER` the address of `OTHER`, and `PROXY_HOST` and
    /// `PROXY_PORT` the address of the proxy; outside, that is `OTHER` itself.
    pub probe: &'static str,
    /// Further arguments of `ringfence run`.
    pub flags: &'static [&'static str],
    /// The denial that the result must have.
    pub denial: Option<&'static str>,
}

/// Starts this program again in a new network namespace. Returns how many attacks held and how many escaped.
pub fn run_in_own_network(filter: Option<&str>, users: &[User]) -> (usize, usize) {
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
    // A run that did not reach its end counts as failed.
    (counts.next().unwrap_or(0), counts.next().unwrap_or(1))
}

/// Tries all egress attacks; the last printed line has the counts.
pub fn try_all(filter: Option<&str>, users: &[User]) {
    let (mut passed, mut failed) = (0, 0);
    for user in users {
        let who = match user {
            User::Same => "egress, as the current user",
            User::Nobody => "egress, as uid 65534",
        };
        let world = World::start(*user);
        let wanted = attacks::ALL.iter();
        let wanted = wanted.filter(|attack| is_wanted(filter, [attack.id, attack.name, attack.claim]));
        let verdicts = wanted.map(|attack| (attack.id, attack.name, judge(&world, attack)));
        let (held, escaped) = tally(who, verdicts);
        passed += held;
        failed += escaped;
    }
    println!("{COUNTED} {passed} {failed}");
}

/// Prints the names of the egress attacks.
pub fn list() {
    for attack in attacks::ALL {
        println!("{} {}", attack.id, attack.name);
    }
}

fn judge(world: &World, attack: &EgressAttack) -> Verdict {
    world.contacts();
    let outside = outside(world, attack);
    let contacts = world.contacts();
    if !outside.contains("REACHED")
        && !contains_canary(&outside)
        && contacts.iter().all(|contact| is_allowed(contact))
    {
        return Verdict::NotApplicable(format!(
            "does not succeed outside either: {}",
            last_line(&outside)
        ));
    }
    let result = inside(world, attack);
    let (contacts, said) = (
        world.contacts(),
        format!("{}{}", result["stdout"], result["stderr"]),
    );
    if let Some(contact) = contacts.iter().find(|contact| !is_allowed(contact)) {
        return Verdict::Escaped(format!("left the sandbox: {contact}"));
    }
    if contains_canary(&result.to_string()) {
        return Verdict::Escaped("the canary was read".into());
    }
    if said.contains("REACHED") || !said.contains("BLOCKED") {
        return Verdict::Escaped(format!("output: {said}"));
    }
    let denials = result["denials"].as_array().into_iter().flatten();
    let rules: BTreeSet<&str> = denials.filter_map(|denial| denial["rule"].as_str()).collect();
    match attack.denial {
        Some(rule) if !rules.contains(&rule) => Verdict::Escaped(format!("no denial {rule}: {rules:?}")),
        _ => Verdict::Held(rules.into_iter().collect::<Vec<_>>().join(" ")),
    }
}

/// True if the rules allow this contact: the one host, on its ports.
fn is_allowed(contact: &str) -> bool {
    let of_good = ["tcp 93.184.216.34:80", "tcp 93.184.216.34:443", "dns good.test"].contains(&contact);
    // A broken connection is rendered as a JSON object, after the line with its address.
    of_good || contact.ends_with(" of good.test") || contact.starts_with('{')
}

/// True if the text contains the canary, in plain text or as in a Basic header.
fn contains_canary(text: &str) -> bool {
    text.contains(CANARY) || text.contains(&STANDARD.encode(format!("user:{CANARY}")))
}

fn last_line(text: &str) -> &str {
    text.lines().last().unwrap_or_default()
}

fn outside(world: &World, attack: &EgressAttack) -> String {
    let (program, words) = match attack.language {
        "python" => ("/usr/bin/python3", ["-c"].as_slice()),
        "node" => ("/usr/bin/node", ["-e"].as_slice()),
        _ => ("/bin/bash", ["-c"].as_slice()),
    };
    let mut command = world.as_user(program.as_ref());
    let probe = fill(
        attack.probe,
        "93.184.216.34",
        "93.184.216.35",
        ("93.184.216.35", "80"),
    );
    command.args(words).arg(probe).env_clear();
    command
        .env("PATH", "/usr/bin:/bin")
        .env("TOKEN", CANARY)
        .current_dir("/");
    both_streams_of(&command.stdin(Stdio::null()).output().unwrap())
}

fn inside(world: &World, attack: &EgressAttack) -> Value {
    let probe = fill(attack.probe, "good.test", "other.test", ("198.18.0.1", "3128"));
    let script = world.directory.join("probe");
    std::fs::write(&script, probe).unwrap();
    let mut command = world.ringfence(&["run", "--json", "--language", attack.language]);
    command
        .args(["--allow", "good.test"])
        .args(attack.flags)
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
