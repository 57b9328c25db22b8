# refused: strict
getattr(__builtins__, "ev" + "al")("1+1")
