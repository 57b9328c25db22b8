//! A program outputs its secrets by every route and in every documented form, and no output contains them. The control
//! is the same program with plain variables, whose values must be found on each route.

use super::{
    agent::Agent,
    forms::{self, Haystack, PYTHON},
    state::State,
};
use crate::client::*;

/// Each value has characters that encoders treat specially.
const SECRETS: [(&str, &str); 5] = [
    ("PLAIN", "hunter22secretOfTheVault"),
    ("ODD", "q\"uo'te\\back/sl+sh=~ pässwörd—鍵🔑"),
    (
        "PEM",
        "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEF\nAASCBKcwggSjAgEAAoIBAQC7\n-----END KEY-----\n",
    ),
    ("DIGITS", "8675309424242171"),
    ("URL", "postgres://user:p%40ss@db.example/x?y=z"),
];
/// Plain variables of the control, which the search must find.
const CANARIES: [(&str, &str); 2] = [
    ("OPEN", "c\"an'ary\\of+the=open~ sky—é"),
    ("OPEN_NUMBER", "1357924680135792"),
];

/// The forms that the control must show on a route.
#[derive(Clone, Copy, PartialEq)]
enum Shows {
    All,
    /// Only the plain text: a file name, for example, cannot contain every form.
    Plain,
    /// `hex`, because the route passes only letters and digits.
    Hex,
    Number,
}

struct Route {
    name: &'static str,
    language: &'static str,
    shows: Shows,
    code: &'static str,
}

const fn python(name: &'static str, shows: Shows, code: &'static str) -> Route {
    Route {
        name,
        language: "python",
        shows,
        code,
    }
}

