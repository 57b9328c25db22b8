//! Loading of rules, and the commands that they allow.

use crate::world::{World, is_root, lacks, text, words};
use ringfence_host::{DEFAULT_RULES, Ending, Why, load};
use std::{fs, path::Path};

/// Loading tries every example; a wrong one is an error with its file and line.
/// claim: [HOST-2]
pub fn loading_rules_runs_their_examples() {
    let rules = load(None).unwrap();
    assert!(rules.summaries().len() >= 25, "{}", rules.summaries().len());
    let file = Path::new("/etc/own.yaml");
    let fails = |text: &str, line: u64, what: &str| {
        let error = load(Some((file, text))).unwrap_err();
        assert_eq!(
            (error.file.as_str(), error.line),
            ("/etc/own.yaml", Some(line)),
            "{error}"
        );
        assert!(error.message.contains(what), "{error}");
    };
    let own = |matches: &str, refuse: &str| {
        format!(
            "programs:\n  - program: id\n    why: says who\n    forms:\n      - rule: id\n        flags: [-u]\n        match: [{matches}]\n        refuse:\n          - {refuse}\n"
        )
    };
    assert!(load(Some((file, &own("id, id -u", "id -x")))).is_ok());
    fails(&own("id, id -g", "id -x"), 7, "`id -g` must be let through");
    fails(&own("id", "id -u"), 9, "`id -u` must be refused");
    fails(&own("'id; id'", "id -x"), 7, "operator `;`");
    fails(
        "programs:\n  - program: id\n    why: x\n    formz: []\n",
        4,
        "formz",
    );
    fails(
        "programs:\n  - program: a/b\n    why: x\n    forms: []\n",
        2,
        "neither a name nor",
    );
    let kind = own("id", "id -x").replace("flags: [-u]", "options: {-u: nmae}");
    fails(&kind, 6, "not a kind of value");
    // An operator's file can exclude the default rules, but not the list of commands that are never run.
    let rules = load(Some((file, "default_rules: false\n"))).unwrap();
    assert_eq!(rules.judge(&words("git status")).unwrap_err().why, Why::NoProgram);
    assert_eq!(rules.judge(&words("rm -rf /x")).unwrap_err().why, Why::Never);
    assert!(DEFAULT_RULES.contains("rule: git-status"));
}

/// Each form serves its purpose.
pub fn default_rule_commands_work_behind_their_walls() {
    let world = World::new("works");
    fs::write(world.directory.join("f"), "one\ntwo\nthree\n").unwrap();
    let path = |name: &str| world.directory.join(name).display().to_string();
    let says = |command: &str, wanted: &str| {
        let outcome = world.run_by_rule(command);
        let (out, err) = (text(&outcome.stdout.bytes), text(&outcome.stderr.bytes));
        assert_eq!(outcome.ending, Ending::Code(0), "{command}: {out}{err}");
        assert!(out.contains(wanted), "{command}: {out}{err}");
    };
    says(&format!("cat {}", path("f")), "one\ntwo\nthree\n");
    says(&format!("cat -s {}", path("f")), "one\ntwo\nthree\n");
    let rules = world.rules();
    assert!(rules.judge(&words("cat -n f")).is_err());
    let approved = rules.approved(&words("cat -n f")).unwrap();
    let numbered = world.run(&rules, &approved, 20).unwrap();
    assert_eq!(text(&numbered.stdout.bytes).lines().next(), Some("     1\tone"));
    says(&format!("head -n 1 {}", path("f")), "one\n");
    says(&format!("tail -n 1 {}", path("f")), "three\n");
    says(&format!("ls -l {}", world.directory.display()), " f\n");
    says("df -h", "Filesystem");
    says("free -m", "Mem:");
    says("uptime", "load average");
    says("uname -a", "Linux");
    says("date -u +%Y", "20");
    says(
        "hostname",
        fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim(),
    );
    says("whoami", if is_root() { "root" } else { "" });
    if !lacks("pip") {
        says("pip list", "pip");
        says("pip show pip", "Name: pip");
    }
    if !lacks("npm") {
        fs::write(
            world.directory.join("package.json"),
            r#"{"name":"here","version":"1.0.0"}"#,
        )
        .unwrap();
        says("npm list", "here@1.0.0");
    }
}
