//! Which changes the host may later run without anybody meaning to: hooks, build files, settings of tools.
//!
//! Advice for whoever decides what leaves a sandbox, not a wall: a file that is run on purpose is not in any list.

use super::{EntryKind, changes::Node};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Component, Path, PathBuf},
};

/// Why a change deserves a second look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Risk {
    /// Stable; for rules and counts.
    pub rule: &'static str,
    /// For people.
    pub sentence: &'static str,
}

/// Where a rule looks. All in small letters; a path is compared as a file system without case would.
enum Place {
    /// The last name.
    Name(&'static [&'static str]),
    /// How the last name ends.
    Ending(&'static [&'static str]),
    /// How the last name begins.
    Beginning(&'static [&'static str]),
    /// A directory of this name is anywhere in the path, or is the path's last name.
    Within(&'static [&'static str]),
    /// The last names, parts divided by `/`.
    Tail(&'static [&'static str]),
}

struct Rule {
    risk: Risk,
    place: Place,
}

const fn rule(rule: &'static str, sentence: &'static str, place: Place) -> Rule {
    Rule {
        risk: Risk { rule, sentence },
        place,
    }
}

#[rustfmt::skip]
const RULES: &[Rule] = &[
    rule("git.directory", "Git runs hooks and programs that the files of this repository name.",
        Place::Within(&[".git"])),
    rule("git.settings", "Git takes filters, modules or hooks from this file.",
        Place::Name(&[".gitmodules", ".gitattributes", ".gitconfig", ".lfsconfig"])),
    rule("git.hooks", "Hook managers run what is in here at commits.",
        Place::Within(&[".husky", ".githooks"])),
    rule("git.hooks", "Hook managers run what this file names at commits.",
        Place::Name(&[".pre-commit-config.yaml", ".pre-commit-config.yml", ".pre-commit-hooks.yaml", "lefthook.yml",
            "lefthook.yaml", ".lefthook.yml", ".lintstagedrc", ".lintstagedrc.json", "lint-staged.config.js",
            ".overcommit.yml"])),
    rule("shell.directory", "Shells run this file when somebody enters the directory.",
        Place::Name(&[".envrc", ".env.fish", ".autoenv.zsh", ".autoenv", ".mise.toml", "mise.toml", ".tool-versions",
            ".in", ".out"])),
    rule("shell.start", "Shells read this file when they start.",
        Place::Name(&[".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".zshrc",
            ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".login", ".inputrc",
            ".xprofile", ".xinitrc", ".xsession", "config.fish"])),
    rule("ci", "Continuous integration runs what this file says, often with secrets.",
        Place::Within(&[".circleci", ".buildkite", ".woodpecker", ".teamcity", ".drone"])),
    rule("ci", "Continuous integration runs what this file says, often with secrets.",
        Place::Name(&["jenkinsfile", "azure-pipelines.yml", "azure-pipelines.yaml", "appveyor.yml", ".appveyor.yml",
            "bitbucket-pipelines.yml", "cloudbuild.yaml", "buildspec.yml", ".travis.yml", ".drone.yml", ".cirrus.yml",
            ".woodpecker.yml", ".semaphore.yml", "action.yml", "action.yaml"])),
    rule("ci", "Continuous integration runs what this file says, often with secrets.",
        Place::Beginning(&[".gitlab-ci"])),
    rule("ci", "GitHub and its likes run or obey what is in here.",
        Place::Within(&[".github", ".gitea", ".forgejo", ".gitlab"])),
    rule("node.settings", "Package managers take a registry, credentials or scripts to run from this file.",
        Place::Name(&[".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", "pnpmfile.js", "bunfig.toml", "binding.gyp",
            ".noderc"])),
    rule("node.settings", "Yarn runs what is in here.", Place::Within(&[".yarn"])),
    rule("node.modules", "Node runs installed modules and their commands by name.", Place::Within(&["node_modules"])),
    rule("python.start", "Python runs this file whenever it starts.",
        Place::Name(&["sitecustomize.py", "usercustomize.py", "pyvenv.cfg"])),
    rule("python.start", "Python runs the lines of such a file whenever it starts.",
        Place::Ending(&[".pth", ".egg-link"])),
    rule("python.tests", "Test runners run this file before any test.",
        Place::Name(&["conftest.py", "pytest.ini", "tox.ini", "noxfile.py"])),
    rule("python.build", "Installing or building the project runs what this file says.",
        Place::Name(&["setup.py", "setup.cfg", "pyproject.toml", "pip.conf", ".pip.conf", "pip.ini", ".pypirc",
            "hatch_build.py"])),
    rule("build", "A build tool runs what this file says.",
        Place::Name(&["makefile", "gnumakefile", "justfile", ".justfile", "taskfile.yml", "taskfile.yaml", "rakefile",
            "cmakelists.txt", "meson.build", "sconstruct", "wscript", "build.xml", "build.gradle", "build.gradle.kts",
            "settings.gradle", "settings.gradle.kts", "pom.xml", "gradlew", "mvnw", "build.zig", "build.sbt", "gemfile",
            "configure", "dodo.py", "vagrantfile", "procfile", ".bazelrc", "workspace.bazel", "build.bazel",
            "module.bazel", "flake.nix", "shell.nix", "default.nix"])),
    rule("build", "A build tool runs what this file says.", Place::Ending(&[".mk", ".gemspec", ".bzl", ".cmake"])),
    rule("rust.build", "Cargo compiles and runs this at each build.", Place::Name(&["build.rs"])),
    rule("rust.build", "Cargo and rustup take linkers, runners, wrappers or a toolchain from this file.",
        Place::Tail(&[".cargo/config", ".cargo/config.toml", "rust-toolchain", "rust-toolchain.toml", "cargo.toml"])),
    rule("container", "Building or starting the container runs what this file says.",
        Place::Beginning(&["dockerfile", "containerfile", "docker-compose", "compose.y"])),
    rule("container", "Editors start this container with its commands.", Place::Within(&[".devcontainer"])),
    rule("container", "Editors start this container with its commands.", Place::Name(&[".devcontainer.json"])),
    rule("editor", "Editors take tasks, programs and settings from here when the folder is opened.",
        Place::Within(&[".vscode", ".idea", ".fleet", ".zed", ".vs", ".nvim"])),
    rule("editor", "Editors take programs and settings from this file when the folder is opened.",
        Place::Name(&[".vimrc", ".exrc", ".nvimrc", ".nvim.lua", ".lvimrc", ".dir-locals.el", ".dir-locals-2.el",
            ".editorconfig"])),
    rule("editor", "Editors take programs and settings from this file when the folder is opened.",
        Place::Ending(&[".code-workspace", ".sublime-project", ".iml"])),
    rule("agent", "AI agents take tools, commands, hooks or instructions from here.",
        Place::Within(&[".claude", ".cursor", ".windsurf", ".continue", ".codex", ".gemini", ".aider", ".roo", ".cline",
            ".kiro", ".mcp"])),
    rule("agent", "AI agents take tools, commands, hooks or instructions from this file.",
        Place::Name(&[".mcp.json", "mcp.json", ".claude.json", "claude.md", "claude.local.md", "agents.md", "gemini.md",
            ".cursorrules", ".windsurfrules", ".clinerules", ".aider.conf.yml", ".roomodes"])),
    rule("desktop", "The desktop or the service manager starts programs that this file names.",
        Place::Ending(&[".desktop", ".service", ".timer", ".plist", ".lnk", ".bat", ".cmd", ".ps1", ".scf"])),
    rule("credentials", "Tools take hosts, keys or commands from here.",
        Place::Within(&[".ssh", ".aws", ".kube", ".docker", ".gnupg"])),
    rule("tool.settings", "A tool of the project runs this file as its settings.",
        Place::Beginning(&["webpack.config.", "vite.config.", "vitest.config.", "jest.config.", "rollup.config.",
            "babel.config.", "eslint.config.", ".eslintrc", ".prettierrc", "prettier.config.", "next.config.",
            "nuxt.config.", "svelte.config.", "tailwind.config.", "postcss.config.", "playwright.config.",
            "cypress.config.", "gulpfile.", "gruntfile.", ".babelrc", "astro.config.", "metro.config.", "esbuild.config."])),
];

