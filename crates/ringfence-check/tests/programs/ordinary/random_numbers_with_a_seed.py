# profiles: basic, data_science, network, filesystem, strict
import random

random.seed(42)
rng = random.Random(7)
numbers = [rng.randint(1, 6) for _ in range(5)]
print(len(numbers), rng.choice("abc") in "abc", sorted(random.sample(range(10), 3))[0] >= 0)
random.shuffle(numbers)
print(all(1 <= n <= 6 for n in numbers), 0 <= random.gauss(0.5, 0.01) <= 1)
