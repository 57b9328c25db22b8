//! Directories of the host as workspaces.

use crate::client::*;
use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink},
};

/// Runs a shell program in this workspace.
fn run_in(workspace: &str, code: &str) -> Value {
    run_json("shell", code, &["--workspace", workspace])
}

/// The names of a result's artifacts, sorted.
fn artifact_names(result: &Value) -> Vec<&str> {
    let mut names = texts_of(&result["artifacts"], "name");
    names.sort_unstable();
    names
}

#[test]
fn rw_workspace_is_the_host_directory() {
    let dir = TempDir::new("rw");
    dir.file("in.txt", "before");
    let code = "cat in.txt; echo after > in.txt; echo new > out.txt";
    let result = run_in(&format!("{}:rw", dir.0.display()), code);
    assert_eq!(result["stdout"], "before", "{result}");
    assert_eq!(dir.read("in.txt"), "after\n");
    assert_eq!(artifact_names(&result), ["in.txt", "out.txt"]);
    // New files belong to the directory's owner.
    let owner = |path: &str| fs::metadata(dir.0.join(path)).unwrap().uid();
    assert_eq!(owner("out.txt"), owner("."));
}

#[test]
fn ro_workspace_is_unchanged() {
    let dir = TempDir::new("ro");
    dir.file("in.txt", "before");
    let code = "cat in.txt; echo x > in.txt; echo x > new; rm in.txt; ls";
    let result = run_in(&format!("{}:ro", dir.0.display()), code);
    assert_eq!(result["stdout"], "beforein.txt\n", "{result}");
    assert_eq!(dir.read("in.txt"), "before");
}

/// claim: [WS-7]
#[test]
fn directory_with_an_interpreter_is_not_shared_rw() {
    let dir = TempDir::new("own-interpreter");
    let script = dir.file("script.sh", "echo ran");
    fs::create_dir_all(dir.0.join(".venv/bin")).unwrap();
    symlink("/usr/bin/bash", dir.0.join(".venv/bin/bash")).unwrap();
    dir.file(".venv/pyvenv.cfg", "");
    let run = |mode: &str| {
        let workspace = format!("{}:{mode}", dir.0.display());
        let mut command = ringfence(&["run", "--json", "--workspace", &workspace, &script]);
        command.env("RINGFENCE_RUNTIMES_SHELL", dir.0.join(".venv/bin/bash"));
        json_of(&command.output().unwrap())
    };
    let refused = run("rw");
    assert_eq!(refused["error"]["code"], "policy_denied", "{refused}");
    refused.assert_text("error.hint", ["overlay"]);
    assert_eq!(run("ro")["stdout"], "ran\n");
}

/// claim: [WS-7]
#[test]
fn directory_with_configuration_is_not_shared_rw() {
    let dir = TempDir::new("decides");
    let script = dir.file("script.sh", "echo ran");
    let config = dir.file("conf/ringfence.yaml", "limits: {processes: 32}\n");
    fs::create_dir_all(dir.0.join("home/.config")).unwrap();
    fs::create_dir_all(dir.0.join("home/project")).unwrap();
    let run = |shared: &str| {
        let workspace = format!("{}:rw", dir.0.join(shared).display());
        let mut command = ringfence(&["run", "--json", "--config", &config, "--workspace"]);
        command
            .args([&workspace, &script])
            .env("HOME", dir.0.join("home"));
        json_of(&command.output().unwrap())
    };
    // The configuration in force, and the files that pip, npm and the next start would read.
    for (shared, named) in [
        ("conf", "conf/ringfence.yaml"),
        ("home/.config", "home/.config/"),
        ("home", "home/."),
    ] {
        let refused = run(shared);
        assert_eq!(refused["error"]["code"], "policy_denied", "{shared}: {refused}");
        let message = text_of(&refused["error"]["message"]);
        assert!(message.contains(dir.0.join(named).to_str().unwrap()), "{message}");
    }
    assert_eq!(run("home/project")["stdout"], "ran\n");
}