const ROUTES: &[Route] = &[
    python("stdout", Shows::All, "for form in everything: print(form)"),
    python("stderr", Shows::All, "for form in everything: print(form, file=sys.stderr)"),
    python(
        "stdout, byte by byte",
        Shows::All,
        "for form in everything:\n    for at, byte in enumerate(form.encode() + b'\\n'):\n        os.write(1, bytes([byte]))\n        if at % 50 == 7: time.sleep(0.0005)",
    ),
    python(
        "both streams in turn",
        Shows::All,
        "for form in everything:\n    half = len(form) // 2\n    os.write(1, form[:half].encode()); os.write(2, form[:half].encode())\n    time.sleep(0.001)\n    os.write(1, form[half:].encode() + b'\\n'); os.write(2, form[half:].encode() + b'\\n')",
    ),
    python(
        "stdout, slower than progress",
        Shows::Plain,
        "for text in named:\n    for part in (text[:len(text) // 2], text[len(text) // 2:] + '\\n'):\n        os.write(1, part.encode()); os.write(2, part.encode())\n        time.sleep(0.2)",
    ),
    python(
        "result, fraction",
        Shows::Number,
        "[float(text) for text in named if text.isdigit()]",
    ),
    python("traceback", Shows::All, "raise ValueError('|'.join(everything))"),
    python(
        "chained traceback",
        Shows::All,
        "try:\n    raise KeyError('|'.join(everything))\nexcept KeyError as error:\n    raise RuntimeError('|'.join(everything)) from error",
    ),
    python("type of an error", Shows::All, "raise type('|'.join(everything), (Exception,), {})()"),
    python("text of an exit", Shows::All, "sys.exit('|'.join(everything))"),
    python("result, text", Shows::All, "'|'.join(everything)"),
    python(
        "result, keys and lists",
        Shows::All,
        "{form: [form, {'within': form}] for form in everything}",
    ),
    python("result, number", Shows::Number, "[int(text) for text in named if text.isdigit()]"),
    python("result, number as a key", Shows::Number, "{int(text): 1 for text in named if text.isdigit()}"),
    python(
        "result, repr",
        Shows::All,
        "class Shown:\n    def __repr__(self): return '|'.join(everything)\nShown()",
    ),
    python("result, bytes", Shows::Hex, "'|'.join(everything).encode()"),
    python(
        "variable's name",
        Shows::Hex,
        "for form in everything: globals()['v' + form] = 1",
    ),
    python(
        "file's name",
        Shows::Plain,
        "for at, form in enumerate(everything):\n    try: open(form.replace('/', '_') + '.txt', 'w').write('x')\n    except OSError: pass",
    ),
    python(
        "directory's name",
        Shows::Plain,
        "for form in everything:\n    try: os.makedirs(form); open(form + '/x', 'w').write('x')\n    except OSError: pass",
    ),
    python("artifact, text", Shows::All, "open('a.txt', 'w').write('\\n'.join(everything))"),
    python(
        "artifact, binary",
        Shows::All,
        "open('a.bin', 'wb').write(b'\\0\\xff'.join(form.encode() for form in everything))",
    ),
    python(
        "artifact, too large to be inline",
        Shows::All,
        "open('large.txt', 'w').write('.' * 300000 + '\\n'.join(everything))",
    ),
    python(
        "artifact, across what is read at once",
        Shows::Plain,
        "open('edge.txt', 'w').write(''.join(text.rjust(65536 + 10, '.').ljust(131072, '.') for text in named))",
    ),
    python(
        "picture's comment",
        Shows::All,
        "import struct, zlib
def chunk(kind, data): return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
text = b''.join(chunk(b'tEXt', b'Comment\\0' + form.encode()) for form in everything)
open('p.png', 'wb').write(b'\\x89PNG\\r\\n\\x1a\\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', 1, 1, 8, 2, 0, 0, 0)) + text
    + chunk(b'IDAT', zlib.compress(bytes(4))) + chunk(b'IEND', b''))",
    ),
    python("standard input", Shows::All, "print(sys.stdin.read())"),
    python("arguments", Shows::All, "print(sys.argv[1:]); print('\\n'.join(sys.argv[1:]))"),
    python(
        "display, html",
        Shows::All,
        "class Shown:\n    def _repr_html_(self): return '<b>' + '|'.join(everything) + '</b>'\nShown()",
    ),
    python(
        "denial",
        Shows::Plain,
        "for form in everything:\n    try: os.symlink('/etc/passwd', form.replace('/', '_'))\n    except OSError: pass",
    ),
    python("killed by its time", Shows::All, "print('\\n'.join(everything), flush=True)\nwhile True: pass"),
    python("a warning", Shows::All, "import warnings\nwarnings.warn('|'.join(everything))"),
    python(
        "a child's output",
        Shows::All,
        "import subprocess\nsubprocess.run(['cat'], input='\\n'.join(everything).encode())",
    ),
    Route {
        name: "node: console, error, artifact",
        language: "node",
        shows: Shows::Hex,
        code: "const fs = require('fs');
for (const name of process.env.NAMES.split(',')) {
  const text = process.env[name], bytes = Buffer.from(text);
  for (const form of [text, bytes.toString('hex'), bytes.toString('base64'), bytes.toString('base64url'),
                      encodeURIComponent(text), JSON.stringify(text), [...text].reverse().join('')]) {
    console.log(form); console.error(form); fs.appendFileSync('a.txt', form + '\\n');
  }
  console.log({[text]: [text, {within: text}]});
}
throw new Error(process.env.NAMES.split(',').map(name => process.env[name] + Buffer.from(process.env[name]).toString('hex')).join('|'));",
    },
    Route {
        name: "node: result",
        language: "node",
        shows: Shows::Hex,
        code: "Object.fromEntries(process.env.NAMES.split(',').map(name => [process.env[name], Buffer.from(process.env[name]).toString('hex')]))",
    },
    Route {
        name: "typescript: an error in the types' shadow",
        language: "typescript",
        shows: Shows::Plain,
        code: "const names: string[] = process.env.NAMES!.split(',');\nthrow new TypeError(names.map((n: string) => process.env[n]!).join('|'));",
    },
    Route {
        name: "shell: echo, trace, env, file",
        language: "shell",
        shows: Shows::Hex,
        code: "set -x; for name in ${NAMES//,/ }; do v=${!name}; echo \"$v\"; printf %s \"$v\" | base64; printf %s \"$v\" | od -An -tx1 | tr -d ' \\n'; echo; printf %s \"$v\" > f_$name; done; env; exit 3",
    },
    Route {
        name: "shell: no such command",
        language: "shell",
        shows: Shows::Plain,
        code: "for name in ${NAMES//,/ }; do printf '%s\\n' \"${!name}\" >&2; \"${!name}\"; done",
    },
];

