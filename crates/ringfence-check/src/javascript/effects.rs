//! What things of the language and of Node.js do when they are called, by their paths.

use super::rules;
use crate::rule::Rule;
use ringfence_types::Severity::{self, Info, Warning};
use std::{collections::HashMap, sync::LazyLock};

/// What a call does that a rule knows.
#[derive(Clone, Copy, Debug)]
pub(super) enum Effect {
    /// What its name and this sentence say.
    Tell(&'static Rule, Severity, &'static str),
    /// Runs a text.
    Execute,
    /// Starts a program.
    Start,
    /// Loads a module.
    Load,
    /// Runs a function later, or a text.
    Later,
    /// Speaks to a host among its arguments.
    Connect,
    Kill,
    Thread,
    Read,
    /// Removes a file, or a directory if it is asked to.
    Remove,
    /// Removes with everything in it.
    Empty,
    /// Changes an object.
    Change,
    /// Makes an object of a text.
    Parse,
    /// Nothing that a rule knows.
    Nothing,
}

pub(super) const SPEAKS: &str = "speaks to other hosts";
const REACHES: Effect = Effect::Tell(&rules::NATIVE, Warning, "reaches into Node.js itself");
const ENDS: Effect = Effect::Tell(&rules::EXIT, Info, "ends the program");
const NATIVE: Effect = Effect::Tell(&rules::NATIVE, Info, "takes native code");

/// Modules and objects, what of them is called, and what it does; `-` is the thing itself, and `*` all else.
#[rustfmt::skip]
static EFFECTS: &[(&str, &str, Effect)] = &[
    ("eval Function AsyncFunction GeneratorFunction", "-", Effect::Execute),
    ("node:vm", "runInThisContext runInNewContext runInContext compileFunction Script SourceTextModule", Effect::Execute),
    ("node:child_process", "exec execSync execFile execFileSync spawn spawnSync fork", Effect::Start),
    ("require", "-", Effect::Load),
    ("node:module", "_load", Effect::Load),
    ("process", "getBuiltinModule", Effect::Load),
    ("setTimeout setInterval setImmediate", "-", Effect::Later),
    ("fetch WebSocket EventSource", "-", Effect::Tell(&rules::NETWORK, Info, SPEAKS)),
    ("node:net node:tls node:dgram node:http node:https node:http2 node:dns node:dns/promises",
        "- STATUS_CODES isIP isIPv4 isIPv6 Agent", Effect::Nothing),
    ("node:net node:tls node:dgram node:http node:https node:http2 node:dns node:dns/promises", "*", Effect::Connect),
    ("process", "binding _linkedBinding dlopen", REACHES),
    ("internalBinding", "-", REACHES),
    ("node:v8", "setFlagsFromString", REACHES),
    ("WebAssembly", "compile instantiate Module Instance compileStreaming instantiateStreaming", NATIVE),
    ("process", "exit reallyExit abort", ENDS),
    ("process", "kill", Effect::Kill),
    ("node:worker_threads", "Worker", Effect::Thread),
    ("node:fs node:fs/promises npm:fs-extra npm:graceful-fs",
        "readFile readFileSync createReadStream open openSync copyFile copyFileSync cp cpSync", Effect::Read),
    ("node:fs node:fs/promises npm:fs-extra npm:graceful-fs",
        "rm rmSync unlink unlinkSync rmdir rmdirSync", Effect::Remove),
    ("node:fs node:fs/promises npm:fs-extra npm:graceful-fs",
        "remove removeSync emptyDir emptyDirSync", Effect::Empty),
    ("npm:rimraf", "- sync rimraf rimrafSync", Effect::Empty),
    ("Object Reflect", "setPrototypeOf assign defineProperty defineProperties", Effect::Change),
    ("JSON", "parse", Effect::Parse),
];

pub(super) fn effect(path: &str) -> Effect {
    static BY_OWNER: LazyLock<HashMap<&str, Vec<(&str, Effect)>>> = LazyLock::new(|| {
        let mut by_owner: HashMap<&str, Vec<(&str, Effect)>> = HashMap::new();
        for (owners, names, effect) in EFFECTS {
            let names = names.split_ascii_whitespace().map(|name| (name, *effect));
            for owner in owners.split_ascii_whitespace() {
                by_owner.entry(owner).or_default().extend(names.clone());
            }
        }
        by_owner
    });
    if path.ends_with("._compile") {
        return Effect::Execute;
    }
    let (owner, name) = path.split_once('.').unwrap_or((path, "-"));
    let mut of_owner = BY_OWNER.get(owner).into_iter().flatten();
    let found = of_owner.find(|(known, _)| *known == name || *known == "*");
    found.map_or(Effect::Nothing, |(_, effect)| *effect)
}
