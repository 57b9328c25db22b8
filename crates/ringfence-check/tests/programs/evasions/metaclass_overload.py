# refused: strict
class M(type):
    __getitem__ = lambda self, x: exec(x)


class A(metaclass=M):
    pass


A["print(1)"]
