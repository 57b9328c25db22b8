//! Forks of a Node.js template, of which Node.js is unaware: their random numbers, exits, descriptors and memory.

use crate::client::*;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use std::{collections::HashSet, fs, process::Command};

/// True in a fork, which has the command line of its template.
const IS_FORK: &str =
    "require('fs').readFileSync('/proc/self/cmdline', 'latin1').includes('--single-threaded')";

/// The result of code in a fork; the code returns `[forked, RESULT]`.
fn eval_in_fork(server: &mut Server, code: &str) -> Value {
    server.wait_until_warm("node");
    let done = server.execute("node", &format!("var forked = {IS_FORK}; {code}"));
    assert_eq!(done["result"][0], true, "{done}");
    done["result"][1].clone()
}

/// claim: [WARM-1]
#[test]
fn node_forks_draw_different_random_numbers() {
    let mut server = Server::start();
    let code = "const crypto = require('crypto'), worker = \"require('worker_threads').parentPort.postMessage(Math.random())\", \
        other = new (require('worker_threads').Worker)(worker, {eval: true});\n\
        new Promise((then) => other.on('message', (drawn) => then([forked, [drawn, Math.random(), Math.random(), \
        crypto.randomUUID(), crypto.randomInt(2 ** 40), crypto.randomBytes(8).toString('hex'), \
        crypto.webcrypto.getRandomValues(new Uint32Array(2)).join(), \
        crypto.generateKeyPairSync('ed25519').publicKey.export({format: 'der', type: 'spki'}).toString('hex')]])))";
    let mut seen = HashSet::new();
    for _ in 0..5 {
        for value in list_of(&eval_in_fork(&mut server, code)) {
            assert!(seen.insert(value.to_string()), "{value} came twice");
        }
    }
}

/// claim: [WARM-4]
#[test]
fn node_fork_has_nothing_of_its_template_or_other_forks() {
    let mut server = Server::start();
    server.wait_until_warm("node");
    // Each open file by its kernel identity: the inode of a pipe or socket, and the id of an eventfd in `fdinfo`.
    let code = format!(
        "const fs = require('fs'), of = (fd) => {{\n\
           const name = fs.readlinkSync('/proc/self/fd/' + fd);\n\
           const event = /eventfd-id:.*/.exec(fs.readFileSync('/proc/self/fdinfo/' + fd, 'latin1'));\n\
           return event ? event[0] : name;\n\
         }};\n\
         const open = fs.readdirSync('/proc/self/fd').flatMap((fd) => {{ try {{ return [of(fd)]; }} catch {{ return []; }} }});\n\
         const answers = [];\n\
         for (let pid = 3; pid < 400; pid++) try {{ process.kill(pid, 0); answers.push(pid); }} catch {{}}\n\
         new Promise((then) => setTimeout(then, 300)).then(() => [{IS_FORK}, process.pid, process.ppid, answers, \
         fs.readdirSync('/proc/self/task').length, open])"
    );
    let ids: Vec<u64> = (0..2)
        .map(|_| server.send_run(json!({"language": "node", "code": code})))
        .collect();
    let results = server.await_responses(&ids);
    let mut seen = HashSet::new();
    for result in results.iter().map(|(_, done)| &done["result"]) {
        assert_eq!(result[0], true, "{result}");
        assert_eq!(
            [&result[1], &result[2], &result[3], &result[4]],
            [&json!(2), &json!(0), &json!([]), &json!(1)],
            "{result}"
        );
        let own: HashSet<String> = list_of(&result[5]).iter().map(Value::to_string).collect();
        for name in own {
            assert!(!name.contains("socket"), "{result}");
            let has_no_identity = name.contains("eventpoll") || name.contains("/dev/null");
            assert!(
                has_no_identity || seen.insert(name.clone()),
                "{name} is shared: {results:?}"
            );
        }
    }
}

