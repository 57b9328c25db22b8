//! The rules of Python by name, and how bad each finding is under which profile.

mod annotations;
mod attributes;
mod calls;
mod commands;
mod copied;
mod encoding;
mod formats;
mod grave;
mod imports;
mod lookalikes;
mod matched;
mod own;
mod private;
mod stars;
mod strict;
mod texts;
mod walk;

use crate::rule::{Rule, rule};
use ringfence_types::{Profile, Severity};

pub(crate) use encoding::check as check_encoding;
pub(crate) use lookalikes::check as check_direction;
pub(crate) use walk::check;

/// By what a thing is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    ByItself,
    ByItselfOrItsModule,
}

/// Is something said of a thing by its full name.
pub(crate) fn knows(path: &str, by: Known) -> bool {
    match by {
        Known::ByItself => grave::find_by_name(path).is_some(),
        Known::ByItselfOrItsModule => grave::find(path).is_some(),
    }
}

pub(crate) static SYNTAX: Rule = rule(
    "python.syntax",
    Severity::Error,
    "text that is not Python",
    "",
    "Correct the syntax.",
);
pub(crate) static NESTING: Rule = rule(
    "python.nesting",
    Severity::Error,
    "nesting deeper than the interpreter compiles",
    "too deeply nested to be checked",
    "Give parts of it names.",
);
pub(crate) static INTRICATE: Rule = rule(
    "python.intricate",
    Severity::Info,
    "constants put together in more steps than are followed",
    "what its names and texts come to was not found out to the end",
    "Write constants as they are.",
);
pub(crate) static ENCODING: Rule = rule(
    "python.encoding",
    Severity::Warning,
    "a coding line other than UTF-8",
    "the interpreter would read another program than the one that was checked",
    "Remove the coding line; code is UTF-8.",
);
pub(crate) static DYNAMIC_EXECUTION: Rule = rule(
    "python.dynamic_execution",
    Severity::Warning,
    "text that is run as code",
    "what runs is not seen by any check",
    "Write the code itself, or read data with `ast.literal_eval` or `json.loads`.",
);
pub(crate) static DYNAMIC_IMPORT: Rule = rule(
    "python.dynamic_import",
    Severity::Warning,
    "modules imported by a text",
    "which module it is shows only when it runs",
    "Use an `import` statement.",
);
pub(crate) static PROCESS: Rule = rule(
    "python.process",
    Severity::Warning,
    "starting and signalling processes",
    "another program follows none of these rules",
    "Do it in Python, or run a shell script for it.",
);
pub(crate) static SHELL_TRUE: Rule = rule(
    "python.shell_true",
    Severity::Warning,
    "a command that goes through a shell",
    "whatever gets into the text is run, too",
    "Pass a list of arguments, without `shell=True`.",
);
pub(crate) static MULTIPROCESSING: Rule = rule(
    "python.multiprocessing",
    Severity::Info,
    "processes of the same program",
    "they share the limits of the sandbox",
    "Use a few, or threads.",
);
pub(crate) static SOCKET: Rule = rule(
    "python.socket",
    Severity::Info,
    "sockets",
    "a program reaches no host but those that the operator lets it",
    "Use it between parts of the program; send along in `files` what comes from elsewhere.",
);
pub(crate) static RAW_SOCKET: Rule = rule(
    "python.raw_socket",
    Severity::Warning,
    "sockets below TCP and UDP, or that speak to the kernel",
    "programs that only speak to hosts do not need them, and the sandbox refuses them",
    "Use TCP or UDP.",
);
pub(crate) static NETWORK: Rule = rule(
    "python.network",
    Severity::Info,
    "requests to other hosts",
    "a program reaches no host but those that the operator lets it",
    "Where it may reach none, fetch first, and send along in `files`.",
);
pub(crate) static NATIVE_CODE: Rule = rule(
    "python.native_code",
    Severity::Warning,
    "foreign functions and raw memory",
    "native code follows no rule of Python",
    "Use a module that offers what is needed.",
);
pub(crate) static UNSAFE_LOAD: Rule = rule(
    "python.unsafe_load",
    Severity::Warning,
    "data whose reading runs code",
    "whoever wrote the data decides what runs",
    "Use JSON, CSV, `yaml.safe_load`, or `numpy.load` without pickles.",
);
pub(crate) static REFLECTION: Rule = rule(
    "python.reflection",
    Severity::Warning,
    "the interpreter's own structures, reached through attributes",
    "from any object the way leads to all that the interpreter has loaded",
    "Use the object's own methods; `isinstance` and `type(x).__name__` are fine.",
);
/// The same where it is no more than worth knowing.
static REFLECTION_NOTED: Rule = rule(
    REFLECTION.id,
    Severity::Info,
    REFLECTION.title,
    "it is fine for objects of one's own",
    "Use attributes where they are known; `isinstance` and `type(x).__name__` need no such name.",
);
pub(crate) static PRIVATE_ATTRIBUTE: Rule = rule(
    "python.private_attribute",
    Severity::Error,
    "private attributes of what is not the program's own, under the profile `strict`",
    "what a module keeps for itself may reach what the program may not",
    "Use the public names; an attribute of the program's own is one that it sets, as `self._x = ...` or in a class.",
);
pub(crate) static FRAMES: Rule = rule(
    "python.frames",
    Severity::Warning,
    "frames of running code, and everything the collector knows",
    "through a frame one reaches the names of code that called it",
    "Pass what is needed as an argument.",
);
pub(crate) static FORMAT_ATTRIBUTE: Rule = rule(
    "python.format_attribute",
    Severity::Warning,
    "format strings that read attributes",
    "`str.format` follows attributes that no check of the code sees",
    "Put the value itself into the format string, or use an f-string.",
);
pub(crate) static BUILTINS_WRITE: Rule = rule(
    "python.builtins_write",
    Severity::Warning,
    "changes of the interpreter's own names",
    "code that was read with one meaning then has another",
    "Define a name of your own.",
);
pub(crate) static INTERPRETER_HOOK: Rule = rule(
    "python.interpreter_hook",
    Severity::Warning,
    "functions that the interpreter calls by itself",
    "they run at moments that the code does not show",
    "Call the function where it is needed.",
);
pub(crate) static FILE_ACCESS: Rule = rule(
    "python.file_access",
    Severity::Info,
    "files that are opened",
    "the sandbox shows it its own files alone",
    "Keep files in the workspace, under relative names.",
);
pub(crate) static FILE_DELETION: Rule = rule(
    "python.file_deletion",
    Severity::Info,
    "files that are deleted",
    "what is deleted in a workspace is gone for later runs",
    "Leave temporary files; they go with the sandbox.",
);
pub(crate) static CREDENTIAL_PATH: Rule = rule(
    "python.credential_path",
    Severity::Warning,
    "places where secrets are kept",
    "the sandbox has none there, and a program that looks for them has another purpose",
    "Pass secrets by `secrets`, and read them from the environment.",
);
pub(crate) static OBFUSCATED_NAME: Rule = rule(
    "python.obfuscated_name",
    Severity::Warning,
    "names that look like others",
    "a reader takes it for something else",
    "Write the name in plain letters.",
);
pub(crate) static BIDIRECTIONAL_TEXT: Rule = rule(
    "python.bidirectional_text",
    Severity::Warning,
    "invisible characters that turn text around",
    "what is shown is not what the interpreter reads (CVE-2021-42574)",
    "Remove it, or write it as an escape, as `\\u202e`.",
);
pub(crate) static OBFUSCATED_CODE: Rule = rule(
    "python.obfuscated_code",
    Severity::Warning,
    "code that is unpacked and run",
    "nobody packs code that may be read",
    "Write the code itself.",
);
pub(crate) static PROFILE_IMPORT: Rule = rule(
    "profile.import",
    Severity::Error,
    "a module that the profile does not allow",
    "it is not among the modules that may be imported",
    "Use a module that the profile allows, or add it to `allowed_imports`.",
);
pub(crate) static PROFILE_MODULE_ATTRIBUTE: Rule = rule(
    "profile.module_attribute",
    Severity::Error,
    "a module that the profile does not allow, reached through one that it does",
    "it is not among the modules that may be imported, whichever way it is reached",
    "Use what the module is for, or add the other to `allowed_imports`.",
);

