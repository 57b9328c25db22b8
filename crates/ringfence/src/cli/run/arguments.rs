//! Arguments of `run`, and the request made from them: the script's text and language, and what it may use.

use crate::cli::{
    commit::CommitChoice,
    request::{self, SandboxFlags},
};
use clap::Args;
use ringfence_engine::Conflicts;
use ringfence_types::{
    AllowedDomains, ExecuteRequest, Language, ModuleName, Profile, RequestError, SessionId, Validate,
};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(in crate::cli) struct RunArguments {
    /// Script to run, or `-` for standard input
    pub(in crate::cli) script: PathBuf,
    /// Language: python, node, typescript or shell [default: from the file's extension, else its first line]
    #[arg(short, long, value_name = "NAME")]
    pub(super) language: Option<Language>,
    #[command(flatten)]
    pub(in crate::cli) sandbox: SandboxFlags,
    /// Backend that makes the sandbox
    #[arg(long, value_name = "NAME")]
    pub(super) backend: Option<String>,
    /// Check the script first: warn reports findings and refuses what the profile forbids, fix also adds missing
    /// imports, and strict refuses warnings
    #[arg(long, value_name = "off|warn|fix|strict", default_value = "off")]
    pub(super) validate: Validate,
    /// Profile for Python, which sets its allowed imports and rules: unrestricted, basic, data_science, network,
    /// filesystem or strict
    #[arg(long, value_name = "NAME")]
    pub(super) profile: Option<Profile>,
    /// Module that Python may import besides those of the profile; with `unrestricted`, only these
    #[arg(long, value_name = "MODULE")]
    pub(super) allow_import: Vec<ModuleName>,
    /// Session of a running server to run in, instead of a new sandbox; standard input that is not a terminal is first
    /// read to its end
    #[arg(long, value_name = "ID", conflicts_with_all = ["allow", "language", "workspace", "artifacts", "memory", "cpus", "processes", "disk", "env", "secret", "backend", "package", "commit", "discard", "validate", "profile", "allow_import"])]
    pub(super) session: Option<SessionId>,
    /// Directory of the host to work in: read-only, read-write, or with changes kept apart until they are committed; or
    /// `namespace`, the namespace's own workspace; or a name of `workspaces` in the configuration
    #[arg(long, value_name = "DIR:ro|rw|overlay")]
    pub(super) workspace: Option<String>,
    /// Write what the script changed in DIR:overlay to the directory, if it succeeds, without asking
    #[arg(long, conflicts_with = "discard")]
    pub(super) commit: bool,
    /// With --commit: also overwrite what the host has changed in the directory meanwhile
    #[arg(long, requires = "commit")]
    pub(super) overwrite: bool,
    /// Show what the script changed in DIR:overlay, and discard it without asking
    #[arg(long)]
    pub(super) discard: bool,
    /// Print one JSON document with everything about the run, instead of streaming its output
    #[arg(long)]
    pub(in crate::cli) json: bool,
    /// With --json: also the state of each layer of isolation
    #[arg(long, requires = "json")]
    pub(super) verbose: bool,
    /// Copy the files that the script leaves into this directory
    #[arg(long, value_name = "DIR")]
    pub(super) artifacts: Option<PathBuf>,
    /// Pass control characters of the output through to a terminal
    #[arg(long)]
    pub(in crate::cli) raw: bool,
    /// The script's own arguments
    #[arg(last = true, value_name = "ARGS")]
    pub(in crate::cli) args: Vec<String>,
}

impl RunArguments {
    pub(super) fn choice(&self) -> Option<CommitChoice> {
        let discard = self.discard.then_some(CommitChoice::Discard);
        let conflicts = if self.overwrite {
            Conflicts::Overwrite
        } else {
            Conflicts::Refuse
        };
        self.commit.then_some(CommitChoice::Commit(conflicts)).or(discard)
    }

