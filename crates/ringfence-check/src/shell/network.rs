//! What comes from the network and is run, who is let in over it, and what is sent away.

use super::{
    call::{Call, is_interpreter, is_shell},
    remote::{self, Remote},
    rules,
    scene::{Reporter, Scene, connects, downloads},
    syntax::{Command, Inside, Part, Pipeline, ShellWord},
};
use crate::{
    credentials::{self, Secret},
    unknown::{UNKNOWN, shown},
};
use ringfence_types::Severity::{Error, Info, Warning};
use std::collections::HashSet;

/// How far a connection is followed.
const COMMANDS_AHEAD_MAX: usize = 200;

/// Files and variables that hold what was downloaded or decoded.
#[derive(Default)]
pub(super) struct Fetched {
    files: HashSet<String>,
    variables: HashSet<String>,
}

impl Fetched {
    pub(super) fn of(scene: &Scene<'_>) -> Self {
        let mut fetched = Self::default();
        for (command, started) in scene.script.commands.iter().zip(scene.started) {
            for assignment in &command.assignments {
                let comes = assignment
                    .values
                    .iter()
                    .any(|word| comes_from(scene, word, downloads));
                if comes {
                    fetched.variables.insert(assignment.name.to_owned());
                }
            }
            for call in started.calls.iter().filter(|call| downloads(call)) {
                fetched.files.extend(target(scene, command, call));
            }
        }
        fetched
    }
}

/// The file that a download is written to.
fn target(scene: &Scene<'_>, command: &Command<'_>, call: &Call) -> Option<String> {
    let named = match call.name.as_str() {
        "wget" => call.value_of("-O", "--output-document"),
        _ => call.value_of("-o", "--output"),
    };
    if let Some(file) = named {
        return (file != "-").then(|| plain(file));
    }
    let writes = command
        .redirections
        .iter()
        .find(|redirection| redirection.writes());
    if let Some(redirection) = writes {
        return Some(plain(&scene.expander().text(&redirection.target)));
    }
    let saves = call.name != "curl" || call.has("OJ", &["remote-name"]);
    let url = call.operands().into_iter().rfind(|text| text.contains("://"))?;
    let name = url.split(['?', '#']).next()?.rsplit('/').next()?;
    (saves && !name.is_empty()).then(|| plain(name))
}

fn plain(path: &str) -> String {
    path.trim_start_matches("./").to_owned()
}

fn comes_from(scene: &Scene<'_>, word: &ShellWord<'_>, is: impl Fn(&Call) -> bool + Copy) -> bool {
    scene
        .inside(word)
        .any(|inside: &Inside| scene.starts(&inside.commands, is))
}

/// Programs that turn letters into other letters.
fn decodes(call: &Call) -> bool {
    match call.name.as_str() {
        "base64" | "base32" => call.has("dD", &["decode"]),
        "xxd" => call.has("r", &["revert"]),
        "openssl" => call.texts().any(|text| text == "-d"),
        "uudecode" | "gunzip" | "zcat" | "xzcat" | "bzcat" => true,
        "gzip" | "xz" | "bzip2" => call.has("d", &["decompress"]),
        "rev" | "tr" => true,
        _ => false,
    }
}

/// It reads its script from its input.
fn reads_script(call: &Call) -> bool {
    if is_shell(&call.name) {
        let asks = call.has("c", &[]);
        return !asks
            && (call.operands().is_empty()
                || call.has("s", &[])
                || call.operands() == ["-"]
                || from_input(call));
    }
    let code = call.has("ceErmp", &["eval", "print"]);
    is_interpreter(&call.name) && !code && (call.operands().is_empty() || call.operands() == ["-"])
        || matches!(call.name.as_str(), "source" | ".") && from_input(call)
}

fn from_input(call: &Call) -> bool {
    matches!(
        call.operands().first(),
        Some(&("/dev/stdin" | "/dev/fd/0" | "/proc/self/fd/0"))
    )
}

pub(super) fn piped(out: &mut Reporter<'_>, pipeline: &Pipeline) {
    let scene = out.scene;
    let place_of =
        |is: &dyn Fn(&Call) -> bool| pipeline.stages.iter().position(|stage| scene.starts(stage, is));
    let last_of =
        |is: &dyn Fn(&Call) -> bool| pipeline.stages.iter().rposition(|stage| scene.starts(stage, is));
    let shell = last_of(&reads_script);
    let interactive = last_of(&|call| is_shell(&call.name));
    let connected = place_of(&connects);
    if interactive.is_some() && connected.is_some() && interactive != connected {
        let what = "a shell is joined to a connection";
        return out.tell(&rules::REVERSE_SHELL, what);
    }
    let before = |place: Option<usize>| matches!((place, shell), (Some(place), Some(shell)) if place < shell);
    if before(place_of(&downloads)) {
        let what = "what is downloaded goes straight to a shell";
        out.tell(&rules::DOWNLOAD_AND_RUN, what);
    } else if before(place_of(&decodes)) {
        let what = "what is decoded goes straight to a shell";
        out.tell(&rules::ENCODED_RUN, what);
    }
    let secret = place_of(&|call| tells_environment(call) || reads_secret(call));
    let sends = last_of(&|call| downloads(call) || connects(call) || call.name == "ssh");
    if matches!((secret, sends), (Some(secret), Some(sends)) if secret < sends) {
        let what = "secrets or the environment go to the network";
        out.tell(&rules::EXFILTRATION, what);
    }
}

