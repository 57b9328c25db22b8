//! Risks of changes that the host may later run unintentionally: hooks, build files, settings of tools. Advice for the
//! review of changes from a sandbox, not a wall: no list has the files that are run on purpose.

mod table;

use super::{EntryKind, Node};
use serde::Serialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Component, Path, PathBuf},
};
use table::RULES;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Risk {
    /// Stable identifier, for rules and counts.
    pub rule: &'static str,
    pub what: &'static str,
}

const fn risk(rule: &'static str, what: &'static str) -> Risk {
    Risk { rule, what }
}

const EXECUTABLE: Risk = risk("executable", "It can be run as a program.");
const PROGRAM: Risk = risk("program", "Its content is a program or a script for one.");
const SET_ID: Risk = risk(
    "set-id",
    "It asks to run as its owner or group; the bits are dropped at a commit.",
);
const OUTSIDE: Risk = risk("link.outside", "The link points outside the workspace, or may.");
const SPECIAL: Risk = risk(
    "special",
    "It is not a file, directory or link, or it has a second hard link; it is not committed.",
);
const BARE: Risk = risk(
    "git.bare",
    "It belongs to a bare Git repository, whose settings and hooks Git obeys from any directory inside.",
);

pub(super) struct Facts<'a> {
    pub path: &'a Path,
    pub old: Option<&'a Node>,
    pub new: Option<&'a Node>,
    /// The first bytes of the new content, also of a long one.
    pub new_head: &'a [u8],
    pub bare: &'a BTreeSet<PathBuf>,
}

/// Returns the risks of a change, sorted, each rule once.
pub(super) fn of(facts: &Facts<'_>) -> Vec<Risk> {
    let names = folded_names(facts.path);
    let mut sides = [facts.old, facts.new].into_iter().flatten();
    let is_directory = sides.all(|node| node.kind == EntryKind::Directory);
    let mut risks: BTreeSet<Risk> = RULES
        .iter()
        .filter(|rule| match is_directory {
            true => rule.place.applies_to_directory(&names),
            false => rule.place.applies_to(&names),
        })
        .map(|found| risk(&found.rule, &found.sentence))
        .collect();
    if facts.path.ancestors().any(|above| facts.bare.contains(above)) {
        risks.insert(BARE);
    }
    if let Some(new) = facts.new {
        risks.extend(of_new(facts, new));
    }
    // Several sentences may belong to one rule; the first is enough.
    let mut seen = BTreeSet::new();
    risks.into_iter().filter(|risk| seen.insert(risk.rule)).collect()
}

fn of_new(facts: &Facts<'_>, new: &Node) -> Vec<Risk> {
    let mut risks = Vec::new();
    let content = |node: Option<&Node>| node.and_then(|node| node.sha256);
    let was = |mask: u32| {
        let old = facts.old.filter(|old| old.kind == new.kind);
        old.is_some_and(|old| old.mode & mask != 0)
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
        EntryKind::Link(target) if may_point_outside(facts.path, target) => risks.push(OUTSIDE),
        EntryKind::Link(_) | EntryKind::Directory => {}
        EntryKind::Whiteout | EntryKind::Other => risks.push(SPECIAL),
    }
    if new.mode & 0o6000 != 0 && !matches!(new.kind, EntryKind::Link(_)) {
        risks.push(SET_ID);
    }
    risks
}

/// Folds the names of a path as the most lenient file systems do: ignores case and the characters that HFS+ ignores,
/// and drops what NTFS drops at the end of a name or reads as a stream.
fn folded_names(path: &Path) -> Vec<String> {
    let parts = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_string_lossy()),
        _ => None,
    });
    parts.map(|name| folded_name(&name)).collect()
}

fn folded_name(name: &str) -> String {
    let ignored = |c: &char| matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}');
    let shown: String = name.chars().filter(|c| !ignored(c)).collect();
    let folded = shown.to_lowercase().replace('\u{17f}', "s");
    let base = folded.split(':').next().unwrap_or_default();
    match base.trim_end_matches(['.', ' ']) {
        "git~1" => ".git".to_owned(),
        plain => plain.to_owned(),
    }
}

