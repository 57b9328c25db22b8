def _ringfence_template(os, sys, run, session, imports):
    """Imports what programs want, then forks one child for each sandbox that is handed to it, and tells their ends.

    A child walks into namespaces that stand ready, gives up every right, and goes on with `run`, which waits for its
    claim. Of a request this process learns how its program has ended, and nothing else.

    In a sandbox of its own it goes on with `run` itself, and forks nobody.
    """
    import array, ctypes, gc, json, resource, select, socket, stat, struct
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

    def told():
        loaded = ' '.join(sorted({name.split('.')[0] for name in sys.modules}))
        return json.dumps({'wanted': imported, 'loaded': loaded[:8192]}).encode()

    if stat.S_ISFIFO(os.fstat(4).st_mode):  # it is the claim's, and no control connection
        os.write(5, told())
        os.close(5)
        run(sys, lambda workspace: None, session, guard)  # does not return
    libc = ctypes.CDLL(None, use_errno=True)
    class Filter(ctypes.Structure):
        _fields_ = [('length', ctypes.c_ushort), ('lines', ctypes.c_void_p)]
    def must(result, what):
        if result != 0:
            raise OSError(ctypes.get_errno(), what)
    filters, kept = [], []
    with open(5, 'rb') as file:
        while True:
            head = file.read(4)
            if not head:
                break
            count = struct.unpack('=I', head)[0]
            kept.append(ctypes.create_string_buffer(file.read(8 * count), 8 * count))
            filters.append(Filter(count, ctypes.addressof(kept[-1])))
    control = socket.socket(fileno=4)
    poll, children = select.poll(), {}
    poll.register(control, select.POLLIN)
    NAMES = ('user', 'mount', 'net', 'ipc', 'uts', 'cgroup', 'pid', 'rules', 'stdin', 'stdout', 'stderr', 'report', 'waits', 'reply')

    def receive():
        text, extras, flags, _ = control.recvmsg(16384, socket.CMSG_SPACE(4 * 24))
        numbers = array.array('i')
        for level, kind, data in extras:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                numbers.frombytes(data)
        if flags & socket.MSG_CTRUNC:  # there is no room for all of them; whoever has asked hears that they are closed
            while numbers:
                os.close(numbers.pop())
        return (json.loads(text) if text else None), list(numbers)

    def tell(reply, event, numbers=()):
        extras = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', numbers))] if numbers else []
        try:
            reply.sendmsg([json.dumps(event).encode()], extras)
        except OSError:
            pass

    def enter(word, given, more):
        times, tasks = more[:word['times']], more[word['times']:]
        for task in tasks:
            os.write(task, b'0')
        for name in NAMES[:6]:
            must(libc.setns(given[name], 0), name)
        for namespace in times:
            must(libc.setns(namespace, 0), 'time')
        os.setsid()
        for number in range(64):
            if libc.prctl(24, number, 0, 0, 0) != 0:  # PR_CAPBSET_DROP, until past the last
                break
        os.setresgid(1000, 1000, 1000)
        os.setresuid(1000, 1000, 1000)
        must(libc.capset(struct.pack('=Ii', 0x20080522, 0), bytes(24)), 'capabilities')
        os.umask(0o022)
        os.chdir(word['workspace'])
        for number, name in enumerate((*NAMES[8:13], 'rules')):
            os.dup2(given[name], number)
        must(libc.prctl(4, 1, 0, 0, 0), 'dumpable')  # its own user's, as after an exec
        must(libc.prctl(22, 2, ctypes.byref(filters[0]), 0, 0), 'seccomp')

    def confine(workspace):
        """The last walls, of which the claim decides: what may be written, and less if a directory is shared."""
        try:
            if workspace:
                os.chdir(workspace)  # what lies here now was not here before
                is_read_only = os.statvfs('.').f_flag & os.ST_RDONLY
                for program in filters[1:] if is_read_only else filters[1:-1]:
                    must(libc.prctl(22, 2, ctypes.byref(program), 0, 0), 'seccomp')
            must(libc.syscall(446, 5, 0), 'landlock')
            os.close(5)
        except BaseException:
            os.kill(os.getpid(), 9)

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

    def serve():
        word, numbers = receive()
        if word is None:
            os._exit(0)
        if not numbers:
            return
        given, more = dict(zip(NAMES, numbers)), numbers[len(NAMES):]
        reply = socket.socket(fileno=given['reply'])
        try:
            must(libc.setns(given['pid'], 0), 'pid')
            pid = os.fork()
        except OSError as error:
            tell(reply, {'Failed': 'fork: %s' % error})
            pid = None
        if pid == 0:
            try:
                enter(word, given, more)
                refresh()
                rehearse('pandas', use_pandas)
            except BaseException as error:
                tell(reply, {'Failed': '%s: %s' % (type(error).__name__, error)})
                os._exit(1)
            tell(reply, 'Ready')
            reply.detach()
            control.detach()
            children.clear()
            os.closerange(6, 1 << 20)
            run(sys, confine, session, guard)  # does not return: taking these frames apart would copy their pages
        for number in numbers:
            if number != given['reply']:
                os.close(number)
        if pid:
            child = os.pidfd_open(pid)
            children[child] = (pid, reply)
            poll.register(child, select.POLLIN)
            tell(reply, 'Forked', [child])

    def bury(child):
        pid, reply = children.pop(child)
        poll.unregister(child)
        os.close(child)
        _, status, usage = os.wait4(pid, 0)
        end = (status, usage.ru_utime * 1e6, usage.ru_stime * 1e6, usage.ru_maxrss)
        try:
            reply.send(b'{"Ended":{"status":%d,"user_us":%d,"system_us":%d,"max_rss_kib":%d}}' % end)
        except OSError:
            pass
        reply.close()

    gc.collect()
    generators = [thing for thing in gc.get_objects() if isinstance(thing, sys.modules['random'].Random)] \
        if 'random' in sys.modules else []
    gc.freeze()
    control.send(told())
    def reap_strangers():
        """A child that this process has not forked holds up the end of its sandbox until it is waited for."""
        try:
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if any(pid == ended.si_pid for pid, _ in children.values()):
                    return  # which comes next
                os.waitpid(ended.si_pid, 0)
        except ChildProcessError:
            pass

    while True:
        for number, _ in poll.poll():
            bury(number) if number in children else serve()
        reap_strangers()
