//! A request as the engine takes it: parsed by a front end, each part checked, nothing decided yet.

use crate::{
    AllowedDomains, Argument, Backend, EnvName, EnvValue, IMPORTS_MAX, Language, LimitsRequest, ModuleName,
    Namespace, Profile, RequestError, Requirement, ScriptName, SessionId, Validate, WorkspacePath,
    WorkspaceSource, closed_words, session,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The longest code, in bytes.
pub const CODE_BYTES_MAX: usize = 1 << 20;
/// The most input files of one request.
pub const FILES_MAX: usize = 1000;
/// All input files together, in bytes.
pub const FILES_BYTES_MAX: usize = 64 << 20;
/// The longest standard input given with a request (a stream has no such bound), in bytes.
pub const STDIN_BYTES_MAX: usize = 64 << 20;
const ARGUMENTS_MAX: usize = 1000;
const ENV_MAX: usize = 2000;
const SECRETS_MAX: usize = 1000;

/// What a caller wants to run. Construct with [`ExecuteRequest::new`] and fill in.
#[derive(Clone, Debug)]
pub struct ExecuteRequest {
    /// The program text.
    pub code: String,
    /// Its language.
    pub language: Language,
    /// How it is called in tracebacks; `main.py` and the like when absent.
    pub name: Option<ScriptName>,
    /// Tenant.
    pub namespace: Namespace,
    /// Words after the program's name.
    pub args: Vec<Argument>,
    /// Added to the environment, which is otherwise built from nothing.
    pub env: BTreeMap<EnvName, EnvValue>,
    /// Standard input, when the front end does not stream one.
    pub stdin: Vec<u8>,
    /// Written into the workspace before the program starts.
    pub files: Vec<InputFile>,
    /// Wishes; clamped by policy.
    pub limits: LimitsRequest,
    /// False: stdout and stderr are drained and counted, not kept.
    pub capture_output: bool,
    /// Where the program may write.
    pub workspace: WorkspaceSource,
    /// Secrets of the namespace that the program gets as environment variables.
    pub secrets: BTreeSet<EnvName>,
    /// The session in which it runs; none: a sandbox of its own.
    pub session: Option<SessionId>,
    /// Packages that the program imports; see [`crate::requirements`].
    pub packages: BTreeSet<Requirement>,
    /// Which hosts it may reach.
    pub allowed_domains: AllowedDomains,
    /// Whose turn comes sooner when requests wait.
    pub priority: Option<Priority>,
    /// Whether the code is checked before it runs.
    pub validate: Validate,
    /// What Python may import, and by which rules it is read; none: what the operator has chosen.
    pub profile: Option<Profile>,
    /// Modules that Python may import, beside those of the profile.
    pub allowed_imports: Option<BTreeSet<ModuleName>>,
    /// What makes its sandbox; none: what the operator has chosen.
    pub backend: Option<Backend>,
}

/// How often a request's line has its turn: four times, twice, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// Half as often as normal.
    Low,
    /// What is not said otherwise.
    Normal,
    /// Twice as often as normal.
    High,
}

closed_words!(Priority: Low = "low", Normal = "normal", High = "high");

/// One file to write into the workspace.
#[derive(Clone, Debug)]
pub struct InputFile {
    /// Below the workspace.
    pub path: WorkspacePath,
    /// Content.
    pub bytes: Vec<u8>,
}

impl ExecuteRequest {
    /// A request with nothing but code.
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

    /// A Python program.
    pub fn python(code: impl Into<String>) -> Self {
        Self::new(Language::Python, code)
    }

    /// A JavaScript program for Node.js.
    pub fn node(code: impl Into<String>) -> Self {
        Self::new(Language::Node, code)
    }

    /// A TypeScript program for Node.js.
    pub fn typescript(code: impl Into<String>) -> Self {
        Self::new(Language::Typescript, code)
    }

    /// A bash script.
    pub fn shell(code: impl Into<String>) -> Self {
        Self::new(Language::Shell, code)
    }

    /// Each file is named once, and none is also a directory of another.
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

    /// What a session has is decided when it is created.
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
            Some((name, _)) => Err(session::belongs_to_creation(name)),
            None => Ok(()),
        }
    }

    /// Lists of names: of secrets, of modules.
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
                    "`{}` is given in `env` and asked for in `secrets`.",
                    name.as_str()
                ),
                "Leave it out of one of them.",
            ));
        }
        let modules = self.allowed_imports.as_ref();
        if modules.is_some_and(|modules| modules.len() > IMPORTS_MAX) {
            return Err(RequestError::invalid(
                "there are more than 1000 modules in allowed_imports.",
                "Name packages; what lies below them comes with them.",
            ));
        }
        Ok(())
    }

    /// Checks what no single field can: sizes and counts.
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
