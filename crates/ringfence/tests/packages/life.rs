//! What packages are there for: installed once, used by any run, in Python and Node.js.

use super::{
    archive, has_hello,
    index::{Index, digest, integrity},
    install, node, python, server, server_with, serving,
};
use crate::client::*;
use std::{fs, os::unix::fs::MetadataExt};

/// An index with `hello 1.0`, which needs `greet`.
pub fn hello() -> Index {
    let index = Index::new();
    let files = [
        (
            "hello/__init__.py",
            "import greet\nvalue = greet.value + 1\ndef main():\n    print('tool', value)\n",
        ),
        ("hello.pth", "import os; os.environ['PTH_RAN'] = 'yes'\n"),
        (
            "json.py",
            "raise RuntimeError('a package has taken the place of json')\n",
        ),
    ];
    index.wheel("hello", "1.0", &files, &["greet"]);
    index.wheel("greet", "2.5", &[("greet.py", "value = 41\n")], &[]);
    index
}

#[test]
fn a_set_is_installed_once_with_its_hashes_on_record_and_then_there_at_once() {
    let index = hello();
    let mut server = server(&index);
    let wish = json!({"language": "python", "packages": ["Hello"]});
    let installed = server.succeeds("install_package", wish);
    let greet = archive::wheel("greet", "2.5", &[("greet.py", "value = 41\n")], &[]);
    let packages = list_of(&installed["installed"]);
    let known = packages
        .iter()
        .find(|package| package["name"] == "greet")
        .unwrap();
    known.shows(json!({"version": "2.5", "sha256": digest("sha256sum", &greet)}));
    installed.says("output", ["Successfully installed"]);
    let requests = index.asked().len();
    let run = python(
        &mut server,
        "import hello\n(hello.value, hello.__file__)",
        &["hello"],
    );
    run.shows(json!({"result": [42, "/packages/layer/python/hello/__init__.py"]}));
    let again = install(&mut server, "hello");
    again.shows(json!({"output": "", "installed": installed["installed"]}));
    assert_eq!(index.asked().len(), requests, "the index was asked again");
    let wish = json!({"action": "package.installed", "detail": true});
    let record = server.facts("audit_execution", wish);
    assert!(
        record.to_string().contains(&digest("sha256sum", &greet)),
        "{record}"
    );
    // Another server, and a run at the command line, have it too.
    drop(server);
    let mut other = super::server(&index);
    has_hello(&mut other);
    let output = run_code(
        "python",
        "import hello; print(hello.value)",
        &["--package", "hello"],
    );
    assert_eq!(stdout_of(&output), "42\n", "{output:?}");
    assert_eq!(index.asked().len(), requests, "the index was asked again");
}

#[test]
fn scripts_and_child_interpreters_find_the_packages_and_the_standard_library_stays_what_it_is() {
    let index = hello();
    let mut server = server(&index);
    let code = "import json, os, subprocess, sys\n\
        tool = subprocess.run(['hello-tool'], capture_output=True, text=True)\n\
        child = subprocess.run([sys.executable, '-c', 'import hello; print(hello.value)'], capture_output=True, text=True)\n\
        [json.dumps(1), os.environ.get('PTH_RAN'), tool.stdout, child.stdout]";
    let run = python(&mut server, code, &["hello"]);
    // A .pth is executed in the interpreter's own directories of packages alone, and this is none.
    assert_eq!(run["result"], json!(["1", null, "tool 42\n", "42\n"]), "{run}");
}

