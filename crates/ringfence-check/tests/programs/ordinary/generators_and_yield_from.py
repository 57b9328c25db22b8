# profiles: basic, data_science, network, filesystem, strict
from itertools import count, islice


def primes():
    found = []
    for n in count(2):
        if all(n % p for p in found):
            found.append(n)
            yield n


def flatten(items):
    for item in items:
        if isinstance(item, list):
            yield from flatten(item)
        else:
            yield item


def averager():
    total, n, mean = 0, 0, None
    while True:
        value = yield mean
        if value is None:
            return total
        total += value
        n += 1
        mean = total / n


a = averager()
next(a)
print(list(islice(primes(), 10)), list(flatten([1, [2, [3, 4]], 5])), a.send(3), a.send(5))
a.close()
