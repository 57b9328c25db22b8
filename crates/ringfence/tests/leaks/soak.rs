//! Calls of every kind, several at once, while templates and helpers are killed: no answer is wrong, and nothing is
//! left behind.

use super::{ALONE, count, settled};
use crate::client::*;
use rustix::process::Signal;
use std::{collections::HashMap, sync::PoisonError};

const AT_ONCE: usize = 4;

/// The expected result of a call.
#[derive(Clone, Debug)]
enum Expected {
    /// Success, with this text on standard output.
    Stdout(String),
    /// This kind of exit.
    Exit(&'static str),
    /// The call is cancelled; it gets no answer, an error, or the exit kind `cancelled`.
    Cancelled,
}

/// A call without an answer so far.
struct PendingCall {
    number: usize,
    expected: Expected,
    /// True if a helper or template was killed after the call was sent, or shortly before.
    was_disturbed: bool,
}

/// Returns the arguments and the expected result of a call, by its number.
fn call(number: usize) -> (Value, Expected) {
    let (square, word) = (number * number, format!("word-{number}"));
    let stdout = Expected::Stdout(format!("{square} {word}\n"));
    match number % 100 {
        7 => (
            json!({"code": "while True: pass", "timeout_seconds": 0.2}),
            Expected::Exit("timeout"),
        ),
        17 => (
            json!({"code": "x = bytearray(300 << 20)", "memory_limit": "64m"}),
            Expected::Exit("out_of_memory"),
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
            Expected::Exit("signal"),
        ),
        57 => (
            json!({"code": format!("const n: number = {number}; console.log(n * n + ' {word}')"), "language": "typescript"}),
            stdout,
        ),
        n if n % 10 == 3 => (
            json!({
                "code": format!("console.log({number} * {number} + ' ' + process.env.WORD)"), "language": "node",
                "env": {"WORD": word},
            }),
            stdout,
        ),
        n if n % 10 < 5 => (
            json!({
                "code": format!("echo $(({number} * {number})) $(cat in.txt)"), "language": "shell",
                "files": [{"path": "in.txt", "text": word}], "resource_limits": {"max_processes": 10 + n},
            }),
            stdout,
        ),
        n if n % 10 == 8 => (
            json!({
                "code": format!("import os, sys\nprint({number} ** 2, sys.stdin.read())\nif os.fork() == 0:\n    os.setsid()\n    os.execvp('sleep', ['sleep', '60'])"),
                "stdin": word, "resource_limits": {"max_ram_mb": 100 + n, "max_disk_mb": 5 + n},
            }),
            stdout,
        ),
        _ => (
            json!({"code": format!("import os\nprint({number} ** 2, os.environ['WORD'])"), "env": {"WORD": word}}),
            stdout,
        ),
    }
}

fn check(call: &PendingCall, answer: &Value) {
    let PendingCall {
        number,
        expected,
        was_disturbed,
    } = call;
    let result = &answer["result"]["structuredContent"];
    let good = match expected {
        Expected::Stdout(text) => result["stdout"] == *text && result["success"] == true,
        Expected::Exit(kind) => result["exit"]["kind"] == *kind,
        Expected::Cancelled => answer.get("error").is_some() || result["exit"]["kind"] == "cancelled",
    };
    let refusal = &answer["result"]["_meta"]["io.ringfence/error"];
    // The kill may hit the program itself, which then ends by signal 9.
    let was_killed = refusal["code"] == "sandbox_fault" || result["exit"]["signal"] == 9;
    let excused = *was_disturbed && was_killed;
    assert!(
        good || excused,
        "call {number}: wanted {expected:?}, got {answer:#}"
    );
}

/// Keeps some calls in flight; a helper or the templates are killed before every `kill_every`th call.
fn soak(server: &mut Server, numbers: std::ops::Range<usize>, kill_every: usize) {
    let mut pending: HashMap<u64, PendingCall> = HashMap::new();
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
            pending.values_mut().for_each(|call| call.was_disturbed = true);
        }
        let (arguments, expected) = call(number);
        let id = server.send_run(arguments);
        if matches!(expected, Expected::Cancelled) {
            server.cancel(id);
            continue;
        }
        // A call soon after a kill may still get a killed sandbox.
        let since = number % kill_every;
        let call = PendingCall {
            number,
            expected,
            was_disturbed: since < 2 * AT_ONCE || since == kill_every - 1,
        };
        pending.insert(id, call);
        while pending.len() >= AT_ONCE {
            receive_answer(server, &mut pending);
        }
    }
    while !pending.is_empty() {
        receive_answer(server, &mut pending);
    }
}

fn receive_answer(server: &mut Server, pending: &mut HashMap<u64, PendingCall>) {
    let answer = server.receive();
    if let Some(call) = answer["id"].as_u64().and_then(|id| pending.remove(&id)) {
        check(&call, &answer);
    }
}

/// claim: [PROC-7] [WARM-5]
///
/// Makes 600 calls, or as many as `RINGFENCE_SOAK_CALLS` says.
#[test]
fn calls_while_helpers_and_templates_are_killed_are_answered_correctly_and_leave_nothing() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let calls = env_number("RINGFENCE_SOAK_CALLS").unwrap_or(600);
    let mut server = Server::with_config("warm: {ready: 2, ready_max: 2}\nresults: {memory_mb: 0}\n");
    soak(&mut server, 0..300, 100);
    let (before, memory_before) = (settled(&mut server), proc_status_kib(server.child.id(), "VmRSS"));
    soak(&mut server, 300..300 + calls, 250);
    settled(&mut server);
    becomes_true_within(PATIENCE, || count(server.child.id()) == before);
    let (after, memory_after) = (settled(&mut server), proc_status_kib(server.child.id(), "VmRSS"));
    println!(
        "{calls} calls\nbefore {before:?}, server {memory_before} KiB\nafter  {after:?}, server {memory_after} KiB"
    );
    assert_eq!(before, after);
    assert!(
        memory_after < memory_before + 4096,
        "{memory_before} KiB became {memory_after} KiB"
    );
}
