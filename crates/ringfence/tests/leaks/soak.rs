//! Calls of every kind, several at once, while templates and helpers are killed: no answer is wrong, nothing is left.

use super::{ALONE, count, settled};
use crate::client::*;
use rustix::process::Signal;
use std::{collections::HashMap, sync::PoisonError};

const AT_ONCE: usize = 4;

/// What a call has to come to.
#[derive(Clone, Debug)]
enum Expected {
    /// These words on standard output, and success.
    Says(String),
    /// This kind of end.
    Ends(&'static str),
    /// It is cancelled, and answered by nothing or by that.
    Cancelled,
}

/// A call that has not been answered.
struct Flying {
    number: usize,
    expected: Expected,
    /// Since it was sent, or a little before.
    parts_died: bool,
}

/// The arguments of a call, by its number.
fn call(number: usize) -> (Value, Expected) {
    let (square, word) = (number * number, format!("word-{number}"));
    let says = Expected::Says(format!("{square} {word}\n"));
    match number % 100 {
        7 => (
            json!({"code": "while True: pass", "timeout_seconds": 0.2}),
            Expected::Ends("timeout"),
        ),
        17 => (
            json!({"code": "x = bytearray(300 << 20)", "memory_limit": "64m"}),
            Expected::Ends("out_of_memory"),
        ),
        27 => (
            json!({"code": "sleep 60", "language": "shell"}),
            Expected::Cancelled,
        ),
        37 => (
            json!({"code": "import time\ntime.sleep(60)"}),
            Expected::Cancelled,
        ),
        47 => (
            json!({"code": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"}),
            Expected::Ends("signal"),
        ),
        57 => (
            json!({"code": format!("const n: number = {number}; console.log(n * n + ' {word}')"), "language": "typescript"}),
            says,
        ),
        n if n % 10 == 3 => (
            json!({
                "code": format!("console.log({number} * {number} + ' ' + process.env.WORD)"), "language": "node",
                "env": {"WORD": word},
            }),
            says,
        ),
        n if n % 10 < 5 => (
            json!({
                "code": format!("echo $(({number} * {number})) $(cat in.txt)"), "language": "shell",
                "files": [{"path": "in.txt", "text": word}], "resource_limits": {"max_processes": 10 + n},
            }),
            says,
        ),
        n if n % 10 == 8 => (
            json!({
                "code": format!("import os, sys\nprint({number} ** 2, sys.stdin.read())\nif os.fork() == 0:\n    os.setsid()\n    os.execvp('sleep', ['sleep', '60'])"),
                "stdin": word, "resource_limits": {"max_ram_mb": 100 + n, "max_disk_mb": 5 + n},
            }),
            says,
        ),
        _ => (
            json!({"code": format!("import os\nprint({number} ** 2, os.environ['WORD'])"), "env": {"WORD": word}}),
            says,
        ),
    }
}

fn check(call: &Flying, answer: &Value) {
    let Flying {
        number,
        expected,
        parts_died,
    } = call;
    let result = &answer["result"]["structuredContent"];
    let good = match expected {
        Expected::Says(text) => result["stdout"] == *text && result["success"] == true,
        Expected::Ends(kind) => result["exit"]["kind"] == *kind,
        Expected::Cancelled => answer.get("error").is_some() || result["exit"]["kind"] == "cancelled",
    };
    let refusal = &answer["result"]["_meta"]["io.ringfence/error"];
    // What is killed may be the program itself, which then ends as it was ended.
    let was_killed = refusal["code"] == "sandbox_fault" || result["exit"]["signal"] == 9;
    let excused = *parts_died && was_killed;
    assert!(
        good || excused,
        "call {number}: wanted {expected:?}, got {answer:#}"
    );
}

/// Keeps some calls in flight; a part dies before every `kill_every`th.
fn soak(server: &mut Server, numbers: std::ops::Range<usize>, kill_every: usize) {
    let mut flying: HashMap<u64, Flying> = HashMap::new();
    for number in numbers {
        if number % kill_every == kill_every - 1 {
            let helper = number % (2 * kill_every) > kill_every;
            let word = if helper {
                "__jail-helper"
            } else {
                "_ringfence_template"
            };
            for pid in descendants_with(server.child.id(), word) {
                signal(pid, Signal::KILL);
            }
            flying.values_mut().for_each(|call| call.parts_died = true);
        }
        let (arguments, expected) = call(number);
        let id = server.send_run(arguments);
        if matches!(expected, Expected::Cancelled) {
            server.cancel(id);
            continue;
        }
        // What is taken soon after a death may still be what has died.
        let since = number % kill_every;
        let call = Flying {
            number,
            expected,
            parts_died: since < 2 * AT_ONCE || since == kill_every - 1,
        };
        flying.insert(id, call);
        while flying.len() >= AT_ONCE {
            land(server, &mut flying);
        }
    }
    while !flying.is_empty() {
        land(server, &mut flying);
    }
}

fn land(server: &mut Server, flying: &mut HashMap<u64, Flying>) {
    let answer = server.receive();
    if let Some(call) = answer["id"].as_u64().and_then(|id| flying.remove(&id)) {
        check(&call, &answer);
    }
}

/// claim: [PROC-7] [WARM-5]
///
/// 600 calls unless `RINGFENCE_SOAK_CALLS` asks for more.
#[test]
fn calls_of_every_kind_while_parts_die_are_answered_rightly_and_leave_nothing() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let calls = number("RINGFENCE_SOAK_CALLS").unwrap_or(600);
    let mut server = Server::with("warm: {ready: 2, ready_max: 2}\nresults: {memory_mb: 0}\n");
    soak(&mut server, 0..300, 100);
    let (before, memory_before) = (settled(&mut server), status_of(server.child.id(), "VmRSS"));
    soak(&mut server, 300..300 + calls, 250);
    settled(&mut server);
    within(PATIENCE, || count(server.child.id()) == before);
    let (after, memory_after) = (settled(&mut server), status_of(server.child.id(), "VmRSS"));
    println!(
        "{calls} calls\nbefore {before:?}, server {memory_before} KiB\nafter  {after:?}, server {memory_after} KiB"
    );
    assert_eq!(before, after);
    assert!(
        memory_after < memory_before + 4096,
        "{memory_before} KiB became {memory_after} KiB"
    );
}
