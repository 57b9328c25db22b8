# refused: strict
def a():
    def b():
        def c():
            return ().__class__.__bases__
        return c
    return b


a()()()
