# profiles: basic, data_science, network, filesystem, strict
def leibniz(terms):
    total = 0.0
    for k in range(terms):
        total += (-1) ** k / (2 * k + 1)
    return 4 * total


print(f"{leibniz(10_000):.3f}")
