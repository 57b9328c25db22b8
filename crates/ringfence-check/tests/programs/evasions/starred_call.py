# refused: strict
print(*[eval("1+1")])
