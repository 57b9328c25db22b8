# refused: strict
import random
s = "".join(map(chr, [123, 48, 46])) + "__glo" + "bals__[_os].nope}"
try:
    list(map(type("").format, [s], [random.Random.seed]))
except AttributeError as e:
    print(e.obj)
