//! Every rule of every language: a table for each.

use crate::rule::Rule;
use ringfence_types::{Profile, Severity};

impl Rule {
    /// How bad its findings are at worst under a profile that lets the module be.
    pub fn worst(&self, profile: Profile) -> Severity {
        let is_strict = profile == Profile::Strict && python::OF_STRICT.iter().any(|rule| rule.id == self.id);
        if is_strict { Severity::Error } else { self.severity }
    }
}

/// A table of rules: name, id, severity, title, why and hint of each; all of them are `RULES`.
macro_rules! rule_table {
    ($($(#[$doc:meta])* $name:ident = $id:literal, $severity:ident: $title:literal, $why:literal, $hint:literal;)*) => {
        $($(#[$doc])* pub(crate) static $name: crate::rule::Rule = crate::rule::Rule {
            id: $id,
            severity: ringfence_types::Severity::$severity,
            title: $title,
            why: $why,
            hint: $hint,
        };)*
        /// All of them.
        pub(crate) static RULES: &[&crate::rule::Rule] = &[$(&$name),*];
    };
}

/// Every rule, by language.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    let languages = [python::RULES, javascript::RULES, shell::RULES];
    languages.into_iter().flatten().copied()
}

/// Of Python.
pub(crate) mod python {
    use crate::rule::Rule;

    rule_table! {
        SYNTAX = "python.syntax", Error: "text that is not Python",
            "", "Correct the syntax.";
        NESTING = "python.nesting", Error: "nesting deeper than the interpreter compiles",
            "too deeply nested to be checked", "Give parts of it names.";
        INTRICATE = "python.intricate", Info: "constants put together in more steps than are followed",
            "what its names and texts come to was not found out to the end", "Write constants as they are.";
        ENCODING = "python.encoding", Warning: "a coding line other than UTF-8",
            "the interpreter would read another program than the one that was checked",
            "Remove the coding line; code is UTF-8.";
        /// A name that is bound nowhere.
        UNDEFINED_NAME = "python.undefined_name", Warning: "a name that is not defined",
            "reading it raises a NameError", "Define the name before it is used, or correct its spelling.";
        DYNAMIC_EXECUTION = "python.dynamic_execution", Warning: "text that is run as code",
            "what runs is not seen by any check",
            "Write the code itself, or read data with `ast.literal_eval` or `json.loads`.";
        DYNAMIC_IMPORT = "python.dynamic_import", Warning: "modules imported by a text",
            "which module it is shows only when it runs", "Use an `import` statement.";
        PROCESS = "python.process", Warning: "starting and signalling processes",
            "what another program does is not checked", "Do it in Python, or run a shell script for it.";
        SHELL_TRUE = "python.shell_true", Warning: "a command that goes through a shell",
            "whatever gets into the text is run, too", "Pass a list of arguments, without `shell=True`.";
        MULTIPROCESSING = "python.multiprocessing", Info: "processes of the same program",
            "they share the limits of the sandbox", "Use a few, or threads.";
        SOCKET = "python.socket", Info: "sockets",
            "a program reaches no host but those that the operator lets it",
            "Use it between parts of the program; send along in `files` what comes from elsewhere.";
        RAW_SOCKET = "python.raw_socket", Warning: "sockets below TCP and UDP, or that speak to the kernel",
            "programs that only speak to hosts do not need them, and the sandbox refuses them", "Use TCP or UDP.";
        NETWORK = "python.network", Info: "requests to other hosts",
            "a program reaches no host but those that the operator lets it",
            "Where it may reach none, fetch first, and send along in `files`.";
        NATIVE_CODE = "python.native_code", Warning: "foreign functions and raw memory",
            "native code follows no rule of Python", "Use a module that offers what is needed.";
        UNSAFE_LOAD = "python.unsafe_load", Warning: "data whose reading runs code",
            "the author of the data decides what runs",
            "Use JSON, CSV, `yaml.safe_load`, or `numpy.load` without pickles.";
        REFLECTION = "python.reflection", Warning: "the interpreter's own structures, reached through attributes",
            "from any object the way leads to all that the interpreter has loaded",
            "Use the object's own methods; `isinstance` and `type(x).__name__` are fine.";
        PRIVATE_ATTRIBUTE = "python.private_attribute", Error: "private attributes of what is not the program's own, under the profile `strict`",
            "what a module keeps for itself may reach what the program may not",
            "Use the public names; an attribute of the program's own is one that it sets, as `self._x = ...` or in a class.";
        FRAMES = "python.frames", Warning: "frames of running code, and everything the collector knows",
            "through a frame one reaches the names of code that called it", "Pass what is needed as an argument.";
        FORMAT_ATTRIBUTE = "python.format_attribute", Warning: "format strings that read attributes",
            "`str.format` follows attributes that no check of the code sees",
            "Put the value itself into the format string, or use an f-string.";
        BUILTINS_WRITE = "python.builtins_write", Warning: "changes of the interpreter's own names",
            "code that was read with one meaning then has another", "Define a name of your own.";
        INTERPRETER_HOOK = "python.interpreter_hook", Warning: "functions that the interpreter calls by itself",
            "they run at moments that the code does not show", "Call the function where it is needed.";
        FILE_ACCESS = "python.file_access", Info: "files that are opened",
            "the sandbox shows it its own files alone", "Keep files in the workspace, under relative names.";
        FILE_DELETION = "python.file_deletion", Info: "files that are deleted",
            "what is deleted in a workspace is gone for later runs", "Leave temporary files; they go with the sandbox.";
        CREDENTIAL_PATH = "python.credential_path", Warning: "places where secrets are kept",
            "the sandbox has none there, and a program that looks for them has another purpose",
            "Pass secrets by `secrets`, and read them from the environment.";
        OBFUSCATED_NAME = "python.obfuscated_name", Warning: "names that look like others",
            "a reader takes it for something else", "Write the name in plain letters.";
        BIDIRECTIONAL_TEXT = "python.bidirectional_text", Warning: "invisible characters that turn text around",
            "what is shown is not what the interpreter reads (CVE-2021-42574)",
            "Remove it, or write it as an escape, as `\\u202e`.";
        OBFUSCATED_CODE = "python.obfuscated_code", Warning: "code that is unpacked and run",
            "code is packed to keep it from being read", "Write the code itself.";
        PROFILE_IMPORT = "profile.import", Error: "a module that the profile does not allow",
            "it is not among the modules that may be imported",
            "Use a module that the profile allows, or add it to `allowed_imports`.";
        PROFILE_MODULE_ATTRIBUTE = "profile.module_attribute", Error: "a module that the profile does not allow, reached through one that it does",
            "it is not among the modules that may be imported, whichever way it is reached",
            "Use what the module is for, or add the other to `allowed_imports`.";
    }

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
}

/// Of JavaScript and TypeScript.
pub(crate) mod javascript {
    rule_table! {
        SYNTAX = "javascript.syntax", Error: "the program is broken",
            "Node.js would refuse it", "Mend the line; what is missing often is before it.";
        UNPARSED = "javascript.unparsed", Warning: "a part that could not be read",
            "no rule has seen what stands there; Node.js will judge it", "Write it more plainly.";
        LINE_END = "javascript.line_end", Warning: "ends of lines that only Node.js sees (a carriage return alone, U+2028, U+2029)",
            "what follows may be code where it is shown as part of a comment",
            "End lines with a line feed; write `\\u2028` in texts.";
        DYNAMIC_EXECUTION = "javascript.dynamic_execution", Warning: "a text is run as a program",
            "the author of the text decides what runs", "Write the program out; parse data with `JSON.parse`.";
        DYNAMIC_REQUIRE = "javascript.dynamic_require", Warning: "a module is chosen at run time",
            "any module can be loaded so", "Name the module, or choose from an object of modules that are named.";
        CHILD_PROCESS = "javascript.child_process", Warning: "programs are started",
            "they do what their arguments say, beyond what is seen here",
            "Do it in JavaScript, or run a shell script of its own.";
        NATIVE = "javascript.native", Warning: "native code, or the insides of Node.js",
            "the language does not guard it", "Use the modules of Node.js.";
        WORKER_THREADS = "javascript.worker_threads", Info: "threads or processes of the same program",
            "", "End them before the program ends.";
        INSPECTOR = "javascript.inspector", Warning: "the debugger is used from within",
            "it reaches everything in the process", "Debug from outside.";
        NETWORK = "javascript.network", Info: "the network is used",
            "a program reaches no host but those that the operator lets it",
            "Where it may reach none, fetch first, and send along in `files`.";
        FILE_DELETION = "javascript.file_deletion", Info: "files are removed",
            "", "Check that the path is what you mean it to be.";
        CREDENTIAL_PATH = "javascript.credential_path", Warning: "keys or passwords are named",
            "they let their reader in elsewhere",
            "Take what is needed from the request, or from the environment that the operator gives.";
        PROTOTYPE_POLLUTION = "javascript.prototype_pollution", Warning: "what all objects share is changed",
            "code that has nothing to do with it behaves differently", "Use a `Map`, or `Object.create(null)`.";
        OBFUSCATION = "javascript.obfuscation", Warning: "what the program does is hidden from its reader",
            "there is seldom an honest reason", "Write names and texts as they are.";
        REVERSE_SHELL = "javascript.reverse_shell", Error: "a shell that is driven over the network",
            "it hands the machine to somebody else", "Run the commands that are needed.";
        KILL_ALL = "javascript.kill_all", Error: "every process is ended",
            "it ends what does not belong to the program", "End a process by the object that `spawn` gave.";
        EXIT = "javascript.exit", Info: "the program ends itself",
            "", "Let the program come to its end, so that its output is whole.";
    }
}

/// Of the shell.
pub(crate) mod shell {
    rule_table! {
        SYNTAX = "shell.syntax", Error: "the script is broken",
            "bash would refuse the script",
            "Close what is opened: quotes, `if` with `fi`, `do` with `done`, `case` with `esac`, brackets.";
        UNPARSED = "shell.unparsed", Warning: "a part that could not be read",
            "no rule has seen what stands there; bash will judge it", "Write it more plainly.";
        REMOVE_ROOT = "shell.remove_root", Error: "removal of the system, of all homes or of what is above the workspace",
            "it destroys what does not belong to the script", "Remove files by a path below the working directory.";
        FILE_DELETION = "shell.file_deletion", Info: "files are removed",
            "", "Check that the path is what you mean it to be.";
        DEVICE_WRITE = "shell.device_write", Error: "writing to a disk or to memory",
            "it overwrites file systems from below", "Write to an ordinary file.";
        FORMAT_DEVICE = "shell.format_device", Error: "making or wiping a file system",
            "everything on it is lost", "Work on an ordinary file.";
        FORK_BOMB = "shell.fork_bomb", Error: "a program that only starts itself",
            "it fills the table of processes", "Start a known number of processes.";
        DOWNLOAD_AND_RUN = "shell.download_and_run", Warning: "what was downloaded is run",
            "the server decides what runs", "Download to a file, check it against a known hash, then run it.";
        ENCODED_RUN = "shell.encoded_run", Warning: "what was decoded is run",
            "encoding hides what runs from the reader of the script", "Write the commands out.";
        REVERSE_SHELL = "shell.reverse_shell", Error: "a shell that is driven over the network",
            "it hands the machine to somebody else", "Run the commands that are needed.";
        PERMISSIONS = "shell.permissions", Warning: "rights are given to everybody, or to every user who runs a file",
            "others can change or misuse the files", "Give the narrowest rights that work, as 755 or 644.";
        SCHEDULE = "shell.schedule", Warning: "work for later",
            "it goes on after the script has ended, or ends what others have planned", "Do the work in the script.";
        KILL_ALL = "shell.kill_all", Error: "every process is ended",
            "it ends what does not belong to the script", "End processes by the id that `$!` told.";
        KILL_BY_NAME = "shell.kill_by_name", Warning: "processes are ended by name",
            "others may have the same name", "End processes by the id that `$!` told.";
        POWER = "shell.power", Warning: "the machine is stopped",
            "it ends the work of everybody", "Leave the machine running.";
        HISTORY = "shell.history", Warning: "traces are removed",
            "what happened can no longer be looked at", "Leave histories and logs as they are.";
        STARTUP_FILES = "shell.startup_files", Warning: "files are changed that decide who gets in, or what runs at every login",
            "it stays after the script has ended", "Set what is needed in the script itself.";
        CREDENTIAL_PATH = "shell.credential_path", Warning: "keys or passwords are read",
            "they let their reader in elsewhere",
            "Take what is needed from the request, or from the environment that the operator gives.";
        EXFILTRATION = "shell.exfiltration", Warning: "secrets or the environment are sent away",
            "tokens are kept there", "Send only what the receiver needs.";
        LOADER = "shell.loader", Warning: "code is put into other programs",
            "every program that is started later runs it", "Call the program that is meant.";
        SYSTEM_SETTINGS = "shell.system_settings", Warning: "the system is changed: kernel, network, file systems, accounts",
            "it concerns everybody on the machine", "Leave the system to its operator.";
        DYNAMIC_EXECUTION = "shell.dynamic_execution", Warning: "a text is run that is made at run time",
            "the author of the text decides what runs",
            "Call the command with its arguments: an array and `\"${command[@]}\"`.";
        PRIVILEGES = "shell.privileges", Info: "other rights are asked for",
            "there are none to be had in a sandbox", "Run the command without it.";
        NETWORK = "shell.network", Info: "the network is used",
            "a program reaches no host but those that the operator lets it",
            "Where it may reach none, fetch first, and send along in `files`.";
        CARRIAGE_RETURN = "shell.carriage_return", Warning: "lines end with a carriage return, as on Windows",
            "to bash it is a letter of the last word",
            "End lines with a line feed alone: `dos2unix`, or `sed -i 's/\\r$//'`.";
        HERE_DOCUMENT = "shell.here_document", Warning: "a here-document that does not end",
            "it takes everything up to the end of the script",
            "Write the word that ends it on a line of its own, without blanks around it.";
        BRACKET = "shell.bracket", Warning: "a test without the blanks that it needs",
            "bash takes it for another word", "Write `[ … ]`, with blanks inside of the brackets.";
    }
}