/// A server whose Node.js preloads this module.
fn with_preloaded(text: &str) -> (TempDir, Server) {
    let home = TempDir::new("node-ahead");
    fs::create_dir_all(home.0.join("bin")).unwrap();
    let node = fs::canonicalize("/usr/bin/node").unwrap();
    link_program(&node, &home.0.join("bin/node"));
    home.file("lib/node/ahead.js", text);
    let server = Server::with_env([
        (
            "RINGFENCE_RUNTIMES_NODE",
            home.0.join("bin/node").to_str().unwrap(),
        ),
        ("RINGFENCE_WARM_PRELOAD_NODE", "ahead"),
    ]);
    (home, server)
}

/// Default of `warm.ready`.
const WARM_READY: usize = 2;

/// A call causes fewer than 100 of the page faults by which a fork gets its own pages; without the template's trial run
/// it causes nearly two hundred.
#[test]
fn waiting_node_fork_has_its_pages_faulted_in() {
    let mut server = Server::start();
    server.wait_until_warm("node");
    // One that is not ready yet still gets its pages.
    let mut faults: Vec<i64> = Vec::new();
    eventually(|| {
        let forks = descendants_with(server.child.id(), "--single-threaded").into_iter();
        let now = forks.filter_map(|pid| proc_stat(pid, MINOR_FAULTS)?.parse().ok());
        let earlier = std::mem::replace(&mut faults, now.collect());
        faults.len() > WARM_READY && faults == earlier
    });
    // The template itself has the most page faults.
    let before = faults.into_iter().min().unwrap();
    let code = "[forked, +require('fs').readFileSync('/proc/self/stat', 'latin1').split(' ')[9]]";
    let after = eval_in_fork(&mut server, code).as_i64().unwrap();
    assert!((0..100).contains(&(after - before)), "{before}, {after}");
}

/// Each trial run ends, even if a preloaded module has replaced functions that programs use.
#[test]
fn preloaded_module_cannot_block_the_trial_run() {
    let throws = "console.log = () => { throw new Error('no'); };";
    let waits = "console.log = () => setInterval(() => {}, 1000);";
    let hangs = "console.log = () => { for (;;); };";
    // Exit handlers do not run in a trial run, whose parent is not pid 0.
    let never_exits = "process.on('exit', () => { while (process.ppid); });";
    for text in [throws, waits, hangs, never_exits] {
        let (_home, mut server) = with_preloaded(text);
        assert_eq!(eval_in_fork(&mut server, "[forked, 7]"), 7, "{text}");
    }
}

/// The forker is preloaded into the template, and exported symbols of such an object take precedence over a library's
/// own.
#[test]
fn native_library_of_a_program_calls_its_own_functions() {
    const LIBRARY: &str = "extern int napi_create_int32(void *, int, void **);\n\
        int serve(void) { return 1; }\nint confine(void) { return 2; }\nint found(void) { return 4; }\n\
        int try_run(void) { return 8; }\n\
        void *napi_register_module_v1(void *environment, void *exports) {\n\
          void *sum;\n\
          napi_create_int32(environment, serve() + confine() + found() + try_run(), &sum);\n\
          return sum;\n\
        }\n";
    let directory = TempDir::new("node-library");
    directory.file("own.c", LIBRARY);
    let compiled = Command::new("gcc")
        .current_dir(&directory.0)
        .args(["-shared", "-fPIC", "-O0", "-o", "own.node", "own.c"])
        .status();
    assert!(compiled.unwrap().success());
    let library = STANDARD.encode(fs::read(directory.0.join("own.node")).unwrap());
    let mut server = Server::start();
    server.wait_until_warm("node");
    let code = format!("[{IS_FORK}, require('./own.node')]");
    let files = json!([{"path": "own.node", "base64": library}]);
    let done = server.run(json!({"language": "node", "code": code, "files": files}));
    assert_eq!(done["result"], json!([true, 15]), "{done}");
}

