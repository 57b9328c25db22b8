//! What has consequences beyond the program's own data, by the full name of each thing.

use super::findings::Weight;
use crate::{
    registry::python::{
        DYNAMIC_EXECUTION, DYNAMIC_IMPORT, FILE_ACCESS, FILE_DELETION, FORMAT_ATTRIBUTE, FRAMES,
        INTERPRETER_HOOK, MULTIPROCESSING, NATIVE_CODE, NETWORK, PROCESS, RAW_SOCKET, REFLECTION, SOCKET,
        UNSAFE_LOAD,
    },
    rule::Rule,
};
use std::{collections::HashMap, sync::LazyLock};

/// Names that do the same.
pub(super) struct Group {
    pub(super) rule: &'static Rule,
    pub(super) weight: Weight,
    /// "`os.system` starts a process".
    pub(super) does: &'static str,
    /// `ctypes.*` is everything that stands directly in it.
    names: &'static [&'static str],
}

const fn group(
    rule: &'static Rule,
    weight: Weight,
    does: &'static str,
    names: &'static [&'static str],
) -> Group {
    Group {
        rule,
        weight,
        does,
        names,
    }
}

#[rustfmt::skip]
static GROUPS: &[Group] = &[
    group(&DYNAMIC_EXECUTION, Weight::GRAVE, "runs text as code", &[
        "builtins.eval", "builtins.exec", "code.InteractiveInterpreter", "code.InteractiveConsole", "code.interact",
        "codeop.compile_command", "codeop.CommandCompiler", "codeop.Compile", "runpy.run_module", "runpy.run_path",
        "cProfile.run", "cProfile.runctx", "profile.run", "profile.runctx", "pdb.run", "pdb.runeval", "pdb.runctx",
        "trace.Trace", "pandas.eval", "pandas.core.computation.eval.eval", "numexpr.evaluate", "logging.config.listen",
        "sympy.parsing.sympy_parser.parse_expr", "sympy.parsing.sympy_parser.eval_expr", "sympy.lambdify",
        "numpy.testing.runstring", "numpy.testing.rundocs", "numpy.testing.measure", "test.support.run_code",
    ]),
    group(&DYNAMIC_EXECUTION, Weight::GRAVE, "makes code of text", &[
        "builtins.compile", "types.CodeType", "ast.parse", "numpy.f2py.compile", "numpy.f2py.run_main",
    ]),
    group(&DYNAMIC_EXECUTION, Weight::GRAVE, "opens a debugger, which runs what it is given", &[
        "builtins.breakpoint", "pdb.set_trace", "pdb.post_mortem", "pdb.pm", "sys.breakpointhook", "bdb.Bdb",
    ]),
    group(&DYNAMIC_EXECUTION, Weight::SUSPECT, "evaluates texts", &[
        "typing.get_type_hints", "typing.ForwardRef", "typing._eval_type", "typing.evaluate_forward_ref", "inspect.get_annotations", "timeit.timeit",
        "timeit.repeat", "timeit.Timer", "sympy.sympify", "sympy.S", "sympy.parse_expr", "doctest.testmod",
    ]),
    group(&DYNAMIC_EXECUTION, Weight::SUSPECT, "makes functions of code", &["types.FunctionType", "types.LambdaType"]),
    group(&DYNAMIC_IMPORT, Weight::GRAVE, "imports a module by its name", &[
        "builtins.__import__", "importlib.import_module", "importlib.__import__", "importlib.util.find_spec",
        "importlib.util.spec_from_file_location", "importlib.util.module_from_spec", "importlib.util.spec_from_loader",
        "importlib.machinery.SourceFileLoader", "importlib.machinery.ExtensionFileLoader", "pkgutil.resolve_name",
        "importlib.machinery.SourcelessFileLoader", "imp.load_source", "imp.load_module", "imp.load_dynamic",
        "imp.load_compiled", "imp.find_module", "zipimport.zipimporter", "pydoc.locate", "pydoc.safeimport",
        "_frozen_importlib.*", "_frozen_importlib_external.*", "pkgutil.get_loader", "pkgutil.find_loader",
        "six.moves", "test.support.import_helper.import_module",
    ]),
    group(&DYNAMIC_IMPORT, Weight::SUSPECT, "holds what finds and loads modules", &[
        "builtins.__loader__", "builtins.__spec__", "sys.meta_path", "sys.path_hooks", "sys.modules", "importlib.reload",
        "sys.path_importer_cache", "site.addsitedir",
    ]),
    group(&PROCESS, Weight::GRAVE, "starts a process", &[
        "os.system", "os.popen", "os.execl", "os.execle", "os.execlp", "os.execlpe", "os.execv", "os.execve", "os.execvp",
        "os.execvpe", "os.spawnl", "os.spawnle", "os.spawnlp", "os.spawnlpe", "os.spawnv", "os.spawnve", "os.spawnvp",
        "os.spawnvpe", "os.posix_spawn", "os.posix_spawnp", "os.fork", "os.forkpty", "os.startfile", "pty.spawn",
        "pty.fork", "subprocess.run", "subprocess.call", "subprocess.check_call", "subprocess.check_output",
        "subprocess.Popen", "subprocess.getoutput", "subprocess.getstatusoutput", "subprocess._fork_exec",
        "_posixsubprocess.fork_exec", "asyncio.create_subprocess_exec", "asyncio.create_subprocess_shell",
        "asyncio.subprocess.create_subprocess_exec", "asyncio.subprocess.create_subprocess_shell", "webbrowser.open",
        "webbrowser.get", "commands.getoutput", "commands.getstatusoutput", "pexpect.spawn", "pexpect.run",
        "ptyprocess.PtyProcess", "plumbum.local", "sh.Command", "fabric.Connection", "invoke.run", "pipes.Template",
        "distutils.spawn.spawn", "setuptools.distutils.spawn.spawn", "platform.popen", "imaplib.IMAP4_stream",
        "numpy.distutils.exec_command.exec_command", "numpy.distutils.system_info.system_info",
    ]),
    group(&PROCESS, Weight::WARNED, "signals other processes", &["os.kill", "os.killpg", "os.pidfd_open", "signal.pidfd_send_signal"]),
    group(&PROCESS, Weight::SUSPECT, "may start a pager", &["builtins.help", "pydoc.help", "pydoc.pager", "pydoc.pipepager", "pydoc.tempfilepager"]),
    group(&MULTIPROCESSING, Weight::SUSPECT, "starts processes of the same program", &[
        "multiprocessing.Process", "multiprocessing.Pool", "multiprocessing.Manager", "multiprocessing.get_context",
        "multiprocessing.pool.Pool", "multiprocessing.managers.BaseManager", "concurrent.futures.ProcessPoolExecutor",
        "multiprocessing.managers.SyncManager", "concurrent.futures.process.ProcessPoolExecutor",
    ]),
    group(&SOCKET, Weight::SUSPECT, "opens a socket", &[
        "socket.socket", "socket.SocketType", "socket.create_connection", "socket.create_server", "socket.socketpair",
        "socket.fromfd", "asyncio.open_connection", "asyncio.start_server", "asyncio.open_unix_connection",
        "asyncio.start_unix_server", "socketserver.*", "socket.AF_UNIX", "ssl.create_default_context", "ssl.SSLContext",
    ]),
    group(&RAW_SOCKET, Weight::GRAVE, "is a socket that only systems software needs", &[
        "socket.SOCK_RAW", "socket.AF_PACKET", "socket.PF_PACKET", "socket.AF_NETLINK", "socket.AF_VSOCK", "socket.AF_ALG",
        "socket.AF_BLUETOOTH", "socket.AF_CAN", "socket.PF_CAN", "socket.AF_TIPC", "socket.AF_QIPCRTR", "socket.AF_RDS",
        "socket.IPPROTO_RAW", "socket.IPPROTO_ICMP", "socket.SOCK_RDM", "scapy.*", "scapy.all.*",
    ]),
    group(&NETWORK, Weight::NOTED, "speaks to other hosts", &[
        "urllib.request.urlopen", "urllib.request.urlretrieve", "urllib.request.build_opener", "urllib.request.URLopener",
        "urllib.request.OpenerDirector", "http.client.HTTPConnection", "http.client.HTTPSConnection", "smtplib.SMTP",
        "smtplib.SMTP_SSL", "smtplib.LMTP", "ftplib.FTP", "ftplib.FTP_TLS", "telnetlib.Telnet", "poplib.POP3",
        "poplib.POP3_SSL", "imaplib.IMAP4", "imaplib.IMAP4_SSL", "nntplib.NNTP", "xmlrpc.client.ServerProxy",
        "http.server.HTTPServer", "requests.get", "requests.post", "requests.put", "requests.patch", "requests.delete",
        "requests.head", "requests.options", "requests.request", "requests.Session", "requests.session", "httpx.get",
        "httpx.post", "httpx.put", "httpx.patch", "httpx.delete", "httpx.head", "httpx.options", "httpx.request",
        "httpx.stream", "httpx.Client", "httpx.AsyncClient", "aiohttp.ClientSession", "aiohttp.request", "urllib3.PoolManager",
        "websocket.create_connection", "websocket.WebSocketApp", "websocket.WebSocket", "websockets.connect",
        "paramiko.SSHClient", "paramiko.Transport",
    ]),
    group(&NATIVE_CODE, Weight::GRAVE, "reaches into native code and memory", &[
        "ctypes.*", "cffi.FFI", "cffi.*", "mmap.mmap", "_ctypes.*", "ctypes.util.*", "sys.setdlopenflags", "sys.dllhandle",
        "numpy.ctypeslib.load_library", "numpy.ctypeslib.as_array", "numpy.ctypeslib.ctypes.*", "numba.cfunc",
        "scipy.LowLevelCallable", "scipy.io.matlab.mio_utils",
    ]),
    group(&UNSAFE_LOAD, Weight::GRAVE, "runs code that the data names", &[
        "pickle.load", "pickle.loads", "pickle.Unpickler", "pickle._load", "pickle._loads", "pickle._Unpickler",
        "cPickle.load", "cPickle.loads", "dill.load", "dill.loads", "dill.Unpickler", "cloudpickle.load",
        "cloudpickle.loads", "joblib.load", "shelve.open", "shelve.Shelf", "shelve.DbfilenameShelf", "jsonpickle.decode",
        "jsonpickle.loads", "pandas.read_pickle", "yaml.unsafe_load", "yaml.unsafe_load_all", "yaml.full_load",
        "yaml.full_load_all", "yaml.UnsafeLoader", "sklearn.externals.joblib.load", "numpy.core.multiarray.load",
        "pandas.compat.pickle_compat.load", "multiprocessing.reduction.ForkingPickler",
    ]),
    group(&UNSAFE_LOAD, Weight::GRAVE, "makes code of data", &["marshal.load", "marshal.loads"]),
    group(&FRAMES, Weight::GRAVE, "gives frames of running code", &[
        "sys._getframe", "sys._current_frames", "sys._current_exceptions", "inspect.currentframe", "inspect.stack",
        "inspect.trace", "inspect.getouterframes", "inspect.getinnerframes", "traceback.walk_stack", "traceback.walk_tb",
        "sys._getframemodulename", "types.FrameType", "types.TracebackType", "inspect.getgeneratorlocals",
        "inspect.getcoroutinelocals", "inspect.getclosurevars",
    ]),
    group(&FRAMES, Weight::GRAVE, "gives objects that the program does not hold", &[
        "gc.get_objects", "gc.get_referrers", "gc.get_referents",
    ]),
    group(&FRAMES, Weight::SUSPECT, "gives a traceback with its frames", &["sys.exc_info", "sys.last_traceback", "sys.exception"]),
    group(&INTERPRETER_HOOK, Weight::GRAVE, "is called for what the interpreter does", &[
        "sys.settrace", "sys.setprofile", "threading.settrace", "threading.setprofile", "threading.settrace_all_threads",
        "threading.setprofile_all_threads", "sys.addaudithook", "sys.monitoring", "sys._settraceallthreads",
        "codecs.register", "codecs.register_error", "sys.set_asyncgen_hooks", "sys.set_coroutine_origin_tracking_depth",
    ]),
    group(&INTERPRETER_HOOK, Weight::SUSPECT, "is called when the program ends, fails or is signalled", &[
        "atexit.register", "signal.signal", "signal.setitimer", "signal.alarm", "sys.excepthook", "sys.unraisablehook",
        "threading.excepthook", "sys.displayhook", "faulthandler.register",
    ]),
    group(&FILE_DELETION, Weight::NOTED, "deletes", &[
        "os.remove", "os.unlink", "os.rmdir", "pathlib.Path().unlink", "pathlib.Path().rmdir", "pathlib.PosixPath().unlink",
        "pathlib.PosixPath().rmdir",
    ]),
    group(&FILE_DELETION, Weight::WARNED, "deletes whole directories", &["os.removedirs", "shutil.rmtree"]),
    group(&FILE_ACCESS, Weight::NOTED, "opens files", &["builtins.open", "io.open", "io.open_code", "io.FileIO", "codecs.open", "os.open", "os.fdopen"]),
    group(&REFLECTION, Weight::SUSPECT, "gives all names of a scope", &["builtins.globals", "builtins.locals", "builtins.vars"]),
    group(&REFLECTION, Weight::STRICT_ERROR, "reads attributes by name", &[
        "builtins.getattr", "builtins.setattr", "builtins.delattr", "builtins.hasattr", "operator.attrgetter",
        "operator.methodcaller", "inspect.getattr_static",
    ]),
    group(&REFLECTION, Weight::STRICT_ERROR, "is an object of the interpreter's own that ordinary programs never touch", &[
        "builtins.license", "builtins.copyright", "builtins.credits", "builtins.__build_class__", "inspect.getmembers",
    ]),
    group(&FORMAT_ATTRIBUTE, Weight::SUSPECT, "formats with attributes of its arguments", &["string.Formatter", "_string.formatter_field_name_split", "_string.formatter_parser"]),
    group(&FORMAT_ATTRIBUTE, Weight::STRICT_ERROR, "is handed on, and what it formats may read any attribute", &[
        "builtins.str.format", "builtins.str.format_map",
    ]),
    group(&REFLECTION, Weight::STRICT_ERROR, "leads to texts that are evaluated as types", &["typing.get_args"]),
    group(&REFLECTION, Weight::STRICT_ERROR, "copies attributes by their names", &["functools.update_wrapper", "functools.wraps"]),
];

