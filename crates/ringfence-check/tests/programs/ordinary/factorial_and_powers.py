# profiles: basic, data_science, network, filesystem, strict
def factorial(n: int) -> int:
    return 1 if n <= 1 else n * factorial(n - 1)


total = 0
for n in range(1, 6):
    total += factorial(n)
    total -= n ** 2
    total *= 2
    total //= 2
    total |= 1
print(total)
