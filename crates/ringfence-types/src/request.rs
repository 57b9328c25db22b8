//! A request as the engine takes it: parsed by a front end, each part checked, without a decision of the policy.

use crate::{
    AllowedDomains, Argument, Backend, EnvName, EnvValue, IMPORTS_MAX, Language, LimitsRequest, ModuleName,
    Namespace, Profile, RequestError, Requirement, ScriptName, SessionId, Validate, WorkspacePath,
    WorkspaceSource, closed_words, session,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum length of the code, in bytes.
pub const CODE_BYTES_MAX: usize = 1 << 20;
/// Maximum number of input files of one request.
pub const FILES_MAX: usize = 1000;
/// Maximum size of all input files together, in bytes.
pub const FILES_BYTES_MAX: usize = 64 << 20;
/// Maximum length of standard input in a request, in bytes (a stream has no such limit).
pub const STDIN_BYTES_MAX: usize = 64 << 20;
const ARGUMENTS_MAX: usize = 1000;
const ENV_MAX: usize = 2000;
const SECRETS_MAX: usize = 1000;

/// A caller's request to run code. Construct with [`ExecuteRequest::new`] and fill in.
#[derive(Clone, Debug)]
pub struct ExecuteRequest {
    /// The program text.
    pub code: String,
    /// Its language.
    pub language: Language,
    /// Its name in tracebacks; if absent, `main.py` or that of the language.
    pub name: Option<ScriptName>,
    /// Tenant.
    pub namespace: Namespace,
    /// Arguments after the program's name.
    pub args: Vec<Argument>,
    /// Added to the environment, which is otherwise built from nothing.
    pub env: BTreeMap<EnvName, EnvValue>,
    /// Standard input, if the front end does not stream it.
    pub stdin: Vec<u8>,
    /// Written into the workspace before the program starts.
    pub files: Vec<InputFile>,
    /// Requested limits; the policy lowers them to its caps.
    pub limits: LimitsRequest,
    /// False: stdout and stderr are drained and counted, not kept.
    pub capture_output: bool,
    /// The directory behind `/workspace`.
    pub workspace: WorkspaceSource,
    /// Secrets of the namespace that the program gets as environment variables.
    pub secrets: BTreeSet<EnvName>,
    /// Session in which it runs; none: a sandbox of its own.
    pub session: Option<SessionId>,
    /// Packages that the program imports; see [`crate::requirements`].
    pub packages: BTreeSet<Requirement>,
    /// Hosts that it may reach.
    pub allowed_domains: AllowedDomains,
    /// Priority in the queue.
    pub priority: Option<Priority>,
    /// Check of the code before it runs.
    pub validate: Validate,
    /// Profile of the imports and rules for Python code; none: the operator's choice.
    pub profile: Option<Profile>,
    /// Modules that Python may import in addition to those of the profile.
    pub allowed_imports: Option<BTreeSet<ModuleName>>,
    /// Backend of its sandbox; none: the operator's choice.
    pub backend: Option<Backend>,
}

/// Relative share of a queue: high four, normal two, low one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// Half as often as normal.
    Low,
    /// The default.
    Normal,
    /// Twice as often as normal.
    High,
}

closed_words!(Priority: Low = "low", Normal = "normal", High = "high");

/// One file to write into the workspace.
#[derive(Clone, Debug)]
pub struct InputFile {
    /// Path below the workspace.
    pub path: WorkspacePath,
    /// Content.
    pub bytes: Vec<u8>,
}

