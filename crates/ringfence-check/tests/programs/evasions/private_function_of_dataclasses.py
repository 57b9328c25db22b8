# refused: strict
import dataclasses
dataclasses._create_fn("f", [], ["return [c for c in ().__class__.__base__.__subclasses__() if c.__name__=='_wrap_close'][0].__init__.__globals__['system']('id')"])()
