# refused: strict
__builtins__.__dict__["eval"]("1+1")
