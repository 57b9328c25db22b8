# refused: strict
getattr(getattr((), "__cl" + "ass__"), "__ba" + "se__")
