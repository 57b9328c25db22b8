# refused: strict
import random, abc
class A(abc.ABC):
    __match_args__ = ("__glo" + "bals__",)
A.register(type(random.Random.seed))
match random.Random.seed:
    case A(g): g["_os"].system("id")
