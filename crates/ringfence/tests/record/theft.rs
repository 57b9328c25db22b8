//! Secrets that must stay out of reach: those of another namespace, those that the policy does not allow, and the
//! memory of the server for other processes of the same user.

use super::{agent::Agent, state::State};
use crate::client::*;

const OWN: &str = "own-secret-of-default-4711";
const OTHER: &str = "other-secret-of-teama-4711";

fn state(name: &str) -> State {
    State::new(name)
        .with_secrets([("TOKEN", OWN)])
        .with("RINGFENCE_SECRET_TEAMA_TOKEN", OTHER)
        .with("RINGFENCE_SECRET_TEAMA_ONLY", OTHER)
}

/// claim: [SEC-1]
#[test]
fn a_namespace_has_no_secret_of_another() {
    let state = state("namespaces");
    let mut agent = state.serve();
    // The values are printed as digests, so that they can be compared without redaction.
    let code = "import os, hashlib\nprint(hashlib.sha256(os.environ['TOKEN'].encode()).hexdigest())";
    let mut of = |namespace: &str| -> Value {
        agent.run(json!({"code": code, "secrets": ["TOKEN"], "namespace": namespace}))["stdout"].clone()
    };
    let (own, other) = (of("default"), of("teama"));
    assert!(own.as_str().is_some_and(|digest| digest.len() == 65) && other.is_string() && own != other);
    for arguments in [
        json!({"code": "1", "secrets": ["ONLY"]}),
        json!({"code": "1", "secrets": ["TOKEN"], "namespace": "team"}),
        json!({"code": "1", "secrets": ["TOKEN", "ONLY"]}),
    ] {
        let refused = agent.run(arguments.clone());
        assert_eq!(refused["code"], "secret_unavailable", "{arguments}: {refused}");
    }
    for name in [
        "TEAMA_TOKEN",
        "RINGFENCE_SECRET_TEAMA_TOKEN",
        "../teama/TOKEN",
        "teama/TOKEN",
    ] {
        let refused = agent.run(json!({"code": "1", "secrets": [name]}));
        assert!(refused["code"].is_string(), "{name}: {refused}");
    }
    let mut names = |namespace: &str, expect: &[&str]| {
        let listed = agent.facts("vault_list", json!({"namespace": namespace}));
        assert_eq!(texts_of(&listed["secrets"], "key"), expect);
    };
    names("default", &["TOKEN"]);
    names("teama", &["ONLY", "TOKEN"]);
}

/// claim: [SEC-1]
#[test]
fn a_program_sees_only_its_requested_secrets_and_no_variable_of_the_server() {
    let state = state("environment").with("RINGFENCE_WARM_READY", "1");
    let mut agent = state.serve();
    let look = "import os, glob\nfound = [dict(os.environ)]\nfor path in glob.glob('/proc/[0-9]*/environ') + glob.glob('/proc/[0-9]*/cmdline'):\n    try: found.append(open(path, 'rb').read().decode())\n    except OSError: pass\nprint(len(found)); print('TOKEN' in os.environ); print(str(found).count('RINGFENCE_SECRET'), str(found).count('-4711'))";
    for (secrets, expect) in [(json!([]), "False\n0 0\n"), (json!(["TOKEN"]), "True\n0 ")] {
        let result = agent.run(json!({"code": look, "secrets": secrets}));
        let stdout = text_of(&result["stdout"]);
        let (read, rest) = stdout.split_once('\n').unwrap();
        assert!(
            read.parse::<u32>().is_ok_and(|count| count > 1),
            "it could read something: {stdout}"
        );
        assert!(rest.starts_with(expect), "{stdout}");
    }
    let shell = agent.run(json!({"code": "env; cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'; true", "language": "shell"}));
    let seen = text_of(&shell["stdout"]);
    assert!(seen.contains("PATH=") && !seen.contains("SECRET"), "{seen}");
}

/// claim: [SEC-1]
#[test]
fn the_vault_policy_allows_secrets_by_name() {
    let state = State::new("policy")
        .with_secrets([("TOKEN", OWN), ("OTHER", OTHER), ("TOKEN_TWO", OTHER)])
        .with("RINGFENCE_VAULT_ALLOW", "default/TOKEN");
    let mut agent = state.serve();
    let mut code_of = |name: &str| agent.run(json!({"code": "1", "secrets": [name]}))["code"].clone();
    assert_eq!(code_of("TOKEN"), Value::Null);
    assert_eq!(code_of("OTHER"), "policy_denied");
    assert_eq!(code_of("TOKEN_TWO"), "policy_denied");
}

/// Reads the start of a file as another process of the server's user; `None` if that fails.
fn read_as_nobody(path: &str) -> Option<Vec<u8>> {
    let output = as_nobody("head").args(["-c", "4096", path]).output().unwrap();
    output.status.success().then_some(output.stdout)
}

/// claim: [SEC-4]
#[test]
fn another_process_of_the_same_user_cannot_read_the_server() {
    let Some(nobody) = Nobody::new("") else { return };
    let serve = |vault: &str| {
        let mut command = nobody.command();
        command.env("RINGFENCE_VAULT_STORE", vault);
        if vault == "env" {
            command.env("RINGFENCE_SECRET_DEFAULT_TOKEN", OWN);
        }
        let mut agent = Agent::start(command).initialize();
        // The engine has started, so the vault is open.
        let stats = agent.facts("sandbox_stats", json!({}));
        assert_eq!(stats["pid"], agent.pid(), "{stats}");
        agent
    };
    let file = |agent: &Agent, name: &str| format!("/proc/{}/{name}", agent.pid());
    // The control: a server without secrets can be read like any program.
    let open = serve("memory");
    let environ = read_as_nobody(&file(&open, "environ"));
    assert!(environ.is_some_and(|text| String::from_utf8_lossy(&text).contains("RINGFENCE_STATE_DIR")));
    drop(open.close());
    let mut closed = serve("env");
    for name in ["environ", "mem", "maps", "auxv"] {
        let read = read_as_nobody(&file(&closed, name));
        assert_eq!(read, None, "{name}");
    }
    let result = closed.run(json!({"code": "import os\nprint('TOKEN' in os.environ)", "secrets": ["TOKEN"]}));
    assert_eq!(result["stdout"], "True\n", "{result}");
    // The kernel writes no core dump of it either.
    signal(closed.pid(), rustix::process::Signal::ABORT);
    let ended = closed.close();
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(ended.status.signal(), Some(6));
    assert!(!ended.status.core_dumped());
}
