# The import hook: the modules that the caller's code may import, and its view of them. The calling frame decides
# whether the caller's code imports, or a library, which may import anything. It is advice to honest code and a second
# line of defence; code that manipulates the interpreter by reflection gets around it, and meets the kernel's walls.
REFUSALS_MAX = 100
OWN_FILE, FROZEN, PLAIN, WRITERS = '<ringfence>', '<frozen ', ('built-in', 'frozen'), ('patsy', 'scipy', 'sklearn', 'sympy')
# Hidden: ways around the hook, and attributes that would answer in a view's place.
HIDDEN = ('__builtins__', '__cached__', '__dir__', '__getattr__', '__loader__', '__spec__')
# Names that a module rebinds, which a copy would not see. For `sys` these are all that cannot be called.
LIVE = {'time': {'altzone', 'daylight', 'timezone', 'tzname'}, 'tempfile': {'tempdir'},
        'sys': {name for name in vars(sys) if not callable(getattr(sys, name))}}
modules, getframe, Module, builtins = sys.modules, sys._getframe, type(sys), sys.modules['builtins']
bootstrap, finder = sys.modules['_frozen_importlib'], sys.modules['_frozen_importlib_external'].PathFinder
machine = sys.modules['_imp']
original, dynamic, loaders = builtins.__import__, machine.create_dynamic, (builtins.__loader__, builtins.__spec__)
# `allowed`: None if nothing is refused.
allowed, parents, profile, script, own = None, (), '', None, '/'
# `late`: an interrupt arrived during the hook, and is meant for the caller's code.
late, hears, shown = False, False, ()
roots, views, behind, told = ('\0',), {}, {}, set()

class View(Module):
    """A module without forbidden attributes. As fast as a module, because its attributes are in its own dictionary."""
    __slots__ = ()
    def __setattr__(self, key, value):
        """Sets the attribute in the module too if it is a setting: functions of `tempfile` use `tempfile.tempdir = '/x'`.
        Functions and modules in the module are not replaced."""
        real, live, partial = behind.get(id(self), (None, (), True))
        if not partial and is_setting(real, key) and not callable(value) and type(value) is not View:
            setattr(real, key, value)
        if key not in live:
            Module.__setattr__(self, key, value)
    def __delattr__(self, key):
        real, live, partial = behind.get(id(self), (None, (), True))
        if not partial and is_setting(real, key):
            delattr(real, key)
        if key not in live:
            Module.__delattr__(self, key)
View.__name__ = View.__qualname__ = 'module'
View.__module__ = 'builtins'

def is_hidden(key):
    """Ways around the hook, and names that are private to the module."""
    return key in HIDDEN or key[:1] == '_' and key[:2] != '__'

def is_setting(real, key):
    value = vars(real).get(key, real)
    return key[:1] != '_' and not issubclass(type(value), Module) and not callable(value)

def may(name):
    """True for an allowed module and its submodules."""
    names = allowed
    while name and names is not None and name not in names:
        name = name.rpartition('.')[0]
    return bool(name)

def is_own(name):
    """True for a file of the caller. Its imports are restricted like the program's. It does not replace an installed
    module."""
    name = name.partition('.')[0]
    if not name or name in sys.builtin_module_names or bootstrap.FrozenImporter.find_spec(name):
        return False
    if finder.find_spec(name, [place for place in sys.path if place and not (place + '/').startswith(own)]):
        return False
    spec = finder.find_spec(name, [own])
    return spec is not None and (type(spec.origin) is str or spec.submodule_search_locations is not None)

def is_shelved(module):
    """True for a module of the interpreter or of an installed package. All others are the caller's own."""
    spec = getattr(module, '__spec__', None)
    origin = getattr(spec, 'origin', None)
    if type(origin) is str and origin != 'namespace':
        return origin in PLAIN or origin.startswith(roots)
    places = getattr(spec, 'submodule_search_locations', None)
    return any(str(place).startswith(roots) for place in places or ())

