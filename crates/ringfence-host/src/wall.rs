//! The walls of an allowed command: the files that exist for it, its rights to them, and the user that it runs as.
//! Everything is opened here, once; the result is plain data and descriptors.

use crate::{
    directories::{self, Access, Mounted, OpenFile, denied, displayed, invalid},
    files,
    matching::{Allowed, PathUse},
    program::{self, Identity, Resolved},
    rule::{Network, Rules, User, View},
    spec::{Grant, Mount, Source, Spec, Support},
};
use ringfence_jail::{cgroup::Parent, host::UID_BASE};
use ringfence_types::{ErrorCode, RequestError, closed_words};
use std::{
    fs,
    os::fd::{AsFd, BorrowedFd},
    path::{Path, PathBuf},
    time::Duration,
};

/// Trees that every program needs to start, as far as they exist; readable, and only the program itself is executable.
const LIBRARIES: [&str; 9] = [
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/libx32",
    "/usr/share",
    "/usr/local/lib",
    "/usr/local/share",
    "/lib",
    "/lib64",
];
pub(crate) const SYSTEM: [&str; 6] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64"];
const ETC_FILES: [&str; 6] = [
    "/etc/group",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/alternatives",
];
const DEVICES: [&str; 4] = ["/dev/full", "/dev/null", "/dev/urandom", "/dev/zero"];
/// Files of `/proc` that show no process, for a command without its own `/proc`.
const PROC_FILES: [&str; 6] = [
    "/proc/cpuinfo",
    "/proc/filesystems",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/uptime",
];
const OPERANDS_MAX: usize = 16;

/// Circumstances of a call that runs a command.
#[derive(Clone, Debug)]
pub struct CallContext<'a> {
    pub namespace: &'a str,
    /// Directory of the call. `None`: the command starts in `/`, without a right to read it.
    pub directory: Option<&'a Path>,
    pub timeout: Duration,
    pub support: &'a Support,
    pub cgroups: &'a Parent,
}

#[derive(Debug)]
pub struct Command {
    pub program: Resolved,
    pub arguments: Vec<String>,
    /// The effect as lines for a person.
    pub effect: Vec<String>,
    /// Walls that it needs and this host lacks; with any, it is not run without a person's approval.
    pub missing: Vec<Wall>,
    pub deadline: Duration,
    /// Files that it is bound to, each with its digest.
    pub files: Vec<String>,
    /// Words that name these files.
    pub(crate) words: Vec<String>,
    pub(crate) spec: Spec,
    pub(crate) directory: Option<OpenFile>,
    operands: Vec<OpenFile>,
}

closed_words! {
    /// A wall that a host may lack.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Wall {
        /// Limits the command to the files and programs of its rule.
        Landlock = "Landlock",
        /// Give the command its own root, network and processes.
        Namespaces = "namespaces",
    }
}

/// Opens everything that the command needs and plans its walls.
pub fn prepare(rules: &Rules, allowed: &Allowed, context: &CallContext<'_>) -> Result<Command, RequestError> {
    let program = program::resolve(&allowed.program, allowed.interpreter.as_deref())?;
    let directories = &rules.directories.mounted()?;
    let directory = context
        .directory
        .map(|directory| open_directory(directories, context.namespace, directory))
        .transpose()?;
    let operands = operands(directories, allowed, context.namespace)?;
    let mut walls = Walls {
        directories,
        allowed,
        program: &program,
        directory: directory.as_ref(),
        operands: &operands,
        may_write: directory
            .as_ref()
            .is_some_and(|open| may_write(directories, context.namespace, open)),
        mounts: Vec::new(),
        grants: Vec::new(),
        lines: Vec::new(),
    };
    walls.build()?;
    let Walls {
        mounts,
        grants,
        lines,
        ..
    } = walls;
    let deadline = allowed.deadline.min(context.timeout);
    let root = Path::new("/");
    let identity = identity(
        allowed.effect.user,
        operands.first().map(|(open, _)| open).or(directory.as_ref()),
    );
    let mut effect = lines;
    effect.extend(describe_effect(allowed, deadline));
    let arguments = argv(allowed, &program);
    let spec = Spec {
        arguments: arguments.clone(),
        environment: environment(allowed),
        directory: directory.as_ref().map_or(root, |open| &open.path).to_owned(),
        deadline_ms: u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX),
        namespaces: context.support.namespaces.is_ok(),
        network: allowed.effect.network == Network::Host,
        host_view: allowed.effect.view == View::Host,
        landlock: context.support.landlock,
        mounts,
        grants,
        identity,
        executes: !allowed.effect.runs.is_empty(),
        sockets: allowed.effect.socket.is_some(),
        own_proc: allowed.effect.reads.iter().any(|path| path == "/proc"),
        cgroups: context.cgroups.clone(),
    };
    Ok(Command {
        missing: missing(allowed, context.support),
        program,
        arguments,
        effect,
        deadline,
        files: Vec::new(),
        words: Vec::new(),
        spec,
        directory,
        operands: operands.into_iter().map(|(open, _)| open).collect(),
    })
}

