# refused: strict
@exec
@input
class X:
    pass
