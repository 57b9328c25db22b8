# refused: strict
import dataclasses
class C:
    __module__ = "os"
dataclasses._is_type("system", C, dataclasses, C, lambda a, b: a("id"))
