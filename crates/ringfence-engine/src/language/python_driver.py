def _ringfence(sys, forked, session, guard):
    import _thread, os
    report, write, getpid = 3, os.write, os.getpid
    # Compiled only when they are needed: together they are as long as the rest.
    explain, show, bridge, imports, fork = EXPLAIN, DISPLAY, BRIDGE, IMPORTS, FORKED
    FORMS = ('png', 'jpeg', 'svg', 'html', 'markdown', 'latex', 'json')
    main = sys.modules['__main__'].__dict__
    def compiled(source, script, future=None):
        """Returns the statements, the expression at their end, and the result names that they assign. In a session
        imports from __future__ stay in force."""
        TREE, AWAIT = 0x400, 0x2000 if sys.version_info >= (3, 8) else 0
        tree = compile(source, script, 'exec', TREE | (future or 0), dont_inherit=True)
        last = None
        # By name, because importing the types costs more than everything else here.
        if tree.body and type(tree.body[-1]).__name__ == 'Expr' and (future is not None or not (
                len(tree.body) == 1 and isinstance(getattr(tree.body[0].value, 'value', None), str))):
            last = compile('0', '', 'eval', TREE, dont_inherit=True)
            last.body = tree.body.pop().value
        names = assigned(tree.body)
        body = compile(tree, script, 'exec', AWAIT | (future or 0), dont_inherit=True)
        future = body.co_flags & 0x1ff0000
        if last is not None:
            last = compile(last, script, 'eval', AWAIT | future, dont_inherit=True)
        return body, last, names
    def assigned(body):
        """Returns the result names that a plain assignment outside functions and classes binds. An assignment below a
        condition may be skipped, so a value from an earlier call does not count. Targets of loops do not count."""
        names, loops, waiting = set(), set(), [(node, True) for node in body]
        while waiting:
            node, certain = waiting.pop()
            kind = type(node).__name__
            if kind in ('Assign', 'AnnAssign') and node.value:
                bound = {getattr(target, 'id', None) for target in getattr(node, 'targets', None) or [node.target]}
                names |= bound if certain else bound.difference(main)
            elif kind in ('For', 'AsyncFor'):
                targets = [node.target]
                while targets:
                    target = targets.pop()
                    loops.add(getattr(target, 'id', None))
                    targets += [target.value] if type(target).__name__ == 'Starred' else getattr(target, 'elts', ())
            if kind not in ('FunctionDef', 'AsyncFunctionDef', 'ClassDef'):
                for part in ('body', 'orelse', 'handlers', 'finalbody', 'cases'):
                    waiting += [(below, False) for below in getattr(node, part, ())]
        return [name for name in ('result', 'output', '_') if name in names and name not in loops]
    told, turn = [], _thread.allocate_lock()
    def tell(tag, text, limit):
        """In a session all records of a call are sent with its end, unless they are many or long."""
        # One byte more than the limit marks a cut. The methods of `str` itself: a program may give a subclass.
        data = str.encode(str.__getitem__(text, slice(limit + 1)), 'utf-8', 'backslashreplace')[:limit + 1]
        record = tag + len(data).to_bytes(4, 'big') + data
        if getpid() != process:
            # The result is that of the parent. What a forked child was refused is short, and so written whole.
            if tag == b'S':
                try:
                    write(report, record)
                except OSError:
                    pass  # the reading end is closed
            return
        told.append(record)
        if not serving or len(data) > 4096 or len(told) > 256:
            send()
    def send():
        """A call during another one, in another thread or reentrant, leaves its records to that one."""
        while told and getpid() == process and turn.acquire(False):
            try:
                count = len(told)
                data = b''.join(told[:count])
                del told[:count]
                while data:
                    data = data[write(report, data):]
            except OSError:
                pass  # the reading end is closed
            finally:
                turn.release()
    def value_of(value, names):
        """The value of the last expression, else the first assigned result name."""
        for name in names:
            if value is None:
                value = main.get(name)
        return value
    # Of the type itself: a metaclass may answer anything.
    name_of, of_module = type.__dict__['__name__'].__get__, type.__dict__['__module__'].__get__
    def of_numpy(thing):
        module = of_module(type(thing))
        return type(module) is str and module == 'numpy'
    def plain(thing):
        """A number or an array of numpy, if it is not huge."""
        if not of_numpy(thing) or thing.size > 1 << 16:
            raise TypeError
        return thing.tolist()
    def exact(digits):
        """An integer, or its digits if it exceeds 64 bits: JSON parsers would round it."""
        return int(digits) if -1 << 63 <= int(digits) < 1 << 64 else digits
    tools = []
    def prepare():
        """Keeps what reads and writes JSON: a program may replace the functions of these modules."""
        import json, re
        write_json = json.JSONEncoder(allow_nan=False, default=plain).encode
        try:
            from _json import encode_basestring_ascii as escape, make_encoder
            write_json = lambda value: ''.join(
                make_encoder({}, plain, escape, None, ': ', ', ', False, False, False)(value, 0))
        except ImportError:
            pass  # an implementation of Python without it
        decoders = json.JSONDecoder(), json.JSONDecoder(parse_int=exact)
        tools.extend([write_json, *(one.scan_once for one in decoders), re.compile('[0-9]{19}').search])
    def describe(value):
        kind = type(value)
        is_long = (kind is str or kind is bytes) and len(value) > 1 << 20  # what is shown of it is much shorter
        try:
            text = repr(value[:1 << 20] if is_long else value)
        except KeyboardInterrupt:
            raise
        except BaseException:
            text = '<unrepresentable %s>' % name_of(kind)
        tell(b'P', text, 65536)
        try:
            if of_numpy(value):
                value = plain(value)
                kind = type(value)
            if not is_long and any(kind is one for one in (bool, int, float, str, list, dict, tuple)):
                if not tools:
                    prepare()
                write_json, read, read_exact, long_number = tools
                text = write_json(value)
                # Keys that JSON turns into text would not come back the same.
                if len(text) <= 1 << 20 and read(text, 0)[0] == (list(value) if kind is tuple else value):
                    if long_number(text):
                        text = write_json(read_exact(text, 0)[0])
                    if len(text) <= 1 << 20:
                        tell(b'R', text, 1 << 20)
        except KeyboardInterrupt:
            raise
        except BaseException:
            pass
    def restrict(checks, script):
        """Restricts the program's imports from now on."""
        nonlocal guard
        if checks['imports'] is None:
            return
        if guard is None:
            guard = {'__builtins__': __builtins__, 'sys': sys}
            exec(compile(imports, '<ringfence>', 'exec'), guard)
        guard.update(tell=tell, send=send)
        guard['begin'](checks['imports'], checks['profile'], script, here, packages)
        main['__loader__'] = None
    def patch(checks):
        """Adds imports that the program forgot. One that fails leaves the name undefined, and its error is reported if
        the program fails because of that."""
        for name, statement in checks['patches']:
            # A file of the caller with the module's name is left for the program to import.
            place = os.path.join(here, statement.split()[1].partition('.')[0])
            if name not in main and not os.path.exists(place) and not os.path.exists(place + '.py'):
                try:
                    exec(compile(statement, '<ringfence>', 'exec', dont_inherit=True), main)
                    patched[name] = main.get(name)
                    tell(b'F', name, 256)
                except Exception as error:
                    unpatched[name] = error
    def release():
        if guard and guard['allowed'] is not None:
            guard['end']()
    def from_environment():
        """Reads the checks, which are split because of the limit on one variable."""
        text, name = '', 'RINGFENCE_CHECKS'
        while name in os.environ:
            text += os.environ.pop(name)
            name += '_'
        # Importing `json` would cost more than all the rest, and the server's JSON is a Python literal too.
        return eval(text, {'null': None}) if text else None
    def run():
        with open(script, 'rb', 0) as file:
            body, last, names = compiled(file.read(), script)
        if not (body.co_flags | (last.co_flags if last else 0)) & 0x80:
            exec(body, main)
            return value_of(eval(last, main) if last else None, names)
        import asyncio
        async def steps():
            for code in (body, last):
                value = eval(code, main) if code else None
                if code and code.co_flags & 0x80:
                    value = await value
            return value
        return value_of(asyncio.run(steps()), names)
    here = sys.path[0] = os.getcwd()
    os.set_inheritable(report, False)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)
    for name in [name for name in main if name not in ('__name__', '__builtins__', '__loader__', '__spec__')]:
        del main[name]
    main.update(__doc__=None, __package__=None, __file__=None, __cached__=None, __annotations__={})
    given, patched, unpatched = set(main), {}, {}
    if forked:
        words = {'__builtins__': __builtins__, 'sys': sys, 'os': os, 'main': main, 'compiled': compiled}
        exec(fork, words)
        take, end_fork = words['take'], words['end_fork']
        rehearsed = words['rehearse']({'env': dict(os.environ), 'script': os.devnull, 'args': []})
        word = forked(words['trial'])
        block = take(word)
        del rehearsed, words
    process = getpid()
    checks = word.get('checks') if forked else from_environment()
    serving = session and (not forked or word.get('session'))
    output = os.environ.get('RINGFENCE_OUTPUT_DIR')
    def display(value):
        """Reports every form that a value has, and open figures."""
        kind, plot = type(value), sys.modules.get('matplotlib.pyplot')
        try:
            # Looking up what is absent writes to the interpreter's cache, whose pages a fork would have to copy.
            formless = value is None or issubclass(kind, type)
            forms = [] if formless else [form for form in FORMS if hasattr(kind, '_repr_%s_' % form)]
            is_shown = forms or plot and plot.get_fignums()
        except KeyboardInterrupt:
            raise
        except BaseException:
            return  # the program's own code, in a metaclass or in a module
        if is_shown:
            words = {'tell': tell, 'output': output}
            exec(show, words)
            words['show'](value, forms, plot)
    packages = os.environ.get('RINGFENCE_PACKAGES')
    if packages:
        # After the standard library, which no package shadows, and before the interpreter's packages of the same names.
        packages += '/python'
        ends = ('site-packages', 'dist-packages')
        sites = [at for at, path in enumerate(sys.path) if path.endswith(ends)]
        sys.path.insert(sites[0] if sites else len(sys.path), packages)
        os.environ.setdefault('PYTHONPATH', packages)  # for interpreters that the program starts
    if serving:
        words = {'__builtins__': __builtins__, 'sys': sys, 'os': os, 'main': main, 'tell': tell, 'send': send,
                 'compiled': compiled, 'value_of': value_of, 'describe': describe, 'display': display, 'name_of': name_of,
                 'explaining': explain, 'bridging': bridge,
                 'restrict': restrict, 'patch': patch, 'release': release, 'unpatched': unpatched}
        exec(session, words)
        prepare()
        report = words['report']
        status = words['serve']()
        if forked:
            end_fork(status)
        return status
    del sys.argv[0]
    script = main['__file__'] = sys.argv[0]
    status, value = 0, None
    try:
        if checks:
            restrict(checks, script)
            patch(checks)
        value = run()
        names = [name for name in main if type(name) is str and name not in given and not name.startswith('__')]
        if value is not None:
            describe(value)
        for name in names[:1000]:
            if not issubclass(type(main[name]), type(sys)) and main[name] is not patched.get(name, main):
                tell(b'V', name, 256)
    except SystemExit as leave:
        status = leave
    except BaseException as error:
        words = {'sys': sys, 'os': os, 'script': script, 'tell': tell, 'unpatched': unpatched}
        exec(explain, words)
        words['explain'](error)
        status = 1
    try:
        if getpid() == process:
            display(value)
    except BaseException:
        pass  # the program may have replaced functions used here
    if forked:
        end_fork(status)
    return status
