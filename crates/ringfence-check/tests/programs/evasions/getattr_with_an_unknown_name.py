# refused: strict
name = "".join(x for x in input())
getattr((), name)
