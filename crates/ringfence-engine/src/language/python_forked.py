# What a fork of a template does before its program and after it; and an interpreter that was there before its claim.
import ctypes, gc, time
from array import array
environ = ctypes.c_void_p.in_dll(ctypes.CDLL(None), 'environ')
def take(word):
    """What an interpreter that was there before its claim is told."""
    env = {name.encode(): text.encode() for name, text in word['env'].items()}
    os.environ._data.clear()
    os.environ._data.update(env)
    # As a whole, because setenv(3) looks through all of them for each.
    lines = [name + b'=' + text for name, text in env.items()]
    text = b'\0'.join(lines) + b'\0'
    # Where the bytes of a text are: behind its head, and before the zero that ends them.
    at, block = id(text) + bytes.__basicsize__ - 1, array('Q')
    for line in lines:
        block.append(at)
        at += len(line) + 1
    block.append(0)
    environ.value = block.buffer_info()[0]
    if 'TZ' in word['env']:
        time.tzset()
    sys.argv[:] = ['', word['script'], *word['args']]
    return text, block  # which live as long as the program
def rehearse(word):
    """What a run does is done once for nothing, so that what is made at its first use is there."""
    taken = take(word)
    with open(word['script'], 'rb', 0) as file:
        text = file.read() + b'import sys\nx = [str(i) for i in range(9)]\nprint(end="")\nx'
    space = {'__name__': ''}
    body, last, _ = compiled(text, word['script'])
    exec(body, space)
    repr(eval(last, space))
    return taken
def trial(word):
    import threading
    taken = rehearse(word)
    threading._shutdown()  # there is one thread; exit handlers might undo what other forks need
    let_go()
def end_fork(status):
    """Ends a fork as the interpreter would, but for taking apart what the template has put together."""
    if isinstance(status, SystemExit):
        status = status.code
        if status is not None and not isinstance(status, int):
            try:
                sys.stderr.write('%s\n' % (status,))
            except BaseException:
                pass
            status = 1
        elif status and not -1 << 63 <= status < 1 << 63:
            status = -1  # as the interpreter does
    import atexit, threading
    for last in (threading._shutdown, atexit._run_exitfuncs):
        try:
            last()
        except BaseException:
            pass  # it has been told
    let_go()
    os._exit((status or 0) & 0xff)
def let_go():
    import io, threading
    if threading.active_count() == 1:  # others would go on without their names
        main.clear()
        gc.collect()
    # What files and streams still hold, whoever has opened them.
    stream = io._io._IOBase  # not the abstract class above it, which asks Python code
    for thing in [sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__, *gc.get_objects()]:
        if issubclass(type(thing), stream):
            try:
                thing.flush()
            except Exception:
                pass
