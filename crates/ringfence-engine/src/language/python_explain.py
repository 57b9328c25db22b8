def cleared(trace):
    """Removes the frames of the import hook from a traceback."""
    while trace and trace.tb_frame.f_code.co_filename == '<ringfence>':
        trace = trace.tb_next
    at = trace
    while at:
        while at.tb_next and at.tb_next.tb_frame.f_code.co_filename == '<ringfence>':
            at.tb_next = at.tb_next.tb_next
        at = at.tb_next
    return trace
def explain(error):
    if type(error) is NameError:
        missing = str(error).split("'")[1:2]
        cause = unpatched.get(missing[0]) if missing else None
        if cause is not None:
            # The import that was added for the name failed; its error is reported at the use of the name.
            error = cause.with_traceback(error.__traceback__)
            error.__cause__ = error.__context__ = None
    kind = type(error)
    trace = error.__traceback__
    # The driver's frames, and those of the event loop that it started, come before the caller's file.
    begin = trace
    while begin and begin.tb_frame.f_code.co_filename != script:
        begin = begin.tb_next
    trace = cleared(begin or trace)
    before, seen = error.__cause__ or error.__context__, set()
    while before is not None and id(before) not in seen and len(seen) < 100:
        before.__traceback__ = cleared(before.__traceback__)
        seen.add(id(before))
        before = before.__cause__ or before.__context__
    if isinstance(error, SyntaxError) and error.filename == script:
        trace = None
    error.__traceback__ = trace
    line = error.lineno if isinstance(error, SyntaxError) and error.filename == script else None
    own, name = (type.__dict__[name].__get__(kind) for name in ('__module__', '__qualname__'))
    if type(own) is str and own not in ('builtins', '__main__'):
        name = own + '.' + name
    try:
        message = str(error)
    except KeyboardInterrupt:
        raise
    except BaseException:
        message = '<unprintable %s>' % name
    try:
        import traceback
        text = ''.join(traceback.format_exception(kind, error, trace))
    except KeyboardInterrupt:
        raise
    except BaseException:
        text = '%s: %s\n' % (name, message)  # the program has broken the module, or its error
    while trace:
        if trace.tb_frame.f_code.co_filename == script:
            line = trace.tb_lineno
        trace = trace.tb_next
    if isinstance(error, SyntaxError) and line and (error.text or '').lstrip()[:1] in ('!', '%'):
        cure = 'A line that begins with ! or % is a command of IPython: leave it out, or have packages with `packages` or install_package.'
        message, text = '%s. %s' % (message, cure), '%s%s\n' % (text, cure)
    tell(b'E', name, 1024)
    tell(b'M', message, 65536)
    tell(b'T', text, 262144)
    if line:
        tell(b'L', str(line), 16)
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except KeyboardInterrupt:
        raise
    except BaseException:
        os.write(2, text.encode('utf-8', 'backslashreplace'))
