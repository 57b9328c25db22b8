//! Extreme secrets: one byte, 64 KiB, a thousand at once, and one that is cut by the end of the output.

use super::{
    forms::Haystack,
    state::{State, details},
};
use crate::client::*;

/// Returns pseudorandom letters and digits, without repeated parts.
fn long_secret(bytes: usize) -> String {
    let mut state: u64 = 4711;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let at = usize::try_from(state >> 58).unwrap();
        char::from(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789ab"[at])
    };
    (0..bytes).map(|_| next()).collect()
}

fn everything(state: &State, agent: super::agent::Agent) -> Haystack {
    let mut left = Haystack::default();
    agent
        .messages()
        .iter()
        .for_each(|message| left.add_message("messages", message));
    let ended = agent.close();
    left.add("standard output", &ended.stdout);
    left.add("the log", &ended.log);
    for (path, content) in state.files() {
        left.add(&path.display().to_string(), &content);
    }
    left
}

#[test]
fn a_one_byte_secret_is_given_and_reported_as_unredacted() {
    let state = State::new("tiny").with_secrets([("TINY", "x"), ("LARGE", "a-large-secret-4711")]);
    let mut agent = state.serve();
    let result = agent.run(json!({"code": "import os\nprint(os.environ['TINY'] * 3, os.environ['LARGE'])", "secrets": ["TINY", "LARGE"]}));
    assert_eq!(result["stdout"], "xxx ***REDACTED***\n");
    let events = list_of(&result["security_events"]);
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0]["rule"], "redact.too_short");
    events[0].assert_text("what", ["TINY"]);
    let end = state.records().pop().unwrap();
    assert_eq!(details(&end)["rules"], json!(["redact.too_short"]));
}

#[test]
fn a_64_kib_secret_leaks_in_no_form_and_in_no_part() {
    const BYTES: usize = 64 << 10;
    let secret = long_secret(BYTES);
    let state = State::new("long").with_secrets([("LONG", secret.as_str())]);
    let mut agent = state.serve();
    let code = "import os, base64, sys
s = os.environ['LONG']
assert len(s) == 65536
forms = [s, s[::-1], s.encode().hex(), base64.b64encode(s.encode()).decode(), base64.encodebytes(s.encode()).decode().strip()]
for form in forms:
    print(form)
    for at in range(0, len(form), 1000): sys.stderr.write(form[at:at + 1000]); sys.stderr.flush()
    sys.stderr.write('\\n')
open('a.txt', 'w').write('\\n'.join(forms)); open('a.bin', 'wb').write(b'\\0'.join(form.encode() for form in forms))
print('the end')";
    let result = agent.run(json!({"code": code, "secrets": ["LONG"]}));
    assert_eq!(result["success"], true, "{}", result["stderr"]);
    result.assert_fields(json!({"stdout": format!("{}the end\n", "***REDACTED***\n".repeat(5)).as_str()}));
    let left = everything(&state, agent);
    // A part of the secret would be a leak, too.
    let parts = |form: &str| {
        (0..form.len() - 48)
            .step_by(1021)
            .map(|at| form[at..at + 48].to_owned())
            .collect::<Vec<_>>()
    };
    for (name, form) in super::forms::of(&secret) {
        for part in parts(&form) {
            assert_eq!(left.find(&part), None, "a part as {name}");
        }
    }
}

#[test]
fn a_thousand_secrets_at_once_are_all_redacted() {
    let secrets: Vec<(String, String)> = (0..1000)
        .map(|number| (format!("S{number}"), format!("secret-number-{number:04}-of-many")))
        .collect();
    let state =
        State::new("many").with_secrets(secrets.iter().map(|(name, text)| (name.as_str(), text.as_str())));
    let state = state.with("RINGFENCE_TEXT_MAX", "1048576");
    let mut agent = state.serve();
    let names: Vec<&str> = secrets.iter().map(|(name, _)| name.as_str()).collect();
    let code = "import os\nprint(sum(name.startswith('S') and name[1:].isdigit() for name in os.environ))\nfor name, text in os.environ.items(): print(name, text, text.encode().hex())";
    let result = agent.run(json!({"code": code, "secrets": names}));
    let stdout = text_of(&result["stdout"]);
    assert!(stdout.starts_with("1000\n"), "{stdout}");
    assert_eq!(stdout.matches("***REDACTED***").count(), 2000);
    let left = everything(&state, agent);
    for (_, secret) in secrets.iter().step_by(37) {
        left.assert_without(secret);
    }
    assert!(left.find("secret-number-").is_none());
}

