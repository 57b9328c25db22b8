# refused: strict
import collections
A = collections.namedtuple("A", "a")
A._make.__func__.__globals__["_sys"].modules["os"].system("id")
