# refused: strict
import random
class M(type):
    def __getattr__(cls, name):
        return ("__glo" + "bals__",)
    def __instancecheck__(cls, it):
        return True
class A(metaclass=M): pass
match random.Random.seed:
    case A(g): g["_os"].system("id")
