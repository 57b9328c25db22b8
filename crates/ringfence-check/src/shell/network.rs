//! Rules for the network: downloaded code that is run, reverse shells, and secrets that are sent away.

use super::{
    call::{Call, base, is_interpreter, is_shell},
    rules,
    scene::{Reporter, ShellContext, connects, downloads},
    syntax::{Command, Pipeline, Redirection, ShellWord},
};
use crate::{
    credentials::{self, Secret},
    lists::LISTS,
    unknown::{UNKNOWN, shown},
};
use ringfence_types::Severity::{Error, Info, Warning};
use std::collections::HashSet;

/// Number of commands in which uses of a connection are searched.
const COMMANDS_AHEAD_MAX: usize = 200;

/// Files and variables that may hold downloaded data.
#[derive(Default)]
pub(super) struct Fetched {
    /// Base names of all arguments of downloads, and of the files that their output is redirected to.
    files: HashSet<String>,
    variables: HashSet<String>,
}

impl Fetched {
    pub(super) fn of(context: &ShellContext<'_>) -> Self {
        let mut fetched = Self::default();
        for (command, started) in context.script.commands.iter().zip(context.started) {
            for assignment in &command.assignments {
                if context.comes_from(&assignment.value, downloads) {
                    fetched.variables.insert(assignment.name.to_owned());
                }
            }
            for call in started.calls.iter().filter(|call| downloads(call)) {
                let redirections = command.redirections.iter();
                let written = redirections.filter(|redirection| redirection.writes());
                let written = written.map(|redirection| redirection.target.text());
                let names = call.texts().map(str::to_owned).chain(written);
                let path = |name: &String| base(name.split(['?', '#']).next().unwrap_or(name)).to_owned();
                fetched.files.extend(names.map(|name| path(&name)));
            }
        }
        fetched
    }

    fn has(&self, path: &str) -> bool {
        self.files.contains(base(path))
    }
}

/// True for programs that decode or decompress text, or translate its letters.
fn decodes(call: &Call) -> bool {
    match call.name.as_str() {
        "base64" | "base32" => call.has("dD", &["decode"]),
        "xxd" => call.has("r", &["revert"]),
        "openssl" => call.texts().any(|text| text == "-d"),
        "gzip" | "xz" | "bzip2" => call.has("d", &["decompress"]),
        "uudecode" | "gunzip" | "zcat" | "xzcat" | "bzcat" | "rev" | "tr" => true,
        _ => false,
    }
}

pub(super) fn reads_script(call: &Call) -> bool {
    let operands = call.operands();
    let inputs = ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"];
    let from_input = operands.first().is_some_and(|path| inputs.contains(path));
    let alone = operands.is_empty() || operands == ["-"];
    match call.name.as_str() {
        name if is_shell(name) => !call.has("c", &[]) && (alone || from_input || call.has("s", &[])),
        name if is_interpreter(name) => alone && !call.has("ceErmp", &["eval", "print"]),
        "source" | "." => from_input,
        _ => false,
    }
}

pub(super) fn piped(out: &mut Reporter<'_>, pipeline: &Pipeline) {
    let context = out.context;
    let starting = |is: &dyn Fn(&Call) -> bool| {
        let starts = |(place, stage)| context.starts(stage, is).then_some(place);
        let stages = pipeline.stages.iter().enumerate();
        stages.filter_map(starts).collect::<Vec<usize>>()
    };
    let before = |first: &[usize], second: &[usize]| !first.is_empty() && first.first() < second.last();
    let interactive = starting(&|call| is_shell(&call.name));
    let connected = starting(&connects);
    if !interactive.is_empty() && !connected.is_empty() && interactive.last() != connected.first() {
        return out.report(&rules::REVERSE_SHELL, "a shell is joined to a connection");
    }
    let scripts = starting(&reads_script);
    if before(&starting(&downloads), &scripts) {
        let what = "what is downloaded goes straight to a shell";
        out.report(&rules::DOWNLOAD_AND_RUN, what);
    } else if before(&starting(&decodes), &scripts) {
        out.report(&rules::ENCODED_RUN, "what is decoded goes straight to a shell");
    }
    let sends = starting(&|call| downloads(call) || connects(call) || call.name == "ssh");
    if before(&starting(&outputs_secret), &sends) {
        let what = "secrets or the environment go to the network";
        out.report(&rules::EXFILTRATION, what);
    }
}

fn outputs_secret(call: &Call) -> bool {
    let names_secret = |text: &str| credentials::secret_at(text.trim_start_matches('@')).is_some();
    match call.name.as_str() {
        "printenv" => call.arguments.is_empty(),
        "env" | "export" | "set" | "declare" => call.operands().is_empty(),
        "cat" | "tar" | "zip" | "base64" | "head" | "tail" | "gzip" | "xxd" | "grep" | "sed" | "awk" => {
            call.texts().any(names_secret)
        }
        _ => false,
    }
}