/// Files that settings name elsewhere, also through a symlink: rules and configuration cannot be shared for writing,
/// and secret files cannot be shared at all.
/// claim: [WS-7]
#[test]
fn files_named_by_settings_are_guarded_wherever_they_are() {
    let dir = TempDir::new("own-files");
    let script = dir.file("script.sh", "echo ran");
    for place in [
        "rules/host.yaml",
        "certificate/c.pem",
        "key/k.pem",
        "token/t",
        "free/f",
    ] {
        dir.file(place, if place == "rules/host.yaml" { "{}" } else { "x" });
    }
    dir.file("schema/s.json", "{}");
    fs::create_dir_all(dir.0.join("way")).unwrap();
    symlink(dir.0.join("token/t"), dir.0.join("way/t")).unwrap();
    let at = |name: &str| dir.path(name);
    let config = dir.file(
        "conf/ringfence.yaml",
        &format!(
            "host: {{enabled: true, rules: {}}}\ncheck: {{schemas: {{s: {}}}}}\nhttp: {{tls_cert: {}, tls_key: {}, token_file: {}}}\n",
            at("rules/host.yaml"), at("schema/s.json"), at("certificate/c.pem"), at("key/k.pem"), at("way/t")
        ),
    );
    let run = |shared: &str, mode: &str| {
        let workspace = format!("{}:{mode}", at(shared));
        let mut command = ringfence(&["run", "--json", "--config", &config, "--workspace"]);
        json_of(&command.args([&workspace, &script]).output().unwrap())
    };
    for (shared, is_secret) in [
        ("rules", false),
        ("schema", false),
        ("certificate", false),
        ("key", true),
        ("token", true),
        ("way", true),
    ] {
        for mode in ["rw", "ro", "overlay"] {
            let found = run(shared, mode);
            match is_secret || mode == "rw" {
                true => assert_eq!(
                    found["error"]["code"], "policy_denied",
                    "{shared}:{mode}: {found}"
                ),
                false => assert_eq!(found["stdout"], "ran\n", "{shared}:{mode}: {found}"),
            }
        }
    }
    assert_eq!(run("free", "rw")["stdout"], "ran\n");
}

/// claim: [WS-7]
#[test]
fn configuration_writable_by_others_is_refused_with_the_fix() {
    let dir = TempDir::new("others-config");
    let config = dir.file("ringfence.yaml", "limits: {processes: 32}\n");
    let show = || {
        let output = run_cli(&["config", "show", "--config", &config]);
        (output.status.success(), stderr_of(&output))
    };
    assert!(show().0);
    set_mode(&config, 0o666);
    let (good, stderr) = show();
    assert!(
        !good && stderr.contains(&format!("chmod go-w {config}")),
        "{stderr}"
    );
    set_mode(&config, 0o644);
    // Only root can give a file away.
    if chown(&config, Some(65534), None).is_ok() {
        let (good, stderr) = show();
        assert!(!good && stderr.contains(&format!("chown 0 {config}")), "{stderr}");
    }
}

#[test]
fn overlay_workspace_leaves_the_host_directory_unchanged() {
    let dir = TempDir::new("overlay");
    dir.file("in.txt", "before");
    dir.file("gone.txt", "there");
    let code = "cat in.txt; echo after > in.txt; rm gone.txt; mkdir d; echo new > d/out.txt; ls";
    let result = run_in(&format!("{}:overlay", dir.0.display()), code);
    assert_eq!(result["stdout"], "befored\nin.txt\n", "{result}");
    assert_eq!(dir.read("in.txt"), "before");
    assert!(dir.0.join("gone.txt").exists() && !dir.0.join("d").exists());
    assert_eq!(artifact_names(&result), ["d/out.txt", "in.txt"]);
    // A deleted file is not a denial.
    result.assert_fields(json!({"denials": []}));
}

/// claim: [WS-1]
#[test]
fn namespace_workspace_outlives_a_run_and_is_private() {
    let in_namespace = |code: &str| run_in("namespace", code);
    let first = in_namespace("echo kept > a.txt; mkdir d; echo deep > d/b.txt");
    assert_eq!(first["success"], true, "{first}");
    let second = in_namespace("cat a.txt d/b.txt; id -u; stat -c %u a.txt");
    assert_eq!(second["stdout"], "kept\ndeep\n1000\n1000\n", "{second}");
    let place = state_dir().join("workspaces/default");
    assert_eq!(fs::read_to_string(place.join("a.txt")).unwrap(), "kept\n");
    let mode = fs::metadata(&place).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "no access for other users");
    let mut server = Server::start();
    let run = |server: &mut Server, namespace: &str| {
        let call =
            json!({"code": "ls", "language": "shell", "workspace": "namespace", "namespace": namespace});
        server.run(call)["stdout"].clone()
    };
    assert_eq!(run(&mut server, "default"), "a.txt\nd\n");
    assert_eq!(run(&mut server, "other"), "");
}

