# refused: strict
[b for b in (__builtins__,)][0]