#[test]
fn node_finds_its_packages_by_require_and_by_import_and_runs_no_script_of_theirs() {
    let index = Index::new();
    let script = format!("node -e \"require('http').get('{}')\"", index.address("/canary"));
    let manifest = json!({
        "name": "leftpad", "version": "1.2.3", "main": "index.js", "bin": {"leftpad": "index.js"},
        "scripts": {"preinstall": &script, "install": &script, "postinstall": &script},
    });
    let text = manifest.to_string();
    let files = [
        ("package.json", text.as_str()),
        (
            "index.js",
            "#!/usr/bin/env node\nmodule.exports = (n) => n + 1;\nif (require.main === module) console.log('bin');\n",
        ),
    ];
    let tgz = archive::tgz(&files);
    index.npm("leftpad", "1.2.3", &manifest, tgz.clone());
    let mut server = server(&index);
    let wish = json!({"language": "node", "packages": ["leftpad@^1.2"]});
    let installed = server.facts("install_package", wish);
    installed.shows(json!({"installed.0.version": "1.2.3", "installed.0.integrity": integrity(&tgz)}));
    assert_eq!(index.count("/canary"), 0);
    let common = node(&mut server, "require('leftpad')(41)", &["leftpad@^1.2"]);
    assert_eq!(common["result"], 42, "{common}");
    let module = node(
        &mut server,
        "import pad from 'leftpad';\nconsole.log(pad(41))",
        &["leftpad@^1.2"],
    );
    assert_eq!(module["stdout"], "42\n", "{module}");
    let tool = "require('child_process').execSync('leftpad').toString()";
    assert_eq!(node(&mut server, tool, &["leftpad@^1.2"])["result"], "bin\n");
    let without = node(&mut server, "require('leftpad')", &[]);
    assert_eq!(without["success"], false, "{without}");
    assert_eq!(index.count(".tgz"), 1);
}

#[test]
fn a_second_request_for_a_set_waits_for_the_first_even_in_another_server() {
    let index = hello();
    index.hold(Some(".whl"));
    let (mut one, mut other) = (server(&index), Server::of(serving(&index)));
    let ask = |server: &mut Server| {
        let arguments = json!({"code": "import hello; hello.value", "packages": ["hello"]});
        server.send_run(arguments)
    };
    let first = ask(&mut one);
    eventually(|| index.count(".whl") > 0);
    let (second, third) = (ask(&mut one), ask(&mut other));
    // Their requests are on record before they wait.
    let seen = index.asked().len();
    for server in [&mut one, &mut other] {
        let waits = |server: &mut Server| {
            let state = server.facts("inspect_state", json!({}));
            state["running"]
                .as_array()
                .is_some_and(|running| !running.is_empty())
        };
        eventually(|| waits(server));
    }
    assert_eq!(index.asked().len(), seen);
    index.hold(None);
    for (server, ids) in [(&mut one, vec![first, second]), (&mut other, vec![third])] {
        // In whichever order they come.
        let mut missing = ids;
        while !missing.is_empty() {
            let answer = server.receive();
            missing.retain(|id| answer["id"] != json!(id));
            assert_eq!(answer["result"]["structuredContent"]["result"], 42, "{answer}");
        }
    }
    assert_eq!(
        (
            index.count("hello-1.0-py3-none-any.whl"),
            index.count("greet-2.5-py3-none-any.whl")
        ),
        (1, 1)
    );
}

#[test]
fn packages_that_take_long_keep_no_program_and_no_other_namespace_waiting() {
    let index = hello();
    for name in ["oneslow", "twoslow", "threeslow"] {
        index.wheel(name, "1", &[], &[]);
    }
    let mut server = server_with(&index, "RINGFENCE_QUEUE_CONCURRENCY", "1");
    index.hold(Some("slow-1-py3-none-any.whl"));
    let mut slow = Vec::new();
    for (tool, package) in [
        ("execute_code", "oneslow"),
        ("install_package", "twoslow"),
        ("create_session", "threeslow"),
    ] {
        let mut wish = json!({"packages": [package], "namespace": "slow"});
        if tool == "execute_code" {
            wish["code"] = json!("40 + 2");
        }
        slow.push(server.send_call(tool, wish));
    }
    eventually(|| index.count("slow-1-py3-none-any.whl") == 2);
    // There is one place for programs, and two installers of one namespace: both wait for the index.
    assert_eq!(python(&mut server, "6 * 7", &[])["result"], 42);
    server.succeeds("create_session", json!({}));
    assert_eq!(
        python(&mut server, "import greet; greet.value", &["greet"])["result"],
        41
    );
    assert_eq!(
        index.count("slow-1-py3-none-any.whl"),
        2,
        "it has no third at once"
    );
    index.hold(None);
    for (id, answer) in server.await_all(&slow) {
        assert_eq!(answer["success"], true, "{id}: {answer}");
    }
}