fn arguments(route: &Route, names: &[(&str, &str)], given: Given) -> Value {
    let list: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
    let texts: Vec<&str> = names.iter().map(|(_, text)| *text).collect();
    let prelude = if route.language == "python" { PYTHON } else { "" };
    let mut arguments = json!({
        "language": route.language,
        "code": format!("{prelude}{}", route.code),
        "env": {"NAMES": list.join(",")},
        "stdin": all_forms(&texts),
        "args": all_forms(&texts).split('\n').collect::<Vec<_>>(),
        "resource_limits": {"max_output_bytes": 4_000_000},
    });
    if route.name.contains("time") {
        arguments["timeout_seconds"] = json!(1);
    }
    match given {
        Given::Open => {
            for (name, text) in names {
                arguments["env"][*name] = json!(text);
            }
        }
        Given::Secret => arguments["secrets"] = json!(list),
    }
    arguments
}

#[derive(Clone, Copy, PartialEq)]
enum Given {
    Open,
    Secret,
}

fn all_forms(texts: &[&str]) -> String {
    let forms = texts.iter().flat_map(|text| forms::of(text));
    forms.map(|(_, form)| form).collect::<Vec<_>>().join("\n")
}

fn start(name: &str) -> (State, Agent) {
    let state = State::new(name)
        .with_secrets(SECRETS)
        .with("RINGFENCE_LOG", "trace");
    let mut agent = state.serve();
    agent.rpc("logging/setLevel", json!({"level": "debug"}));
    (state, agent)
}

/// Reads the resources of a result: its artifacts, and their listing.
fn read_resources(agent: &mut Agent, result: &Value) {
    for artifact in result["artifacts"].as_array().into_iter().flatten() {
        agent.read_resource(&artifact["uri"]);
    }
    agent.call("get_artifacts", json!({"request_id": result["execution_id"]}));
}

/// claim: [SEC-2]
#[test]
fn no_secret_leaks_by_any_route_in_any_form() {
    let (state, mut agent) = start("routes");
    let mut silent = Vec::new();
    for route in ROUTES {
        let from = agent.messages().len();
        let result = agent.run(arguments(route, &CANARIES, Given::Open));
        assert!(result["execution_id"].is_string(), "{}: {result}", route.name);
        read_resources(&mut agent, &result);
        let mut shown = Haystack::default();
        let messages = &agent.messages()[from..];
        messages
            .iter()
            .for_each(|message| shown.add_message(route.name, message));
        let wanted = wanted(route.shows);
        let missing = wanted.iter().filter(|(_, text)| shown.find(text).is_none());
        silent.extend(missing.map(|(form, _)| format!("{}: {form}", route.name)));
        let result = agent.run(arguments(route, &SECRETS, Given::Secret));
        assert!(result["execution_id"].is_string(), "{}: {result}", route.name);
        read_resources(&mut agent, &result);
    }
    assert!(silent.is_empty(), "the control does not show: {silent:#?}");
    assert!(
        agent
            .messages()
            .iter()
            .any(|message| message["method"] == "notifications/message")
    );
    let pictures = agent
        .messages()
        .iter()
        .filter(|message| message["result"]["content"][1]["type"] == "image");
    assert_eq!(
        pictures.count(),
        2,
        "the picture was shown, with and without a secret in it"
    );
    for uri in ["sandbox://logs", "sandbox://audit", "sandbox://status"] {
        agent.read_resource(uri);
    }
    agent.call("inspect_state", json!({}));
    agent.call("audit_execution", json!({"limit": 1000, "detail": true}));
    let mut left = Haystack::default();
    for (at, message) in agent.messages().iter().enumerate() {
        left.add_message(&format!("message {at}"), message);
    }
    let joined = progress(agent.messages());
    assert!(
        String::from_utf8_lossy(&joined).contains(CANARIES[0].1),
        "output came as progress"
    );
    left.add("progress, joined", &joined);
    let ended = agent.close();
    left.add("standard output", &ended.stdout);
    left.add("the log", &ended.log);
    for (path, content) in state.files() {
        left.add("a file's name", path.to_string_lossy().as_bytes());
        left.add(&path.display().to_string(), &content);
    }
    for (_, canary) in CANARIES {
        assert!(left.find(canary).is_some());
    }
    for (_, secret) in SECRETS {
        left.assert_without(secret);
    }
    state.assert_verifies();
}

