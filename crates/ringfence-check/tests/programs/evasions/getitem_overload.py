# refused: strict
class A:
    __class_getitem__ = exec


A["print(1)"]
