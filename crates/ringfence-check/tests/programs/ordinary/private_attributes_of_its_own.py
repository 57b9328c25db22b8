# profiles: basic, data_science, network, filesystem, strict
from collections import namedtuple
from dataclasses import dataclass, field
from enum import Enum
from html.parser import HTMLParser


class Account:
    _opened = 0

    def __init__(self, owner, balance=0):
        self.__balance = balance
        self._owner = owner
        type(self)._opened += 1

    def __eq__(self, other):
        return self._owner == other._owner and self.__balance == other.__balance

    @property
    def balance(self):
        return self.__balance


@dataclass
class Cart:
    _items: list = field(default_factory=list, repr=False)

    def merged(self, other):
        return Cart(self._items + other._items)


class Colour(Enum):
    _ignore_ = ["shade"]
    RED = "r"
    GREEN = "g"

    @classmethod
    def _missing_(cls, value):
        return cls.RED


class Links(HTMLParser):
    def __init__(self):
        super().__init__()
        self._found = []

    def handle_starttag(self, tag, attrs):
        self._found.append((tag, dict(attrs)))


def counted(function):
    def inner(*arguments):
        inner._calls += 1
        return function(*arguments)

    inner._calls = 0
    return inner


@counted
def square(x):
    return x * x


Point = namedtuple("Point", "x y")
point = Point(1, 2)
links = Links()
links.feed("<a href='x'>y</a>")
square(2), square(3)
print(Account("a", 1) == Account("a", 1), Account("b", 2)._Account__balance, Account._opened)
print(Cart([1]).merged(Cart([2])), Colour("z"), "r" in Colour._value2member_map_)
print(point._asdict(), point._replace(x=3), Point._fields, links._found, square._calls)