def is_library(frame):
    space, place = frame.f_globals, frame.f_code.co_filename
    name = dict.get(space, '__name__')
    if place.startswith(roots) or place.startswith(FROZEN):
        module = modules.get(name) if type(name) is str and name != '__main__' else None
        # A module may have replaced its entry in `sys.modules`.
        is_its = getattr(module, '__dict__', None) is space or \
            module is not None and dict.get(space, '__spec__', space) is getattr(module, '__spec__', None)
        return is_its and is_shelved(module)
    # These packages run generated source with imports; expressions of the caller that they evaluate have no statements.
    before = frame.f_back if place == '<string>' and frame.f_code.co_name == '<module>' else None
    if before is None or str(dict.get(before.f_globals, '__name__')).partition('.')[0] not in WRITERS:
        return False
    statement = original('opcode').opmap['IMPORT_NAME']
    return frame.f_code.co_code[frame.f_lasti] == statement and is_library(before)

def tell_of(name, frame):
    """Reports a refused import to the server."""
    line = None
    while frame is not None and line is None:
        line = frame.f_lineno if frame.f_code.co_filename == script else None
        frame = frame.f_back
    what = ''.join([letter if letter.isalnum() or letter in '._' else '?' for letter in name[:200]])
    if (what, line) not in told and len(told) < REFUSALS_MAX:
        told.add((what, line))
        tell(b'S', '{"rule":"blocked_import","what":"%s","line":%s}' % (what, 'null' if line is None else line), 1024)
        send()

def refusal(name, frame):
    """Reports a refusal to the server, and returns the message for the program."""
    tell_of(name, frame)
    if profile == 'unrestricted':
        return "ringfence: module '%s' is not in allowed_imports" % name
    return "ringfence: module '%s' is not in the profile %s (allowed_imports could name it)" % (name, profile)

def below(real, key, value, partial):
    """Returns the view of a module that is an attribute of another, or None if it is hidden."""
    path = '%s.%s' % (real.__name__, key)
    if allowed is None:
        return value
    if modules.get(path) is value and may(path) or may(str(vars(value).get('__name__', ''))):
        return view(value, False)
    return view(value, True) if partial and path in parents else None

def view(real, partial):
    """Returns the caller's view of a module; `partial`: only its submodules that may be imported."""
    if not issubclass(type(real), Module) or type(real) is View or not is_shelved(real):
        return real
    made = views.get((id(real), partial))
    if made is None:
        made = views[id(real), partial] = View(real.__name__, real.__doc__)
        behind[id(made)] = real, LIVE.get(real.__name__, ()), partial
        show(made, real, LIVE.get(real.__name__, ()), partial)
    return made

def show(made, real, live, partial):
    space = vars(made)
    if not partial:
        space.update(vars(real))
        for key in [key for key, value in space.items() if is_hidden(key) or issubclass(type(value), Module)]:
            del space[key]
        for key in live:
            space.pop(key, None)
    # A spec that loads nothing.
    spec, seen = real.__spec__, bootstrap.ModuleSpec(real.__name__, None, origin=real.__spec__.origin)
    seen.has_location = spec.has_location
    def lacks(key):
        return AttributeError("module '%s' has no attribute '%s'" % (real.__name__, key))
    def __getattr__(key):
        if allowed is not None and is_hidden(key):
            # A library that got the module from the caller's code may use its own private names.
            if key in HIDDEN or key not in vars(real) or not is_library(getframe(1)):
                value = vars(real).get(key)
                is_module = key not in HIDDEN and issubclass(type(value), Module)
                raise AttributeError(refusal(value.__name__, getframe(1))) if is_module else lacks(key)
            return vars(real)[key]
        if partial and allowed is not None:
            path = '%s.%s' % (real.__name__, key)
            if not may(path) and path not in parents:
                raise lacks(key) if key[:2] == '__' else AttributeError(refusal(real.__name__, getframe(1)))
        if real is sys and key == 'modules' and allowed is not None:
            return {name: view(module, False) for name, module in list(modules.items()) if may(name)}
        value = getattr(real, key, made)
        if value is made:
            raise lacks(key)  # not chained to the interpreter's error, which holds the module
        if not issubclass(type(value), Module):
            if not partial and not is_hidden(key) and key not in live and real is not sys and vars(real).get(key, made) is value:
                space[key] = value
            return value
        child = below(real, key, value, partial)
        if child is None:
            raise AttributeError(refusal(str(vars(value).get('__name__', key)), getframe(1)))
        if allowed is not None:
            space[key] = child
        return child
    def __dir__():
        real_names = vars(real)
        return [key for key in sorted({*space, *(() if partial else dir(real))}) if not is_hidden(key) and (
                key in space or not issubclass(type(real_names.get(key)), Module)
                or below(real, key, real_names[key], partial) is not None)]
    space.update(__spec__=seen, __loader__=None, __getattr__=__getattr__, __dir__=__dir__)
    if real.__name__ == 'importlib':
        space.update(__import__=imported, import_module=import_module)

