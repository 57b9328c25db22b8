# profiles: basic, data_science, network, filesystem, strict
def valid(rows):
    units = rows + [list(column) for column in zip(*rows)]
    return all(len(set(unit)) == len(unit) for unit in units)


print(valid([[1, 2], [2, 1]]), valid([[1, 2], [1, 2]]))
