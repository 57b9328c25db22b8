# refused: strict
vars(__builtins__)["ev" + "al"]("1+1")
