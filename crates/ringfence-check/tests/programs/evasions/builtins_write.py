# refused: strict
__builtins__.print = lambda *a: None
