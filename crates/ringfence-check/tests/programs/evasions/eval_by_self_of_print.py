# refused: strict
print.__self__.eval("1+1")
