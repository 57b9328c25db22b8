# refused: strict
(eval if True else print)("1+1")
