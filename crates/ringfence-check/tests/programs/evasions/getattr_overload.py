# refused: strict
class A:
    __getattr__ = __import__


A().os
