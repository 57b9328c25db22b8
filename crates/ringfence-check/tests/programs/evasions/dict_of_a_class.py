# refused: strict
class A:
    secret = 1


A.__dict__["secret"]