impl ExecuteRequest {
    /// Creates a request with only code.
    pub fn new(language: Language, code: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            language,
            name: None,
            namespace: Namespace::default_name(),
            args: Vec::new(),
            env: BTreeMap::new(),
            stdin: Vec::new(),
            files: Vec::new(),
            limits: LimitsRequest::default(),
            capture_output: true,
            workspace: WorkspaceSource::Private,
            secrets: BTreeSet::new(),
            session: None,
            packages: BTreeSet::new(),
            allowed_domains: AllowedDomains::Granted,
            priority: None,
            validate: Validate::Off,
            profile: None,
            allowed_imports: None,
            backend: None,
        }
    }

    /// Creates a request for a Python program.
    pub fn python(code: impl Into<String>) -> Self {
        Self::new(Language::Python, code)
    }

    /// Creates a request for a JavaScript program for Node.js.
    pub fn node(code: impl Into<String>) -> Self {
        Self::new(Language::Node, code)
    }

    /// Creates a request for a TypeScript program for Node.js.
    pub fn typescript(code: impl Into<String>) -> Self {
        Self::new(Language::Typescript, code)
    }

    /// Creates a request for a bash script.
    pub fn shell(code: impl Into<String>) -> Self {
        Self::new(Language::Shell, code)
    }

    /// Checks that each file is given once, and that no file is also a directory of another.
    fn check_paths(&self) -> Result<(), RequestError> {
        let mut paths: Vec<&WorkspacePath> = self.files.iter().map(|file| &file.path).collect();
        paths.sort();
        if let Some(pair) = paths.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(RequestError::invalid(
                format!("the file {:?} is given twice.", pair[0].as_str()),
                "Name each path once.",
            ));
        }
        let paths: BTreeSet<&str> = self.files.iter().map(|file| file.path.as_str()).collect();
        for path in &paths {
            let mut above = path.match_indices('/').map(|(at, _)| &path[..at]);
            if let Some(file) = above.find(|above| paths.contains(above)) {
                return Err(RequestError::invalid(
                    format!("the file `{file}` cannot also be the directory of `{path}`."),
                    "Rename one of them.",
                ));
            }
        }
        Ok(())
    }

    /// Refuses arguments that were set when the session was created.
    fn check_in_session(&self) -> Result<(), RequestError> {
        let limits = &self.limits;
        let given = [
            ("secrets", !self.secrets.is_empty()),
            ("workspace", self.workspace != WorkspaceSource::Private),
            ("max_ram_mb", limits.max_ram_mb.is_some()),
            ("max_processes", limits.max_processes.is_some()),
            ("max_disk_mb", limits.max_disk_mb.is_some()),
        ];
        match given.into_iter().find(|(_, is_given)| *is_given) {
            Some((name, _)) => Err(session::set_at_creation(name)),
            None => Ok(()),
        }
    }

    fn check_names(&self) -> Result<(), RequestError> {
        if self.secrets.len() > SECRETS_MAX {
            return Err(RequestError::invalid(
                "there are more than 1000 secrets.",
                "Ask for those that the program needs.",
            ));
        }
        if let Some(name) = self.secrets.iter().find(|name| self.env.contains_key(name)) {
            return Err(RequestError::invalid(
                format!(
                    "`{}` is given in `env` and requested in `secrets`.",
                    name.as_str()
                ),
                "Leave it out of one of them.",
            ));
        }
        let modules = self.allowed_imports.as_ref();
        if modules.is_some_and(|modules| modules.len() > IMPORTS_MAX) {
            return Err(RequestError::invalid(
                "there are more than 1000 modules in allowed_imports.",
                "Name packages; their modules are included.",
            ));
        }
        Ok(())
    }

    /// Checks sizes, counts and combinations, which no single field can.
    pub fn check(&self) -> Result<(), RequestError> {
        let refuse = |message: &str, hint: &str| Err(RequestError::invalid(message, hint));
        if self.code.trim().is_empty() {
            return refuse("the code is empty.", "Send the program text in `code`.");
        }
        if self.code.len() > CODE_BYTES_MAX {
            return refuse(
                "the code is longer than 1 MiB.",
                "Send large data as `files`, and keep the code small.",
            );
        }
        if self.code.contains('\0') {
            return refuse(
                "the code holds a NUL byte.",
                "Send text; put binary data into `files` as base64.",
            );
        }
        if self.files.len() > FILES_MAX {
            return refuse(
                "there are more than 1000 files.",
                "Send an archive and unpack it inside.",
            );
        }
        if self.files.iter().map(|file| file.bytes.len()).sum::<usize>() > FILES_BYTES_MAX {
            return refuse(
                "the files are larger than 64 MiB together.",
                "Mount a workspace for data of this size.",
            );
        }
        self.check_paths()?;
        if self.stdin.len() > STDIN_BYTES_MAX {
            return refuse("stdin is larger than 64 MiB.", "Send it as a file.");
        }
        if self.args.len() > ARGUMENTS_MAX
            || self.args.iter().map(|a| a.as_str().len()).sum::<usize>() > 1 << 20
        {
            return refuse(
                "there are more than 1000 arguments or 1 MiB of them.",
                "Send them as a file.",
            );
        }
        let env_bytes: usize = self
            .env
            .iter()
            .map(|(name, value)| name.as_str().len() + value.as_str().len())
            .sum();
        if self.env.len() > ENV_MAX || env_bytes > 1 << 20 {
            return refuse(
                "there are more than 2000 variables or 1 MiB of them.",
                "Send them as a file.",
            );
        }
        self.check_names()?;
        self.allowed_domains.check()?;
        if self.session.is_some() {
            self.check_in_session()?;
        }
        Ok(())
    }
}
