//! How much is put into a workspace from outside: what its limits let in, and never at the cost of a session that did nothing.

use crate::client::*;

const MIB: usize = 1 << 20;
/// The highest floor that can be set.
const FLOOR_MAX: u64 = 1 << 20;

fn text(mebibytes: usize) -> String {
    "x".repeat(mebibytes * MIB)
}

fn put(server: &mut Server, id: &str, path: &str, mebibytes: usize) -> Value {
    let arguments = json!({"session_id": id, "path": path, "text": text(mebibytes)});
    server.facts("put_file", arguments)
}

fn lives(server: &mut Server, id: &str) {
    let said = server.eval(id, "echo here");
    assert_eq!(said["stdout"], "here\n", "{said}");
}

fn is_refused(answer: &Value, part: &str) {
    assert_eq!(answer["code"], "policy_denied", "{answer}");
    answer.says("message", [part]);
}

/// claim: [RES-9]
#[test]
fn what_is_put_into_a_private_workspace_stays_within_half_of_its_memory() {
    let mut server = Server::start();
    let id = server.create(json!({"language": "shell", "memory_limit": "16m"}));
    assert_eq!(put(&mut server, &id, "one", 5)["success"], true);
    is_refused(&put(&mut server, &id, "two", 5), "half of the session's memory");
    assert_eq!(put(&mut server, &id, "one", 1)["success"], true, "in its place");
    let call = json!({"session_id": id, "code": "true", "files": [
        {"path": "a", "text": text(4)}, {"path": "b", "text": text(4)},
    ]});
    is_refused(&server.run(call), "half of the session's memory");
    lives(&mut server, &id);
}

/// claim: [RES-9]
#[test]
fn a_session_that_did_nothing_outlives_what_is_written_beside_it() {
    let mut server = Server::with("limits:\n  disk_mb: 10\n");
    let id = server.create(json!({"language": "shell", "workspace": "namespace"}));
    let write = |server: &mut Server, path: &str, mebibytes: usize| {
        let arguments = json!({"path": path, "text": text(mebibytes)});
        server.facts("put_file", arguments)
    };
    assert_eq!(write(&mut server, "one", 4)["success"], true);
    assert_eq!(write(&mut server, "two", 4)["success"], true);
    let saved = server.facts("create_state_snapshot", json!({}))["snapshot_id"].clone();
    for _ in 0..5 {
        assert_eq!(write(&mut server, "one", 4)["success"], true, "in its place");
        lives(&mut server, &id);
    }
    let other =
        json!({"session_id": id, "code": "for f in one two; do head -c 4000000 /dev/zero > $f; done"});
    server.succeeds("execute_code", other);
    server.succeeds("restore_state_snapshot", json!({"snapshot_id": saved}));
    lives(&mut server, &id);
    is_refused(&write(&mut server, "three", 4), "its disk may have");
    let call = json!({"session_id": id, "code": "true", "files": [{"path": "three", "text": text(4)}]});
    is_refused(&server.run(call), "its disk may have");
    lives(&mut server, &id);
    let filled = server.eval(
        &id,
        "for i in 1 2; do head -c 9000000 /dev/zero > more$i; done; while :; do echo x >> log; done",
    );
    assert_eq!(filled["exit"]["limit"], "disk", "the limit holds: {filled}");
}

/// claim: [RES-9]
#[test]
fn a_workspace_that_another_fills_ends_no_session_and_the_one_that_fills_it_is_ended_at_twice_the_limit() {
    let mut server = Server::start();
    let wish = json!({"language": "shell", "workspace": "namespace", "resource_limits": {"max_disk_mb": 8}});
    let id = server.create(wish);
    let words = ["--workspace", "namespace", "--disk", "8m"];
    let past = run_json(
        "shell",
        "for i in 1 2; do head -c 5000000 /dev/zero > a$i; done",
        &words,
    );
    assert_eq!(past["success"], true, "{past}");
    let told = past["denials"][0].clone();
    assert_eq!(told["rule"], "limit.disk", "{past}");
    told.says("what", ["may have 8; remove something"]);
    lives(&mut server, &id);
    let fills = "i=0; while :; do head -c 1000000 /dev/zero > b$i; i=$((i+1)); done";
    let filled = run_json("shell", fills, &words);
    assert_eq!(filled["exit"]["limit"], "disk", "{filled}");
    lives(&mut server, &id);
    let tidied = server.eval(&id, "rm a* b*; echo here > c; cat c");
    assert_eq!(tidied["stdout"], "here\n", "{tidied}");
}

