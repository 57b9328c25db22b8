# refused: strict
def outer(x):
    return lambda: x


outer(1).__closure__[0].cell_contents
