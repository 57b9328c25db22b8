# refused: strict
class A:
    locals()["x"] = 1
