# refused: strict
e = eval
e("1+1")
