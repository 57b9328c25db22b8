def _ringfence_template(os, sys, run, session, imports):
    """Imports modules for programs, then continues with `run` in each child that it forks: one for each requested
    sandbox. A shared object, the file at descriptor 6, forks and raises the walls of a child.

    In a sandbox of its own it continues with `run` itself, and does not fork.
    """
    import ctypes, gc, json, stat, struct
    imported = []
    for name in os.environ.pop('RINGFENCE_PRELOAD').split(','):
        try:
            __import__(name)
            imported.append(name)
        except Exception:
            pass
    import atexit, io, threading  # used by every program at its end
    def use_pandas():
        frame = sys.modules['pandas'].DataFrame({'a': [1.0, 2.0], 'b': [3, 4]})
        str(frame.describe())
    def use_pyplot():
        plot = sys.modules['matplotlib.pyplot']
        plot.plot([0, 1], label='x')
        plot.title('x')
        plot.legend()
        plot.savefig(io.BytesIO(), format='png')
        plot.close('all')
    def rehearse(module, use):
        if module in imported:
            try:
                use()
            except Exception:
                pass  # only costs time later
    # These import more modules, and search for fonts, when they are first used.
    rehearse('pandas', use_pandas)
    rehearse('matplotlib.pyplot', use_pyplot)
    guard = {'__builtins__': run.__globals__['__builtins__'], 'sys': sys}
    exec(imports, guard)
    guard['prepare'](imported)

    scan = json.JSONDecoder().scan_once
    sample = json.dumps({'env': dict(os.environ), 'script': os.devnull, 'args': []})
    def read(number):
        """Reads without file objects and regular expressions, whose pages a fork would have to copy."""
        text = b''
        while part := os.read(number, 1 << 16):
            text += part
        os.close(number)
        return scan(text.decode(), 0)[0]

    def told():
        loaded = ' '.join(sorted({name.split('.')[0] for name in sys.modules}))
        return json.dumps({'wanted': imported, 'loaded': loaded[:8192]}).encode()

    if stat.S_ISFIFO(os.fstat(4).st_mode):  # the pipe of a claim, not a control connection
        os.write(5, told())
        os.close(5)
        run(sys, lambda trial: read(4), session, guard)
        return
    class Filter(ctypes.Structure):
        _fields_ = [('length', ctypes.c_ushort), ('code', ctypes.c_void_p)]
    class Setup(ctypes.Structure):
        _fields_ = [('control', ctypes.c_int), ('filter_count', ctypes.c_uint),
                    ('filters', ctypes.c_void_p), ('whole', ctypes.c_void_p)]
    filters, kept = [], []
    with open(5, 'rb', closefd=False) as file:
        while True:
            head = file.read(4)
            if not head:
                break
            count = struct.unpack('=I', head)[0]
            kept.append(ctypes.create_string_buffer(file.read(8 * count), 8 * count))
            filters.append(Filter(count, ctypes.addressof(kept[-1])))
    filters = (Filter * len(filters))(*filters)
    # Loaded by a name that no program uses: the loader would reuse this library for a program's file of the same name.
    forker = ctypes.PyDLL('/proc/self/fd/../fd/6')
    os.closerange(5, 7)

    def has_no_handlers(name, module):
        """True if a module registers no handlers for forks: it comes with the interpreter, and `refresh` does the work
        of its handlers, or it is Python code that names no function that registers handlers."""
        if name == '__main__' or name.partition('.')[0] in getattr(sys, 'stdlib_module_names', ()):
            return True
        space = vars(module)
        place = space.get('__file__')
        if type(place) is not str:
            return '__path__' in space  # a namespace package, without code
        if not place.endswith('.py'):
            return False
        with open(place, 'rb') as file:
            text = file.read()
        return not any(word in text for word in (b'register_at_fork', b'pthread_atfork', b'ctypes'))

    def whole_fork():
        """Returns the functions for a full fork by Python and the C library, or None if the bare system call is enough.
        A full fork is needed if libraries may have threads or handlers for forks, or without glibc."""
        try:
            is_plain = os.confstr('CS_GNU_LIBC_VERSION') and len(os.listdir('/proc/self/task')) == 1
            if is_plain and all(has_no_handlers(name, module) for name, module in list(sys.modules.items())):
                return None
        except Exception:
            pass  # a module that cannot be inspected
        names = ('PyOS_BeforeFork', 'fork', 'PyOS_AfterFork_Parent', 'PyOS_AfterFork_Child')
        functions = [ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value for name in names]
        return (ctypes.c_void_p * 4)(*functions)

    def refresh():
        """Reseeds random number generators: numbers from before the fork must not repeat."""
        modules = sys.modules
        for generator in generators:
            generator.seed()
        if 'tempfile' in modules:
            modules['tempfile']._name_sequence = None
        if 'uuid' in modules:
            modules['uuid']._last_timestamp = None
        if 'numpy.random' in modules:
            modules['numpy.random'].seed()
        if 'multiprocessing.process' in modules:
            modules['multiprocessing.process'].current_process().authkey = os.urandom(32)
        if '_ssl' in modules:  # it detects a fork by its pid, which is the same in every sandbox
            modules['_ssl'].RAND_add(os.urandom(32), 32.0)
        threading.main_thread()._set_native_id()

    def try_run(trial):
        """Runs a trial fork to find the pages that forks write to."""
        if forker.try_run() < 0:
            try:
                refresh()
                trial(scan(sample, 0)[0])
                forker.found()
            finally:
                os._exit(0)

    def wait(trial):
        """Forks, and reads the message of each child in that child."""
        refresh()  # if this fails, it fails before any fork
        gc.collect()
        gc.freeze()
        if not whole:  # the trial is forked by the bare system call
            try_run(trial)
        os.write(4, told())
        forker.serve(ctypes.byref(setup))
        refresh()
        word = read(4)
        forker.confine(ctypes.byref(setup), word.get('workspace', '').encode() or None)
        return word

    whole = whole_fork()
    address = ctypes.addressof(whole) if whole else None
    setup = Setup(4, len(filters), ctypes.addressof(filters), address)
    generators = [thing for thing in gc.get_objects() if isinstance(thing, sys.modules['random'].Random)] \
        if 'random' in sys.modules else []
    run(sys, wait, session, guard)
