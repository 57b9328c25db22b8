# refused: strict
import functools
functools.reduce(getattr, ["__class__", "__base__"], ())