/// claim: [WARM-4]
///
/// Descriptors of a claim get the lowest free numbers, also if a module has closed its own files.
#[test]
fn preloaded_module_leaves_no_template_state_in_forks() {
    let (_home, mut server) = with_preloaded(
        "const fs = require('fs'), crypto = require('crypto');\n\
         const open = Array.from({length: 40}, () => fs.openSync('/dev/null'));\n\
         open.slice(0, 30).forEach((fd) => fs.closeSync(fd));\n\
         module.exports = [crypto.randomUUID(), crypto.randomInt(2 ** 40)];\n",
    );
    let code = "const crypto = require('crypto'), fs = require('fs');\n\
        const open = fs.readdirSync('/proc/self/fd').map((fd) => {\n\
          try { return fs.readlinkSync('/proc/self/fd/' + fd); } catch { return ''; }\n\
        });\n\
        [forked, [crypto.randomUUID(), crypto.randomInt(2 ** 40), open]]";
    let mut seen = HashSet::new();
    for _ in 0..3 {
        let done = eval_in_fork(&mut server, code);
        for drawn in [&done[0], &done[1]] {
            assert!(seen.insert(drawn.to_string()), "{drawn} came twice");
        }
        let is_own = |name: &str| {
            ["pipe:", "anon_inode:[event", "/dev/null"]
                .iter()
                .any(|own| name.starts_with(own))
        };
        for name in list_of(&done[2]).iter().filter_map(Value::as_str) {
            assert!(name.is_empty() || is_own(name), "{name} in {done}");
        }
    }
}

/// A program must behave the same in warm and cold sandboxes.
#[test]
fn node_forks_exit_like_cold_starts() {
    const PROGRAMS: [&str; 23] = [
        "console.log(1)",
        "process.exit(3)",
        "process.exitCode = 4",
        "throw new Error('sync')",
        "setTimeout(() => { throw new TypeError('late') }, 1)",
        "Promise.reject(new RangeError('rejected'))",
        "process.exitCode = 9; throw new Error('sync')",
        "process.on('exit', (code) => console.log('bye', code)); process.exit(5)",
        "process.on('exit', () => { throw new Error('in exit') })",
        "process.on('exit', () => process.exit(6))",
        "process.on('exit', () => { process.exitCode = 7 })",
        "process.on('uncaughtException', (e) => console.log('caught', e.message)); throw new Error('q')",
        "process.on('uncaughtException', () => { throw new Error('again') }); throw new Error('q')",
        "process.on('beforeExit', () => console.log('before'))",
        "new Promise(() => {})",
        "const o = {}; for (let i = 0; i < 200000; i++) o['k' + i] = i; console.log(Object.keys(o).length)",
        "console.log(require('os').availableParallelism() === require('os').cpus().length)",
        "process.kill(process.pid, 'SIGKILL')",
        "process.on('SIGTERM', () => process.exit(8)); process.kill(process.pid, 'SIGTERM'); setTimeout(() => {}, 5000)",
        "const { Worker } = require('worker_threads'); new Worker('setInterval(() => {}, 1000)', {eval: true}); \
         setTimeout(() => { throw new Error('beside a worker') }, 100)",
        "const { Worker } = require('worker_threads'); new Worker('process.exit(2)', {eval: true})\
         .on('exit', (code) => console.log('worker', code))",
        "const { Worker } = require('worker_threads'); new Worker('const o = {}; for (let i = 0; i < 200000; i++) \
         o[\"k\" + i] = i', {eval: true}).on('exit', (code) => console.log('worker', code))",
        "require('child_process').execFile('node', ['-p', '6 * 7'], (e, out) => console.log(out))",
    ];
    let mut warm = Server::start();
    let mut cold = Server::with_config("warm: {ready: 0}\n");
    warm.wait_until_warm("node");
    for program in PROGRAMS {
        // The stack frames differ, as they include the driver's.
        let of = |done: &Value| {
            let lines = done["stderr"].as_str().unwrap().lines();
            let lines: Vec<String> = lines
                .filter(|line| !line.starts_with("    at "))
                .map(str::to_owned)
                .collect();
            let [status, stdout, kind, message] = [
                &done["exit"],
                &done["stdout"],
                &done["error"]["type"],
                &done["error"]["message"],
            ];
            json!([status["code"], status["signal"], stdout, kind, message, lines])
        };
        let (warm, cold) = (warm.execute("node", program), cold.execute("node", program));
        assert_eq!(of(&warm), of(&cold), "{program}: {warm} {cold}");
    }
}
