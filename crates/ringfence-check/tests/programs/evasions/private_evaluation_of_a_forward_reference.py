# refused: strict
import typing
typing.Optional["[c for c in ().__class__.__base__.__subclasses__() if c.__name__=='_wrap_close'][0].__init__.__globals__['system']('id')"].__args__[0]._evaluate({}, {}, frozenset())
