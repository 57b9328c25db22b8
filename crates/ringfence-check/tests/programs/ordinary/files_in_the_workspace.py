# profiles: basic, data_science, network, filesystem, strict
with open("numbers.txt", "w") as file:
    for n in range(3):
        print(n, file=file)
with open("/tmp/numbers.txt", "w", encoding="utf-8") as file:
    file.write("x\n")
with open("numbers.txt") as file:
    print(sum(int(line) for line in file))
