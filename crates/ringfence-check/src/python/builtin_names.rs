//! Names that every module has without binding them.

/// Of CPython 3.8 to 3.14 on Linux, with what `site` adds, in alphabetical order.
#[rustfmt::skip]
const BUILTINS: &[&str] = &[
    "ArithmeticError", "AssertionError", "AttributeError", "BaseException", "BaseExceptionGroup", "BlockingIOError",
    "BrokenPipeError", "BufferError", "BytesWarning", "ChildProcessError", "ConnectionAbortedError",
    "ConnectionError", "ConnectionRefusedError", "ConnectionResetError", "DeprecationWarning", "EOFError",
    "Ellipsis", "EncodingWarning", "EnvironmentError", "Exception", "ExceptionGroup", "False", "FileExistsError",
    "FileNotFoundError", "FloatingPointError", "FutureWarning", "GeneratorExit", "IOError", "ImportError",
    "ImportWarning", "IndentationError", "IndexError", "InterruptedError", "IsADirectoryError", "KeyError",
    "KeyboardInterrupt", "LookupError", "MemoryError", "ModuleNotFoundError", "NameError", "None",
    "NotADirectoryError", "NotImplemented", "NotImplementedError", "OSError", "OverflowError",
    "PendingDeprecationWarning", "PermissionError", "ProcessLookupError", "PythonFinalizationError",
    "RecursionError", "ReferenceError", "ResourceWarning", "RuntimeError", "RuntimeWarning", "StopAsyncIteration",
    "StopIteration", "SyntaxError", "SyntaxWarning", "SystemError", "SystemExit", "TabError", "TimeoutError",
    "True", "TypeError", "UnboundLocalError", "UnicodeDecodeError", "UnicodeEncodeError", "UnicodeError",
    "UnicodeTranslateError", "UnicodeWarning", "UserWarning", "ValueError", "Warning", "ZeroDivisionError",
    "_IncompleteInputError", "__build_class__", "__debug__", "__import__", "abs", "aiter", "all", "anext", "any",
    "ascii", "bin", "bool", "breakpoint", "bytearray", "bytes", "callable", "chr", "classmethod", "compile",
    "complex", "copyright", "credits", "delattr", "dict", "dir", "divmod", "enumerate", "eval", "exec", "exit",
    "filter", "float", "format", "frozenset", "getattr", "globals", "hasattr", "hash", "help", "hex", "id", "input",
    "int", "isinstance", "issubclass", "iter", "len", "license", "list", "locals", "map", "max", "memoryview",
    "min", "next", "object", "oct", "open", "ord", "pow", "print", "property", "quit", "range", "repr", "reversed",
    "round", "set", "setattr", "slice", "sorted", "staticmethod", "str", "sum", "super", "tuple", "type", "vars",
    "zip",
];

/// What the import system binds in a module before its first statement.
#[rustfmt::skip]
const OF_A_MODULE: &[&str] = &[
    "__annotations__", "__builtins__", "__cached__", "__doc__", "__file__", "__loader__", "__name__", "__package__",
    "__spec__",
];

/// What a class body finds bound.
const OF_A_CLASS: &[&str] = &["__module__", "__qualname__"];

/// Does every module have it.
pub(crate) fn is_builtin(name: &str) -> bool {
    builtin(name).is_some()
}

/// The name, if every module has it.
pub(crate) fn builtin(name: &str) -> Option<&'static str> {
    let find = |names: &'static [&'static str]| names.binary_search(&name).ok().and_then(|at| names.get(at));
    find(BUILTINS).or_else(|| find(OF_A_MODULE)).copied()
}

/// Does every class body have it.
pub(crate) fn is_of_a_class(name: &str) -> bool {
    OF_A_CLASS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_sorted_so_that_they_can_be_searched() {
        assert!(BUILTINS.is_sorted() && OF_A_MODULE.is_sorted());
        assert!(is_builtin("print") && is_builtin("__file__") && !is_builtin("os") && !is_builtin("unicode"));
    }
}
