# refused: strict
[eval][0]("1+1")
