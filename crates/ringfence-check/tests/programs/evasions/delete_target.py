# refused: strict
x = {}
del x["a" if True else eval("1")]
