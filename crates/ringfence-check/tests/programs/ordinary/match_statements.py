# profiles: basic, data_science, network, filesystem, strict
from dataclasses import dataclass


@dataclass
class Point:
    x: int
    y: int


def describe(value):
    match value:
        case 0 | 1:
            return "bit"
        case int(n) if n < 0:
            return f"negative {n}"
        case Point(x=0, y=y):
            return f"on the axis at {y}"
        case Point(x, y):
            return f"at {x}, {y}"
        case [first, *rest]:
            return f"{first} and {len(rest)} more"
        case {"kind": kind, **others}:
            return f"{kind} with {sorted(others)}"
        case str() as text:
            return text.upper()
        case None:
            return "nothing"
        case _:
            return "something"


for value in (1, -4, Point(0, 2), Point(1, 2), [1, 2, 3], {"kind": "k", "a": 1}, "x", None, 2.5):
    print(describe(value))
