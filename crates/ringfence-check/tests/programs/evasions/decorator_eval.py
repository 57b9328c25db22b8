# refused: strict
@eval
@str
@lambda f: "print(1)"
def f():
    pass