def unfold(made):
    """Adds the submodules that `from module import *` binds."""
    real, _, partial = behind[id(made)]
    names = vars(real).get('__all__')
    for key in [key for key in dir(real) if key[:1] != '_'] if names is None else list(names):
        value = vars(real).get(key)
        if key not in vars(made) and issubclass(type(value), Module):
            child = below(real, key, value, partial)
            if child is not None:
                vars(made)[key] = child
            elif names is not None:
                vars(made)['__all__'] = [each for each in vars(made)['__all__'] if each != key]

def know_views(dataclasses):
    """dataclasses compares modules to recognize annotations as text, `typing.ClassVar[int]`; also with their views."""
    plain = getattr(dataclasses, '_is_type', None)
    if plain is not None and plain.__code__.co_filename != OWN_FILE:
        def _is_type(annotation, cls, module, *rest):
            return plain(annotation, cls, module, *rest) or plain(annotation, cls, view(module, False), *rest)
        dataclasses._is_type = _is_type

def absolute(name, space, level):
    if not level:
        return name
    package = bootstrap._calc___package__(space)
    bootstrap._sanity_check(name, package, level)
    return bootstrap._resolve_name(name, package, level)

def give(name, names, frame):
    """Imports a module for the caller's code."""
    is_whole = may(name) or is_own(name)
    if not is_whole and not (names and name in parents and all(may('%s.%s' % (name, each)) for each in names)):
        raise ImportError(refusal(name, frame), name=name)
    found = original(name, None, None, names, 0)
    if name == 'dataclasses' and is_shelved(found):
        know_views(found)
    if not names:
        top = name.partition('.')[0]
        return view(found, not may(top) and not is_own(top))
    made = view(found, not is_whole)
    if type(made) is View:
        for each in names:
            if each == '*':
                unfold(made)
            elif each not in vars(made) and issubclass(type(vars(found).get(each)), Module):
                child = below(found, each, vars(found)[each], not is_whole)
                if child is None:
                    what = str(vars(vars(found)[each]).get('__name__', each))
                    raise ImportError(refusal(what, frame), name=name)
                if allowed is not None:
                    vars(made)[each] = child
    return made

def imported(name, globals=None, locals=None, fromlist=(), level=0):
    global late
    frame = getframe(1)
    # A library imports by a statement or call in its own code; it may also have got this function as a callback.
    asks = globals is frame.f_globals or '__import__' in frame.f_code.co_names
    if allowed is None or asks and is_library(frame):
        return original(name, globals, locals, fromlist, level)
    name, names = absolute(name, globals or {}, level), tuple(fromlist or ())
    if any(type(each) is not str for each in (name, *names)):
        raise TypeError('what is imported is named by text')
    if not names and type(fromlist) is list and not may(name):
        # A C function of the interpreter, such as strptime, was called by the caller's code, and takes the module from
        # `sys.modules`. Any other caller gets an empty view.
        original(name, None, None, fromlist, 0)
        return view(modules.get(name), True)
    try:
        return give(name, names, frame)
    finally:
        if late:
            late = False
            raise KeyboardInterrupt
