# profiles: basic, data_science, network, filesystem, strict
from functools import cached_property, lru_cache, partial, reduce, singledispatch


@lru_cache(maxsize=None)
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


class Circle:
    def __init__(self, r):
        self.r = r

    @cached_property
    def area(self):
        return round(3.14159 * self.r ** 2, 2)


@singledispatch
def show(value):
    return "?"


@show.register(int)
def _(value):
    return "int"


print(fib(80), fib.cache_info().hits, Circle(2).area, reduce(lambda a, b: a * b, [1, 2, 3, 4]), partial(pow, 2)(5))
print(show(1), show("a"))
