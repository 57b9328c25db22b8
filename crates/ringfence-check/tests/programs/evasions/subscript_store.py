# refused: strict
x = {}
x[eval("1")] = 1
