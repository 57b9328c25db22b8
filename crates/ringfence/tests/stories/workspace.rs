//! Directories of the host as workspaces.

use crate::client::{TempDir, run_json};
use std::fs;

#[test]
fn a_read_write_workspace_is_the_hosts_own() {
    let dir = TempDir::new("rw");
    dir.file("in.txt", "before");
    let words = ["--workspace", &format!("{}:rw", dir.0.display())];
    let result = run_json(
        "shell",
        "cat in.txt; echo after > in.txt; echo new > out.txt",
        &words,
    );
    assert_eq!(result["stdout"], "before", "{result}");
    assert_eq!(fs::read_to_string(dir.0.join("in.txt")).unwrap(), "after\n");
    let mut names: Vec<&str> = result["artifacts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|a| a["name"].as_str().unwrap())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["in.txt", "out.txt"]);
    let owner = |path: &str| std::os::unix::fs::MetadataExt::uid(&fs::metadata(dir.0.join(path)).unwrap());
    assert_eq!(
        owner("out.txt"),
        owner("."),
        "new files belong to the directory's owner"
    );
}

#[test]
fn a_read_only_workspace_stays_as_it_is() {
    let dir = TempDir::new("ro");
    dir.file("in.txt", "before");
    let words = ["--workspace", &format!("{}:ro", dir.0.display())];
    let result = run_json(
        "shell",
        "cat in.txt; echo x > in.txt; echo x > new; rm in.txt; ls",
        &words,
    );
    assert_eq!(result["stdout"], "beforein.txt\n", "{result}");
    assert_eq!(fs::read_to_string(dir.0.join("in.txt")).unwrap(), "before");
}

#[test]
fn an_overlay_workspace_is_read_and_not_written() {
    let dir = TempDir::new("overlay");
    dir.file("in.txt", "before");
    dir.file("gone.txt", "there");
    let words = ["--workspace", &format!("{}:overlay", dir.0.display())];
    let result = run_json(
        "shell",
        "cat in.txt; echo after > in.txt; rm gone.txt; mkdir d; echo new > d/out.txt; ls",
        &words,
    );
    assert_eq!(result["stdout"], "befored\nin.txt\n", "{result}");
    assert_eq!(fs::read_to_string(dir.0.join("in.txt")).unwrap(), "before");
    assert!(dir.0.join("gone.txt").exists() && !dir.0.join("d").exists());
    let mut names: Vec<&str> = result["artifacts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|a| a["name"].as_str().unwrap())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["d/out.txt", "in.txt"]);
    assert_eq!(
        result["denials"],
        serde_json::json!([]),
        "a file that was deleted is nothing that was refused"
    );
}