const EXECUTABLE: Risk = Risk {
    rule: "executable",
    sentence: "It can be run as a program.",
};
const PROGRAM: Risk = Risk {
    rule: "program",
    sentence: "Its content is a program or a script for one.",
};
const SET_ID: Risk = Risk {
    rule: "set-id",
    sentence: "It asks to run as its owner or group; the bits are dropped at a commit.",
};
const OUTSIDE: Risk = Risk {
    rule: "link.outside",
    sentence: "The link points out of the workspace, or may.",
};
const SPECIAL: Risk = Risk {
    rule: "special",
    sentence: "It is no file, directory or link, or a file with a second name; it is not committed.",
};
const SCRIPTS: Risk = Risk {
    rule: "node.scripts",
    sentence: "The scripts, commands or hooks in package.json changed; package managers run them.",
};
const BARE: Risk = Risk {
    rule: "git.bare",
    sentence: "It belongs to a bare Git repository, whose settings and hooks Git obeys from any directory inside.",
};

/// What is known of one change.
pub(super) struct Facts<'a> {
    pub path: &'a Path,
    pub old: Option<&'a Node>,
    pub new: Option<&'a Node>,
    /// The contents, unless they are too long to look at.
    pub old_bytes: Option<&'a [u8]>,
    pub new_bytes: Option<&'a [u8]>,
    /// The first bytes of the new content, however long it is.
    pub new_head: &'a [u8],
    pub bare: &'a BTreeSet<PathBuf>,
}

