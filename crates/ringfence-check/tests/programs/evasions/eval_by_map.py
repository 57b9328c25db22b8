# refused: strict
list(map(eval, ["1+1"]))
