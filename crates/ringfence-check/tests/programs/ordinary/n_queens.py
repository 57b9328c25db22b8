# profiles: basic, data_science, network, filesystem, strict
def queens(n, row=0, columns=(), diagonals=(), others=()):
    if row == n:
        return 1
    return sum(
        queens(n, row + 1, columns + (c,), diagonals + (row - c,), others + (row + c,))
        for c in range(n)
        if c not in columns and row - c not in diagonals and row + c not in others
    )


print(queens(6))