#[test]
fn two_runs_share_their_namespace_workspace() {
    let arguments = ["--workspace", "namespace", "--timeout", "20"];
    let waits = std::thread::spawn({
        let state = state_dir();
        move || {
            let code = "touch ready; until [ -e answer ]; do read -t 0.05 < /dev/zero || :; done; cat answer";
            let mut command = ringfence(&["run", "-", "--language", "shell", "--json"]);
            command.args(arguments).env("RINGFENCE_STATE_DIR", state);
            json_of(&run_with_stdin(command, code))
        }
    });
    let place = state_dir().join("workspaces/default/ready");
    eventually(|| place.exists());
    let answered = run_in("namespace", "echo hello > answer.new; mv answer.new answer");
    assert_eq!(answered["success"], true, "{answered}");
    assert_eq!(waits.join().unwrap()["stdout"], "hello\n");
}

/// claim: [WS-2]
#[test]
fn listed_directory_is_available_by_name_to_its_namespaces() {
    let dir = TempDir::new("listed");
    dir.file("data/in.csv", "1,2");
    let root = dir.0.display();
    let mut server = Server::with_config(&format!(
        "workspaces:\n  data: {{path: {root}/data, mode: ro}}\n  \
        theirs: {{path: {root}/data, mode: rw, namespaces: [team-*]}}\n  \
        draft: {{path: {root}/data, mode: overlay}}\n"
    ));
    let mut call = |namespace: &str, workspace: &str, code: &str| {
        let call = json!({"code": code, "language": "shell", "workspace": workspace, "namespace": namespace});
        server.run(call)
    };
    let read = call("default", "data", "cat in.csv; echo x > in.csv; echo x > new");
    read.assert_fields(json!({"stdout": "1,2", "exit_code": 1}));
    let draft = call("default", "draft", "echo x > in.csv; cat in.csv");
    draft.assert_fields(json!({"stdout": "x\n", "denials.0.rule": "workspace.overlay"}));
    let unchanged = call("default", "draft", "cat in.csv");
    unchanged.assert_fields(json!({"stdout": "1,2", "denials": []}));
    let refused = call("default", "theirs", "true");
    assert_eq!(refused["code"], "not_found", "{refused}");
    let hint = text_of(&refused["hint"]);
    assert!(hint.contains("data, draft") && !hint.contains("theirs"), "{hint}");
    assert_eq!(call("default", "/etc", "true")["code"], "invalid_argument");
    assert_eq!(dir.read("data/in.csv"), "1,2");
    let written = call("team-a", "theirs", "echo 3 >> in.csv");
    assert_eq!(written["success"], true, "{written}");
    assert_eq!(dir.read("data/in.csv"), "1,23\n");
}

/// A program that may write the parent directory of another workspace puts a symlink in its place.
///
/// claim: [WS-2]
#[test]
fn link_put_in_place_of_a_workspace_is_not_entered() {
    let dir = TempDir::new("swapped");
    let root = dir.0.display();
    dir.file("outside/canary", "canary");
    for name in ["rw", "ro", "draft", "held"] {
        dir.file(&format!("above/{name}/mine"), "mine");
    }
    let mut server = Server::with_config(&format!(
        "workspaces:\n  rw: {{path: {root}/above/rw, mode: rw}}\n  \
        ro: {{path: {root}/above/ro, mode: ro}}\n  draft: {{path: {root}/above/draft, mode: overlay}}\n  \
        held: {{path: {root}/above/held, mode: rw}}\n"
    ));
    let run = |server: &mut Server, workspace: &str, code: &str| {
        let call = json!({"code": code, "language": "shell", "workspace": workspace});
        server.run(call)
    };
    for name in ["rw", "ro", "draft"] {
        assert_eq!(run(&mut server, name, "cat mine")["stdout"], "mine", "{name}");
    }
    let held = server.create_session(json!({"language": "shell", "workspace": "held"}));
    let put = json!({"session_id": held, "path": "put", "text": "x"});
    server.call_ok("put_file", put.clone());
    let swap = format!("for d in rw ro draft held; do mv $d $d.old && ln -s {root}/outside $d; done");
    // The operator lets this run write the parent directory.
    let above = |code: &str| run_in(&format!("{root}/above:rw"), code);
    assert_eq!(above(&swap)["success"], true);
    for name in ["rw", "ro", "draft"] {
        let entered = run(&mut server, name, "cat canary; echo x > entered");
        assert_eq!(entered["code"], "policy_denied", "{name}: {entered}");
    }
    let work = json!({"session_id": held, "code": "cat mine", "files": [{"path": "sent", "text": "x"}]});
    for (tool, arguments) in [
        ("put_file", put),
        ("get_file", json!({"session_id": held, "path": "canary"})),
        ("list_files", json!({"session_id": held})),
        ("create_session", json!({"language": "shell", "workspace": "rw"})),
        ("execute_code", work),
    ] {
        server.call_error(tool, arguments, "policy_denied");
    }
    let names: Vec<_> = fs::read_dir(dir.0.join("outside")).unwrap().flatten().collect();
    assert_eq!(names.len(), 1, "{names:?}");
    // A real directory in its place is entered like any other.
    assert_eq!(above("rm rw; mkdir rw; echo new > rw/mine")["success"], true);
    assert_eq!(run(&mut server, "rw", "cat mine")["stdout"], "new\n");
}

