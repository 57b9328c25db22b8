# profiles: basic, data_science, network, filesystem, strict
import math


class Vector:
    __slots__ = ("x", "y")

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __add__(self, other):
        return Vector(self.x + other.x, self.y + other.y)

    def __mul__(self, factor):
        return Vector(self.x * factor, self.y * factor)

    __rmul__ = __mul__

    def __matmul__(self, other):
        return self.x * other.x + self.y * other.y

    def __eq__(self, other):
        return isinstance(other, Vector) and (self.x, self.y) == (other.x, other.y)

    def __hash__(self):
        return hash((self.x, self.y))

    def __abs__(self):
        return math.hypot(self.x, self.y)

    def __bool__(self):
        return self != Vector(0, 0)

    def __iter__(self):
        yield self.x
        yield self.y

    def __getitem__(self, at):
        return (self.x, self.y)[at]

    def __len__(self):
        return 2

    def __contains__(self, value):
        return value in (self.x, self.y)

    def __repr__(self):
        return f"Vector({self.x}, {self.y})"


v = Vector(3, 4)
print(v + v, 2 * v, v @ v, abs(v), bool(Vector(0, 0)), [*v], v[0], len(v), 3 in v, {v: 1}[Vector(3, 4)])
