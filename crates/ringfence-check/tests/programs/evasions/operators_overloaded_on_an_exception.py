# refused: strict
class E(Exception):
    __add__ = eval


E() + "1+1"