/// A directory of another user with files that this user cannot read, and a server that runs as root.
///
/// claim: [WS-8]
#[test]
fn caller_cannot_get_files_unreadable_for_the_directorys_owner() {
    if !is_root() {
        println!("not root: the server reads what this user can read");
        return;
    }
    const OWNER: u32 = 1000;
    const CANARY: &str = "canary-of-root";
    let dir = TempDir::new("owned");
    let root = dir.0.display();
    for name in ["of_root", "deleted", "shut/file"] {
        dir.file(&format!("work/{name}"), CANARY);
        let mode = fs::Permissions::from_mode(0o600);
        fs::set_permissions(dir.0.join("work").join(name), mode).unwrap();
    }
    dir.file("work/shared", "for all");
    let open = |name: &str, mode| set_mode(dir.0.join(name), mode);
    let mut server = Server::with_config(&format!(
        "workspaces:\n  work: {{path: {root}/work, mode: rw}}\n  draft: {{path: {root}/work, mode: overlay}}\n"
    ));
    let options = || json!({"language": "shell", "workspace": "work"});
    // The control: a directory owned by root is read as root.
    let control = server.create_session(options());
    for name in ["of_root", "shut/file"] {
        let got = server.facts("get_file", json!({"session_id": control, "path": name}));
        assert_eq!(got["text"], CANARY, "{name}");
    }
    chown(dir.0.join("work"), Some(OWNER), Some(OWNER)).unwrap();
    let session = server.create_session(options());
    let of = |path: &str| json!({"session_id": session, "path": path});
    assert_eq!(server.facts("get_file", of("shared"))["text"], "for all");
    server.call_error("get_file", of("of_root"), "policy_denied");
    let edit = json!({"session_id": session, "path": "of_root", "old": "canary", "new": "x"});
    server.call_error("edit_file", edit, "policy_denied");
    let archive = json!({"session_id": session, "archive": true});
    server.call_error("get_file", archive, "policy_denied");
    let listed = server.facts("list_files", json!({"session_id": session}));
    let hashed = list_of(&listed["files"])
        .iter()
        .filter(|file| file["sha256"].is_string());
    let hashed: Vec<&str> = hashed.map(|file| text_of(&file["path"])).collect();
    assert_eq!(hashed, ["shared"], "{listed}");
    let saved = server.facts("create_state_snapshot", json!({"session_id": session}));
    assert_eq!(saved["files"], 1, "{saved}");
    open("work/shut", 0o700);
    for tool in ["list_files", "create_state_snapshot", "diff_workspace"] {
        server.call_error(tool, json!({"session_id": session}), "policy_denied");
    }
    server.call_error("get_file", of("shut/file"), "policy_denied");
    open("work/shut", 0o755);
    // A new file is not an artifact of a program that could not have created it.
    dir.file("work/late", CANARY);
    open("work/late", 0o600);
    let worked = server.eval(&session, "cat late; rm -f late; echo made > made");
    assert_eq!(texts_of(&worked["artifacts"], "name"), ["made"], "{worked}");
    let draft = server.create_session(json!({"language": "shell", "workspace": "draft"}));
    assert_eq!(
        server.eval(&draft, "rm -f deleted; echo gone")["stdout"],
        "gone\n"
    );
    let result = server.call("diff_workspace", json!({"session_id": draft}));
    let result = format!("{worked}{result}");
    assert!(!result.contains(CANARY), "{result}");
    let made = fs::metadata(dir.0.join("work/made")).unwrap();
    assert_eq!(made.uid(), OWNER);
    server.call_ok(
        "put_file",
        json!({"session_id": session, "path": "put", "text": "x"}),
    );
    let put = fs::metadata(dir.0.join("work/put")).unwrap();
    assert_eq!(put.uid(), OWNER);
}