#[test]
fn a_call_and_an_installation_in_one_session_do_not_wait_for_each_other() {
    let index = hello();
    let mut server = server_with(&index, "RINGFENCE_QUEUE_CONCURRENCY", "1");
    let session = server.facts("create_session", json!({}))["session_id"].clone();
    index.hold(Some(".whl"));
    let wish = json!({"packages": ["greet"], "session_id": session});
    let installing = server.send_call("install_package", wish);
    eventually(|| index.count(".whl") == 1);
    let call = server.send_run(json!({"code": "6 * 7", "session_id": session}));
    let waits = |server: &mut Server| server.facts("inspect_state", json!({}))["sessions"][0]["waiting"] == 1;
    eventually(|| waits(&mut server));
    // Neither has the one place for programs.
    assert_eq!(python(&mut server, "6 * 7", &[])["result"], 42);
    index.hold(None);
    for (id, answer) in server.await_all(&[installing, call]) {
        assert_eq!(answer["success"], true, "{id}: {answer}");
    }
}

#[test]
fn a_layer_that_nobody_has_used_for_long_goes_when_a_server_starts() {
    let index = hello();
    let code = "import greet; greet.value";
    assert_eq!(python(&mut server(&index), code, &["greet"])["result"], 41);
    let place = state_dir().join("packages");
    let layer = fs::read_dir(place.join("layers"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let use_of_it = place.join("locks").join(layer.file_name());
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(400 * 24 * 60 * 60);
    fs::File::options()
        .write(true)
        .open(use_of_it)
        .unwrap()
        .set_modified(long_ago)
        .unwrap();
    let mut quiet = server(&index);
    eventually(|| !layer.path().exists());
    assert_eq!(python(&mut quiet, code, &["greet"])["result"], 41);
}

#[test]
fn a_session_of_the_command_line_has_its_packages_from_its_beginning() {
    let index = hello();
    let server = server(&index);
    eventually(|| said(&["session", "list"]).status.success());
    let created = told_json(&["session", "create", "--package", "hello"]);
    let id = text_of(&created["session_id"]);
    let printed = told(&["session", "exec", id, "-c", "import hello; print(hello.value)"]);
    assert_eq!(printed, "42\n");
    let refused = json_of(&said(&["session", "create", "--package=--index-url=x", "--json"]));
    assert_eq!(refused["error"]["code"], "invalid_argument", "{refused}");
    drop(server);
}

#[test]
fn a_creation_that_ctrl_c_interrupts_shows_how_far_it_was_and_leaves_nothing() {
    let index = hello();
    let _server = server(&index);
    eventually(|| said(&["session", "list"]).status.success());
    index.hold(Some(".whl"));
    let child = start(&mut ringfence(&["session", "create", "--package", "hello"]));
    eventually(|| index.count(".whl") == 1);
    signal(child.id(), rustix::process::Signal::INT);
    let ended = child.wait_with_output().unwrap();
    let err = stderr_of(&ended);
    assert_eq!(ended.status.code(), Some(130), "{err}");
    assert!(ended.stdout.is_empty(), "{ended:?}");
    assert_contains(&err, ["installing", "no session was made"]);
    // The installation is over although its index is still held.
    let is_idle = || told_json(&["queue", "status"])["servers"][0]["running"] == 0;
    eventually(is_idle);
    index.hold(None);
    told(&["session", "create", "--package", "hello"]);
    let listed = told_json(&["session", "list"]);
    let sessions = list_of(&listed["servers"][0]["sessions"]);
    assert_eq!(sessions.len(), 1, "{listed}");
    assert_eq!(sessions[0]["packages"], json!(["hello"]));
}

/// The module that is imported ahead is the installer itself, which every interpreter here has.
#[test]
fn a_template_that_has_imported_the_hosts_module_serves_no_program_that_brings_its_own() {
    let index = Index::new();
    let files = [("pip/__init__.py", "__version__ = 'brought'\n")];
    index.wheel("pip", "999", &files, &[]);
    let mut server = server_with(&index, "RINGFENCE_WARM_PRELOAD_PYTHON", "pip");
    // The control: one that brings none finds the host's imported already.
    let code = "import sys; was = 'pip' in sys.modules; import pip; [was, pip.__version__ == 'brought']";
    let warm = json!([true, false]);
    eventually(|| python(&mut server, code, &[])["result"] == warm);
    for _ in 0..2 {
        let run = python(&mut server, code, &["pip==999"]);
        assert_eq!(run["result"], json!([false, true]), "{run}");
    }
}

#[test]
fn the_oldest_layers_go_as_soon_as_all_together_are_too_large() {
    let index = Index::new();
    let names = ["one", "two", "three"];
    for name in names {
        let text = format!("text = '{}'\n", name.repeat(200_000));
        index.wheel(name, "1", &[(&format!("{name}.py"), &text)], &[]);
    }
    let mut server = server_with(&index, "RINGFENCE_PACKAGES_KEEP_MB", "2");
    let layers = state_dir().join("packages/layers");
    for name in names {
        server.succeeds("install_package", json!({"packages": [name]}));
    }
    // Each has more than a megabyte, with what Python makes of it.
    let kept = || fs::read_dir(&layers).unwrap().count();
    eventually(|| kept() == 1);
}

#[test]
fn packages_that_bring_the_same_file_are_one_layer_in_which_one_of_them_has_it() {
    let index = Index::new();
    for name in ["one", "two"] {
        let own = format!("{name}.py");
        let text = format!("name = '{name}'\n");
        let files = [
            ("shared/__init__.py", text.as_str()),
            (own.as_str(), text.as_str()),
        ];
        index.wheel(name, "1", &files, &[]);
    }
    let mut server = server(&index);
    let code = "import one, two, shared; [one.name, two.name, shared.name in ('one', 'two')]";
    let run = python(&mut server, code, &["one", "two"]);
    assert_eq!(run["result"], json!(["one", "two", true]), "{run}");
}

#[test]
fn what_cannot_be_had_is_told_with_the_installers_last_words() {
    let index = Index::new();
    index.python(
        "sdist",
        "sdist-1.0.tar.gz",
        archive::tgz(&[("setup.py", "raise SystemExit('ran')")]),
    );
    index.wheel("left", "1", &[], &["base==1"]);
    index.wheel("right", "1", &[], &["base==2"]);
    for version in ["1", "2"] {
        index.wheel("base", version, &[], &[]);
    }
    let mut server = server(&index);
    let mut check = |packages: &[&str], expect: &str| {
        let refused = python(&mut server, "1", packages);
        assert_eq!(refused["code"], "package_unavailable", "{refused}");
        refused.says("message", [expect]);
    };
    check(&["unheard-of"], "no wheel that fits");
    check(&["sdist"], "no wheel that fits");
    check(&["left", "right"], "contradict");
    let refused = server.run(json!({"code": "1", "language": "shell", "packages": ["unheard-of"]}));
    refused.says("hint", ["for packages of Python and Node.js"]);
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let mut command = ringfence(&["serve"]);
    command
        .env("PIP_INDEX_URL", format!("http://{closed}/simple"))
        .env("npm_config_registry", format!("http://{closed}/"));
    let mut offline = Server::of(command);
    for refused in [
        python(&mut offline, "1", &["hello"]),
        node(&mut offline, "1", &["leftpad"]),
    ] {
        assert_eq!(refused["code"], "package_unavailable", "{refused}");
        refused.says("message", ["cannot be reached"]);
    }
}

#[test]
fn an_operator_says_which_packages_there_are() {
    let index = hello();
    let mut server = server_with(&index, "RINGFENCE_PACKAGES_ALLOW", "hel*");
    has_hello(&mut server);
    for (tool, arguments) in [
        ("execute_code", json!({"code": "1", "packages": ["greet"]})),
        ("install_package", json!({"packages": ["greet"]})),
    ] {
        let refused = server.refuses(tool, arguments, "policy_denied");
        refused.says("hint", ["packages.allow"]);
    }
    let mut command = serving(&index);
    command.env("RINGFENCE_PACKAGES_ENABLED", "false");
    assert_eq!(
        python(&mut Server::of(command), "1", &["hello"])["code"],
        "policy_denied"
    );
}

/// The server of another user, from a copy of the binary that this user can reach.
#[test]
fn a_server_of_an_ordinary_user_installs_and_shows_packages_too() {
    let Some(nobody) = Nobody::new("") else { return };
    let index = hello();
    let mut command = nobody.command();
    command.env("PIP_INDEX_URL", index.address("/simple"));
    let mut server = Server::of(command);
    for _ in 0..3 {
        let run = python(
            &mut server,
            "import hello, os; [hello.value, os.listdir('/packages')]",
            &["hello"],
        );
        assert_eq!(run["result"], json!([42, ["layer"]]), "{run}");
    }
    assert_eq!(index.count(".whl"), 2);
    let own = fs::metadata(nobody.0.join("state/packages/layers")).unwrap();
    assert_eq!((own.uid(), own.mode() & 0o777), (NOBODY, 0o700));
}
