//! Limits on what is put into a workspace from outside its session: they hold, and an idle session is never ended by
//! them.

use crate::client::*;

const MIB: usize = 1 << 20;
/// The highest accepted value of `disk.free_mb`.
const FLOOR_MAX: u64 = 1 << 20;

fn text(mebibytes: usize) -> String {
    "x".repeat(mebibytes * MIB)
}

fn put(server: &mut Server, id: &str, path: &str, mebibytes: usize) -> Value {
    let arguments = json!({"session_id": id, "path": path, "text": text(mebibytes)});
    server.facts("put_file", arguments)
}

fn assert_session_answers(server: &mut Server, id: &str) {
    let answer = server.eval(id, "echo here");
    assert_eq!(answer["stdout"], "here\n", "{answer}");
}

fn assert_refused(answer: &Value, part: &str) {
    assert_eq!(answer["code"], "policy_denied", "{answer}");
    answer.assert_text("message", [part]);
}

/// claim: [RES-9]
#[test]
fn files_put_into_a_private_workspace_are_limited_to_half_its_memory() {
    let mut server = Server::start();
    let id = server.create_session(json!({"language": "shell", "memory_limit": "16m"}));
    assert_eq!(put(&mut server, &id, "one", 5)["success"], true);
    assert_refused(&put(&mut server, &id, "two", 5), "half of the session's memory");
    assert_eq!(
        put(&mut server, &id, "one", 1)["success"],
        true,
        "replacing a file"
    );
    let call = json!({"session_id": id, "code": "true", "files": [
        {"path": "a", "text": text(4)}, {"path": "b", "text": text(4)},
    ]});
    assert_refused(&server.run(call), "half of the session's memory");
    assert_session_answers(&mut server, &id);
}

/// claim: [RES-9]
#[test]
fn idle_session_survives_writes_by_others_to_its_workspace() {
    let mut server = Server::with_config("limits:\n  disk_mb: 10\n");
    let id = server.create_session(json!({"language": "shell", "workspace": "namespace"}));
    let write = |server: &mut Server, path: &str, mebibytes: usize| {
        let arguments = json!({"path": path, "text": text(mebibytes)});
        server.facts("put_file", arguments)
    };
    assert_eq!(write(&mut server, "one", 4)["success"], true);
    assert_eq!(write(&mut server, "two", 4)["success"], true);
    let saved = server.facts("create_state_snapshot", json!({}))["snapshot_id"].clone();
    for _ in 0..5 {
        assert_eq!(write(&mut server, "one", 4)["success"], true, "replacing a file");
        assert_session_answers(&mut server, &id);
    }
    let other =
        json!({"session_id": id, "code": "for f in one two; do head -c 4000000 /dev/zero > $f; done"});
    server.call_ok("execute_code", other);
    server.call_ok("restore_state_snapshot", json!({"snapshot_id": saved}));
    assert_session_answers(&mut server, &id);
    assert_refused(&write(&mut server, "three", 4), "its disk may have");
    let call = json!({"session_id": id, "code": "true", "files": [{"path": "three", "text": text(4)}]});
    assert_refused(&server.run(call), "its disk may have");
    assert_session_answers(&mut server, &id);
    let filled = server.eval(
        &id,
        "for i in 1 2; do head -c 9000000 /dev/zero > more$i; done; while :; do echo x >> log; done",
    );
    assert_eq!(filled["exit"]["limit"], "disk", "the limit holds: {filled}");
}

/// claim: [RES-9]
#[test]
fn only_the_program_that_fills_a_workspace_is_ended_at_twice_the_limit() {
    let mut server = Server::start();
    let arguments =
        json!({"language": "shell", "workspace": "namespace", "resource_limits": {"max_disk_mb": 8}});
    let id = server.create_session(arguments);
    let options = ["--workspace", "namespace", "--disk", "8m"];
    let past = run_json(
        "shell",
        "for i in 1 2; do head -c 5000000 /dev/zero > a$i; done",
        &options,
    );
    assert_eq!(past["success"], true, "{past}");
    let denial = past["denials"][0].clone();
    assert_eq!(denial["rule"], "limit.disk", "{past}");
    denial.assert_text("what", ["may have 8; remove something"]);
    assert_session_answers(&mut server, &id);
    let fills = "i=0; while :; do head -c 1000000 /dev/zero > b$i; i=$((i+1)); done";
    let filled = run_json("shell", fills, &options);
    assert_eq!(filled["exit"]["limit"], "disk", "{filled}");
    assert_session_answers(&mut server, &id);
    let tidied = server.eval(&id, "rm a* b*; echo here > c; cat c");
    assert_eq!(tidied["stdout"], "here\n", "{tidied}");
}

/// claim: [RES-9]
#[test]
fn files_put_into_a_shared_directory_are_limited_by_its_sessions_disk() {
    let place = TempDir::new("room-shared");
    place.file("work/old", &text(3));
    let root = place.0.display();
    let mut server = Server::with_config(&format!("workspaces:\n  work: {{path: {root}/work, mode: rw}}\n"));
    let arguments = json!({"language": "shell", "workspace": "work", "resource_limits": {"max_disk_mb": 4}});
    let id = server.create_session(arguments);
    assert_eq!(put(&mut server, &id, "one", 3)["success"], true);
    assert_refused(&put(&mut server, &id, "two", 2), "its disk may have");
    assert_refused(&put(&mut server, &id, "old", 3), "its disk may have");
    assert_session_answers(&mut server, &id);
}

