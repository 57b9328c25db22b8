# Serves the calls of a session, one after the other, in a namespace separate from the program's.
import _signal, io, json, linecache, opcode
OWN, REQUEST_BYTES_MAX, SOURCES_MAX, SOURCE_BYTES_MAX = '<ringfence>', 96 << 20, 1000, 8 << 20
FUTURE, COROUTINE, STORE, EXTENDED = 0x1ff0000, 0x80, opcode.opmap['STORE_NAME'], opcode.opmap['EXTENDED_ARG']
INTERRUPT, handle, scan = 2, _signal.signal, json.JSONDecoder().scan_once
# Kept as they are now: a program may replace any of them.
read, read_into, write, close, dup2, lseek, getpid = os.read, os.readv, os.write, os.close, os.dup2, os.lseek, os.getpid
text_file, lines_of, memfd = io.TextIOWrapper, linecache.cache, getattr(os, 'memfd_create', None)
module, environ, streams, process = sys.modules['__main__'], os.environ, (sys.stdout, sys.stderr), getpid()
encoding, errors = sys.stdin.encoding, sys.stdin.errors
armed, future, loop, task, asked, bridge, sources = False, 0, None, None, False, None, {}

def private(number, place):
    """Moves a descriptor to a number that a program does not use by accident and its children do not inherit."""
    for high in (1000, 200, 60):
        try:
            moved = os.dup2(number, high + place, inheritable=False)
            break
        except OSError:
            pass
    else:
        moved = os.dup(number)
    os.close(number)
    return moved

del main['__file__']
requests, report = private(0, 0), private(3, 1)
nowhere = os.open(os.devnull, os.O_RDONLY)  # gets number 0
nothing = private(os.dup(nowhere), 2)
os.set_inheritable(nowhere, True)

def interrupt(number, frame):
    """Interrupts only the caller's code. The sender repeats the signal until the call has ended."""
    global asked
    if not armed or frame is None or frame.f_code in (tell.__code__, send.__code__):
        return
    if frame.f_code.co_filename == OWN:
        if 'late' in frame.f_globals:
            frame.f_globals['late'] = True
        return
    # Between two steps of a task the exception would be lost.
    if task and not asked and sys.modules['asyncio'].current_task(loop) is None:
        asked = True
        task.cancel()
        loop.call_soon_threadsafe(int)
        return
    raise KeyboardInterrupt

def awaited(codes):
    """Runs code that awaits. The event loop and its tasks stay for later calls."""
    global loop, task, asked
    import asyncio
    async def steps():
        for code in codes:
            value = eval(code, main) if code else None
            if code and code.co_flags & COROUTINE:
                value = await value
        return value
    if loop is None or loop.is_closed():
        loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    task, asked = loop.create_task(steps()), False
    try:
        return loop.run_until_complete(task)
    except asyncio.CancelledError as error:
        if asked:
            raise KeyboardInterrupt().with_traceback(error.__traceback__) from None
        raise
    except KeyboardInterrupt:
        # It hit another task, or the loop, which may have lost a wakeup.
        if not task.done():
            asked = True
            task.cancel()
            try:
                loop.run_until_complete(asyncio.wait([task], timeout=1))
            except BaseException:
                pass
        raise
    finally:
        task = None

def bound(code):
    """Returns the names that a program binds at its top level."""
    names, more, text = [], 0, code.co_code
    for at in range(0, len(text), 2):
        number = text[at + 1] | more
        more = number << 8 if text[at] == EXTENDED else 0
        if text[at] == STORE and code.co_names[number] not in names:
            names.append(code.co_names[number])
    return names

def remember(name, call, code):
    """Keeps the source for tracebacks. A name used for two sources would show the lines of the other."""
    if sources.get(name, code) != code:
        name = '%s (call %d)' % (name, call)
    sources.pop(name, None)
    sources[name] = code
    while len(sources) > SOURCES_MAX or len(sources) > 1 and sum(map(len, sources.values())) > SOURCE_BYTES_MAX:
        oldest = next(iter(sources))
        del sources[oldest]
        lines_of.pop(oldest, None)
    # Longer code takes many times its size here, and its tracebacks show no lines.
    if len(code) <= SOURCE_BYTES_MAX:
        lines_of[name] = (len(code), None, [line + '\n' for line in code.split('\n')], name)
    return name

def run(code, script):
    """Returns the value of the last expression, or of a result name that this call assigns."""
    global future
    body, last, results = compiled(code, script, future)
    future |= body.co_flags & FUTURE
    names = bound(body)
    if (body.co_flags | (last.co_flags if last else 0)) & COROUTINE:
        value = awaited((body, last))
    else:
        exec(body, main)
        value = eval(last, main) if last else None
    return value_of(value, results), [name for name in names if name in main and not name.startswith('__')]

def explain(error, script):
    """Reports a traceback from the caller's code on, also if it ends in the interrupt handler above."""
    trace = error.__traceback__
    while trace and trace.tb_frame.f_code.co_filename != script:
        trace = trace.tb_next
    error.__traceback__ = trace
    words = {'sys': sys, 'os': os, 'script': script, 'tell': tell, 'unpatched': unpatched}
    exec(explaining, words)
    words['explain'](error)

