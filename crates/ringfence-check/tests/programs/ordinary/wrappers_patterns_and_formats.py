# profiles: basic, data_science, network, filesystem, strict
import functools
from dataclasses import dataclass
from functools import update_wrapper, wraps


class Point:
    __match_args__ = ("x", "y")

    def __init__(self, x, y):
        self.x, self.y = x, y


@dataclass
class Circle:
    centre: Point
    radius: float


def area(shape):
    match shape:
        case Circle(Point(0, 0), r):
            return f"{3.14 * r * r:.1f} in the middle"
        case Circle(Point(x, y), radius=r):
            return "{:.1f} at {}, {}".format(3.14 * r * r, x, y)
        case int(n) | float(n):
            return n * n
        case [Point(x, _), *_]:
            return x
    return None


def logged(function):
    @wraps(function)
    def inner(*arguments, **names):
        return function(*arguments, **names)

    return inner


class Counted:
    def __init__(self, function):
        update_wrapper(self, function)
        self.function = function
        self.count = 0

    def __call__(self, *arguments):
        self.count += 1
        return self.function(*arguments)


class Picture:
    def __init__(self, format):
        self.format = format


@Counted
@logged
def add(a, b):
    """Adds."""
    return a + b


plain = functools.wraps(add, assigned=("__name__", "__doc__"), updated=())(lambda: None)
row = "{:>6}".format
template = "{name}: {size}"
print(area(Circle(Point(0, 0), 1)), area(Circle(Point(1, 2), 1)), area(3), area([Point(5, 6)]), area(""))
print(add(1, 2), add.count, add.__name__, plain.__doc__, row(1), list(map("{:.2f}".format, [1.5, 2])))
print(template.format(name="a", size=1), Picture("png").format, sorted(["b", "a"], key=str.lower))