/// The rules that a change meets, in order and each once.
pub(super) fn of(facts: &Facts<'_>) -> Vec<Risk> {
    let names = plain_names(facts.path);
    let mut risks: BTreeSet<Risk> = RULES
        .iter()
        .filter(|rule| rule.place.holds(&names))
        .map(|rule| rule.risk)
        .collect();
    if facts.path.ancestors().any(|above| facts.bare.contains(above)) {
        risks.insert(BARE);
    }
    if names.last().is_some_and(|name| name == "package.json") {
        let unread = |node: Option<&Node>, bytes: Option<&[u8]>| {
            bytes.is_none() && node.is_some_and(|node| node.kind == EntryKind::File)
        };
        if unread(facts.old, facts.old_bytes)
            || unread(facts.new, facts.new_bytes)
            || scripts(facts.old_bytes) != scripts(facts.new_bytes)
        {
            risks.insert(SCRIPTS);
        }
    }
    if let Some(new) = facts.new {
        risks.extend(of_new(facts, new));
    }
    // A rule may have several sentences; one is enough.
    let mut seen = BTreeSet::new();
    risks.into_iter().filter(|risk| seen.insert(risk.rule)).collect()
}

fn of_new(facts: &Facts<'_>, new: &Node) -> Vec<Risk> {
    let mut risks = Vec::new();
    let content = |node: Option<&Node>| node.and_then(|node| node.sha256);
    let was = |mask: u32| {
        facts
            .old
            .is_some_and(|old| old.kind == new.kind && old.mode & mask != 0)
    };
    match &new.kind {
        EntryKind::File => {
            if new.mode & 0o111 != 0 && (!was(0o111) || content(facts.old) != content(facts.new)) {
                risks.push(EXECUTABLE);
            }
            if is_program(facts.new_head) {
                risks.push(PROGRAM);
            }
        }
        EntryKind::Link(target) if leads_out(facts.path, target) => risks.push(OUTSIDE),
        EntryKind::Link(_) | EntryKind::Directory => {}
        EntryKind::Whiteout | EntryKind::Other => risks.push(SPECIAL),
    }
    if new.mode & 0o6000 != 0 && !matches!(new.kind, EntryKind::Link(_)) {
        risks.push(SET_ID);
    }
    risks
}

