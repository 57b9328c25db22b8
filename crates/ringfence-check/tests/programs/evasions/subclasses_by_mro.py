# refused: strict
"".__class__.__mro__[1].__subclasses__()