static INDEX: LazyLock<HashMap<&'static str, &'static Group>> = LazyLock::new(|| {
    let names = |group: &'static Group| group.names.iter().map(move |name| (*name, group));
    GROUPS.iter().flat_map(names).collect()
});

/// Modules of C that are what others are made of.
const UNDERLYING: &[(&str, &str)] = &[
    ("posix.", "os."),
    ("nt.", "os."),
    ("_socket.", "socket."),
    ("_pickle.", "pickle."),
    ("_io.", "io."),
    ("_pyio.", "io."),
    ("_operator.", "operator."),
    ("_signal.", "signal."),
    ("_codecs.", "codecs."),
];

/// What is known of a thing by its full name.
pub(super) fn find(path: &str) -> Option<&'static Group> {
    find_by_name(path).or_else(|| {
        let (module, name) = path.rsplit_once('.')?;
        let whole = INDEX.get(format!("{module}.*").as_str()).copied();
        whole.filter(|_| !name.starts_with("__"))
    })
}

/// What is known of a thing that is listed itself, and not with all of its module.
pub(super) fn find_by_name(path: &str) -> Option<&'static Group> {
    let over = |(under, over): &(&str, &str)| path.strip_prefix(under).map(|rest| format!("{over}{rest}"));
    let replaced = match path.as_bytes().first() {
        Some(b'_' | b'n' | b'p') => UNDERLYING.iter().find_map(over),
        _ => None,
    };
    INDEX.get(replaced.as_deref().unwrap_or(path)).copied()
}

