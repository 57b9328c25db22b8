# refused: strict
f"{eval('1+1')}"
