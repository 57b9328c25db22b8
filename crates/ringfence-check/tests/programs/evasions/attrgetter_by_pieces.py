# refused: strict
from operator import attrgetter as a
a("__cl" + "ass__")(())
