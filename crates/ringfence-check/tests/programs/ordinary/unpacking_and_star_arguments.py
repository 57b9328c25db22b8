# profiles: basic, data_science, network, filesystem, strict
def show(first, /, second, *rest, third=3, **options):
    return first, second, rest, third, sorted(options.items())


head, *middle, tail = range(5)
(a, b), c = (1, 2), 3
print(head, middle, tail, a, b, c)
print(show(1, 2, *middle, third=4, **{"x": 1, "y": 2}))
print({**{"a": 1}, "b": 2}, [*range(3), *"ab"])
