//! What is looked for in shell scripts.

use crate::rule::{Rule, rule};
use ringfence_types::Severity::{Error, Info, Warning};

pub(super) const SYNTAX: Rule = rule(
    "shell.syntax",
    Error,
    "the script is broken",
    "bash would refuse the script",
    "Close what is opened: quotes, `if` with `fi`, `do` with `done`, `case` with `esac`, brackets.",
);
pub(super) const UNPARSED: Rule = rule(
    "shell.unparsed",
    Warning,
    "a part that could not be read",
    "no rule has seen what stands there; bash will judge it",
    "Write it more plainly.",
);
pub(super) const REMOVE_ROOT: Rule = rule(
    "shell.remove_root",
    Error,
    "removal of the system, of all homes or of what is above the workspace",
    "it destroys what does not belong to the script",
    "Remove files by a path below the working directory.",
);
pub(super) const FILE_DELETION: Rule = rule(
    "shell.file_deletion",
    Info,
    "files are removed",
    "",
    "Check that the path is what you mean it to be.",
);
pub(super) const DEVICE_WRITE: Rule = rule(
    "shell.device_write",
    Error,
    "writing to a disk or to memory",
    "it overwrites file systems from below",
    "Write to an ordinary file.",
);
pub(super) const FORMAT_DEVICE: Rule = rule(
    "shell.format_device",
    Error,
    "making or wiping a file system",
    "everything on it is lost",
    "Work on an ordinary file.",
);
pub(super) const FORK_BOMB: Rule = rule(
    "shell.fork_bomb",
    Error,
    "a program that only starts itself",
    "it fills the table of processes",
    "Start a known number of processes.",
);
pub(super) const DOWNLOAD_AND_RUN: Rule = rule(
    "shell.download_and_run",
    Warning,
    "what was downloaded is run",
    "whoever answers decides what runs",
    "Download to a file, check it against a known hash, then run it.",
);
pub(super) const ENCODED_RUN: Rule = rule(
    "shell.encoded_run",
    Warning,
    "what was decoded is run",
    "encoding hides what runs from whoever reads the script",
    "Write the commands out.",
);
pub(super) const REVERSE_SHELL: Rule = rule(
    "shell.reverse_shell",
    Error,
    "a shell that is driven over the network",
    "it hands the machine to somebody else",
    "Run the commands that are needed.",
);
pub(super) const PERMISSIONS: Rule = rule(
    "shell.permissions",
    Warning,
    "rights are given to everybody, or to whoever runs a file",
    "others can change or misuse the files",
    "Give the narrowest rights that work, as 755 or 644.",
);
pub(super) const SCHEDULE: Rule = rule(
    "shell.schedule",
    Warning,
    "work for later",
    "it goes on after the script has ended, or ends what others have planned",
    "Do the work in the script.",
);
pub(super) const KILL_ALL: Rule = rule(
    "shell.kill_all",
    Error,
    "every process is ended",
    "it ends what does not belong to the script",
    "End processes by the id that `$!` told.",
);
pub(super) const KILL_BY_NAME: Rule = rule(
    "shell.kill_by_name",
    Warning,
    "processes are ended by name",
    "others may have the same name",
    "End processes by the id that `$!` told.",
);
pub(super) const POWER: Rule = rule(
    "shell.power",
    Warning,
    "the machine is stopped",
    "it ends the work of everybody",
    "Leave the machine running.",
);
pub(super) const HISTORY: Rule = rule(
    "shell.history",
    Warning,
    "traces are removed",
    "what happened can no longer be looked at",
    "Leave histories and logs as they are.",
);
pub(super) const STARTUP_FILES: Rule = rule(
    "shell.startup_files",
    Warning,
    "files are changed that decide who gets in, or what runs at every login",
    "it stays after the script has ended",
    "Set what is needed in the script itself.",
);
pub(super) const CREDENTIAL_PATH: Rule = rule(
    "shell.credential_path",
    Warning,
    "keys or passwords are read",
    "they let their reader in elsewhere",
    "Take what is needed from the request, or from the environment that the operator gives.",
);
pub(super) const EXFILTRATION: Rule = rule(
    "shell.exfiltration",
    Warning,
    "secrets or the environment are sent away",
    "tokens are kept there",
    "Send only what the receiver needs.",
);
pub(super) const LOADER: Rule = rule(
    "shell.loader",
    Warning,
    "code is put into other programs",
    "every program that is started later runs it",
    "Call the program that is meant.",
);
pub(super) const SYSTEM_SETTINGS: Rule = rule(
    "shell.system_settings",
    Warning,
    "the system is changed: kernel, network, file systems, accounts",
    "it concerns everybody on the machine",
    "Leave the system to its operator.",
);
pub(super) const DYNAMIC_EXECUTION: Rule = rule(
    "shell.dynamic_execution",
    Warning,
    "a text is run that is made at run time",
    "whoever has a hand in the text decides what runs",
    "Call the command with its arguments: an array and `\"${command[@]}\"`.",
);
pub(super) const PRIVILEGES: Rule = rule(
    "shell.privileges",
    Info,
    "other rights are asked for",
    "there are none to be had in a sandbox",
    "Run the command without it.",
);
pub(super) const NETWORK: Rule = rule(
    "shell.network",
    Info,
    "the network is used",
    "a program reaches no host but those that the operator lets it",
    "Where it may reach none, fetch first, and send along in `files`.",
);
pub(super) const CARRIAGE_RETURN: Rule = rule(
    "shell.carriage_return",
    Warning,
    "lines end with a carriage return, as on Windows",
    "to bash it is a letter of the last word",
    "End lines with a line feed alone: `dos2unix`, or `sed -i 's/\\r$//'`.",
);
pub(super) const HERE_DOCUMENT: Rule = rule(
    "shell.here_document",
    Warning,
    "a here-document that does not end",
    "it takes everything up to the end of the script",
    "Write the word that ends it on a line of its own, without blanks around it.",
);
pub(super) const BRACKET: Rule = rule(
    "shell.bracket",
    Warning,
    "a test without the blanks that it needs",
    "bash takes it for another word",
    "Write `[ … ]`, with blanks inside of the brackets.",
);

pub(crate) const RULES: &[Rule] = &[
    SYNTAX,
    UNPARSED,
    REMOVE_ROOT,
    FILE_DELETION,
    DEVICE_WRITE,
    FORMAT_DEVICE,
    FORK_BOMB,
    DOWNLOAD_AND_RUN,
    ENCODED_RUN,
    REVERSE_SHELL,
    PERMISSIONS,
    SCHEDULE,
    KILL_ALL,
    KILL_BY_NAME,
    POWER,
    HISTORY,
    STARTUP_FILES,
    CREDENTIAL_PATH,
    EXFILTRATION,
    LOADER,
    SYSTEM_SETTINGS,
    DYNAMIC_EXECUTION,
    PRIVILEGES,
    NETWORK,
    CARRIAGE_RETURN,
    HERE_DOCUMENT,
    BRACKET,
];
