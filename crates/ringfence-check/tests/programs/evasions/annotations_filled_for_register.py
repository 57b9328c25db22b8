# refused: strict
import functools
@functools.singledispatch
def f(x): pass
def g(x): pass
g.__annotations__["x"] = "__import__('o" + "s').system('id')"
try:
    f.register(g)
except TypeError:
    pass