fn tells_environment(call: &Call) -> bool {
    match call.name.as_str() {
        "printenv" => call.arguments.is_empty(),
        "env" | "export" | "set" | "declare" => call.operands().is_empty(),
        _ => false,
    }
}

fn reads_secret(call: &Call) -> bool {
    matches!(
        call.name.as_str(),
        "cat" | "tar" | "zip" | "base64" | "head" | "tail" | "gzip" | "xxd" | "grep" | "sed" | "awk"
    ) && call
        .texts()
        .any(|text| credentials::kept_at(text.trim_start_matches('@')).is_some())
}

/// Programs that may name a secret.
#[rustfmt::skip]
const KEEP_SECRETS: &[&str] = &[
    "ssh", "scp", "sftp", "ssh-keygen", "ssh-add", "ssh-copy-id", "chmod", "chown", "mkdir", "touch", "echo",
    "printf", "test", "[", "export", "rm", "ls", "stat", "git", "cd", "ansible", "rsync", "alias",
];

/// Programs that name a secret without telling it.
fn keeps_secret(name: &str) -> bool {
    KEEP_SECRETS.contains(&name)
}

pub(super) fn look(out: &mut Reporter<'_>, command: &Command<'_>, call: &Call, fetched: &Fetched) {
    fetched_and_run(out, command, call, fetched);
    if !keeps_secret(&call.name) {
        let file = |text: &str| {
            let file = text.rsplit(['@', '=']).next().unwrap_or(text);
            [file, text]
                .iter()
                .any(|text| credentials::kept_at(text) == Some(Secret::Certain))
        };
        if let Some(path) = call.texts().find(|text| file(text)) {
            out.tell(&rules::CREDENTIAL_PATH, format!("`{}` is read", shown(path)));
        }
    }
    if connects(call) || downloads(call) {
        sent(out, command, call);
    }
    let lets_in = match call.name.as_str() {
        "nc" | "ncat" | "netcat" | "nc.traditional" | "nc.openbsd" | "pwncat" => {
            call.has("e", &["exec", "sh-exec", "lua-exec"])
                || call.has("c", &[]) && call.texts().any(names_shell)
        }
        "socat" => {
            let starts = |text: &str| {
                ["EXEC:", "SYSTEM:", "SHELL:"]
                    .iter()
                    .any(|kind| text.to_uppercase().contains(kind))
            };
            call.texts().any(starts)
        }
        _ => false,
    };
    if lets_in {
        let what = format!("`{}` joins a program to a connection", call.shown());
        return out.tell(&rules::REVERSE_SHELL, what);
    }
    spoken(out, call);
}

fn spoken(out: &mut Reporter<'_>, call: &Call) {
    let speaks = matches!(
        call.name.as_str(),
        "ssh" | "scp" | "sftp" | "nmap" | "ping" | "dig" | "nslookup" | "host" | "masscan"
    );
    if connects(call) || downloads(call) || speaks {
        let what = format!("`{}` uses the network", call.name);
        return out.tell(&rules::NETWORK, what);
    }
    match remote::of(call) {
        Some(Remote::Others(what)) => {
            let what = format!("`{what}` uses the network");
            out.tell(&rules::NETWORK, what);
        }
        Some(Remote::Packages(what)) => {
            let what = format!("`{what}` fetches packages over the network");
            let hint = remote::PACKAGES_HINT.to_owned();
            out.tell_with_hint(&rules::NETWORK, rules::NETWORK.severity, what, hint);
        }
        None => {}
    }
}

fn names_shell(text: &str) -> bool {
    let first = text.split_whitespace().next().unwrap_or(text);
    is_shell(super::call::base(first))
}

/// The environment or a secret among the arguments.
fn sent(out: &mut Reporter<'_>, command: &Command<'_>, call: &Call) {
    let tells = |call: &Call| tells_environment(call) || reads_secret(call);
    let words = command
        .words
        .iter()
        .any(|word| comes_from(out.scene, word, tells));
    let file = call.texts().any(|text| {
        text.split_once('@')
            .is_some_and(|(before, file)| !before.contains("//") && credentials::kept_at(file).is_some())
    });
    if words || file {
        let what = format!("`{}` sends secrets or the environment", call.shown());
        out.tell(&rules::EXFILTRATION, what);
    }
}