#[test]
fn restore_is_limited_by_the_disk_of_its_session() {
    let mut server = Server::with_config("limits:\n  disk_mb: 8\ncaps:\n  disk_mb: 64\n");
    let of = |disk: u32| json!({"language": "shell", "resource_limits": {"max_disk_mb": disk}});
    let wide = server.create_session(of(40));
    let write = "head -c 25000000 /dev/urandom > big";
    let call = json!({"session_id": wide, "code": write});
    server.call_ok("execute_code", call.clone());
    let saved = server.facts("create_state_snapshot", json!({"session_id": wide}))["snapshot_id"].clone();
    let into = |id: &str| json!({"snapshot_id": saved, "session_id": id});
    server.call_ok("execute_code", json!({"session_id": wide, "code": "rm big"}));
    server.call_ok("restore_state_snapshot", into(&wide));
    // During a restore the new files exist beside the old ones.
    server.call_ok("execute_code", call);
    let full = server.facts("restore_state_snapshot", into(&wide));
    assert_refused(&full, "space");
    full.assert_text("hint", ["max_disk_mb"]);
    assert_session_answers(&mut server, &wide);
    let narrow = server.create_session(of(20));
    assert_refused(
        &server.facts("restore_state_snapshot", into(&narrow)),
        "25000000 bytes",
    );
}

#[test]
fn list_files_lists_one_file_and_get_file_refusals_have_hints() {
    let mut server = Server::start();
    for (path, size) in [("d/small", 0), ("large", 5)] {
        server.call_ok("put_file", json!({"path": path, "text": text(size)}));
    }
    let names = |listed: &Value| -> Vec<String> {
        let files = list_of(&listed["files"]);
        files
            .iter()
            .map(|file| text_of(&file["path"]).to_owned())
            .collect()
    };
    let all = server.facts("list_files", json!({"path": "."}));
    assert_eq!(names(&all), ["d", "d/small", "large"]);
    let one = server.facts("list_files", json!({"path": "d/small"}));
    assert_eq!(names(&one), ["d/small"]);
    assert_eq!(one["files"][0]["sha256"], all["files"][1]["sha256"]);
    for gone in ["none", "d/small/none"] {
        server.call_error("list_files", json!({"path": gone}), "not_found");
    }
    let large = server.facts("get_file", json!({"path": "large"}));
    let hint = text_of(&large["hint"]);
    assert!(
        hint.contains("RINGFENCE_OUTPUT_DIR") && !hint.contains("disk_mb"),
        "{large}"
    );
    let directory = server.facts("get_file", json!({"path": "d"}));
    directory.assert_text("hint", ["archive: true"]);
}

/// claim: [RES-9]
#[test]
fn kept_data_is_limited_per_namespace_and_by_free_disk_space() {
    let refused = |setting: &str, by: &str, code: &str| {
        let place = TempDir::new(&format!("room-{by}"));
        let config = place.file("ringfence.yaml", &format!("disk:\n  {setting}\n"));
        let mut server = Server::start_with(&["--config", &config]);
        let arguments = ["--workspace", "namespace"];
        run_json("shell", "head -c 3000000 /dev/zero > big", &arguments);
        server.call_ok("run_sandbox_code", json!({"code": "print(1)"}));
        let saved = server.facts("create_state_snapshot", json!({}));
        let put = server.facts("put_file", json!({"path": "more", "text": "x"}));
        for answer in [saved, put] {
            assert_eq!(answer["code"], code, "{answer}");
            answer.assert_text("hint", [by]);
        }
    };
    refused("namespace_mb: 2", "disk.namespace_mb", "policy_denied");
    // The free space is below the floor and above half of it; below half nothing runs.
    let floor = format!("free_mb: {}", (free_mb() * 3 / 2).min(FLOOR_MAX));
    refused(&floor, "disk.free_mb", "store_fault");
    let config = TempDir::new("room-floor");
    let file = config.file("ringfence.yaml", &format!("disk:\n  {floor}\n"));
    let fills = "i=0; while :; do head -c 1000000 /dev/zero > b$i; i=$((i+1)); done";
    let filled = run_json("shell", fills, &["--config", &file, "--workspace", "namespace"]);
    assert_eq!(filled["exit"]["limit"], "disk", "{filled}");
    let what = text_of(&filled["denials"][0]["what"]);
    assert!(what.contains("`disk.free_mb`"), "{filled}");
}

/// Free space of the file system with the tests' temporary directories.
fn free_mb() -> u64 {
    let df = std::process::Command::new("df")
        .args(["--output=avail", "-m"])
        .arg(std::env::temp_dir())
        .output()
        .unwrap();
    let text = stdout_of(&df);
    text.lines().last().unwrap().trim().parse().unwrap()
}

#[test]
fn nothing_runs_on_a_nearly_full_disk_and_the_refusal_is_recorded() {
    let place = TempDir::new("room-nothing-runs");
    let floor = format!("disk:\n  free_mb: {}\n", (free_mb() * 4).min(FLOOR_MAX));
    let config = place.file("ringfence.yaml", &floor);
    let mut server = Server::start_with(&["--config", &config]);
    for (tool, arguments) in [
        ("execute_code", json!({"code": "print(1)"})),
        ("create_session", json!({})),
    ] {
        let refused = server.call_error(tool, arguments, "store_fault");
        refused.assert_text("hint", ["`disk.free_mb`"]);
    }
    let audit = server.facts("audit_execution", json!({"limit": 20}));
    assert!(audit.to_string().contains("execution.refused"), "{audit}");
}