/// What is known of a name that every module has.
pub(super) fn find_builtin(name: &str) -> Option<&'static Group> {
    INDEX.get(format!("builtins.{name}").as_str()).copied()
}

/// The gravest thing that stands directly in a module, with its name.
pub(super) fn in_module(module: &str) -> Option<(&'static Group, &'static str)> {
    let grave = GROUPS.iter().filter(|group| group.weight == Weight::GRAVE);
    let mut names = grave.flat_map(|group| group.names.iter().map(move |name| (group, *name)));
    names.find(|(_, name)| name.rsplit_once('.').is_some_and(|(of, _)| of == module))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_is_found_by_its_full_name() {
        let check = |path: &str, expect: Option<&str>| {
            assert_eq!(find(path).map(|group| group.rule.id), expect, "{path}")
        };
        check("os.system", Some("python.process"));
        check("posix.system", Some("python.process"));
        check("builtins.eval", Some("python.dynamic_execution"));
        check("ctypes.CDLL", Some("python.native_code"));
        check("ctypes.CDLL().x", None);
        check("ctypes.__doc__", None);
        check("subprocess.PIPE", None);
        check("os.path", None);
        check("pathlib.Path().unlink", Some("python.file_deletion"));
    }

    #[test]
    fn no_name_stands_in_two_groups() {
        let names: usize = GROUPS.iter().map(|group| group.names.len()).sum();
        assert_eq!(INDEX.len(), names);
    }

    #[test]
    fn a_star_import_brings_the_gravest() {
        assert_eq!(in_module("os").map(|(_, name)| name), Some("os.system"));
        assert!(in_module("math").is_none());
    }
}
