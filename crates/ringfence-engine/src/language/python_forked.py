# A fork of a template, before and after its program; also for an interpreter that was started before its claim.
import ctypes, gc, time
from array import array
environ = ctypes.c_void_p.in_dll(ctypes.CDLL(None), 'environ')
def take(word):
    """Applies the message for an interpreter that was started before its claim."""
    env = {name.encode(): text.encode() for name, text in word['env'].items()}
    os.environ._data.clear()
    os.environ._data.update(env)
    # Replaced as a whole, because setenv(3) searches all variables for each.
    lines = [name + b'=' + text for name, text in env.items()]
    text = b'\0'.join(lines) + b'\0'
    # The address of the bytes: behind the object's header, without the terminating zero.
    at, block = id(text) + bytes.__basicsize__ - 1, array('Q')
    for line in lines:
        block.append(at)
        at += len(line) + 1
    block.append(0)
    environ.value = block.buffer_info()[0]
    if 'TZ' in word['env']:
        time.tzset()
    sys.argv[:] = ['', word['script'], *word['args']]
    return text, block  # kept alive as long as the program
def rehearse(word):
    """Does the work of a run once, so that everything that is made at its first use exists."""
    taken = take(word)
    with open(word['script'], 'rb', 0) as file:
        text = file.read() + b'import sys\nx = [str(i) for i in range(9)]\nprint(end="")\nx'
    space = {'__name__': ''}
    body, last, _ = compiled(text, word['script'])
    exec(body, space)
    repr(eval(last, space))
    return taken
def trial(word):
    taken = rehearse(word)
    wait_for_threads()  # there is one; exit handlers might undo setup that other forks need
    let_go()
def wait_for_threads():
    """Waits as the interpreter does at its end. With nothing to wait for, that only writes to pages of the template."""
    import _thread, threading
    if _thread._count() or getattr(threading, '_threading_atexits', True):
        threading._shutdown()
def end_fork(status):
    """Ends a fork as the interpreter would, but without tearing down the template's modules."""
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
    import atexit
    for last in (wait_for_threads, atexit._run_exitfuncs):
        try:
            last()
        except BaseException:
            pass  # it has been reported
    let_go()
    os._exit((status or 0) & 0xff)
def let_go():
    import io, threading
    if threading.active_count() == 1:  # other threads would lose their global names
        main.clear()
        gc.collect()
    # Flushes buffered files and streams, including those that libraries opened.
    stream = io._io._IOBase  # not the abstract class above it, which asks Python code
    for thing in [sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__, *gc.get_objects()]:
        if issubclass(type(thing), stream):
            try:
                thing.flush()
            except Exception:
                pass