impl Command {
    /// Lowers the deadline to `timeout` if that is shorter.
    pub fn shorten(&mut self, timeout: Duration) {
        self.deadline = self.deadline.min(timeout);
        self.spec.deadline_ms = u64::try_from(self.deadline.as_millis()).unwrap_or(u64::MAX);
    }

    /// Returns the path and identity of the call's directory at the time of opening.
    pub fn directory(&self) -> Option<(&Path, Identity)> {
        let open = self.directory.as_ref()?;
        let identity = Identity {
            device: open.stat.st_dev,
            inode: open.stat.st_ino,
        };
        Some((&open.path, identity))
    }

    /// Returns the descriptors in the order of the indexes of [`Source::Descriptor`].
    pub(crate) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let runs = self.program.interpreter.as_deref().unwrap_or(&self.program);
        let mut all = vec![runs.handle.as_fd(), self.program.handle.as_fd()];
        // A call without a directory fills this index too.
        all.push(
            self.directory
                .as_ref()
                .map_or(runs.handle.as_fd(), |open| open.handle.as_fd()),
        );
        all.extend(self.operands.iter().map(|open| open.handle.as_fd()));
        all
    }
}

const RUNS: usize = 0;
const PROGRAM: usize = 1;
const DIRECTORY: usize = 2;
const OPERANDS: usize = 3;

fn open_directory(directories: &Mounted<'_>, namespace: &str, path: &Path) -> Result<OpenFile, RequestError> {
    let found = directories::open(directories, namespace, path, Access::Read)?;
    if let Some(closed) = directories.closed_below(&found, namespace, Access::Read) {
        let what = format!("holds {}, which is not open here", displayed(closed));
        return Err(denied(&found.path, &what, "Name a directory beside it."));
    }
    match found.is_directory() {
        true => Ok(found),
        false => {
            let hint = "Name a directory for the command to work in.";
            Err(invalid(path, "is not a directory", hint))
        }
    }
}

fn may_write(directories: &Mounted<'_>, namespace: &str, open: &OpenFile) -> bool {
    let rule = directories
        .directories
        .rule_for(&open.path, namespace, Access::Write);
    rule.is_some() && directories.closed_below(open, namespace, Access::Write).is_none()
}

/// Opens each operand that is a path, once, by the directory rules.
fn operands(
    directories: &Mounted<'_>,
    allowed: &Allowed,
    namespace: &str,
) -> Result<Vec<(OpenFile, PathUse)>, RequestError> {
    if allowed.paths.len() > OPERANDS_MAX {
        return Err(RequestError::invalid(
            format!("the command has more than {OPERANDS_MAX} paths."),
            "Give it fewer at once.",
        ));
    }
    let open = |(at, wanted): &(usize, PathUse)| {
        let path = Path::new(&allowed.arguments[*at]);
        let access = match wanted {
            PathUse::Read => Access::Read,
            PathUse::List => Access::List,
        };
        let found = directories::open(directories, namespace, path, access)?;
        match (wanted, found.is_directory()) {
            (PathUse::Read, true) => Err(invalid(path, "is a directory", "Name a file.")),
            (PathUse::Read, false) => {
                files::refuse_key_in(&found)?;
                Ok((found, *wanted))
            }
            (PathUse::List, _) => Ok((found, *wanted)),
        }
    };
    let opened: Vec<(OpenFile, PathUse)> = allowed.paths.iter().map(open).collect::<Result<_, _>>()?;
    let lies_in =
        |one: &OpenFile, other: &OpenFile| one.path != other.path && one.path.starts_with(&other.path);
    let mut all = opened.iter().map(|(open, _)| open);
    match all.find(|one| opened.iter().any(|(other, _)| lies_in(one, other))) {
        None => Ok(opened),
        Some(inner) => {
            let what = "lies in another path of the command";
            Err(invalid(&inner.path, what, "Ask for one of them at a time."))
        }
    }
}

