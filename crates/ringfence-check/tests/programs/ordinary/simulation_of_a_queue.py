# profiles: basic, data_science, network, filesystem, strict
import random
from collections import deque
from dataclasses import dataclass


@dataclass
class Customer:
    arrival: int
    service: int


rng = random.Random(1)
line, clock, served = deque(), 0, []
for minute in range(30):
    if rng.random() < 0.5:
        line.append(Customer(minute, rng.randint(1, 3)))
    if line and clock <= minute:
        customer = line.popleft()
        clock = minute + customer.service
        served.append(minute - customer.arrival)
print(len(served) > 0, min(served) >= 0)