/// Returns the directories that Git accepts as bare repositories, or could with a few more files. The half with `HEAD`
/// can be in one directory and the half with `objects` and `refs` in another, named by its `commondir`.
pub(super) fn bare_repositories(nodes: &BTreeMap<PathBuf, Node>) -> BTreeSet<PathBuf> {
    const PARTS: [&str; 7] = [
        "head",
        "config",
        "config.worktree",
        "commondir",
        "objects",
        "refs",
        "hooks",
    ];
    let mut found: BTreeMap<&Path, BTreeSet<&str>> = BTreeMap::new();
    for path in nodes.keys() {
        let Some(name) = path.file_name() else { continue };
        let name = folded_name(&name.to_string_lossy());
        if let Some(part) = PARTS.into_iter().find(|part| *part == name) {
            let directory = path.parent().unwrap_or(Path::new(""));
            found.entry(directory).or_default().insert(part);
        }
    }
    let is_half = |parts: &BTreeSet<&str>| {
        (parts.contains("head") && parts.len() > 1) || (parts.contains("objects") && parts.contains("refs"))
    };
    let halves = found.into_iter().filter(|(_, parts)| is_half(parts));
    halves.map(|(path, _)| path.to_owned()).collect()
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

/// True if a link at `path` may point outside the workspace: `..` after a name leads anywhere if that is a link itself.
fn may_point_outside(path: &Path, target: &Path) -> bool {
    let names = |part: &Component<'_>| matches!(part, Component::Normal(_));
    let is_up = |part: &Component<'_>| *part == Component::ParentDir;
    let up = target.components().filter(is_up).count();
    let mut named = target.components().skip_while(|part| !names(part));
    let up_later = named.any(|part| is_up(&part));
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
            mtime: crate::tree::Timestamp(0, 0),
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
            new_head: new.map_or(&[], |(_, text)| text.as_bytes()),
            bare: &BTreeSet::new(),
        });
        risks.iter().map(|risk| risk.rule).collect()
    }

    #[test]
    fn files_that_host_may_run_are_flagged_by_path() {
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
            ("web/package.json", &["node.scripts"]),
            ("node_modules/.bin/tsc", &["node.modules"]),
            (
                "lib/python3/site-packages/x.pth",
                &["python.modules", "python.start"],
            ),
            ("sitecustomize.py", &["python.start"]),
            ("usercustomize.py", &["python.start"]),
            ("venv/pyvenv.cfg", &["python.modules", "python.start"]),
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

    #[rustfmt::skip]
    const KNOWN: &[(&str, &[&str])] = &[
        ("python.compiled", &["pkg/__pycache__/mod.cpython-312.pyc", "lib/mod.PYO", "__pycache__/notes.txt"]),
        ("compiled", &["ext.cpython-312-x86_64-linux-gnu.so", "a.pyd", "build2/addon.node", "lib.dylib", "x.DLL",
            "app.jar", "m.wasm", "shell/rc.zwc"]),
        ("git.bare", &["docs/commondir", "docs/config.worktree", "docs/GitDir"]),
        ("git.hooks", &[".lintstagedrc.json", "lefthook.toml", ".lefthook/pre-push/x", "commitlint.config.json"]),
        ("vcs.directory", &[".hg/hgrc", ".jj/repo/config.toml", ".svn/wc.db"]),
        ("python.modules", &["lib/site-packages/numpy/core.py", "dist-packages/x", ".venv/bin/activate",
            "x.dist-info/entry_points.txt", "random.py", "Email/__init__.py"]),
        ("python.tests", &["pytest.ini", ".pytest.ini", "pytest.toml", "tox.ini", "noxfile.py", ".coveragerc"]),
        ("python.settings", &[".pylintrc", "mypy.ini", ".mypy.ini", ".flake8"]),
        ("python.build", &["Pipfile", "setup.cfg"]),
        ("python.tasks", &["tasks.py", "fabfile.py"]),
        ("interpreter.start", &[".pdbrc", "ipython_config.py", ".gdbinit", ".lldbinit", ".Rprofile", ".irbrc",
            ".pryrc", ".rspec", ".ghci", ".iex.exs", "latexmkrc", ".latexmkrc", "program-gdb.py"]),
        ("node.modules", &[".pnp.cjs", ".pnp.loader.mjs"]),
        ("node.settings", &[".yarnrc.yml", "deno.json", "deno.jsonc", "pnpm-workspace.yaml"]),
        ("tool.settings", &[".mocharc.yml", "karma.conf.js", ".stylelintrc.json", "nodemon.json",
            ".storybook/main.ts", "turbo.json", ".babelrc.json", "anything.config.mjs", "babel.config.json"]),
        ("build", &[".mvn/jvm.config", "buildSrc/x.kt", "app.gradle", "x.gradle.kts",
            "gradle/wrapper/gradle-wrapper.properties", "WORKSPACE", "BUILD", "pkg/BUILD.bazel", "MODULE.bazel",
            "tools/bazel", "Tiltfile", "Snakefile", "mix.exs", "Package.swift", "Directory.Build.props", "x.csproj",
            "x.targets", "main.tf", "Rakefile", "Gemfile", "x.gemspec", "Taskfile.yaml", "CMakeLists.txt",
            "x.cmake", "meson.build", "ansible.cfg", "PKGBUILD", "debian/rules", "Jakefile", "go.mod", "net/main.tf.json",
            "wrangler.toml", ".rubocop.yml"]),
        ("rust.build", &[".cargo/bin/x", "rust-toolchain.toml"]),
        ("container", &["web.dockerfile"]),
        ("shell.directory", &[".mise.toml", "mise.local.toml", ".mise/config.toml", ".tool-versions",
            ".direnv/bin/x"]),
        ("environment", &[".env", ".env.local"]),
        ("editor", &[".emacs", ".emacs.d/init.el", ".dir-locals.el", ".vim/x", ".exrc", ".vimrc", ".nvimrc"]),
        ("agent", &[".opencode/agent/x.md", "opencode.json", ".mcp.json", "CLAUDE.md", "AGENTS.md",
            ".gemini/settings.json", ".codex/config.toml", ".aider.conf.yml"]),
        ("ci", &[".github/copilot-instructions.md"]),
    ];

    #[test]
    fn known_run_or_obeyed_names_are_flagged() {
        for (rule, paths) in KNOWN {
            for path in *paths {
                let found = rules(path, None, Some((0o644, "x")));
                assert!(found.contains(rule), "{path}: {found:?}");
            }
        }
        for path in [
            "src/random.py",
            "random/data.csv",
            "src/types.py",
            "environment.md",
            "BUILD.md",
            "notes.so.md",
            "props.txt",
            "docs/header",
            "config.js",
            "tasks.rs",
            "site.py.md",
        ] {
            let found = rules(path, None, Some((0o644, "x")));
            assert!(found.is_empty(), "the control: {path}: {found:?}");
        }
    }

    #[test]
    fn directory_is_not_flagged_by_rules_for_files() {
        let directory = node(EntryKind::Directory, 0o755);
        let file = node(EntryKind::File, 0o644);
        let with = |path: &str, old: Option<&Node>| {
            let risks = of(&Facts {
                path: Path::new(path),
                old,
                new: Some(&directory),
                new_head: &[],
                bare: &BTreeSet::new(),
            });
            risks.iter().map(|risk| risk.rule).collect::<Vec<_>>()
        };
        assert!(with("build", None).is_empty());
        assert_eq!(with("build", Some(&file)), ["build"]);
        assert_eq!(with("a/.git", None), ["git.directory"]);
    }

    #[test]
    fn programs_are_flagged_by_mode_and_content() {
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
    fn outside_symlinks_and_special_files_are_flagged() {
        let with = |kind: EntryKind| {
            let risks = of(&Facts {
                path: Path::new("a/b"),
                old: None,
                new: Some(&node(kind, 0o777)),
                new_head: &[],
                bare: &BTreeSet::new(),
            });
            risks.iter().map(|risk| risk.rule).collect::<Vec<_>>()
        };
        let link = |target: &str| with(EntryKind::Link(target.into()));
        assert!(link("../c").is_empty());
        assert!(link("./c/d").is_empty());
        // `c` may be a symbolic link to `.`.
        assert_eq!(link("c/../../d"), ["link.outside"]);
        assert_eq!(link("../../c"), ["link.outside"]);
        assert_eq!(link("c/../../../d/e"), ["link.outside"]);
        assert_eq!(link("/etc/passwd"), ["link.outside"]);
        assert_eq!(with(EntryKind::Other), ["special"]);
    }

    #[test]
    fn bare_repository_is_recognized_by_its_files() {
        let paths = [
            "x/HEAD",
            "x/objects",
            "x/Refs",
            "y/HEAD",
            "y/commondir",
            "z/refs",
            "z/config",
            "HEAD",
            "w/objects",
            "w/refs",
        ];
        let nodes = paths.map(|path| (PathBuf::from(path), node(EntryKind::File, 0o644)));
        let bare = bare_repositories(&nodes.into());
        assert_eq!(bare, BTreeSet::from(["w", "x", "y"].map(PathBuf::from)));
        let risks = of(&Facts {
            path: Path::new("x/config"),
            old: None,
            new: Some(&node(EntryKind::File, 0o644)),
            new_head: b"",
            bare: &bare,
        });
        assert_eq!(risks, [BARE]);
    }
}
