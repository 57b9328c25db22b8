# refused: strict
getattr((), "__ssalc__"[::-1])
