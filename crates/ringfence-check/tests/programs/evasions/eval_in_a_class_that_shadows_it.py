# refused: strict
class A:
    x = eval("1+1")
    eval = 1
