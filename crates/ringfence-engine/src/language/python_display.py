import binascii, json, os
FIGURES, TEXT, TEXTS = 16, 1 << 18, 1 << 20
MIMES = {'png': 'image/png', 'jpeg': 'image/jpeg', 'svg': 'image/svg+xml', 'html': 'text/html',
         'markdown': 'text/markdown', 'latex': 'text/latex', 'json': 'application/json'}
ENDINGS = {'jpeg': 'jpg', 'markdown': 'md', 'latex': 'tex'}
PICTURES = ('png', 'jpeg')
def keep(stem, form, write):
    """Writes a file with a new name into the output directory, and reports it."""
    for number in range(1, 10000):
        name = '%s-%d.%s' % (stem, number, ENDINGS.get(form, form))
        path = os.path.join(output, name)
        try:
            file = open(path, 'xb')
        except FileExistsError:
            continue
        try:
            with file:
                write(file)
        except BaseException:
            os.unlink(path)
            raise
        return tell(b'A', '%s\noutput/%s' % (MIMES[form], name), 4096)
def attempt(step, *words):
    """Calls code of the program. Its errors are ignored, because the run has ended."""
    try:
        return step(*words)
    except BaseException:
        return None
def ask(value, form):
    """One form of a value, as bytes, or None if it has no such form. Looked up on its type, as notebooks do."""
    data = getattr(type(value), '_repr_%s_' % form)(value)
    if type(data) is tuple and len(data) == 2:
        data = data[0]  # the other half is metadata
    if form == 'json' and isinstance(data, (dict, list)):
        data = json.dumps(data, allow_nan=False)
    if isinstance(data, str):
        return binascii.a2b_base64(data) if form in PICTURES else data.encode('utf-8', 'backslashreplace')
    return bytes(data) if isinstance(data, (bytes, bytearray)) else None
def show(value, forms, plot):
    room = TEXTS
    for form in forms:
        data = attempt(ask, value, form)
        if not data:
            continue
        if form in PICTURES or len(data) > min(TEXT, room):
            attempt(keep, 'display', form, lambda file: file.write(data))
        else:
            room -= len(data)
            tell(b'D', MIMES[form] + '\n' + data.decode('utf-8', 'replace'), TEXT + 64)
    for number in plot.get_fignums()[:FIGURES] if plot else ():
        attempt(lambda: keep('figure', 'png', lambda file: plot.figure(number).savefig(file, format='png')))