pub(super) fn check(out: &mut Reporter<'_>, command: &Command<'_>, call: &Call, fetched: &Fetched) {
    fetched_and_run(out, command, call, fetched);
    if !LISTS.keep_secrets.contains(&call.name.as_str()) {
        let is_secret = |text: &str| credentials::secret_at(text) == Some(Secret::Certain);
        let names_secret =
            |text: &&str| is_secret(text) || text.rsplit(['@', '=']).next().is_some_and(is_secret);
        if let Some(path) = call.texts().find(names_secret) {
            out.report(&rules::CREDENTIAL_PATH, format!("`{}` is read", shown(path)));
        }
    }
    let remote = connects(call) || downloads(call);
    if remote {
        sent(out, command, call);
    }
    if starts_program(call) {
        out.report_call(&rules::REVERSE_SHELL, call, "joins a program to a connection");
    } else if remote {
        out.report(&rules::NETWORK, format!("`{}` uses the network", call.name));
    }
}

/// True if the call starts a program for the other end of the connection.
fn starts_program(call: &Call) -> bool {
    let names_shell = |text: &str| is_shell(base(text.split_whitespace().next().unwrap_or(text)));
    let kinds = ["EXEC:", "SYSTEM:", "SHELL:"];
    let starts = |text: &str| kinds.iter().any(|kind| text.contains(kind));
    match call.name.as_str() {
        "socat" => call.texts().any(|text| starts(&text.to_uppercase())),
        "telnet" => false,
        _ if !connects(call) => false,
        _ if call.has("c", &[]) && call.texts().any(names_shell) => true,
        _ => call.has("e", &["exec", "sh-exec", "lua-exec"]),
    }
}

/// Reports the environment or a secret among the arguments.
fn sent(out: &mut Reporter<'_>, command: &Command<'_>, call: &Call) {
    let mut words = command.words.iter();
    let uploads = |text: &str| {
        let file = text.split_once('@').filter(|(before, _)| !before.contains("//"));
        file.is_some_and(|(_, file)| credentials::secret_at(file).is_some())
    };
    if words.any(|word| out.context.comes_from(word, outputs_secret)) || call.texts().any(uploads) {
        out.report_call(&rules::EXFILTRATION, call, "sends secrets or the environment");
    }
}

fn fetched_and_run(out: &mut Reporter<'_>, command: &Command<'_>, call: &Call, fetched: &Fetched) {
    let name = call.name.as_str();
    let runs = is_shell(name) || is_interpreter(name) || matches!(name, "eval" | "source" | "." | "su");
    let file = match runs {
        true => call.operands().first().is_some_and(|path| fetched.has(path)),
        false => call.path.contains('/') && fetched.has(&call.path),
    };
    let given = command.redirections.iter().map(|redirection| &redirection.target);
    let mut words = command.words.iter().chain(given);
    let holds = |name: &&str| fetched.variables.contains(*name);
    let fetches =
        |word: &ShellWord<'_>| out.context.comes_from(word, downloads) || word.variables.iter().any(holds);
    let comes = runs && words.clone().any(fetches);
    if file || comes {
        return out.report_call(&rules::DOWNLOAD_AND_RUN, call, "runs what was downloaded");
    }
    if runs && words.any(|word| out.context.comes_from(word, decodes)) {
        out.report_call(&rules::ENCODED_RUN, call, "runs what was decoded");
    }
}

/// Reports redirections to `/dev/tcp/host/port` and `/dev/udp/host/port`, to which bash itself connects.
pub(super) fn redirected(out: &mut Reporter<'_>, command: usize, target: &str) {
    let context = out.context;
    if !target.starts_with("/dev/tcp/") && !target.starts_with("/dev/udp/") {
        return;
    }
    let own = command..command + 1;
    let what = format!("`{}` is a connection", shown(target));
    if context.starts(&own, |call| is_shell(&call.name)) {
        return out.report(&rules::REVERSE_SHELL, what);
    }
    // `exec 5<>…`, then a redirection from or to such a descriptor, and a shell, an `eval` or an unknown program.
    let later = command + 1..context.started.len().min(command + COMMANDS_AHEAD_MAX);
    let reads = |redirection: &Redirection<'_>| {
        let target = context.raw(&redirection.target.range);
        matches!(redirection.operator, "<&" | ">&" | "<" | "<>")
            && target.parse::<u8>().is_ok_and(|fd| fd > 2)
    };
    let runs = |call: &Call| is_shell(&call.name) || call.name == "eval" || call.path.contains(UNKNOWN);
    if context.started[command].calls.is_empty() || context.starts(&own, |call| call.name == "exec") {
        let mut commands = context.script.commands[later.clone()].iter();
        let used = commands.any(|command| command.redirections.iter().any(reads));
        let severity = match used && context.starts(&later, runs) {
            true => Error,
            false => Warning,
        };
        return out.report_as(&rules::REVERSE_SHELL, severity, what);
    }
    out.report_as(&rules::NETWORK, Info, what);
}

pub(super) fn one_liner(out: &mut Reporter<'_>, code: &str) {
    // Loading the module is not a connection.
    let code = code.replace("use Socket;", "").replace('"', "'");
    let has = |any: &[&str]| any.iter().any(|word| code.contains(word));
    if has(&LISTS.connecting) && has(&LISTS.starting) {
        return out.report(&rules::REVERSE_SHELL, "a program is joined to a connection");
    }
    if has(&LISTS.forking) || has(&["os.fork()"]) && has(&["while True", "while 1"]) {
        return out.report(&rules::FORK_BOMB, "a program that only starts itself");
    }
    if has(&LISTS.fetching) && has(&["exec(", "eval(", "eval ", "system("]) {
        out.report(&rules::DOWNLOAD_AND_RUN, "what is downloaded is run");
    }
}
