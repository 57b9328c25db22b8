def _ringfence_template(os, sys, run, session, imports):
    """Imports what programs want, then goes on with `run` in each child that it forks: one for each sandbox that it is
    asked for. What forks, and raises the walls of a child, is a shared object, the file that is descriptor 6.

    In a sandbox of its own it goes on with `run` itself, and forks nobody.
    """
    import ctypes, gc, json, stat, struct
    imported = []
    for name in os.environ.pop('RINGFENCE_PRELOAD').split(','):
        try:
            __import__(name)
            imported.append(name)
        except Exception:
            pass
    import atexit, io, threading  # what every program uses at its end
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
                pass  # it costs time later, and nothing else
    # These import more, and look for fonts, when they are first used.
    rehearse('pandas', use_pandas)
    rehearse('matplotlib.pyplot', use_pyplot)
    guard = {'__builtins__': run.__globals__['__builtins__'], 'sys': sys}
    exec(imports, guard)
    guard['prepare'](imported)

    scan = json.JSONDecoder().scan_once
    sample = json.dumps({'env': dict(os.environ), 'script': os.devnull, 'args': []})
    def read(number):
        """Without objects and regular expressions, whose pages a fork would have to copy."""
        text = b''
        while part := os.read(number, 1 << 16):
            text += part
        os.close(number)
        return scan(text.decode(), 0)[0]

    def told():
        loaded = ' '.join(sorted({name.split('.')[0] for name in sys.modules}))
        return json.dumps({'wanted': imported, 'loaded': loaded[:8192]}).encode()

    if stat.S_ISFIFO(os.fstat(4).st_mode):  # it is the claim's, and no control connection
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
    # By a name that no program uses: the loader would give it this for a file of its own.
    forker = ctypes.PyDLL('/proc/self/fd/../fd/6')
    os.closerange(5, 7)

    def has_no_handlers(name, module):
        """Of forks: the module comes with the interpreter, and `refresh` does what its handlers would do, or it is Python
        code that names nothing by which handlers are registered."""
        if name == '__main__' or name.partition('.')[0] in getattr(sys, 'stdlib_module_names', ()):
            return True
        space = vars(module)
        place = space.get('__file__')
        if type(place) is not str:
            return '__path__' in space  # of a namespace, without code
        if not place.endswith('.py'):
            return False
        with open(place, 'rb') as file:
            text = file.read()
        return not any(word in text for word in (b'register_at_fork', b'pthread_atfork', b'ctypes'))

    def whole_fork():
        """What forks a process whose libraries may have threads, or handlers for forks; and where the C library is not
        GNU's, which alone lets a fork go past it."""
        try:
            is_plain = os.confstr('CS_GNU_LIBC_VERSION') and len(os.listdir('/proc/self/task')) == 1
            if is_plain and all(has_no_handlers(name, module) for name, module in list(sys.modules.items())):
                return None
        except Exception:
            pass  # a module that cannot be looked at
        names = ('PyOS_BeforeFork', 'fork', 'PyOS_AfterFork_Parent', 'PyOS_AfterFork_Child')
        functions = [ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value for name in names]
        return (ctypes.c_void_p * 4)(*functions)

    def refresh():
        """What was drawn before the fork must not be drawn again."""
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
        if '_ssl' in modules:  # which knows a fork by its pid, and that is the same in every sandbox
            modules['_ssl'].RAND_add(os.urandom(32), 32.0)
        threading.main_thread()._set_native_id()

    def try_run(trial):
        """Finds the pages that forks touch."""
        if forker.try_run() < 0:
            try:
                refresh()
                trial(scan(sample, 0)[0])
                forker.found()
            finally:
                os._exit(0)

    def wait(trial):
        """Forks, and reads in each child what that is to do."""
        refresh()  # fails here, if it does, and there are no forks
        gc.collect()
        gc.freeze()
        if not whole:  # the trial is forked by the system call alone
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