/// Joins the progress messages, as a client may do.
fn progress(messages: &[Value]) -> Vec<u8> {
    let texts = messages
        .iter()
        .filter_map(|message| message["params"]["message"].as_str());
    texts.collect::<String>().into_bytes()
}

fn wanted(shows: Shows) -> Vec<(&'static str, String)> {
    let [(_, text), (_, number)] = CANARIES;
    let all = forms::of(text);
    let only = |name: &str| all.iter().filter(|(form, _)| *form == name).cloned().collect();
    match shows {
        Shows::All => all,
        Shows::Plain => only("plain"),
        Shows::Hex => only("hex"),
        Shows::Number => vec![("number", number.to_owned())],
    }
}

/// The output of the command line, and the copies of artifacts that it makes.
/// claim: [SEC-2]
#[test]
fn no_secret_leaks_through_the_command_line() {
    let state = State::new("routes-cli")
        .with_secrets(SECRETS)
        .with("RINGFENCE_LOG", "trace");
    let scripts = TempDir::new("record-routes-cli");
    let code = format!(
        "{PYTHON}for form in everything:\n    print(form); print(form, file=sys.stderr)\n    try: open(form.replace('/', '_') + '.txt', 'w').write(form)\n    except OSError: pass\nopen('all.txt', 'w').write('\\n'.join(everything))\n'|'.join(everything)"
    );
    let script = scripts.file("routes.py", &code);
    let run = |given: &[(&str, &str)], copies: &str, json: bool, secret: bool| {
        let copies = scripts.0.join(copies);
        let names: Vec<&str> = given.iter().map(|(name, _)| *name).collect();
        let mut command = state.command(&["run", &script, "--artifacts"]);
        command
            .arg(&copies)
            .args(["--env", &format!("NAMES={}", names.join(","))]);
        if json {
            command.arg("--json");
        }
        for (name, text) in given {
            if secret {
                command.args(["--secret", name]);
            } else {
                command.args(["--env", &format!("{name}={text}")]);
            }
        }
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let mut left = Haystack::default();
        left.add("standard output", &output.stdout);
        left.add("standard error", &output.stderr);
        for (path, content) in files_below(&copies).into_iter().chain(state.files()) {
            left.add("a file's name", path.to_string_lossy().as_bytes());
            left.add(&path.display().to_string(), &content);
        }
        left
    };
    for (at, json) in [false, true].into_iter().enumerate() {
        let shown = run(&CANARIES, &format!("open{at}"), json, false);
        for (form, text) in forms::of(CANARIES[0].1) {
            assert!(shown.find(&text).is_some(), "the control does not show {form}");
        }
        let left = run(&SECRETS, &format!("secret{at}"), json, true);
        for (_, secret) in SECRETS {
            left.assert_without(secret);
        }
    }
}