impl Place {
    fn holds(&self, names: &[String]) -> bool {
        let Some(last) = names.last() else { return false };
        match self {
            Self::Name(list) => list.contains(&last.as_str()),
            Self::Ending(list) => list.iter().any(|end| last.ends_with(end)),
            Self::Beginning(list) => list.iter().any(|start| last.starts_with(start)),
            Self::Within(list) => names.iter().any(|name| list.contains(&name.as_str())),
            Self::Tail(list) => list.iter().any(|tail| {
                let tail: Vec<&str> = tail.split('/').collect();
                names.len() >= tail.len()
                    && names[names.len() - tail.len()..]
                        .iter()
                        .zip(&tail)
                        .all(|(name, part)| name == part)
            }),
        }
    }
}

/// The names of a path as the most forgiving file system reads them: without case, without the marks that HFS+ ignores,
/// and without what NTFS drops at the end or takes for a stream.
fn plain_names(path: &Path) -> Vec<String> {
    let parts = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_string_lossy()),
        _ => None,
    });
    parts.map(|name| plain_name(&name)).collect()
}

fn plain_name(name: &str) -> String {
    let ignored = |c: &char| matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}');
    let shown: String = name.chars().filter(|c| !ignored(c)).collect();
    let folded = shown.to_lowercase().replace('\u{17f}', "s");
    let base = folded.split(':').next().unwrap_or_default();
    match base.trim_end_matches(['.', ' ']) {
        "git~1" => ".git".to_owned(),
        plain => plain.to_owned(),
    }
}

/// Directories that Git takes for bare repositories.
pub(super) fn bare_repositories(nodes: &BTreeMap<PathBuf, Node>) -> BTreeSet<PathBuf> {
    let mut found: BTreeMap<&Path, BTreeSet<String>> = BTreeMap::new();
    for path in nodes.keys() {
        let Some(name) = path.file_name() else { continue };
        let name = plain_name(&name.to_string_lossy());
        if matches!(name.as_str(), "head" | "objects" | "refs") {
            found
                .entry(path.parent().unwrap_or(Path::new("")))
                .or_default()
                .insert(name);
        }
    }
    let whole = found.into_iter().filter(|(_, names)| names.len() == 3);
    whole.map(|(path, _)| path.to_owned()).collect()
}

/// The parts of a package.json that are run. What cannot be read differs from everything that can.
fn scripts(bytes: Option<&[u8]>) -> Option<Vec<Value>> {
    const RUN: [&str; 9] = [
        "scripts",
        "bin",
        "husky",
        "lint-staged",
        "pre-commit",
        "gypfile",
        "config",
        "packageManager",
        "simple-git-hooks",
    ];
    let bytes = bytes?;
    let Ok(value) = serde_json::from_slice::<Value>(bytes) else {
        return Some(vec![Value::String(String::from_utf8_lossy(bytes).into_owned())]);
    };
    let parts: Vec<Value> = RUN.iter().map(|part| value[*part].clone()).collect();
    // A file without any is as good as no file.
    (!parts.iter().all(Value::is_null)).then_some(parts)
}

fn is_program(head: &[u8]) -> bool {
    const MARKS: [&[u8]; 6] = [
        b"\x7fELF",
        b"#!",
        b"MZ",
        b"\xcf\xfa\xed\xfe",
        b"\xca\xfe\xba\xbe",
        b"\xfe\xed\xfa\xcf",
    ];
    MARKS.iter().any(|mark| head.starts_with(mark))
}