/// claim: [WS-2]
#[test]
fn directory_below_an_rw_workspace_cannot_be_listed() {
    let dir = TempDir::new("nested");
    let root = dir.0.display();
    dir.file("above/inner/deep/mine", "");
    dir.file("outside/deep/canary", "");
    symlink(dir.0.join("above"), dir.0.join("alias")).unwrap();
    let check = |inner: &str, mode: &str| {
        let listed = format!("above={root}/above:{mode},inner={root}/{inner}:ro");
        let output = ringfence(&["config", "check"])
            .env("RINGFENCE_WORKSPACES", listed)
            .output()
            .unwrap();
        (output.status.success(), stderr_of(&output))
    };
    for inner in ["above/inner", "above/inner/deep", "alias/inner"] {
        assert!(check(inner, "overlay").0 && check(inner, "ro").0, "{inner}");
        let (is_fine, stderr) = check(inner, "rw");
        assert!(
            !is_fine && stderr.contains("is inside the workspace `above`"),
            "{inner}: {stderr}"
        );
    }
    assert!(check("above", "rw").0 && check("outside", "rw").0);
    // Also if a program has already put a symlink there.
    fs::rename(dir.0.join("above/inner"), dir.0.join("above/old")).unwrap();
    symlink(dir.0.join("outside"), dir.0.join("above/inner")).unwrap();
    for inner in ["above/inner", "above/inner/deep"] {
        assert!(!check(inner, "rw").0, "{inner}");
    }
}

#[test]
fn missing_listed_directory_is_reported_with_its_line() {
    let dir = TempDir::new("unlisted");
    let config = dir.file(
        "config.yaml",
        "log: info\nworkspaces:\n  x: {path: /nonexistent/x, mode: ro}\n",
    );
    let stderr = cli_error(&["config", "check", "--config", &config], 1);
    assert_contains(&stderr, ["/nonexistent/x", ":3"]);
}

