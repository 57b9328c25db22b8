//! Sessions with this machine's own interpreters, outside of any sandbox: what stays between calls, and the effects of
//! a program on the driver that serves it.
#![expect(clippy::disallowed_methods, reason = "a test starts interpreters")]

mod bridge;
mod imports;
mod node;
mod python;
mod shell;

use super::*;
use crate::language::tests::{Setting, parsed};
use std::{
    fs,
    io::{Read, Write},
    path::PathBuf,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        atomic::{AtomicU32, Ordering},
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    thread,
    time::{Duration, Instant},
};

const TIMEOUT: Duration = Duration::from_secs(20);

/// A session in a directory of its own. Its output goes to files.
struct Driver {
    language: Language,
    child: Child,
    requests: Option<ChildStdin>,
    reports_rx: Receiver<Vec<u8>>,
    reports: Reports,
    number: u64,
    directory: PathBuf,
    read_bytes: [usize; 2],
    checks: Option<Checks>,
}

/// The answer to a call, and its output.
#[derive(Debug)]
struct CallReply {
    answer: DriverAnswer,
    stdout: String,
    stderr: String,
}

impl Driver {
    fn begin(language: Language) -> Self {
        Self::begin_with(language, interpreter(language))
    }

    fn begin_with(language: Language, interpreter: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory =
            std::env::temp_dir().join(format!("ringfence-session-{}-{number}", std::process::id()));
        fs::create_dir_all(directory.join("output")).unwrap();
        let Launch { argv, env, .. } = launch(language, interpreter);
        // A test run in the background ignores SIGINT, and a shell keeps signals ignored that were ignored at its
        // start.
        let mut child = Command::new("env")
            .args(["--default-signal=INT", "setsid"])
            .args(["sh", "-c", "exec 3>&1 1>>out 2>>err; exec \"$@\"", "sh"])
            .args(argv)
            .envs(env)
            .env("RINGFENCE_OUTPUT_DIR", directory.join("output"))
            .current_dir(&directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (reports_tx, reports_rx) = channel();
        let mut pipe = child.stdout.take().unwrap();
        thread::spawn(move || {
            let mut bytes = vec![0; 7919];
            while let Ok(count @ 1..) = pipe.read(&mut bytes) {
                if reports_tx.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        let mut live = Self {
            language,
            requests: child.stdin.take(),
            child,
            reports_rx,
            reports: Reports::default(),
            number: 0,
            directory,
            read_bytes: [0, 0],
            checks: None,
        };
        live.reports.expect(0);
        let ready = live.wait().unwrap_or_else(|reply| panic!("not ready: {reply:?}"));
        assert!(ready.answer.ok);
        // A bash without a terminal prints a warning before its first call.
        assert!(ready.stdout.is_empty() && (ready.stderr.is_empty() || language == Language::Shell));
        live
    }

    /// Waits until the call has ended, or else the session.
    fn wait(&mut self) -> Result<CallReply, Box<DriverAnswer>> {
        let end = Instant::now() + TIMEOUT;
        loop {
            let Ok(bytes) = self
                .reports_rx
                .recv_timeout(end.saturating_duration_since(Instant::now()))
            else {
                assert!(
                    Instant::now() < end,
                    "no answer: {:?}",
                    self.reply(DriverAnswer::default())
                );
                return Err(Box::new(self.reports.unfinished()));
            };
            if let Some(answer) = self.reports.feed(&bytes) {
                return Ok(self.reply(answer));
            }
        }
    }

    fn reply(&mut self, answer: DriverAnswer) -> CallReply {
        let [stdout, stderr] = [("out", 0), ("err", 1)].map(|(name, at)| {
            let bytes = fs::read(self.directory.join(name)).unwrap();
            let new = String::from_utf8_lossy(&bytes[self.read_bytes[at]..]).into_owned();
            self.read_bytes[at] = bytes.len();
            new
        });
        CallReply {
            answer,
            stdout,
            stderr,
        }
    }

    fn send(&mut self, code: &str, args: &[Argument], env: &[(String, String)], stdin: &[u8]) {
        self.number += 1;
        self.reports.expect(self.number);
        let prepared = parsed(self.language, code, Setting::Call).code;
        let call = Call {
            number: self.number,
            name: &format!("call-{}", self.number),
            code: &prepared,
            args,
            env,
            stdin,
            checks: self.checks.as_ref(),
        };
        let bytes = encode_call(self.language, &call).unwrap();
        // A session that has ended closes the pipe; the test sees that in the answer.
        drop(self.requests.as_mut().unwrap().write_all(&bytes));
    }

    fn call(&mut self, code: &str) -> CallReply {
        self.send(code, &[], &[], b"");
        self.wait()
            .unwrap_or_else(|reply| panic!("{code}: ended: {reply:?}"))
    }

    fn exchange(&mut self, encode: impl FnOnce(u64) -> Result<Vec<u8>, Unsendable>) -> DriverAnswer {
        self.number += 1;
        self.reports.expect(self.number);
        let bytes = encode(self.number).unwrap();
        self.requests.as_mut().unwrap().write_all(&bytes).unwrap();
        self.wait().unwrap().answer
    }

    fn get(&mut self, name: &str) -> DriverAnswer {
        let language = self.language;
        self.exchange(|number| encode_get(language, number, name))
    }

    fn set(&mut self, name: &str, bridge: &str) -> DriverAnswer {
        let language = self.language;
        self.exchange(|number| encode_set(language, number, name, bridge))
    }

    /// Makes a call that ends the session, and returns its exit status.
    fn last(&mut self, code: &str) -> (CallReply, Option<i32>) {
        self.send(code, &[], &[], b"");
        let answer = match self.wait() {
            Ok(reply) => panic!("{code}: goes on: {reply:?}"),
            Err(answer) => *answer,
        };
        let status = self.child.wait().unwrap().code();
        (self.reply(answer), status)
    }

    /// Makes a call that is interrupted once it has made the file `begun`; the interrupt is repeated until the call
    /// ends, as the server does.
    fn interrupted(&mut self, code: &str) -> CallReply {
        let begun = self.directory.join("begun");
        drop(fs::remove_file(&begun));
        self.send(code, &[], &[], b"");
        self.await_file("begun");
        let end = Instant::now() + TIMEOUT;
        self.signal();
        loop {
            assert!(Instant::now() < end, "not interrupted: {code}");
            let answer = match self.reports_rx.recv_timeout(Duration::from_millis(250)) {
                // A part of the answer: the interrupt has arrived, and another would hit the next call.
                Ok(bytes) => self.reports.feed(&bytes),
                Err(RecvTimeoutError::Timeout) => {
                    self.signal();
                    None
                }
                Err(RecvTimeoutError::Disconnected) => panic!("gone: {code}"),
            };
            if let Some(answer) = answer {
                return self.reply(answer);
            }
        }
    }

    /// The most memory that the interpreter has taken.
    fn peak_kib(&self) -> usize {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let peak = status.split("VmHWM:").nth(1).unwrap();
        peak.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// Waits until the program has made the file.
    fn await_file(&self, name: &str) {
        let end = Instant::now() + TIMEOUT;
        while !self.directory.join(name).exists() {
            assert!(Instant::now() < end, "no file {name}");
            thread::yield_now();
        }
    }

    /// Interrupts the interpreter and its children, as pid 1 of a sandbox does.
    fn signal(&self) {
        let pid = self.child.id();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let mut orders = Vec::new();
        if self.language == Language::Shell {
            orders.push(format!("kill -PWR {pid}"));
        }
        if self.language == Language::Node {
            orders.push(format!("kill -STKFLT {pid}"));
        }
        if self.language != Language::Shell || status.contains("State:\tS") {
            orders.push(format!("kill -INT -{pid}"));
        }
        let status = Command::new("bash").args(["-c", &orders.join(";")]).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        drop(self.requests.take());
        // With all processes that it has left running.
        let kill = format!("kill -KILL -{} 2>/dev/null", self.child.id());
        drop(Command::new("bash").args(["-c", &kill]).status());
        drop(self.child.wait());
        drop(fs::remove_dir_all(&self.directory));
    }
}

fn interpreter(language: Language) -> &'static str {
    match language {
        Language::Python => "/usr/bin/python3",
        Language::Shell => "/usr/bin/bash",
        Language::Node | Language::Typescript => "/usr/bin/node",
    }
}

fn rec(tag: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&[tag][..], &length, payload].concat()
}

#[test]
fn end_of_call_is_found_at_any_chunking() {
    let stream = [
        rec(b'P', b"stale"),
        rec(b'C', b"{\"call\":6,\"ok\":true}"),
        rec(b'C', b"not json"),
        rec(b'P', b"5"),
        rec(b'J', b"[1]"),
        rec(b'C', b"{\"call\":7,\"ok\":false,\"status\":3}"),
        rec(b'P', b"nobody's"),
    ]
    .concat();
    for size in 1..stream.len() {
        let mut reports = Reports::default();
        reports.expect(7);
        let answers: Vec<DriverAnswer> = stream
            .chunks(size)
            .filter_map(|part| reports.feed(part))
            .collect();
        let [answer] = &answers[..] else {
            panic!("{size}: {answers:?}");
        };
        assert_eq!(
            (answer.number, answer.ok, answer.status, answer.is_cut),
            (7, false, Some(3), false)
        );
        assert_eq!(answer.bridge.as_deref(), Some("[1]"));
        assert_eq!(answer.report.result_repr.as_deref(), Some("5"));
        // Records between two calls do not belong to the next one.
        reports.expect(8);
        let next = reports.feed(&rec(b'C', b"{\"call\":8,\"ok\":true}")).unwrap();
        assert_eq!(next.report, ProgramReport::default());
    }
}

#[test]
fn report_is_bounded_and_its_end_is_still_found() {
    let mut reports = Reports::default();
    reports.expect(1);
    for tag in *b"PJCX" {
        let long = rec(tag, &vec![b'x'; VALUE_BYTES_MAX + 1]);
        assert!(long.chunks(1 << 16).all(|part| reports.feed(part).is_none()));
    }
    for _ in 0..100 {
        reports.feed(&rec(b'P', &vec![b'x'; 64 << 10]));
    }
    assert!(reports.kept.len() <= REPORT_BYTES_MAX && reports.part.is_empty());
    let answer = reports.feed(&rec(b'C', b"{\"call\":1,\"ok\":true}")).unwrap();
    assert!(answer.is_cut && answer.bridge.is_none());
    assert_eq!(reports.unfinished().report, ProgramReport::default());
}

#[test]
fn long_input_and_code_take_time_and_memory_in_proportion() {
    const MIB: usize = 1 << 20;
    let count = "import sys\ncount = 0\nwhile part := sys.stdin.buffer.read(1 << 20): count += len(part)\nprint(count)";
    let node = "const fs = require('fs'), part = Buffer.alloc(1 << 20); let count = 0, n; \
        while ((n = fs.readSync(0, part))) count += n; console.log(count)";
    // The last number: how much memory the interpreter may take, in multiples of the text.
    for (language, code, input, most) in [
        (Language::Python, count, 60 * MIB, 1),
        (Language::Node, node, 60 * MIB, 3),
        (Language::Shell, "wc -c", 4 * MIB, 4),
    ] {
        let mut live = Driver::begin(language);
        let before = live.peak_kib();
        live.send(code, &[], &[], &vec![b'x'; input]);
        assert_eq!(live.wait().unwrap().stdout, format!("{input}\n"));
        let taken = (live.peak_kib() - before) << 10;
        assert!(taken < most * input, "{language}: {taken} for {input}");
    }
    let mut live = Driver::begin(Language::Python);
    let before = live.peak_kib();
    let code = format!("{}print('x')\n'y' * (20 << 20)", "#\n".repeat(10 * MIB));
    let got = live.call(&code);
    assert_eq!(got.stdout, "x\n");
    assert!(got.answer.is_cut || got.answer.report.is_cut);
    let taken = (live.peak_kib() - before) << 10;
    assert!(taken < 8 * code.len(), "{taken} for {}", code.len());
}

#[test]
fn too_long_call_is_not_sent() {
    let stdin = vec![0; REQUEST_BYTES_MAX];
    for language in [Language::Python, Language::Shell] {
        let call = Call {
            number: 1,
            name: "x",
            code: "1",
            args: &[],
            env: &[],
            stdin: &stdin,
            checks: None,
        };
        assert_eq!(encode_call(language, &call), Err(Unsendable::TooLong));
    }
}
