# refused: strict
eval("1+1")
eval = None