fn argv(allowed: &Allowed, program: &Resolved) -> Vec<String> {
    let path = |path: &Path| path.to_string_lossy().into_owned();
    let mut words = match &program.interpreter {
        // By its path, because interpreters look for their libraries beside it.
        Some(interpreter) => {
            let mut words = vec![path(&interpreter.path)];
            words.extend(allowed.interpreter_words.iter().cloned());
            words.push(path(&program.path));
            words
        }
        None => vec![allowed.program.rsplit('/').next().unwrap_or_default().to_owned()],
    };
    words.extend(allowed.arguments.iter().cloned());
    words
}

/// Returns the environment; nothing of it comes from the server's.
fn environment(allowed: &Allowed) -> Vec<(String, String)> {
    let usual = [
        ("HOME", "/nonexistent"),
        ("LANG", "C.UTF-8"),
        ("LC_ALL", "C.UTF-8"),
        ("PATH", "/usr/local/bin:/usr/bin:/bin"),
        ("TERM", "dumb"),
        ("TZ", ":/etc/localtime"),
    ];
    let usual = usual
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let is_usual = |(name, _): &(String, String)| !allowed.environment.contains_key(name);
    let own = allowed.environment.clone();
    usual.filter(is_usual).chain(own).collect()
}

/// Returns the ids that the command changes to. `None`: it keeps the server's, because the server is not root.
fn identity(user: User, first: Option<&OpenFile>) -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let own = UID_BASE - 1;
    Some(match (user, first) {
        (User::Root, _) => (0, 0),
        (User::Owner, Some(open)) => (open.stat.st_uid, open.stat.st_gid),
        (User::Own | User::Owner, _) => (own, own),
    })
}

fn missing(allowed: &Allowed, support: &Support) -> Vec<Wall> {
    let effect = &allowed.effect;
    let needs = effect.socket.is_some() || !effect.runs.is_empty() || effect.view == View::Host;
    let mut missing = Vec::new();
    if !support.landlock {
        missing.push(Wall::Landlock);
    }
    if support.namespaces.is_err() && needs {
        missing.push(Wall::Namespaces);
    }
    missing
}

fn describe_effect(allowed: &Allowed, deadline: Duration) -> Vec<String> {
    let effect = &allowed.effect;
    let network = match (effect.network, &effect.socket) {
        (Network::Host, _) => "network: the host's".to_owned(),
        (Network::None, Some(socket)) => format!("network: none but the socket {}", socket.display()),
        (Network::None, None) => "network: none".to_owned(),
    };
    let user = match (rustix::process::geteuid().is_root(), effect.user) {
        (false, _) => "the server's user",
        (true, User::Own) => "a user who owns nothing",
        (true, User::Owner) => "the owner of what it looks at, without capabilities",
        (true, User::Root) => "root, without capabilities",
    };
    vec![
        network,
        format!("runs as: {user}"),
        format!(
            "ended after: {} s, with all that it has started",
            deadline.as_secs()
        ),
    ]
}

struct Walls<'a> {
    directories: &'a Mounted<'a>,
    allowed: &'a Allowed,
    program: &'a Resolved,
    directory: Option<&'a OpenFile>,
    operands: &'a [(OpenFile, PathUse)],
    may_write: bool,
    mounts: Vec<Mount>,
    grants: Vec<(Source, Grant)>,
    lines: Vec<String>,
}

