# profiles: basic, data_science, network, filesystem, strict
def inside(c, limit=30):
    z = 0j
    for _ in range(limit):
        z = z * z + c
        if abs(z) > 2:
            return False
    return True


for y in range(-4, 5):
    print("".join("*" if inside(complex(x / 10, y / 4)) else " " for x in range(-20, 6)))