#[test]
fn missing_interpreter_is_reported_with_its_setting() {
    let check = |name: &str, file: &str, arguments: &[&str]| {
        let mut command = ringfence(&[&["config", "check"], arguments].concat());
        command.env(name, file).output().unwrap()
    };
    for (name, file, setting) in [
        ("RINGFENCE_RUNTIMES_PYTHON", "/nonexistent", "runtimes.python"),
        ("RINGFENCE_RUNTIMES_NODE", "/bin/sh", "runtimes.node"),
    ] {
        let output = check(name, file, &[]);
        let stderr = stderr_of(&output);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert_contains(&stderr, [file, setting]);
        let output = check(name, file, &["--json"]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let document = json_of(&output);
        document.assert_fields(json!({"valid": false, "error.code": "runtime_unavailable"}));
    }
    assert!(check("RINGFENCE_RUNTIMES_SHELL", "/bin/sh", &[]).status.success());
    assert_eq!(
        json_of(&check("RINGFENCE_RUNTIMES_SHELL", "/bin/sh", &["--json"]))["valid"],
        true
    );
}

/// claim: [RES-9]
#[test]
fn program_that_fills_the_host_disk_is_stopped_near_its_limit() {
    const LIMIT: u64 = 8 << 20;
    let dir = TempDir::new("fill");
    let own = format!("{}:rw", dir.0.display());
    let bombs = [
        (
            "files",
            "i=0; while :; do head -c 1000000 /dev/zero > f$i; i=$((i+1)); done",
        ),
        (
            "names",
            "mkdir n; cd n; while :; do for i in 1 2 3 4 5 6 7 8 9; do : > $RANDOM$RANDOM; done; done",
        ),
        (
            "deleted",
            "i=10; while [ $i -lt 60 ]; do eval \"exec $i>x\"; rm x; head -c 1000000 /dev/zero >&$i; i=$((i+1)); done; \
             while :; do read -t 1 < /dev/zero || :; done",
        ),
        // A directory that its owner may write but not list.
        (
            "hidden",
            "mkdir h; chmod 300 h; i=0; while :; do head -c 1000000 /dev/zero > h/f$i; i=$((i+1)); done",
        ),
    ];
    for (name, code) in bombs {
        for workspace in ["namespace", &own] {
            let arguments = ["--workspace", workspace, "--disk", "8m", "--timeout", "120"];
            let result = run_json("shell", code, &arguments);
            let place = if workspace == "namespace" {
                state_dir().join("workspaces/default")
            } else {
                dir.0.clone()
            };
            let left = taken(&place);
            empty(&place);
            assert_eq!(result["exit"]["limit"], "disk", "{name} {workspace}: {result}");
            assert!(left < 64 * LIMIT, "{name} {workspace}: {left} bytes are left");
        }
    }
    let read_only = format!("{}:ro", dir.0.display());
    for (workspace, expect) in [
        ("namespace", "refused\nfreed\n"),
        (&own, "refused\nfreed\n"),
        (&read_only, "freed\n"),
    ] {
        // The kernel would not count this as written.
        let code = "echo x > /tmp/x; fallocate -l 1000 /tmp/x || echo refused; fallocate -p -l 1 /tmp/x && echo freed";
        let result = run_in(workspace, code);
        assert_eq!(result["stdout"], expect, "{workspace}: {result}");
    }
}

/// claim: [RES-9]
#[test]
fn files_that_processes_of_an_ordinary_user_hide_are_found() {
    // Holds 240 MiB in files that no longer have a name.
    const BOMB: &str = "
held = []
while True:
    if len(held) < 60:
        held.append(open('x', 'wb', 0))
        os.unlink('x')
        held[-1].write(bytes(4 << 20))";
    const HIDDEN: &str = "import ctypes, os\nctypes.CDLL(None).prctl(4, 0, 0, 0, 0)"; // PR_SET_DUMPABLE
    // Also in a directory that its owner may write but not list.
    const SHUT: &str = "import os\nos.mkdir('h', 0o300)
for number in range(60):
    with open('h/%d' % number, 'wb', 0) as file: file.write(bytes(4 << 20))
while True: pass";
    // Ending processes deny their files, too.
    const CHILDREN: &str = "import os, time\nos.mkdir('shut', 0)\nopen('y', 'wb').write(bytes(6 << 20))
for _ in range(20): os.fork() or os._exit(0)
end, count = time.monotonic() + 4, 0
while time.monotonic() < end or count < 2000:
    count += 1
    os.waitpid(os.fork() or os._exit(0), 0)
print('done')";
    let bombs = [
        format!("import os{BOMB}"),
        format!("{HIDDEN}{BOMB}"),
        SHUT.to_owned(),
    ];
    let children = CHILDREN.replace("os.mkdir('shut', 0)\n", "");
    for (yaml, workspace) in [
        ("", "namespace"),
        ("floor: landlock\n", "namespace"),
        ("floor: landlock\n", "private"),
    ] {
        let Some(nobody) = Nobody::new(yaml) else { return };
        let mut server = nobody.serve();
        let mut run = |code: &str| {
            let limits = json!({"max_disk_mb": 8});
            server.facts(
                "execute_code",
                json!({"code": code, "workspace": workspace, "resource_limits": limits}),
            )
        };
        // A directory of a namespace that cannot be listed counts as full.
        let ordinary = run(if workspace == "private" {
            CHILDREN
        } else {
            &children
        });
        assert_eq!(ordinary["stdout"], "done\n", "{yaml}{workspace}: {ordinary}");
        run("import os\nos.remove('y')");
        for bomb in &bombs {
            let result = run(bomb);
            assert_eq!(
                result["exit"]["limit"], "disk",
                "{yaml}{workspace}: {bomb}: {result}"
            );
            run("import os, shutil\nos.path.exists('h') and (os.chmod('h', 0o700), shutil.rmtree('h'))");
        }
    }
}

/// claim: [RES-9]
#[test]
fn full_workspace_can_be_cleaned_up_to_twice_its_limit() {
    let arguments = ["--workspace", "namespace", "--disk", "2m"];
    let wide = ["--workspace", "namespace", "--disk", "64m"];
    run_json("shell", "head -c 3000000 /dev/zero > big", &wide);
    let tidied = run_json("shell", "rm big; echo done", &arguments);
    assert_eq!(tidied["stdout"], "done\n", "{tidied}");
    run_json("shell", "head -c 9000000 /dev/zero > big", &wide);
    let refused = run_json("shell", "rm big; echo done", &arguments);
    refused.assert_fields(json!({"exit.limit": "disk", "stdout": ""}));
    let taken = refused["resource_usage"]["disk_bytes"].as_u64();
    assert!(taken.unwrap() >= 9_000_000, "{refused}");
    let what = text_of(&refused["denials"][0]["what"]);
    assert!(what.starts_with("the workspace has 8 MiB"), "{what}");
    let counted = run_json("shell", "true", &wide);
    assert!(
        counted["resource_usage"]["disk_bytes"].as_u64().unwrap() >= 9_000_000,
        "{counted}"
    );
}

fn taken(directory: &std::path::Path) -> u64 {
    let entries = fs::read_dir(directory).unwrap().flatten();
    let sizes = entries.map(|entry| {
        let metadata = entry.metadata().unwrap();
        if metadata.is_dir() {
            set_mode(entry.path(), 0o700);
            taken(&entry.path())
        } else {
            metadata.blocks() * 512
        }
    });
    sizes.sum()
}

fn empty(directory: &std::path::Path) {
    for entry in fs::read_dir(directory).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            fs::remove_dir_all(entry.path()).unwrap();
        } else {
            fs::remove_file(entry.path()).unwrap();
        }
    }
}

