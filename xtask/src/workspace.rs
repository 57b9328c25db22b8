//! The checkout, its build directory and its files.

use crate::{
    command::{capture, command},
    programs::Tries,
};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Build profile of the product and its tests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Builds quickly, with assertions and overflow checks.
    Dev,
    /// The profile of the shipped binary.
    Release,
}

/// The checkout and cargo's metadata of it.
pub struct Workspace {
    /// Directory of the checkout.
    pub root: PathBuf,
    /// Build directory.
    pub target: PathBuf,
    /// Profile of [`Workspace::tests`] and [`Workspace::binary`].
    pub profile: Profile,
    /// Number of times that a failing test is run.
    pub tries: Tries,
    /// The workspace's packages as `cargo metadata` describes them.
    pub packages: Vec<Value>,
}

/// A text file of the checkout.
#[derive(Clone, Debug)]
pub struct TextFile {
    /// Path relative to the root.
    pub path: String,
    /// Content.
    pub text: String,
}

impl Workspace {
    /// Reads the metadata by `cargo metadata`.
    pub fn open() -> Result<Self, String> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_owned);
        let root = root.ok_or("xtask has no parent directory")?;
        let mut query = cargo(&root);
        query.args(["metadata", "--no-deps", "--format-version", "1"]);
        let metadata: Value =
            serde_json::from_str(&capture(query)?).map_err(|error| format!("cargo metadata: {error}"))?;
        let target = metadata["target_directory"]
            .as_str()
            .map(PathBuf::from)
            .ok_or("cargo metadata: no target")?;
        let packages = metadata["packages"]
            .as_array()
            .cloned()
            .ok_or("cargo metadata: no packages")?;
        Ok(Self {
            root,
            target,
            profile: Profile::Release,
            tries: Tries::Two,
            packages,
        })
    }

    /// Returns a cargo command in the checkout.
    pub fn cargo(&self, arguments: &[&str]) -> Command {
        let mut cargo = cargo(&self.root);
        cargo.args(arguments);
        cargo
    }

    /// Returns `cargo test` with these arguments; see [`Workspace::built`].
    pub fn tests(&self, words: &[&str]) -> Command {
        self.built("test", words)
    }

    /// Returns cargo's `verb` with these arguments, always for the same packages and with the same compiler. Other
    /// packages would change the features of some dependencies, and everything above those would be built again. The
    /// compiler is Clippy's, which also checks its lints; `cargo clippy` would read all dependencies a second time.
    pub fn built(&self, verb: &str, words: &[&str]) -> Command {
        let mut cargo = self.cargo(&[verb, "--workspace", "--locked"]);
        // Beside the cargo that started us, where `cargo clippy` looks for it, too.
        let beside = Path::new(cargo.get_program()).with_file_name("clippy-driver");
        cargo.env("RUSTC_WORKSPACE_WRAPPER", beside);
        if self.profile == Profile::Release {
            cargo.arg("--release");
        }
        cargo.args(words);
        cargo
    }

    /// Returns the paths of all files that git tracks or would add, sorted.
    pub fn paths(&self) -> Result<Vec<String>, String> {
        let mut git = command(
            "git",
            ["ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        );
        git.current_dir(&self.root);
        let mut paths: Vec<String> = capture(git)?.split_terminator('\0').map(str::to_owned).collect();
        paths.sort();
        paths.dedup();
        // A file may be deleted without that being committed.
        paths.retain(|path| self.root.join(path).exists());
        Ok(paths)
    }

    /// Returns every text file of [`Workspace::paths`], in the same order.
    pub fn text_files(&self) -> Result<Vec<TextFile>, String> {
        let read = |path: String| {
            let bytes = fs::read(self.root.join(&path)).ok()?;
            String::from_utf8(bytes).ok().map(|text| TextFile { path, text })
        };
        Ok(self.paths()?.into_iter().filter_map(read).collect())
    }

    /// Returns the path of the product's binary.
    pub fn binary(&self) -> PathBuf {
        self.target.join(match self.profile {
            Profile::Dev => "debug/ringfence",
            Profile::Release => "release/ringfence",
        })
    }

    /// Returns the names of the test programs (files of `tests/`) of all packages.
    pub fn test_programs(&self) -> Vec<String> {
        let targets = self
            .packages
            .iter()
            .flat_map(|package| package["targets"].as_array());
        let is_test = |target: &&Value| {
            target["kind"]
                .as_array()
                .is_some_and(|kinds| kinds.contains(&"test".into()))
        };
        let tests = targets.flatten().filter(is_test);
        tests
            .filter_map(|target| target["name"].as_str().map(str::to_owned))
            .collect()
    }

    /// Returns the machine's target triple, from rustc.
    pub fn host_triple(&self) -> Result<String, String> {
        let mut rustc = command("rustc", ["-vV"]);
        rustc.current_dir(&self.root);
        let output = capture(rustc)?;
        output
            .lines()
            .find_map(|line| line.strip_prefix("host: "))
            .map(str::to_owned)
            .ok_or("rustc does not print its host".to_owned())
    }
}

/// Returns the cargo that started us, in the checkout, without the variables that it set about our own package: these
/// must not reach the builds that we start.
fn cargo(root: &Path) -> Command {
    let mut cargo = command(
        std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()),
        [""; 0],
    );
    for (name, _) in std::env::vars_os() {
        if name
            .to_str()
            .is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
        {
            cargo.env_remove(&name);
        }
    }
    cargo.current_dir(root);
    cargo
}
