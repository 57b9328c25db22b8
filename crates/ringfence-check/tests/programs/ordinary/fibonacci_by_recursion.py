# profiles: basic, data_science, network, filesystem, strict
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


print([fib(n) for n in range(15)])
