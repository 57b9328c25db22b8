# profiles: basic, data_science, network, filesystem, strict
from collections import Counter


def step(cells):
    near = Counter((x + dx, y + dy) for x, y in cells for dx in (-1, 0, 1) for dy in (-1, 0, 1) if dx or dy)
    return {cell for cell, n in near.items() if n == 3 or (n == 2 and cell in cells)}


glider = {(1, 0), (2, 1), (0, 2), (1, 2), (2, 2)}
for _ in range(4):
    glider = step(glider)
print(sorted(glider))