/// All of them.
pub(crate) static RULES: &[&Rule] = &[
    &SYNTAX,
    &NESTING,
    &INTRICATE,
    &ENCODING,
    &super::fix::UNDEFINED_NAME,
    &DYNAMIC_EXECUTION,
    &DYNAMIC_IMPORT,
    &PROCESS,
    &SHELL_TRUE,
    &MULTIPROCESSING,
    &SOCKET,
    &RAW_SOCKET,
    &NETWORK,
    &NATIVE_CODE,
    &UNSAFE_LOAD,
    &REFLECTION,
    &PRIVATE_ATTRIBUTE,
    &FRAMES,
    &FORMAT_ATTRIBUTE,
    &BUILTINS_WRITE,
    &INTERPRETER_HOOK,
    &FILE_ACCESS,
    &FILE_DELETION,
    &CREDENTIAL_PATH,
    &OBFUSCATED_NAME,
    &BIDIRECTIONAL_TEXT,
    &OBFUSCATED_CODE,
    &PROFILE_IMPORT,
    &PROFILE_MODULE_ATTRIBUTE,
];

/// Of these some findings are errors under the profile `strict`, though they are none elsewhere.
pub(crate) static OF_STRICT: &[&Rule] = &[
    &INTRICATE,
    &ENCODING,
    &DYNAMIC_EXECUTION,
    &DYNAMIC_IMPORT,
    &PROCESS,
    &SHELL_TRUE,
    &MULTIPROCESSING,
    &SOCKET,
    &RAW_SOCKET,
    &NATIVE_CODE,
    &UNSAFE_LOAD,
    &REFLECTION,
    &FRAMES,
    &FORMAT_ATTRIBUTE,
    &BUILTINS_WRITE,
    &INTERPRETER_HOOK,
    &FILE_ACCESS,
    &CREDENTIAL_PATH,
    &OBFUSCATED_NAME,
    &OBFUSCATED_CODE,
    &BIDIRECTIONAL_TEXT,
];