imported.__name__ = imported.__qualname__ = '__import__'

def import_module(name, package=None):
    """Replaces importlib's function."""
    if allowed is None:
        return original('importlib').import_module(name, package)
    level = len(name) - len(name.lstrip('.'))
    name = absolute(name[level:], {'__package__': package}, level)
    if not may(name) and not is_own(name):
        raise ImportError(refusal(name, getframe(1)), name=name)
    original(name, None, None, (), 0)
    return view(modules[name], False)

def create_dynamic(spec, *file):
    """Every import of native code calls this. Native code is not restricted by the hook, so the caller's own is never
    loaded, no matter what imports it."""
    name, origin = getattr(spec, 'name', None), getattr(spec, 'origin', None)
    is_plain = type(spec) is bootstrap.ModuleSpec and type(name) is str and type(origin) is str
    if allowed is None or is_plain and origin.startswith(roots) and '/../' not in origin:
        return dynamic(spec, *file)
    tell_of(str(name), getframe(1))
    raise ImportError("ringfence: module '%s' is native code, and only that of installed modules is loaded" % name, name=name)

def opened(event, given):
    """Under the profile `strict` the caller's code opens only /dev/null and files in its workspace, the temporary and
    output directories and the directory of the code. Files that libraries open are not restricted."""
    if event != 'open' or profile != 'strict' or allowed is None or type(given[0]) is int or is_library(getframe(1)):
        return
    path = modules['os'].path.realpath(modules['os'].fsdecode(given[0]))
    if not path.startswith(shown):
        raise PermissionError(13, 'outside the workspace', given[0])

def prepare(names):
    """Makes views of imported modules in advance."""
    find_roots()
    for name in names:
        view(modules[name], False)

def find_roots():
    """Finds the library directories: entries of `sys.path` in the interpreter's own directories."""
    global roots
    own = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    own = tuple([place.rstrip('/') + '/' for place in own])
    places = [place.rstrip('/') + '/' for place in sys.path if type(place) is str and place.startswith(own)]
    roots = (*places, modules['os'].__file__.rpartition('/')[0] + '/')

def begin(names, of_profile, of_script, here, packages):
    """Restricts the caller's code to these modules from now on."""
    global allowed, parents, profile, script, own, original, dynamic, told, roots, late, hears, shown
    if packages or len(roots) == 1:
        find_roots()
        roots += (packages + '/',) if packages else ()
    # The workspace may be inside one of them.
    roots = tuple([place for place in roots if not place.startswith(here + '/')])
    above = set()
    for name in names:
        at = name.rfind('.')
        while at > 0:
            name = name[:at]
            above.add(name)
            at = name.rfind('.')
    profile, script, told, parents, allowed = of_profile, of_script, set(), above, {'__future__', *names}
    late, own = False, here + '/'
    places = [modules['os'].environ.get(name) for name in ('TMPDIR', 'RINGFENCE_OUTPUT_DIR')]
    places.append(of_script.rpartition('/')[0])  # the directory of the code
    shown = (own, '/dev/null', *[place + '/' for place in places if place])
    if builtins.__import__ is not imported:
        original, builtins.__import__ = builtins.__import__, imported
    if machine.create_dynamic is not create_dynamic:
        dynamic, machine.create_dynamic = machine.create_dynamic, create_dynamic
    builtins.__loader__ = builtins.__spec__ = None
    if of_profile == 'strict' and not hears:
        hears = True
        sys.addaudithook(opened)

def end():
    """Lifts the restriction. Views that were handed out stay, and show everything."""
    global allowed
    allowed = None
    builtins.__loader__, builtins.__spec__ = loaders
    # A program may have installed its own function, which calls this one.
    if builtins.__import__ is imported:
        builtins.__import__ = original
    if machine.create_dynamic is create_dynamic:
        machine.create_dynamic = dynamic
