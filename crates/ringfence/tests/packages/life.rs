//! Packages of Python and Node.js: installed once, usable by any run, and deleted in the end.

use super::{
    archive, assert_hello_works,
    index::{Index, digest, integrity},
    install, node, python, serve_command, server, server_with,
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
fn a_package_set_is_installed_once_with_recorded_hashes_and_then_reused() {
    let index = hello();
    let mut server = server(&index);
    let arguments = json!({"language": "python", "packages": ["Hello"]});
    let installed = server.call_ok("install_package", arguments);
    let greet = archive::wheel("greet", "2.5", &[("greet.py", "value = 41\n")], &[]);
    let packages = list_of(&installed["installed"]);
    let known = packages
        .iter()
        .find(|package| package["name"] == "greet")
        .unwrap();
    known.assert_fields(json!({"version": "2.5", "sha256": digest("sha256sum", &greet)}));
    installed.assert_text("output", ["Successfully installed"]);
    let requests = index.requests().len();
    let run = python(
        &mut server,
        "import hello\n(hello.value, hello.__file__)",
        &["hello"],
    );
    run.assert_fields(json!({"result": [42, "/packages/layer/python/hello/__init__.py"]}));
    let again = install(&mut server, "hello");
    again.assert_fields(json!({"output": "", "installed": installed["installed"]}));
    assert_eq!(index.requests().len(), requests, "the index was asked again");
    let arguments = json!({"action": "package.installed", "detail": true});
    let record = server.facts("audit_execution", arguments);
    assert!(
        record.to_string().contains(&digest("sha256sum", &greet)),
        "{record}"
    );
    // Another server and a CLI run have it, too.
    drop(server);
    let mut other = super::server(&index);
    assert_hello_works(&mut other);
    let output = run_code(
        "python",
        "import hello; print(hello.value)",
        &["--package", "hello"],
    );
    assert_eq!(stdout_of(&output), "42\n", "{output:?}");
    assert_eq!(index.requests().len(), requests, "the index was asked again");
}

#[test]
fn scripts_and_child_interpreters_find_packages_and_none_replaces_a_standard_module() {
    let index = hello();
    let mut server = server(&index);
    let code = "import json, os, subprocess, sys\n\
        tool = subprocess.run(['hello-tool'], capture_output=True, text=True)\n\
        child = subprocess.run([sys.executable, '-c', 'import hello; print(hello.value)'], capture_output=True, text=True)\n\
        [json.dumps(1), os.environ.get('PTH_RAN'), tool.stdout, child.stdout]";
    let run = python(&mut server, code, &["hello"]);
    // Python runs .pth files only in its own site directories, and the layer is not one.
    assert_eq!(run["result"], json!(["1", null, "tool 42\n", "42\n"]), "{run}");
}

#[test]
fn node_finds_packages_by_require_and_import_and_runs_no_install_script() {
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
    let arguments = json!({"language": "node", "packages": ["leftpad@^1.2"]});
    let installed = server.facts("install_package", arguments);
    installed
        .assert_fields(json!({"installed.0.version": "1.2.3", "installed.0.integrity": integrity(&tgz)}));
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
fn a_second_request_for_a_package_set_waits_for_the_first_even_in_another_server() {
    let index = hello();
    index.hold(Some(".whl"));
    let (mut one, mut other) = (server(&index), Server::from_command(serve_command(&index)));
    let ask = |server: &mut Server| {
        let arguments = json!({"code": "import hello; hello.value", "packages": ["hello"]});
        server.send_run(arguments)
    };
    let first = ask(&mut one);
    eventually(|| index.count(".whl") > 0);
    let (second, third) = (ask(&mut one), ask(&mut other));
    // The index sees no further request while the second and third call wait.
    let seen = index.requests().len();
    for server in [&mut one, &mut other] {
        let waits = |server: &mut Server| {
            let state = server.facts("inspect_state", json!({}));
            state["running"]
                .as_array()
                .is_some_and(|running| !running.is_empty())
        };
        eventually(|| waits(server));
    }
    assert_eq!(index.requests().len(), seen);
    index.hold(None);
    for (server, ids) in [(&mut one, vec![first, second]), (&mut other, vec![third])] {
        // The answers may arrive in any order.
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
fn slow_installations_delay_no_program_and_no_other_namespace() {
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
        let mut arguments = json!({"packages": [package], "namespace": "slow"});
        if tool == "execute_code" {
            arguments["code"] = json!("40 + 2");
        }
        slow.push(server.send_call(tool, arguments));
    }
    eventually(|| index.count("slow-1-py3-none-any.whl") == 2);
    // There is one slot for programs, and two installers of one namespace, which both wait for the index.
    assert_eq!(python(&mut server, "6 * 7", &[])["result"], 42);
    server.call_ok("create_session", json!({}));
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
    for (id, answer) in server.await_responses(&slow) {
        assert_eq!(answer["success"], true, "{id}: {answer}");
    }
}

#[test]
fn a_call_and_an_installation_in_one_session_do_not_wait_for_each_other() {
    let index = hello();
    let mut server = server_with(&index, "RINGFENCE_QUEUE_CONCURRENCY", "1");
    let session = server.facts("create_session", json!({}))["session_id"].clone();
    index.hold(Some(".whl"));
    let arguments = json!({"packages": ["greet"], "session_id": session});
    let installing = server.send_call("install_package", arguments);
    eventually(|| index.count(".whl") == 1);
    let call = server.send_run(json!({"code": "6 * 7", "session_id": session}));
    let waits = |server: &mut Server| server.facts("inspect_state", json!({}))["sessions"][0]["waiting"] == 1;
    eventually(|| waits(&mut server));
    // Neither of them takes the one slot for programs.
    assert_eq!(python(&mut server, "6 * 7", &[])["result"], 42);
    index.hold(None);
    for (id, answer) in server.await_responses(&[installing, call]) {
        assert_eq!(answer["success"], true, "{id}: {answer}");
    }
}

#[test]
fn a_layer_unused_for_long_is_deleted_when_a_server_starts() {
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
fn a_session_created_in_the_cli_has_its_packages_from_the_start() {
    let index = hello();
    let server = server(&index);
    eventually(|| run_cli(&["session", "list"]).status.success());
    let created = cli_json(&["session", "create", "--package", "hello"]);
    let id = text_of(&created["session_id"]);
    let printed = cli_stdout(&["session", "exec", id, "-c", "import hello; print(hello.value)"]);
    assert_eq!(printed, "42\n");
    let refused = json_of(&run_cli(&[
        "session",
        "create",
        "--package=--index-url=x",
        "--json",
    ]));
    assert_eq!(refused["error"]["code"], "invalid_argument", "{refused}");
    drop(server);
}

#[test]
fn ctrl_c_during_session_creation_shows_the_progress_and_leaves_nothing() {
    let index = hello();
    let _server = server(&index);
    eventually(|| run_cli(&["session", "list"]).status.success());
    index.hold(Some(".whl"));
    let child = spawn_piped(&mut ringfence(&["session", "create", "--package", "hello"]));
    eventually(|| index.count(".whl") == 1);
    signal(child.id(), rustix::process::Signal::INT);
    let ended = child.wait_with_output().unwrap();
    let err = stderr_of(&ended);
    assert_eq!(ended.status.code(), Some(130), "{err}");
    assert!(ended.stdout.is_empty(), "{ended:?}");
    assert_contains(&err, ["installing", "no session was made"]);
    // The installation has ended, although the index still holds its request.
    let is_idle = || cli_json(&["queue", "status"])["servers"][0]["running"] == 0;
    eventually(is_idle);
    index.hold(None);
    cli_stdout(&["session", "create", "--package", "hello"]);
    let listed = cli_json(&["session", "list"]);
    let sessions = list_of(&listed["servers"][0]["sessions"]);
    assert_eq!(sessions.len(), 1, "{listed}");
    assert_eq!(sessions[0]["packages"], json!(["hello"]));
}

/// The preloaded module is pip, which every interpreter here has.
#[test]
fn a_template_with_a_preloaded_module_serves_no_program_with_its_own_version() {
    let index = Index::new();
    let files = [("pip/__init__.py", "__version__ = 'brought'\n")];
    index.wheel("pip", "999", &files, &[]);
    let mut server = server_with(&index, "RINGFENCE_WARM_PRELOAD_PYTHON", "pip");
    // The control: a program without the package finds the host's version already imported.
    let code = "import sys; was = 'pip' in sys.modules; import pip; [was, pip.__version__ == 'brought']";
    let warm = json!([true, false]);
    eventually(|| python(&mut server, code, &[])["result"] == warm);
    for _ in 0..2 {
        let run = python(&mut server, code, &["pip==999"]);
        assert_eq!(run["result"], json!([false, true]), "{run}");
    }
}

#[test]
fn the_oldest_layers_are_deleted_when_all_together_are_too_large() {
    let index = Index::new();
    let names = ["one", "two", "three"];
    for name in names {
        let text = format!("text = '{}'\n", name.repeat(200_000));
        index.wheel(name, "1", &[(&format!("{name}.py"), &text)], &[]);
    }
    let mut server = server_with(&index, "RINGFENCE_PACKAGES_KEEP_MB", "2");
    let layers = state_dir().join("packages/layers");
    for name in names {
        server.call_ok("install_package", json!({"packages": [name]}));
    }
    // Each layer takes more than a megabyte, with the bytecode that Python compiles.
    let kept = || fs::read_dir(&layers).unwrap().count();
    eventually(|| kept() == 1);
}

#[test]
fn packages_with_the_same_file_form_one_layer_with_the_file_of_one_of_them() {
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
fn an_unavailable_package_is_reported_with_its_cause() {
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
        refused.assert_text("message", [expect]);
    };
    check(&["unheard-of"], "no wheel that fits");
    check(&["sdist"], "no wheel that fits");
    check(&["left", "right"], "contradict");
    let refused = server.run(json!({"code": "1", "language": "shell", "packages": ["unheard-of"]}));
    refused.assert_text("hint", ["for packages of Python and Node.js"]);
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let mut command = ringfence(&["serve"]);
    command
        .env("PIP_INDEX_URL", format!("http://{closed}/simple"))
        .env("npm_config_registry", format!("http://{closed}/"));
    let mut offline = Server::from_command(command);
    for refused in [
        python(&mut offline, "1", &["hello"]),
        node(&mut offline, "1", &["leftpad"]),
    ] {
        assert_eq!(refused["code"], "package_unavailable", "{refused}");
        refused.assert_text("message", ["cannot be reached"]);
    }
}

#[test]
fn the_operator_can_restrict_and_disable_packages() {
    let index = hello();
    let mut server = server_with(&index, "RINGFENCE_PACKAGES_ALLOW", "hel*");
    assert_hello_works(&mut server);
    for (tool, arguments) in [
        ("execute_code", json!({"code": "1", "packages": ["greet"]})),
        ("install_package", json!({"packages": ["greet"]})),
    ] {
        let refused = server.call_error(tool, arguments, "policy_denied");
        refused.assert_text("hint", ["packages.allow"]);
    }
    let mut command = serve_command(&index);
    command.env("RINGFENCE_PACKAGES_ENABLED", "false");
    assert_eq!(
        python(&mut Server::from_command(command), "1", &["hello"])["code"],
        "policy_denied"
    );
}

/// The server of uid 65534, from a copy of the binary that this user can run.
#[test]
fn a_server_of_an_unprivileged_user_installs_and_mounts_packages() {
    let Some(nobody) = Nobody::new("") else { return };
    let index = hello();
    let mut command = nobody.command();
    command.env("PIP_INDEX_URL", index.address("/simple"));
    let mut server = Server::from_command(command);
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
