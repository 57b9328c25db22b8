# refused: strict
try:
    raise ValueError
except eval("ValueError"):
    pass
