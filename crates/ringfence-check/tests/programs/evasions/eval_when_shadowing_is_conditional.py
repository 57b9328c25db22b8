# refused: strict
if not True:
    eval = len
eval("1+1")