/// The kept output ends inside the secret, and the first part of the secret must not remain.
/// claim: [SEC-2]
#[test]
fn a_secret_cut_by_the_end_of_the_output_leaves_no_part() {
    const SECRET: &str = "the-beginning-and-the-end-of-it-4711";
    const KEPT: usize = 5000;
    let state = State::new("cut").with_secrets([("TOKEN", SECRET)]);
    let mut agent = state.serve();
    for before in (0..SECRET.len() + 4).step_by(3) {
        let code = format!(
            "import os, sys\nfor out in sys.stdout, sys.stderr:\n    out.write('.' * ({KEPT} - {before}) + os.environ['TOKEN'] * 3)"
        );
        let limits = json!({"max_output_bytes": KEPT});
        let result = agent.run(json!({"code": code, "secrets": ["TOKEN"], "resource_limits": limits}));
        let clean = |text: &Value| {
            let rest = text.as_str().unwrap().trim_matches('.').to_owned();
            assert!(
                "***REDACTED***".starts_with(&rest) || rest.starts_with("***REDACTED***"),
                "{before}: {rest}"
            );
        };
        clean(&result["stdout"]);
        clean(&result["stderr"]);
    }
    everything(&state, agent).assert_without(SECRET);
}

/// Long texts are truncated. If the end falls inside a secret, the first part of the secret must not remain.
/// claim: [SEC-2]
#[test]
fn a_secret_cut_by_the_end_of_a_truncated_text_leaves_no_part() {
    const SECRET: &str = "first_half_of_it_and_the_second_half_4711";
    const HALF: &str = "first_half_of_it";
    const PYTHON: &str =
        "import os, sys\ns = os.environ['TOKEN']\ndef before(limit): return 'x' * (limit - 25)\n";
    let long = long_secret(64 << 10);
    let state = State::new("told").with_secrets([("TOKEN", SECRET), ("LONG", long.as_str())]);
    let mut agent = state.serve();
    let programs = [
        ("repr", "python", "before(65536) + s"),
        ("message", "python", "raise ValueError(before(65536) + s)"),
        // The traceback has text before the error: the place, and the name of the error.
        (
            "traceback",
            "python",
            "raise ValueError(before(262144 - 200) + s)",
        ),
        (
            "type",
            "python",
            "raise type(before(1024) + s, (Exception,), {})()",
        ),
        ("variable", "python", "globals()[before(256) + s] = 1"),
        (
            "denial",
            "python",
            "d = ''\nfor part in range(5):\n    d += 'd' * 200 + '/'\nos.makedirs(d)\nos.symlink('x', d + s)",
        ),
        (
            "node message",
            "node",
            "throw new Error('x'.repeat(65536 - 25) + process.env.TOKEN)",
        ),
        ("node repr", "node", "'x'.repeat(65536 - 25) + process.env.TOKEN"),
    ];
    for (name, language, code) in programs {
        let prelude = if language == "python" { PYTHON } else { "" };
        // The control: a plain variable in place of the secret shows its first half.
        for (given, is_shown) in [
            (json!({"env": {"TOKEN": SECRET}}), true),
            (json!({"secrets": ["TOKEN"]}), false),
        ] {
            let mut arguments = json!({"language": language, "code": format!("{prelude}{code}")});
            arguments
                .as_object_mut()
                .unwrap()
                .extend(given.as_object().unwrap().clone());
            let mut result = agent.run(arguments);
            // These fields may contain the whole text; standard error has the whole traceback.
            for whole in ["result", "stderr"] {
                result[whole] = Value::Null;
            }
            assert!(result["execution_id"].is_string(), "{name}: {result}");
            assert_eq!(
                result.to_string().contains(HALF),
                is_shown,
                "{name}, {is_shown}: {result}"
            );
        }
    }
    // The repr of the secret is longer than the limit of a repr.
    for (language, code) in [
        ("python", "import os\nos.environ['LONG']"),
        ("node", "process.env.LONG"),
    ] {
        let result = agent.run(json!({"language": language, "code": code, "secrets": ["LONG"]}));
        assert_eq!(result["result"], "***REDACTED***");
        assert!(!result.to_string().contains(&long[..48]), "{result}");
    }
}