def enter(request):
    """Sets the arguments, environment and standard input of a call."""
    sys.modules['__main__'] = module
    sys.argv = [request['name'], *request['args']]
    if request['env']:
        environ.update(request['env'])
    if 'TZ' in request['env']:
        import time
        time.tzset()
    if request['stdin']:
        given, failure = request['input']
        if given:  # number 0, if the program has closed that, is in its place
            dup2(given, 0)
            close(given)
        if failure:
            raise failure
        sys.stdin = text_file(open(0, 'rb', closefd=False), encoding, errors)

def attempt(step):
    """Calls code that the program may have replaced: its failure is not the call's."""
    try:
        step()
    except KeyboardInterrupt:
        raise
    except BaseException:
        pass

def leave():
    """Flushes printed output before the end of the call is reported."""
    for stream in (getattr(sys, 'stdout', None), getattr(sys, 'stderr', None), *streams):
        attempt(lambda: stream.flush())

def is_done(status):
    """A script may exit with 0 when it is done; its session goes on."""
    return status.code is None or issubclass(type(status.code), int) and int.__eq__(status.code, 0)

def perform(request):
    """Runs one call. True if it succeeded."""
    global armed
    script = remember(request['name'], request['call'], request['code'])
    value, failure, last, before = None, None, None, getattr(sys, 'stdin', None)
    unpatched.clear()
    try:
        enter(request)
        checks = request.get('checks')
        if checks:
            restrict(checks, script)
        armed = True
        if checks:
            patch(checks)
        value, names = run(request['code'].lstrip('\ufeff'), script)
        if getpid() != process:
            return True  # a child that the program has forked
        if value is not None:
            describe(value)
        for name in names[:1000]:
            if not issubclass(type(main.get(name)), type(sys)):
                tell(b'V', name, 256)
    except SystemExit as status:
        if getpid() != process or not is_done(status):
            last = status
    except BaseException as error:
        failure = error
    try:
        if failure is not None:
            explain(failure, script)
        if getpid() == process:
            display(value)
            plot = sys.modules.get('matplotlib.pyplot')
            if plot:
                attempt(lambda: plot.close('all'))  # shown once
        leave()
    except BaseException as error:
        failure = error if failure is None else failure
        tell(b'E', name_of(type(failure)), 1024)
    armed = False
    if last is not None:
        raise last
    if request['stdin']:
        sys.stdin = before
        dup2(nothing, 0)
    return failure is None

def exchange(request):
    """Returns the value of a variable, or sets it, as JSON."""
    global armed, bridge
    try:
        armed = True
        if bridge is None:
            bridge = {'__builtins__': __builtins__}
            exec(bridging, bridge)
        if 'get' in request:
            if request['get'] not in main:
                raise NameError("name '%s' is not defined" % request['get'])
            tell(b'J', bridge['encoded'](main[request['get']], request['get']), 24 << 20)
        else:
            if request['set'][:2] == '__' == request['set'][-2:]:
                raise SyntaxError('%s is a name of Python itself' % request['set'])
            main[request['set']] = bridge['decoded'](request['value'], request['set'])
        armed = False
        return True
    except BaseException as error:
        armed = False
        tell(b'E', name_of(type(error)), 1024)
        tell(b'M', str(error) if type(error).__module__ == 'builtins' else '', 65536)
        return False

def whole(size):
    data, count = bytearray(size), 0
    while count < size:
        part = read_into(requests, [memoryview(data)[count:count + (1 << 20)]])
        if not part:
            return None
        count += part
    return data

def stored(size):
    """Moves the input of a call into a file; returns that, and the error if it does not fit."""
    given = failure = None
    try:
        given = memfd('stdin', 0)
    except Exception as error:
        failure = error
    while size:
        part = read(requests, min(size, 1 << 20))
        if not part:
            return None
        size -= len(part)
        try:
            while part and not failure:
                part = part[write(given, part):]
        except OSError as error:
            failure = error
    if given is not None:
        lseek(given, 0, 0)
    return given, failure

def next_request():
    """Waits for the next request; tasks continue meanwhile."""
    global armed
    if loop is not None and not loop.is_closed():
        waiting = True
        while waiting:
            try:
                loop.add_reader(requests, loop.stop)
                armed = True
                loop.run_forever()
                waiting = False
            except KeyboardInterrupt:
                pass  # it interrupted a background task
            except SystemExit as status:
                if getpid() != process or not is_done(status):
                    raise
            except Exception:
                waiting = False  # the program has broken the loop
            finally:
                armed = False
        loop.remove_reader(requests)
        if getpid() != process:
            return None
    head = whole(4)
    size = int.from_bytes(head or b'', 'big')
    data = whole(size) if head and size <= REQUEST_BYTES_MAX else None
    request = data and scan(data.decode(), 0)[0]
    if request and request.get('stdin'):
        request['input'] = stored(request['stdin'])
        return request['input'] and request
    return request

def done(number, ok):
    tell(b'C', '{"call":%d,"ok":%s}' % (number, 'true' if ok else 'false'), 64)
    send()

def serve():
    """Serves calls until the requests end, or the program exits."""
    number, ok = 0, True
    while True:
        try:
            # A program may have installed its own handler, which lasts for one call.
            handle(INTERRUPT, interrupt)
            done(number, ok)
            request = next_request()
        except SystemExit as status:
            return status
        except BaseException:
            return 1
        if request is None:
            return 0
        number = request['call']
        try:
            ok = perform(request) if 'code' in request else exchange(request)
        except SystemExit as status:
            return status
        except BaseException as error:
            ok = False  # the program has broken functions used here
            tell(b'E', name_of(type(error)), 1024)
        release()
        if getpid() != process:
            return 0 if ok else 1
