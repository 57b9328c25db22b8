# refused: strict
x: eval("1+1") = 1
