//! What is looked for in JavaScript and TypeScript.

use crate::rule::{Rule, rule};
use ringfence_types::Severity::{Error, Info, Warning};

pub(super) const SYNTAX: Rule = rule(
    "javascript.syntax",
    Error,
    "the program is broken",
    "Node.js would refuse it",
    "Mend the line; what is missing often is before it.",
);
pub(super) const UNPARSED: Rule = rule(
    "javascript.unparsed",
    Warning,
    "a part that could not be read",
    "no rule has seen what stands there; Node.js will judge it",
    "Write it more plainly.",
);
pub(super) const DYNAMIC_EXECUTION: Rule = rule(
    "javascript.dynamic_execution",
    Warning,
    "a text is run as a program",
    "whoever has a hand in the text decides what runs",
    "Write the program out; parse data with `JSON.parse`.",
);
pub(super) const DYNAMIC_REQUIRE: Rule = rule(
    "javascript.dynamic_require",
    Warning,
    "a module is chosen at run time",
    "any module can be loaded so",
    "Name the module, or choose from an object of modules that are named.",
);
pub(super) const CHILD_PROCESS: Rule = rule(
    "javascript.child_process",
    Warning,
    "programs are started",
    "they do what their arguments say, beyond what is seen here",
    "Do it in JavaScript, or run a shell script of its own.",
);
pub(super) const NATIVE: Rule = rule(
    "javascript.native",
    Warning,
    "native code, or the insides of Node.js",
    "the language does not guard it",
    "Use the modules of Node.js.",
);
pub(super) const WORKER_THREADS: Rule = rule(
    "javascript.worker_threads",
    Info,
    "threads or processes of the same program",
    "",
    "End them before the program ends.",
);
pub(super) const INSPECTOR: Rule = rule(
    "javascript.inspector",
    Warning,
    "the debugger is used from within",
    "it reaches everything in the process",
    "Debug from outside.",
);
pub(super) const NETWORK: Rule = rule(
    "javascript.network",
    Info,
    "the network is used",
    "a program reaches no host but those that the operator lets it",
    "Where it may reach none, fetch first, and send along in `files`.",
);
pub(super) const FILE_DELETION: Rule = rule(
    "javascript.file_deletion",
    Info,
    "files are removed",
    "",
    "Check that the path is what you mean it to be.",
);
pub(super) const CREDENTIAL_PATH: Rule = rule(
    "javascript.credential_path",
    Warning,
    "keys or passwords are named",
    "they let their reader in elsewhere",
    "Take what is needed from the request, or from the environment that the operator gives.",
);
pub(super) const PROTOTYPE_POLLUTION: Rule = rule(
    "javascript.prototype_pollution",
    Warning,
    "what all objects share is changed",
    "code that has nothing to do with it behaves differently",
    "Use a `Map`, or `Object.create(null)`.",
);
pub(super) const OBFUSCATION: Rule = rule(
    "javascript.obfuscation",
    Warning,
    "what the program does is hidden from its reader",
    "there is seldom an honest reason",
    "Write names and texts as they are.",
);
pub(super) const REVERSE_SHELL: Rule = rule(
    "javascript.reverse_shell",
    Error,
    "a shell that is driven over the network",
    "it hands the machine to somebody else",
    "Run the commands that are needed.",
);
pub(super) const KILL_ALL: Rule = rule(
    "javascript.kill_all",
    Error,
    "every process is ended",
    "it ends what does not belong to the program",
    "End a process by the object that `spawn` gave.",
);
pub(super) const EXIT: Rule = rule(
    "javascript.exit",
    Info,
    "the program ends itself",
    "",
    "Let the program come to its end, so that its output is whole.",
);

pub(super) const LINE_END: Rule = rule(
    "javascript.line_end",
    Warning,
    "ends of lines that only Node.js sees (a carriage return alone, U+2028, U+2029)",
    "what follows may be code where it is shown as part of a comment",
    "End lines with a line feed; write `\\u2028` in texts.",
);

pub(crate) const RULES: &[Rule] = &[
    SYNTAX,
    UNPARSED,
    LINE_END,
    DYNAMIC_EXECUTION,
    DYNAMIC_REQUIRE,
    CHILD_PROCESS,
    NATIVE,
    WORKER_THREADS,
    INSPECTOR,
    NETWORK,
    FILE_DELETION,
    CREDENTIAL_PATH,
    PROTOTYPE_POLLUTION,
    OBFUSCATION,
    REVERSE_SHELL,
    KILL_ALL,
    EXIT,
];