/// How bad a finding is: as a rule, and under the profile `strict`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Weight {
    /// None: ordinary programs do it all the time, so nothing is said.
    usual: Option<Severity>,
    strict: Option<Severity>,
}

impl Weight {
    /// Ordinary where the profile is not `strict`.
    const NOTED: Self = Self::of(Some(Severity::Info), Some(Severity::Warning));
    /// Ordinary, but a way around the rules.
    const SUSPECT: Self = Self::of(Some(Severity::Info), Some(Severity::Error));
    /// Few ordinary programs do it.
    const WARNED: Self = Self::of(Some(Severity::Warning), Some(Severity::Warning));
    /// Few ordinary programs do it, and it is a way around the rules.
    const GRAVE: Self = Self::of(Some(Severity::Warning), Some(Severity::Error));
    /// Only `strict` speaks of it.
    const STRICT_WARNING: Self = Self::of(None, Some(Severity::Warning));
    /// Only `strict` forbids it.
    const STRICT_ERROR: Self = Self::of(None, Some(Severity::Error));

    const fn of(usual: Option<Severity>, strict: Option<Severity>) -> Self {
        Self { usual, strict }
    }

    fn under(self, profile: Profile) -> Option<Severity> {
        match profile {
            Profile::Strict => self.strict,
            _ => self.usual,
        }
    }
}