    pub(super) fn request(&self) -> Result<ExecuteRequest, RequestError> {
        let code = request::read_script(&self.script)?;
        let language = request::language(self.language, &self.script, &code)?;
        let mut built = ExecuteRequest::new(language, code);
        built.name = request::script_name(&self.script);
        built.args = request::arguments(&self.args)?;
        built.env = self.sandbox.variables()?;
        built.secrets = self.sandbox.secrets()?;
        built.packages = ringfence_types::requirements(language, &self.sandbox.package)?;
        built.limits = self.sandbox.limits();
        built.validate = self.validate;
        built.profile = self.profile;
        built.allowed_imports = request::modules(&self.allow_import);
        if !self.sandbox.allow.is_empty() {
            built.allowed_domains = AllowedDomains::Operator(self.sandbox.allow.iter().cloned().collect());
        }
        if let Some(workspace) = &self.workspace {
            built.workspace = request::workspace_of(workspace)?;
        }
        Ok(built)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use ringfence_types::{Argument, ErrorCode};
    use std::fs;

    struct Script(PathBuf);

    impl Script {
        fn new(name: &str, code: &[u8]) -> Self {
            let directory =
                std::env::temp_dir().join(format!("ringfence-request-{name}-{}", std::process::id()));
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join(name), code).unwrap();
            Self(directory.join(name))
        }

        fn request(&self, flags: &[&str]) -> Result<ExecuteRequest, RequestError> {
            let words = ["ringfence", "run"]
                .into_iter()
                .chain([self.0.to_str().unwrap()])
                .chain(flags.iter().copied());
            let parsed = crate::cli::Cli::try_parse_from(words);
            match parsed.map_err(|error| crate::cli::usage_error(&error))?.command {
                crate::cli::Command::Run(arguments) => arguments.request(),
                _ => unreachable!("the words say run"),
            }
        }
    }

    impl Drop for Script {
        fn drop(&mut self) {
            fs::remove_dir_all(self.0.parent().unwrap()).unwrap();
        }
    }

    #[test]
    fn language_comes_from_flag_then_extension_then_shebang() {
        let check = |name: &str, code: &str, flags: &[&str], expect: Option<Language>| {
            assert_eq!(
                Script::new(name, code.as_bytes())
                    .request(flags)
                    .ok()
                    .map(|r| r.language),
                expect,
                "{name}"
            );
        };
        check("a.py", "1", &[], Some(Language::Python));
        check("a.ts", "1", &[], Some(Language::Typescript));
        check("a.py", "1", &["-l", "bash"], Some(Language::Shell));
        check("plain", "#!/usr/bin/env node\n1", &[], Some(Language::Node));
        check("plain2", "1", &[], None);
        check("b.py", "1", &["-l", "perl"], None);
    }

    #[test]
    fn allow_flags_become_operator_domains() {
        let script = Script::new("c.py", b"1");
        let domains = |flags: &[&str]| script.request(flags).unwrap().allowed_domains;
        assert_eq!(domains(&[]), AllowedDomains::Granted);
        let hosts = ["GET b.test/x".to_owned(), "a.test".to_owned()];
        let named = domains(&["--allow", "a.test", "--allow", "GET b.test/x"]);
        assert_eq!(named, AllowedDomains::Operator(hosts.into()));
    }

    #[test]
    fn limits_env_and_arguments_are_parsed() {
        let flags = [
            "--memory",
            "1g",
            "--cpus",
            "0.5",
            "--timeout",
            "1.5",
            "--disk",
            "5m",
            "--processes",
            "9",
        ];
        let rest = ["--env", "A=b=c", "--", "-x", "--memory"];
        let request = Script::new("d.py", b"1")
            .request(&[flags.as_slice(), &rest].concat())
            .unwrap();
        let limits = &request.limits;
        assert_eq!(
            (limits.max_ram_mb, limits.max_cpu_cores, limits.timeout_ms),
            (Some(1024), Some(0.5), Some(1500))
        );
        assert_eq!((limits.max_disk_mb, limits.max_processes), (Some(5), Some(9)));
        assert_eq!(
            request.args.iter().map(Argument::as_str).collect::<Vec<_>>(),
            ["-x", "--memory"]
        );
        assert_eq!(request.env.values().next().unwrap().as_str(), "b=c");
        assert_eq!(request.name.unwrap().as_str(), "d.py");
    }

    #[test]
    fn invalid_flag_values_are_rejected() {
        let script = Script::new("e.py", b"1");
        let check = |flags: &[&str]| {
            let error = script.request(flags).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidArgument, "{flags:?}");
            assert!(!error.message.contains("hunter2"), "{error}");
        };
        check(&["--timeout", "nan"]);
        check(&["--timeout", "0"]);
        check(&["--timeout=-1"]);
        check(&["--memory", "lots"]);
        check(&["--env", "NOEQUALS"]);
        check(&["--env", "1X=hunter2"]);
        check(&["--env", "A=1", "--env", "A=2"]);
        check(&["--secret", "A=hunter2"]);
        check(&["--workspace", "/tmp"]);
        check(&["--workspace", "/nonexistent:ro"]);
        check(&["--workspace", "/etc/passwd:ro"]);
    }

    #[test]
    fn missing_or_non_utf8_script_is_rejected() {
        let script = Script::new("f.py", b"\xff");
        assert!(script.request(&[]).unwrap_err().message.contains("UTF-8"));
        fs::remove_file(&script.0).unwrap();
        assert!(script.request(&[]).unwrap_err().message.contains("cannot read"));
    }
}
