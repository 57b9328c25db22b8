# refused: strict
assert True, eval("1+1")
