# refused: strict
import dataclasses
out = []
def cap(text, space=None, names=None):
    out.append(space)
    raise KeyError
dataclasses.exec = cap
try:
    @dataclasses.dataclass
    class C:
        __module__ = "os"
        x: int = 0
except KeyError: pass
out[0]["system"]("id")
