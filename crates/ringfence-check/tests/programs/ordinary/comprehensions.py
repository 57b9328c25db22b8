# profiles: basic, data_science, network, filesystem, strict
matrix = [[1, 2, 3], [4, 5, 6]]
print([[row[i] for row in matrix] for i in range(3)])
print({word: len(word) for word in "to be or not".split()})
print({x % 3 for x in range(10) if x % 2})
print(sum(x * y for x in range(3) for y in range(3) if x != y))
print([y := 1, y ** 2], [last := n for n in range(3)], last)
