# profiles: basic, data_science, network, filesystem, strict
def counter(start=0):
    value = start

    def step(by=1):
        nonlocal value
        value += by
        return value

    return step


total = 0


def add(n):
    global total
    total += n
    return total


c = counter(5)
print(c(), c(2), add(3), sorted("bca", key=lambda letter: -ord(letter)), (lambda x, y=2: x * y)(3))
print([f(3) for f in [lambda x, n=n: x + n for n in range(3)]])
