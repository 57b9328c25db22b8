# refused: strict
eval = len
del eval
eval("1+1")