/// Does a link of this place leave the workspace, or may it: after a name that is a link itself, `..` leads anywhere.
fn leads_out(path: &Path, target: &Path) -> bool {
    let names = |part: &Component<'_>| matches!(part, Component::Normal(_));
    let up = target
        .components()
        .filter(|part| *part == Component::ParentDir)
        .count();
    let up_later = target
        .components()
        .skip_while(|part| !names(part))
        .any(|part| part == Component::ParentDir);
    target.is_absolute() || up_later || up >= path.components().count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest, Sha256};

    fn node(kind: EntryKind, mode: u32) -> Node {
        Node {
            kind,
            mode,
            size: 1,
            mtime: (0, 0),
            sha256: None,
            stamp: None,
        }
    }

    fn rules(path: &str, old: Option<(u32, &str)>, new: Option<(u32, &str)>) -> Vec<&'static str> {
        let file = |state: Option<(u32, &str)>| {
            state.map(|(mode, text)| Node {
                sha256: Some(Sha256::digest(text).into()),
                ..node(EntryKind::File, mode)
            })
        };
        let risks = of(&Facts {
            path: Path::new(path),
            old: file(old).as_ref(),
            new: file(new).as_ref(),
            old_bytes: old.map(|(_, text)| text.as_bytes()),
            new_bytes: new.map(|(_, text)| text.as_bytes()),
            new_head: new.map_or(&[], |(_, text)| text.as_bytes()),
            bare: &BTreeSet::new(),
        });
        risks.iter().map(|risk| risk.rule).collect()
    }

    #[test]
    fn what_the_host_may_run_is_flagged_by_its_place() {
        let table: &[(&str, &[&str])] = &[
            (".git/hooks/pre-commit", &["git.directory"]),
            (".git/config", &["git.directory"]),
            ("a/b/c/d/e/.git/config", &["git.directory"]),
            (".GIT/config", &["git.directory"]),
            ("x/.g\u{200c}it/config", &["git.directory"]),
            ("GIT~1/hooks/post-checkout", &["git.directory"]),
            (".git./config", &["git.directory"]),
            (".git::$INDEX_ALLOCATION/config", &["git.directory"]),
            (".gitmodules", &["git.settings"]),
            (".envrc", &["shell.directory"]),
            ("sub/.ENVRC", &["shell.directory"]),
            (".github/workflows/x.yml", &["ci"]),
            (".gitlab-ci.yml", &["ci"]),
            ("Jenkinsfile", &["ci"]),
            (".circleci/config.yml", &["ci"]),
            ("azure-pipelines.yml", &["ci"]),
            (".travis.yml", &["ci"]),
            (".npmrc", &["node.settings"]),
            ("node_modules/.bin/tsc", &["node.modules"]),
            ("lib/python3/site-packages/x.pth", &["python.start"]),
            ("sitecustomize.py", &["python.start"]),
            ("usercustomize.py", &["python.start"]),
            ("venv/pyvenv.cfg", &["python.start"]),
            ("tests/conftest.py", &["python.tests"]),
            ("setup.py", &["python.build"]),
            ("pyproject.toml", &["python.build"]),
            ("Makefile", &["build"]),
            ("justfile", &["build"]),
            ("build.rs", &["rust.build"]),
            (".cargo/config.toml", &["rust.build"]),
            ("docker/Dockerfile.dev", &["container"]),
            (".devcontainer/devcontainer.json", &["container"]),
            (".vscode/tasks.json", &["editor"]),
            (".idea/workspace.xml", &["editor"]),
            (".claude/settings.local.json", &["agent"]),
            (".mcp.json", &["agent"]),
            (".cursor/mcp.json", &["agent"]),
            (".pre-commit-config.yaml", &["git.hooks"]),
            (".husky/pre-push", &["git.hooks"]),
            (".bashrc", &["shell.start"]),
            ("home/.ZSHRC", &["shell.start"]),
            ("src/main.py", &[]),
            ("README.md", &[]),
            ("data/git/config", &[]),
            ("notes.path", &[]),
            ("config.toml", &[]),
        ];
        for (path, expected) in table {
            assert_eq!(rules(path, None, Some((0o644, "x"))), *expected, "{path}");
            assert_eq!(rules(path, Some((0o644, "x")), None), *expected, "{path} deleted");
        }
    }

    #[test]
    fn what_can_be_run_is_flagged_by_its_mode_and_content() {
        assert_eq!(rules("x", None, Some((0o755, "text"))), ["executable"]);
        assert_eq!(
            rules("x", Some((0o644, "text")), Some((0o755, "text"))),
            ["executable"]
        );
        assert_eq!(
            rules("x", Some((0o755, "one")), Some((0o755, "two"))),
            ["executable"]
        );
        assert!(rules("x", Some((0o755, "text")), Some((0o644, "text"))).is_empty());
        assert_eq!(rules("x", None, Some((0o644, "#!/bin/sh\n"))), ["program"]);
        assert_eq!(rules("x", None, Some((0o644, "\u{7f}ELF"))), ["program"]);
        assert_eq!(rules("x", None, Some((0o4644, "text"))), ["set-id"]);
    }

    #[test]
    fn package_json_is_flagged_when_what_it_runs_changes() {
        let (plain, script) = (r#"{"name":"a"}"#, r#"{"name":"a","scripts":{"postinstall":"x"}}"#);
        let changed = |old, new| rules("web/package.json", Some((0o644, old)), Some((0o644, new)));
        assert!(changed(plain, r#"{"name":"b"}"#).is_empty());
        assert_eq!(changed(plain, script), ["node.scripts"]);
        assert_eq!(changed(script, plain), ["node.scripts"]);
        assert_eq!(changed(plain, "no json"), ["node.scripts"]);
        assert!(changed(script, r#"{"scripts":{"postinstall":"x"},"name":"other"}"#).is_empty());
        assert_eq!(
            rules("package.json", None, Some((0o644, script))),
            ["node.scripts"]
        );
    }

    #[test]
    fn links_that_lead_out_and_special_files_are_flagged() {
        let with = |kind: EntryKind| {
            let risks = of(&Facts {
                path: Path::new("a/b"),
                old: None,
                new: Some(&node(kind, 0o777)),
                old_bytes: None,
                new_bytes: None,
                new_head: &[],
                bare: &BTreeSet::new(),
            });
            risks.iter().map(|risk| risk.rule).collect::<Vec<_>>()
        };
        let link = |target: &str| with(EntryKind::Link(target.into()));
        assert!(link("../c").is_empty());
        assert!(link("./c/d").is_empty());
        // `c` may be a link to `.`.
        assert_eq!(link("c/../../d"), ["link.outside"]);
        assert_eq!(link("../../c"), ["link.outside"]);
        assert_eq!(link("c/../../../d/e"), ["link.outside"]);
        assert_eq!(link("/etc/passwd"), ["link.outside"]);
        assert_eq!(with(EntryKind::Other), ["special"]);
    }

    #[test]
    fn a_bare_repository_is_found_by_its_shape() {
        let paths = ["x/HEAD", "x/objects", "x/Refs", "y/HEAD", "y/refs", "HEAD"];
        let nodes = paths.map(|path| (PathBuf::from(path), node(EntryKind::File, 0o644)));
        let bare = bare_repositories(&nodes.into());
        assert_eq!(bare, BTreeSet::from([PathBuf::from("x")]));
        let risks = of(&Facts {
            path: Path::new("x/config"),
            old: None,
            new: Some(&node(EntryKind::File, 0o644)),
            old_bytes: None,
            new_bytes: Some(b""),
            new_head: b"",
            bare: &bare,
        });
        assert_eq!(risks, [BARE]);
    }
}
