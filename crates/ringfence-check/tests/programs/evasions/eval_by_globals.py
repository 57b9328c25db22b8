# refused: strict
globals()["__builtins__"].eval("1+1")