impl Walls<'_> {
    fn build(&mut self) -> Result<(), RequestError> {
        for path in SYSTEM {
            self.mount(Source::Path(path.into()), path.into(), Grant::Run);
        }
        for path in LIBRARIES {
            self.grant(path.into(), Grant::View);
        }
        for path in ETC_FILES {
            self.mount(Source::Path(path.into()), path.into(), Grant::View);
            self.grant(path.into(), Grant::View);
        }
        for path in DEVICES {
            self.mount(Source::Path(path.into()), path.into(), Grant::Device);
            self.grant(path.into(), Grant::Device);
        }
        self.programs()?;
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        for word in &self.allowed.effect.reads.clone() {
            reads.push(self.path(word, Grant::View)?);
        }
        for word in &self.allowed.effect.writes.clone() {
            match word.as_str() {
                "directory" if !self.may_write => {}
                word => writes.push(self.path(word, Grant::Keep)?),
            }
        }
        if let Some(socket) = &self.allowed.effect.socket {
            self.mount_and_grant(socket, Grant::Keep);
        }
        let all = |paths: Vec<String>| match paths
            .into_iter()
            .filter(|path| !path.is_empty())
            .collect::<Vec<_>>()
        {
            none if none.is_empty() => "nothing".to_owned(),
            some => some.join(", "),
        };
        let runs = self
            .allowed
            .effect
            .runs
            .iter()
            .map(|path| path.display().to_string());
        self.lines
            .push(format!("reads: {} (and the system's libraries)", all(reads)));
        self.lines.push(format!("writes: {}", all(writes)));
        self.lines.push(format!("starts: {}", all(runs.collect())));
        Ok(())
    }

    /// Adds the program, its interpreter, their loaders, and the programs that it may start.
    fn programs(&mut self) -> Result<(), RequestError> {
        let executed = [
            (Some(self.program), PROGRAM),
            (self.program.interpreter.as_deref(), RUNS),
        ];
        for (program, number) in executed {
            let Some(program) = program else { continue };
            let is_script = number == PROGRAM && self.program.interpreter.is_some();
            let grant = if is_script { Grant::View } else { Grant::Run };
            self.mount(Source::Descriptor(number), program.path.clone(), Grant::Run);
            self.grants.push((Source::Descriptor(number), grant));
            if let Some(loader) = &program.loader {
                self.mount_and_grant(loader, Grant::Run);
            }
        }
        for path in &self.allowed.effect.runs.clone() {
            self.refuse_guarded(path, Access::Read)?;
            self.mount_and_grant(path, Grant::Run);
        }
        Ok(())
    }

    /// Refuses a path of a rule's effect that overlaps the server's own files or settings.
    fn refuse_guarded(&self, path: &Path, access: Access) -> Result<(), RequestError> {
        let Some(guarded) = self.directories.guarded_in(path, access) else {
            return Ok(());
        };
        Err(RequestError::denied(
            format!(
                "the command's rule opens {} to {}, and {} is the server's own.",
                path.display(),
                access.as_str(),
                guarded.display()
            ),
            "Have the operator name narrower paths in the rule's effect.",
        ))
    }

    /// Adds the path that a word of a rule means, and returns its text for a person.
    fn path(&mut self, word: &str, grant: Grant) -> Result<String, RequestError> {
        match word {
            "directory" => {
                let Some(open) = self.directory else {
                    return Ok("no directory, as the call names none".to_owned());
                };
                let path = open.path.clone();
                self.mount(Source::Descriptor(DIRECTORY), path.clone(), grant);
                self.grants.push((Source::Descriptor(DIRECTORY), grant));
                Ok(displayed(&path))
            }
            "operands" => {
                let mut names = Vec::new();
                for (number, (open, wanted)) in self.operands.iter().enumerate() {
                    let grant = match wanted {
                        PathUse::Read => Grant::View,
                        PathUse::List => Grant::List,
                    };
                    let source = Source::Descriptor(OPERANDS + number);
                    self.mounts
                        .push(Mount::new(source.clone(), open.path.clone(), Grant::View));
                    // A file that may only be listed gets no right to be read.
                    if grant == Grant::View || open.is_directory() {
                        self.grants.push((source, grant));
                    }
                    names.push(displayed(&open.path));
                }
                Ok(names.join(", "))
            }
            "/proc" => {
                // The child grants its own /proc, if it has one.
                for path in PROC_FILES {
                    self.grant(path.into(), Grant::View);
                }
                Ok("/proc of its own".to_owned())
            }
            path if path.starts_with('/') => {
                let access = if grant == Grant::Keep {
                    Access::Write
                } else {
                    Access::Read
                };
                self.refuse_guarded(Path::new(path), access)?;
                self.mount_and_grant(Path::new(path), grant);
                Ok(path.to_owned())
            }
            other => Err(RequestError::new(
                ErrorCode::InvalidConfiguration,
                format!("`{other}` is not a path of an effect."),
                "Write `directory`, `operands` or an absolute path.",
            )),
        }
    }

    fn mount_and_grant(&mut self, path: &Path, grant: Grant) {
        self.mount(Source::Path(path.to_owned()), path.to_owned(), grant);
        self.grant(path.to_owned(), grant);
    }

    /// Mounts a path and, if it is or leads through a link, also its canonical path.
    fn mount(&mut self, source: Source, target: PathBuf, grant: Grant) {
        let real = target.canonicalize().ok();
        if let Source::Path(path) = &source
            && !path.exists()
        {
            return;
        }
        if let Some(real) =
            real.filter(|real| *real != target && !SYSTEM.iter().any(|path| target == Path::new(path)))
        {
            self.mounts.push(Mount::new(source.clone(), real, grant));
        }
        self.mounts.push(Mount::new(source, target, grant));
    }

    fn grant(&mut self, path: PathBuf, grant: Grant) {
        if fs::metadata(&path).is_ok() {
            self.grants.push((Source::Path(path), grant));
        }
    }
}
