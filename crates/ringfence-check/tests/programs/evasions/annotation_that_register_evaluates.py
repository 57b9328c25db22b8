# refused: strict
import functools
@functools.singledispatch
def f(x): pass
try:
    @f.register
    def g(x: "[c for c in ().__class__.__base__.__subclasses__() if c.__name__=='_wrap_close'][0].__init__.__globals__['system']('id')"): pass
except TypeError: pass