/// claim: [WS-1]
#[test]
fn landlock_tier_uses_the_workspace_in_place() {
    let dir = TempDir::new("where");
    dir.file("in.txt", "before");
    let run = |workspace: &str, code: &str| {
        let mut command = ringfence(&["run", "-", "--language", "shell", "--json"]);
        command
            .args(["--workspace", workspace])
            .env("RINGFENCE_FLOOR", "landlock")
            .env("RINGFENCE_LIMITS_DISK_MB", "8");
        json_of(&run_with_stdin(command, code))
    };
    let (ro, rw) = (
        format!("{}:ro", dir.0.display()),
        format!("{}:rw", dir.0.display()),
    );
    let first = run("namespace", "echo kept > a.txt");
    if rustix::process::geteuid().is_root() {
        assert_eq!(first["error"]["code"], "unsupported_argument", "{first}");
        return;
    }
    assert_eq!(first["success"], true, "{first}");
    assert_eq!(run("namespace", "cat a.txt")["stdout"], "kept\n");
    let read = run(&ro, "cat in.txt; echo x > in.txt; echo x > new; rm in.txt; ls");
    assert_eq!(read["stdout"], "beforein.txt\n", "{read}");
    assert_eq!(run(&rw, "echo after > in.txt")["success"], true);
    assert_eq!(dir.read("in.txt"), "after\n");
    let full = run(
        "namespace",
        "i=0; while :; do head -c 1000000 /dev/zero > f$i; i=$((i+1)); done",
    );
    assert_eq!(full["exit"]["limit"], "disk", "{full}");
}

/// claim: [SNAP-1]
#[test]
fn snapshot_commands_save_diff_and_restore_the_workspace() {
    run_in(
        "namespace",
        "echo one > a; mkdir .github; mkdir .github/workflows",
    );
    let made = cli_json(&["snapshot", "create", "before the change"]);
    let id = text_of(&made["snapshot_id"]);
    run_in(
        "namespace",
        "echo two > a; echo 'on: push' > .github/workflows/x.yml",
    );
    let difference = cli_stdout(&["snapshot", "diff"]);
    assert_contains(&difference, ["changed a\n", "  -one\n  +two\n", "  ! "]);
    let listed = cli_stdout(&["snapshot", "list"]);
    let (titles, row) = listed.split_once('\n').unwrap();
    assert_eq!(
        titles.find("DESCRIPTION"),
        row.find("before the change"),
        "{listed}"
    );
    assert_eq!(cli_json(&["snapshot", "restore", id])["deleted"], 1);
    assert_eq!(run_in("namespace", "cat a")["stdout"], "one\n");
    cli_error(&["snapshot", "restore", id, "--namespace", "other"], 125);
    assert_eq!(cli_json(&["snapshot", "delete", id])["deleted"], true);
    assert_eq!(cli_json(&["snapshot", "list"])["snapshots"], json!([]));
}