/// claim: [RES-9]
#[test]
fn a_shared_directory_takes_from_outside_what_its_session_may_add() {
    let place = TempDir::new("room-shared");
    place.file("work/old", &text(3));
    let root = place.0.display();
    let mut server = Server::with(&format!("workspaces:\n  work: {{path: {root}/work, mode: rw}}\n"));
    let wish = json!({"language": "shell", "workspace": "work", "resource_limits": {"max_disk_mb": 4}});
    let id = server.create(wish);
    assert_eq!(put(&mut server, &id, "one", 3)["success"], true);
    is_refused(&put(&mut server, &id, "two", 2), "its disk may have");
    is_refused(&put(&mut server, &id, "old", 3), "its disk may have");
    lives(&mut server, &id);
}

#[test]
fn a_restore_has_the_room_of_the_session_that_it_is_for() {
    let mut server = Server::with("limits:\n  disk_mb: 8\ncaps:\n  disk_mb: 64\n");
    let of = |disk: u32| json!({"language": "shell", "resource_limits": {"max_disk_mb": disk}});
    let wide = server.create(of(40));
    let write = "head -c 25000000 /dev/urandom > big";
    let call = json!({"session_id": wide, "code": write});
    server.succeeds("execute_code", call.clone());
    let saved = server.facts("create_state_snapshot", json!({"session_id": wide}))["snapshot_id"].clone();
    let into = |id: &str| json!({"snapshot_id": saved, "session_id": id});
    server.succeeds("execute_code", json!({"session_id": wide, "code": "rm big"}));
    server.succeeds("restore_state_snapshot", into(&wide));
    // The new lies beside the old for a moment.
    server.succeeds("execute_code", call);
    let full = server.facts("restore_state_snapshot", into(&wide));
    is_refused(&full, "space");
    full.says("hint", ["max_disk_mb"]);
    lives(&mut server, &wide);
    let narrow = server.create(of(20));
    is_refused(
        &server.facts("restore_state_snapshot", into(&narrow)),
        "25000000 bytes",
    );
}

#[test]
fn one_file_is_listed_and_what_cannot_be_given_says_how_it_can() {
    let mut server = Server::start();
    for (path, size) in [("d/small", 0), ("large", 5)] {
        server.succeeds("put_file", json!({"path": path, "text": text(size)}));
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
        server.refuses("list_files", json!({"path": gone}), "not_found");
    }
    let large = server.facts("get_file", json!({"path": "large"}));
    let hint = text_of(&large["hint"]);
    assert!(
        hint.contains("RINGFENCE_OUTPUT_DIR") && !hint.contains("disk_mb"),
        "{large}"
    );
    let directory = server.facts("get_file", json!({"path": "d"}));
    directory.says("hint", ["archive: true"]);
}

/// claim: [RES-9]
#[test]
fn what_the_server_keeps_has_a_sum_and_the_host_keeps_free_space() {
    let refused = |setting: &str, by: &str, code: &str| {
        let place = TempDir::new(&format!("room-{by}"));
        let config = place.file("ringfence.yaml", &format!("disk:\n  {setting}\n"));
        let mut server = Server::start_with(&["--config", &config]);
        let words = ["--workspace", "namespace"];
        run_json("shell", "head -c 3000000 /dev/zero > big", &words);
        server.succeeds("run_sandbox_code", json!({"code": "print(1)"}));
        let saved = server.facts("create_state_snapshot", json!({}));
        let put = server.facts("put_file", json!({"path": "more", "text": "x"}));
        for answer in [saved, put] {
            assert_eq!(answer["code"], code, "{answer}");
            answer.says("hint", [by]);
        }
    };
    refused("namespace_mb: 2", "disk.namespace_mb", "policy_denied");
    // Between the half of it, below which nothing runs, and all of it.
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

/// What is free where the tests keep their states.
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
fn nothing_runs_on_a_disk_that_is_nearly_full_and_the_refusal_is_on_record() {
    let place = TempDir::new("room-nothing-runs");
    let floor = format!("disk:\n  free_mb: {}\n", (free_mb() * 4).min(FLOOR_MAX));
    let config = place.file("ringfence.yaml", &floor);
    let mut server = Server::start_with(&["--config", &config]);
    for (tool, arguments) in [
        ("execute_code", json!({"code": "print(1)"})),
        ("create_session", json!({})),
    ] {
        let refused = server.refuses(tool, arguments, "store_fault");
        refused.says("hint", ["`disk.free_mb`"]);
    }
    let audit = server.facts("audit_execution", json!({"limit": 20}));
    assert!(audit.to_string().contains("execution.refused"), "{audit}");
}