fn fetched_and_run(out: &mut Reporter<'_>, command: &Command<'_>, call: &Call, fetched: &Fetched) {
    let name = call.name.as_str();
    let runs = is_shell(name) || is_interpreter(name) || matches!(name, "eval" | "source" | "." | "su");
    let own = |path: &str| fetched.files.contains(&plain(path));
    let file = match runs {
        true => call.operands().first().is_some_and(|path| own(path)),
        false => call.path.contains('/') && own(&call.path),
    };
    let given = command.redirections.iter().map(|redirection| &redirection.target);
    let mut words = command.words.iter().chain(given);
    let comes = runs
        && words
            .clone()
            .any(|word| comes_from(out.scene, word, downloads) || holds(word, fetched));
    if file || comes {
        let what = format!("`{}` runs what was downloaded", call.shown());
        return out.tell(&rules::DOWNLOAD_AND_RUN, what);
    }
    if runs && words.any(|word| comes_from(out.scene, word, decodes)) {
        let what = format!("`{}` runs what was decoded", call.shown());
        out.tell(&rules::ENCODED_RUN, what);
    }
}

fn holds(word: &ShellWord<'_>, fetched: &Fetched) -> bool {
    word.parts
        .iter()
        .any(|part| matches!(part, Part::Variable { name, .. } if fetched.variables.contains(*name)))
}

/// `/dev/tcp/host/port`, which bash itself connects to.
pub(super) fn redirected(out: &mut Reporter<'_>, command: usize, target: &str) {
    let scene = out.scene;
    if !target.starts_with("/dev/tcp/") && !target.starts_with("/dev/udp/") {
        return;
    }
    let own = command..command + 1;
    let what = format!("`{}` is a connection", shown(target));
    if scene.starts(&own, |call| is_shell(&call.name)) {
        return out.tell(&rules::REVERSE_SHELL, what);
    }
    // `exec 5<>…` and, later, a shell or an `eval` that reads from it.
    let later = command + 1..scene.started.len().min(command + COMMANDS_AHEAD_MAX);
    let reads = |index: usize| {
        scene.command(index).is_some_and(|command| {
            command.redirections.iter().any(|redirection| {
                matches!(redirection.operator, "<&" | ">&" | "<" | "<>")
                    && redirection.target.range.len() <= 3
                    && scene
                        .text
                        .get(redirection.target.range.clone())
                        .is_some_and(|text| text.parse::<u8>().is_ok_and(|fd| fd > 2))
            })
        })
    };
    let keeps = scene.starts(&own, |call| call.name == "exec")
        || scene.started.get(command).is_some_and(|s| s.calls.is_empty());
    if keeps {
        let runs = later.clone().any(reads)
            && scene.starts(&later, |call| {
                is_shell(&call.name) || call.name == "eval" || call.path.contains(UNKNOWN)
            });
        let severity = if runs { Error } else { Warning };
        return out.tell_as(&rules::REVERSE_SHELL, severity, what);
    }
    out.tell_as(&rules::NETWORK, Info, what);
}

/// What joins code of another language to a connection.
#[rustfmt::skip]
const CONNECTING: &[&str] = &[
    "socket", "Socket", "TCPSocket", "fsockopen", "/inet/tcp/", "net.connect", "createConnection", "require('net')",
];

/// What starts a program in it.
#[rustfmt::skip]
const STARTING: &[&str] = &[
    "dup2", "exec", "spawn", "/bin/sh", "/bin/bash", "subprocess", "pty", "system", "popen", "child_process",
    "passthru", "getline",
];

/// What only starts itself in it.
#[rustfmt::skip]
const FORKING: &[&str] = &[
    "fork while", "while fork", "while(fork", "while True:os.fork()", "while 1:os.fork()",
];

/// What downloads in it.
#[rustfmt::skip]
const FETCHING: &[&str] = &[
    "urlopen", "requests.get", "LWP::Simple", "open-uri", "file_get_contents('http", "file_get_contents(\"http",
];

/// Code of other languages on the command line.
pub(super) fn one_liner(out: &mut Reporter<'_>, code: &str) {
    // To load the module is not to connect.
    let code = code.replace("use Socket;", "");
    let has = |any: &[&str]| any.iter().any(|word| code.contains(word));
    let connects = has(CONNECTING);
    let starts = has(STARTING);
    if connects && starts {
        let what = "a program is joined to a connection";
        return out.tell(&rules::REVERSE_SHELL, what);
    }
    let forks = has(FORKING) || has(&["os.fork()"]) && has(&["while True", "while 1"]);
    if forks {
        let what = "a program that only starts itself";
        return out.tell(&rules::FORK_BOMB, what);
    }
    let fetches = has(FETCHING);
    if fetches && has(&["exec(", "eval(", "eval ", "system("]) {
        let what = "what is downloaded is run";
        out.tell(&rules::DOWNLOAD_AND_RUN, what);
    }
}
