# refused: strict
def f(x, run=eval):
    return run(x)


f("1+1")
