# profiles: basic, data_science, network, filesystem, strict
def multiply(a, b):
    return [[sum(x * y for x, y in zip(row, column)) for column in zip(*b)] for row in a]


def determinant(m):
    if len(m) == 1:
        return m[0][0]
    return sum((-1) ** i * m[0][i] * determinant([row[:i] + row[i + 1:] for row in m[1:]]) for i in range(len(m)))


print(multiply([[1, 2], [3, 4]], [[1, 0], [0, 1]]), determinant([[2, 0, 1], [1, 3, 2], [1, 1, 1]]))
